"""A job runs with the Python that it names, or fails as it would on EMR."""

from __future__ import annotations

import sys
import threading

import pytest

from slackwater.errors import CloudError
from slackwater.local.emr.runner import SparkRunner
from slackwater.local.emr.spark import Image
from slackwater.local.emr.submit import Submission, local_python, use_local_pythons
from slackwater.local.layout import PYTHON
from slackwater.local.unpacked import Unpacked

pytestmark = pytest.mark.unit

OTHER = "3.13" if PYTHON == "3.12" else "3.12"
DRIVER = "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON"


def install(folder, monkeypatch, *, prints):
    """Put a program with the name of the other Python on the path, and nothing else."""
    program = folder / f"python{OTHER}"
    program.write_text(f"#!/bin/sh\n{prints}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return str(program)


@pytest.mark.parametrize("program", [f"python{PYTHON}", f"/usr/bin/python{PYTHON}"])
def test_the_python_of_the_local_cloud_is_its_own_interpreter(program):
    assert local_python(program) == sys.executable


def test_another_python_is_found_on_the_path(tmp_path, monkeypatch):
    program = install(tmp_path, monkeypatch, prints=f"echo {OTHER}")
    assert local_python(f"/usr/bin/python{OTHER}") == program


@pytest.mark.parametrize("prints", ["echo not installed >&2; exit 127", "echo 3.9"])
def test_a_program_that_is_not_that_python_is_not_used(tmp_path, monkeypatch, prints):
    install(tmp_path, monkeypatch, prints=prints)
    with pytest.raises(CloudError, match=rf"EMR has Python {OTHER}, but this machine does not"):
        local_python(f"python{OTHER}")


@pytest.mark.parametrize("program", ["python3.10", "/usr/bin/python3.14"])
def test_a_python_that_emr_lacks_is_refused_even_if_this_machine_has_it(program, monkeypatch):
    monkeypatch.setattr("slackwater.local.emr.submit.PYTHON", program.rpartition("python")[2])
    with pytest.raises(CloudError, match=rf'Cannot run program "{program}": No such file or directory'):
        local_python(program)


def test_an_interpreter_in_the_jobs_own_archive_is_left_alone():
    assert local_python("./environment/bin/python") == "./environment/bin/python"


def test_driver_and_executors_run_the_python_that_the_job_names():
    named = dict.fromkeys((DRIVER, "spark.executorEnv.PYSPARK_PYTHON", "spark.pyspark.python"), f"python{PYTHON}")
    read = use_local_pythons(Submission("s3://code/job.py", [], conf={"spark.a": "1", **named}))
    assert read.conf == {"spark.a": "1", **dict.fromkeys(named, sys.executable)}
    assert read.driver_environment == {"PYSPARK_DRIVER_PYTHON": sys.executable}


def test_a_job_whose_python_is_missing_fails_before_it_starts(tmp_path):
    image, folder = Image("http://127.0.0.1:1", tmp_path / "jars", Unpacked(tmp_path / "archives")), tmp_path / "jobs"
    runner = SparkRunner(image=image, folder=folder, credentials=lambda _: {})
    submission = Submission("s3://code/job.py", [], conf={DRIVER: "/usr/bin/python3.10"})
    result = runner.run("job", submission, log_prefix=None, stop=threading.Event())
    assert (result.exit_code, result.stopped) == (-1, False)
    assert "EMR has Python 3.11, 3.12, 3.13" in result.error
    assert "python3.10" in (tmp_path / "jobs" / "job" / "stderr").read_text()
