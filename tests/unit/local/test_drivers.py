"""Drivers that are started before their job, with a small program in place of Spark."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from slackwater.local.emr import runner, spark
from slackwater.local.emr.billing import Worker
from slackwater.local.emr.drivers import StartedDrivers, fits
from slackwater.local.emr.runner import SparkRunner
from slackwater.local.emr.store import Application, EmrStore, JobRun
from slackwater.local.emr.submit import DRIVER_ENVIRONMENT, Submission

pytestmark = pytest.mark.unit

CAPACITY = {"Driver": {"workerCount": 1, "workerConfiguration": {"cpu": "1 vCPU", "memory": "4 GB"}}}
SMALL = {"spark.driver.cores": "1", "spark.driver.memory": "3g"}
SUBMIT = f"""#!{sys.executable}
import json, os, sys
secrets = lambda: os.path.exists(os.path.expanduser("~/.aws/credentials"))
if "{spark.TRAINING_JOB}" in sys.argv:
    print("trained", secrets(), flush=True)
    os.mkfifo(sys.argv[-1])
    job = json.loads(open(sys.argv[-1]).read())
    print("started before", job["command"][1:], job["conf"], job["environment"], secrets())
else:
    print("of its own", sys.argv[-1], secrets())
"""


@pytest.fixture
def emr(tmp_path, monkeypatch):
    """A started application with one pre-initialised driver, and the runner of its jobs."""
    submit = spark.job_home(tmp_path / "jars") / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(SUBMIT)
    submit.chmod(0o755)
    monkeypatch.setattr(runner, "_fetch", lambda uri, folder, _: folder / uri.rsplit("/", 1)[1])
    (tmp_path / "jars" / "any.jar").touch()
    emr = Emr(tmp_path)
    yield emr
    emr.drivers.close()


class Emr:
    def __init__(self, root) -> None:
        self.store, self.folder = EmrStore(), root / "emr"
        settings = {"initialCapacity": CAPACITY, "autoStopConfiguration": {"idleTimeoutMinutes": 15}}
        self.application = Application("app", "0", "us-east-1", settings, {}, "token", state="STARTED")
        self.store.applications["app"] = self.application
        self.job = JobRun("job", "app", "arn", "0", {}, "emr-spark-8.1.0", {}, state="SUCCESS")
        self.store.job_runs["job"] = self.job
        files = {"endpoint": "http://127.0.0.1:1", "jars": root / "jars", "folder": self.folder}
        self.drivers = StartedDrivers(self.store, **files)
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        self.runner = SparkRunner(**files, credentials=lambda _: keys, drivers=self.drivers)

    def waiting(self) -> list[str]:
        """Names of the folders of all started drivers, once they wait for a job."""
        self.drivers.adjust()
        started = sorted(self.folder.glob("driver-*"))
        deadline = time.monotonic() + 10
        while not all((folder / "job").exists() for folder in started):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return [folder.name for folder in started]

    def run(self, **conf: str) -> str:
        """Run a job; return what it printed."""
        submission = Submission("s3://code/job.py", ["x"], {**SMALL, **conf})
        result = self.runner.run("job", submission, log_prefix=None, stop=threading.Event())
        assert result.exit_code == 0, (self.folder / "job" / "stderr").read_text()
        return (self.folder / "job" / "stdout").read_text()


def test_a_started_driver_runs_one_job_and_is_replaced(emr):
    first = emr.waiting()
    conf = {"spark.app.name": "job", **SMALL, f"{DRIVER_ENVIRONMENT}PYTHONPATH": "./environment"}
    printed = emr.run(**{f"{DRIVER_ENVIRONMENT}PYTHONPATH": "./environment"})
    # Its log is the log of the job only. Only the job has credentials.
    assert printed == f"started before ['x'] {conf} {{'PYTHONPATH': './environment'}} True\n"
    assert sorted(path.name for path in emr.folder.iterdir()) == ["job"]
    assert not (emr.folder / "job" / ".aws" / "credentials").exists()
    second = emr.waiting()
    assert len(second) == 1
    assert second != first


def test_a_driver_waits_without_credentials(emr):
    [name] = emr.waiting()
    assert (emr.folder / name / "stdout").read_text() == "trained False\n"


def test_a_job_without_a_started_driver_starts_its_own(emr):
    assert emr.run() == "of its own x True\n"


def test_a_driver_that_was_killed_is_not_used_and_is_replaced(emr):
    [name] = emr.waiting()
    process = emr.drivers._drivers["app"][0].process
    process.kill()
    process.wait()
    assert emr.run() == "of its own x True\n"
    assert emr.waiting() != [name]


def test_a_driver_that_ends_when_its_job_comes_leaves_the_job_to_a_new_one(emr):
    emr.waiting()
    driver = emr.drivers._drivers["app"][0]
    move = driver.move

    def end(folder) -> None:
        move(folder)
        driver.process.kill()
        driver.process.wait()
        (folder / "job").unlink()

    driver.move = end
    assert emr.run() == "of its own x True\n"


def test_drivers_that_cannot_start_are_tried_again_when_the_application_is_started_again(emr, tmp_path):
    submit = spark.job_home(tmp_path / "jars") / "bin" / "spark-submit"
    submit.write_text("#!/bin/sh\nexit 1\n")
    emr.drivers.adjust()
    emr.drivers._drivers["app"][0].process.wait()
    assert emr.waiting() == []
    submit.write_text(SUBMIT)
    assert emr.waiting() == []
    for state in ("STOPPED", "STARTED"):
        emr.application.state = state
        waiting = emr.waiting()
    assert len(waiting) == 1


@pytest.mark.parametrize("change", ["busy", "stopped", "without capacity"])
def test_no_driver_is_started_while_a_job_runs_or_for_an_application_that_wants_none(emr, change):
    if change == "busy":
        emr.job.state = "RUNNING"
    elif change == "stopped":
        emr.application.state = "STOPPED"
    else:
        emr.application.settings["initialCapacity"] = {}
    assert emr.waiting() == []


def test_an_idle_application_stops_and_its_drivers_are_closed(emr):
    emr.waiting()
    process = emr.drivers._drivers["app"][0].process
    emr.application.idle_since -= 15 * 60
    assert emr.waiting() == []
    assert emr.application.state == "STOPPED"
    assert process.poll() is not None


def test_what_a_killed_cloud_left_is_removed(emr):
    (emr.folder / "driver-old").mkdir(parents=True)
    emr.drivers.close()
    emr.drivers.run()
    assert list(emr.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("conf", "suits"),
    [
        ({}, True),
        ({"spark.sql.shuffle.partitions": "8", "spark.archives": "s3://code/a.zip#a"}, True),
        ({f"{DRIVER_ENVIRONMENT}PYSPARK_PYTHON": sys.executable}, True),
        ({f"{DRIVER_ENVIRONMENT}PYSPARK_PYTHON": "python3.99"}, False),
        ({"spark.pyspark.driver.python": "./environment/bin/python"}, False),
        ({f"{DRIVER_ENVIRONMENT}OTHER": "1"}, False),
        ({"spark.driver.memory": "4g"}, False),
        ({"spark.driver.cores": "2"}, False),
        ({"spark.emr-serverless.driver.disk": "200g"}, False),
        ({"spark.driver.extraJavaOptions": "-Xss4m"}, False),
        ({"spark.jars": "s3://code/a.jar"}, False),
        ({"spark.submit.pyFiles": "s3://code/a.py"}, False),
        ({"spark.hadoop.fs.s3a.threads.max": "5"}, False),
    ],
)
def test_a_job_needs_a_driver_of_its_own_for_what_a_jvm_reads_when_it_starts(conf, suits):
    assert fits(Submission("s3://code/job.py", [], {**SMALL, **conf}), Worker(1, 4, 20)) is suits


def test_a_program_in_java_needs_a_driver_of_its_own():
    assert not fits(Submission("s3://code/job.jar", [], dict(SMALL), main_class="Main"), Worker(1, 4, 20))
