"""Drivers that wait for jobs, with small programs in place of Spark's JVM and of the program that connects to it."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from slackwater.local.emr import drivers, runner, spark
from slackwater.local.emr.billing import Worker
from slackwater.local.emr.drivers import INPUT_BYTES, Drivers, Size, fits, size_of
from slackwater.local.emr.jobs import JobRuns
from slackwater.local.emr.runner import SparkRunner
from slackwater.local.emr.store import Application, EmrStore, JobRun
from slackwater.local.emr.submit import DRIVER_ENVIRONMENT, Submission
from slackwater.local.emulator import Scope
from slackwater.local.fork_server import ForkServers
from slackwater.local.unpacked import Unpacked
from tests.fakes_local import end_fork_servers, workers

pytestmark = pytest.mark.unit

SMALL = {"spark.driver.cores": "1", "spark.driver.memory": "3g"}
OWN = {"spark.driver.extraJavaOptions": "-Xss4m"}
"""With it a job needs a JVM of its own."""
SUBMIT = f"""#!{sys.executable}
import os, sys
if sys.argv[-1] == "pyspark-shell":
    open(os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"], "w").write(str(os.getpid()))
    print("the JVM's log", file=sys.stderr, flush=True)
    sys.stdin.read()
else:
    print("of its own", sys.argv[-1], os.path.exists(os.path.expanduser("~/.aws/credentials")))
"""
JOB_PROGRAM = """
import json, os, sys, time
connection, conf, program, *arguments = sys.argv[1:]
mark = os.path.join(os.path.dirname(conf), "uses-jvm")
open(mark, "w").close()
while not os.path.exists(connection) or not open(connection).read():
    time.sleep(0.01)
secrets = os.path.exists(os.path.expanduser("~/.aws/credentials"))
conf = {name: value for name, value in json.load(open(conf)).items() if name.startswith("spark.app.")}
environment = os.environ["PYTHONPATH"].split(os.pathsep)[-1:]
print(open(connection).read(), arguments, conf, environment, sorted(os.listdir()), secrets)
if arguments[0] == "leave":
    open("left", "w").close()
    temporary = os.path.join(os.path.dirname(connection), "tmp")
    os.makedirs(temporary + "/spark-1/pyspark-1")
    for name in ("/library.so", "/spark-1/rows", "/spark-1/pyspark-1/broadcast"):
        open(temporary + name, "w").close()
if arguments[0] == "hang":
    time.sleep(60)
if arguments[0] == "no class":
    print("Py4JJavaError: java.lang.ExceptionInInitializerError")
if arguments[0] == "no memory in a thread":
    with open(os.path.join(os.path.dirname(connection), "stderr"), "a") as log:
        print('Exception in thread "t" java.lang.OutOfMemoryError: Java heap space', file=log)
if arguments[0] != "leave tasks":
    os.remove(mark)
sys.exit({"fail": "ValueError: the job's own", "no class": "ValueError: its cause"}.get(arguments[0]))
"""


@pytest.fixture
def emr(tmp_path, monkeypatch):
    """A started application, and the runner of its jobs."""
    write_submit(tmp_path, SUBMIT)
    program = tmp_path / "job_program.py"
    program.write_text(JOB_PROGRAM)
    monkeypatch.setattr(spark, "_JOB_PROGRAM", program)
    monkeypatch.setattr(runner, "_fetch", lambda uri, folder, _: folder / uri.rsplit("/", 1)[1])
    (tmp_path / "jars" / "any.jar").touch()
    emr = Emr(tmp_path)
    yield emr
    emr.drivers.close()
    assert list(emr.folder.glob("driver-*")) == []


def write_submit(root, source: str) -> None:
    submit = spark.job_home(root / "jars") / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True, exist_ok=True)
    submit.write_text(source)
    submit.chmod(0o755)


def until(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Emr:
    def __init__(self, root) -> None:
        self.store, self.folder = EmrStore(), root / "emr"
        settings = {"autoStopConfiguration": {"idleTimeoutMinutes": 15}}
        self.application = Application("app", "0", "us-east-1", settings, {}, "token", state="STARTED")
        self.store.applications["app"] = self.application
        self.job = JobRun("job", "app", "arn", "0", {}, "emr-spark-8.1.0", {}, state="SUCCESS")
        self.store.job_runs["job"] = self.job
        image = spark.Image("http://127.0.0.1:1", root / "jars", Unpacked(root / "archives"))
        files = {"image": image, "folder": self.folder}
        self.drivers = Drivers(self.store, **files)
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        self.runner = SparkRunner(**files, credentials=lambda _: keys, drivers=self.drivers)

    def waiting(self) -> list[str]:
        """Process ids of the JVMs of all drivers that wait for a job."""
        self.drivers.close_unneeded()
        return [(folder / "connection").read_text() for folder in self.folder.glob("driver-*")]

    def run(self, argument: str = "x", code: int = 0, **conf: str) -> str:
        """Run a job; return what it printed."""
        submission = Submission("s3://code/job.py", [argument], {**SMALL, **conf})
        result = self.runner.run("job", submission, log_prefix=None, stop=threading.Event())
        assert result.exit_code == code, (self.folder / "job" / "stderr").read_text()
        return (self.folder / "job" / "stdout").read_text()

    def left(self) -> list[str]:
        """Names of what jobs have left in their folders but must not."""
        found = [path for name in (".aws", "tmp", "work") for path in self.folder.glob(f"*/{name}")]
        return [path.name for path in found if not path.parent.name.startswith("driver-")]


def test_the_driver_of_a_job_runs_the_next_one(emr):
    first = emr.run("leave", **{f"{DRIVER_ENVIRONMENT}PYTHONPATH": "./environment"})
    [driver] = emr.waiting()
    # What the first job left in the working directory and among the JVM's temporary files is gone.
    assert first == f"{driver} ['leave'] {{'spark.app.name': 'job'}} ['./environment'] [] True\n"
    second = emr.run("x", **{"spark.app.name": "second"})
    assert second.startswith(f"{driver} ['x'] {{'spark.app.name': 'second'}} [")
    assert second.endswith(" [] True\n")
    assert [path.name for path in emr.folder.glob("driver-*/tmp/**/*")] == ["spark-1"]
    assert emr.left() == []


def test_each_job_has_the_log_of_the_jvm_from_its_own_time(emr):
    emr.run()
    assert (emr.folder / "job" / "stderr").read_text() in ("the JVM's log\n", "")  # logged before or after the start
    [driver] = emr.drivers._waiting["app"]
    with driver.log.open("a") as log:
        log.write("after the first job\n")
    assert emr.run()
    assert (emr.folder / "job" / "stderr").read_text() == ""


def test_the_driver_of_a_job_that_fails_by_itself_runs_the_next_one(emr):
    failed = emr.run("fail", code=1)
    assert emr.left() == []
    [driver] = emr.waiting()
    assert failed.startswith(driver)


@pytest.mark.parametrize(("argument", "code"), [("leave tasks", 0), ("no class", 1), ("no memory in a thread", 0)])
def test_a_driver_that_still_runs_tasks_or_is_broken_runs_no_other_job(emr, argument, code):
    emr.run(argument, code)
    assert emr.waiting() == []


@pytest.mark.parametrize("used", [True, False])
def test_the_driver_of_a_job_that_is_stopped_runs_the_next_one_only_if_the_job_has_not_used_it(emr, used):
    stop, mark = threading.Event(), spark.jvm_mark(emr.folder / "job")
    if not used:
        spark._JOB_PROGRAM.write_text("import time; time.sleep(60)")

    def stop_job() -> None:
        until(lambda: mark.exists() or not used)
        stop.set()

    stopping = threading.Thread(target=stop_job)
    stopping.start()
    submission = Submission("s3://code/job.py", ["hang"], dict(SMALL))
    assert emr.runner.run("job", submission, log_prefix=None, stop=stop).stopped
    stopping.join()
    assert emr.left() == []
    assert len(emr.drivers._waiting.get("app", [])) == (0 if used else 1)


@pytest.mark.parametrize("conf", [{}, OWN], ids=["a kept driver", "a driver of its own"])
def test_a_job_leaves_no_credentials_after_an_error_that_nobody_expects(emr, monkeypatch, conf):
    """A full disk, for example."""
    submit = SparkRunner._submit

    def fail(*arguments) -> None:
        submit(*arguments)
        assert emr.left() == [".aws", "tmp"] if not conf else [".aws", "tmp", "work"]
        raise OSError("No space left on device")

    monkeypatch.setattr(SparkRunner, "_submit", fail)
    with pytest.raises(OSError, match="No space"):
        emr.run(**conf)
    assert emr.left() == []
    assert list(emr.folder.glob("driver-*")) == []


def test_the_jobs_of_a_cloud_that_stops_leave_no_credentials(emr):
    jobs = JobRuns(emr.store, emr.runner, slots=1)
    emr.store.job_runs.clear()
    emr.application.settings["releaseLabel"] = "emr-spark-8.1.0"
    request = {
        "applicationId": "app",
        "executionRoleArn": "arn:aws:iam::0:role/job",
        "jobDriver": {
            "sparkSubmit": {
                "entryPoint": "s3://code/job.py",
                "entryPointArguments": ["hang"],
                "sparkSubmitParameters": workers(),
            }
        },
    }
    runs = [jobs.start(Scope("0", "us-east-1"), {**request, "clientToken": token}) for token in ("runs", "waits")]
    # Either may have the slot: the threads of the jobs start in any order.
    until(lambda: any(spark.jvm_mark(emr.folder / run.id).exists() for run in runs))
    assert emr.left()
    jobs.stop_all(60)
    emr.drivers.close()
    assert [run.state for run in runs] == ["CANCELLED", "CANCELLED"]
    assert emr.left() == []
    assert list(emr.folder.glob("driver-*")) == []


def test_a_driver_whose_jvm_does_not_start_runs_no_other_job(emr, tmp_path):
    write_submit(tmp_path, SUBMIT.replace("open(os", "0 and open(os"))
    spark._JOB_PROGRAM.write_text(JOB_PROGRAM.replace("time.sleep(0.01)", "sys.exit('RuntimeError: not started')"))
    emr.run(code=1)
    assert emr.waiting() == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process is forked")
def test_the_program_of_a_job_is_forked_unless_it_imports_from_a_folder_that_may_change(emr, monkeypatch, tmp_path):
    (spark.job_home(tmp_path / "jars") / "python" / "lib" / "pyspark.zip").mkdir(parents=True)
    archive = tmp_path / "archives" / "version"
    (archive / "package").mkdir(parents=True)
    monkeypatch.setattr(SparkRunner, "_unpack", lambda *_: archive)
    monkeypatch.setattr(spark, "_IMPORTED_LATER", ())  # these programs do not import pandas
    emr.drivers._forks = forks = ForkServers()
    try:
        conf = {"spark.archives": "s3://code/a.zip#environment", f"{DRIVER_ENVIRONMENT}PYTHONPATH": "./environment"}
        printed = [emr.run("x", **conf), emr.run("fail", code=1, **conf)]
        [((libraries, variables), server)] = forks._servers.items()
        assert libraries[-1] == str(archive)
        assert "AWS_ACCESS_KEY_ID" not in dict(variables)
        assert server.forked
        [driver] = emr.waiting()
        assert printed[0].startswith(f"{driver} ['x'] {{'spark.app.name': 'job'}} ['./environment'] ['environment']")
        # What is on the path of a job, but not in an archive, may change.
        emr.run("x", **{f"{DRIVER_ENVIRONMENT}PYTHONPATH": str(emr.folder)})
        # This machine's packages, which a job without an archive imports, may change too.
        emr.run("x")
        assert list(forks._servers.values()) == [server]
    finally:
        emr.drivers.close()
        end_fork_servers(forks)


def test_a_job_that_needs_a_jvm_of_its_own_gets_one(emr):
    assert emr.run(**OWN) == "of its own x True\n"
    assert emr.waiting() == []


def test_a_driver_that_was_killed_is_not_used(emr):
    killed = emr.run().partition(" ")[0]
    process = emr.drivers._waiting["app"][0]._jvm
    process.kill()
    process.wait()
    assert not emr.run().startswith(killed)
    assert killed not in emr.waiting()


def test_an_idle_application_stops_and_its_drivers_are_closed(emr):
    emr.run()
    assert len(emr.waiting()) == 1
    process = emr.drivers._waiting["app"][0]._jvm
    emr.application.idle_since -= 15 * 60
    assert emr.waiting() == []
    assert emr.application.state == "STOPPED"
    assert process.poll() is not None


def test_a_driver_without_a_job_for_three_minutes_is_closed(emr):
    emr.run()
    [driver] = emr.waiting()
    emr.drivers._waiting["app"][0].idle_since -= 170
    assert emr.waiting() == [driver]
    emr.drivers._waiting["app"][0].idle_since -= 10
    assert emr.waiting() == []


def test_no_more_drivers_wait_than_there_are_cores(emr, monkeypatch):
    monkeypatch.setattr(drivers.os, "cpu_count", lambda: 1)
    emr.run()
    [first] = emr.waiting()
    emr.run(**{"spark.driver.memory": "6g"})  # it does not fit into the first one
    [second] = emr.waiting()
    assert second != first


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
        ({f"{DRIVER_ENVIRONMENT}AWS_REGION": "us-east-1"}, True),
        ({f"{DRIVER_ENVIRONMENT}AWS_REGION": "eu-west-1"}, False),
        ({"spark.driver.memory": "4g"}, False),
        ({"spark.driver.cores": "2"}, False),
        ({"spark.emr-serverless.driver.disk": "200g"}, False),
        ({"spark.driver.extraJavaOptions": "-Xss4m"}, False),
        ({"spark.jars": "s3://code/a.jar"}, False),
        ({"spark.hadoop.fs.s3a.threads.max": "5"}, False),
        ({INPUT_BYTES: "134217727"}, True),
        ({INPUT_BYTES: "134217728"}, False),
        ({INPUT_BYTES: "much"}, True),
    ],
)
def test_a_job_needs_a_driver_of_its_own_for_what_a_jvm_reads_when_it_starts(conf, suits):
    assert fits(Submission("s3://code/job.py", [], {**SMALL, **conf}), Size(Worker(1, 4, 20))) is suits


def test_the_driver_of_a_job_with_much_input_has_the_memory_of_its_executors():
    executors = {"spark.executor.cores": "2", "spark.executor.memory": "6g", "spark.executor.instances": "2"}
    conf = {**SMALL, **executors, "spark.dynamicAllocation.initialExecutors": "1"}
    little, much = (Submission("s3://code/job.py", [], {**conf, INPUT_BYTES: size}) for size in ("1", "200000000"))
    assert size_of(little).heap_mb == 3712  # a worker of 4 GB, less 10 %
    assert size_of(much).heap_mb == 3712 + 2 * 6516  # two workers of 7 GB
    assert fits(much, size_of(much))
    assert not fits(little, size_of(much))


def test_a_job_has_no_region_unless_it_sets_one(tmp_path, monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    submit = spark.job_home(tmp_path) / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(f"#!{sys.executable}\nimport os\nprint(*(name for name in os.environ if 'REGION' in name))\n")
    submit.chmod(0o755)
    for environment in ({}, {"AWS_REGION": "eu-west-1"}):
        folder = tmp_path / f"job-{len(environment)}"
        image = spark.Image("http://x", tmp_path, Unpacked(tmp_path / "archives"))
        with spark.start_driver(folder, [], image=image, environment=environment) as process:
            assert process.wait() == 0
        assert (folder / "stdout").read_text().split() == list(environment)


def test_only_a_job_with_little_input_is_compiled_for_a_short_life(tmp_path):
    quick = "-XX:TieredStopAtLevel=1"
    assert quick in spark.java_options(tmp_path / "conf").split()
    assert quick not in spark.java_options(tmp_path / "conf", is_large=True).split()
