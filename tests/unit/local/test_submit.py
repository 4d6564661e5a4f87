"""What a job run submits: options, sizes of workers, billed hours, and the error that ended its driver."""

from __future__ import annotations

import threading

import pytest

from slackwater.local.emr import billing
from slackwater.local.emr.runner import SparkRunner, last_error
from slackwater.local.emr.spark import Image
from slackwater.local.emr.submit import read_submission
from slackwater.local.service_model import EmrValidationError
from slackwater.local.unpacked import Unpacked

pytestmark = pytest.mark.unit


def submission(parameters: str = "", **request):
    driver = {"entryPoint": "s3://code/job.py", "entryPointArguments": ["--day", "a b"]}
    if parameters:
        driver["sparkSubmitParameters"] = parameters
    return read_submission({"jobDriver": {"sparkSubmit": driver}, **request}, [])


def test_parameters_are_read_as_a_shell_reads_them():
    read = submission("--conf spark.a=1 --conf 'spark.b=two words'")
    assert read.conf == {"spark.a": "1", "spark.b": "two words"}
    assert read.arguments == ["--day", "a b"]


def test_a_value_may_hold_an_equals_sign():
    read = submission('--conf spark.driver.extraJavaOptions="-Da=b -Dc=d"')
    assert read.conf["spark.driver.extraJavaOptions"] == "-Da=b -Dc=d"


def test_archives_carry_their_folder():
    read = submission("--conf spark.archives=s3://code/environment.tar.gz#environment,s3://code/more.zip")
    assert read.archives == {"environment": "s3://code/environment.tar.gz", "more.zip": "s3://code/more.zip"}


def test_only_jars_without_a_service_are_paths_in_the_image():
    read = submission(
        "--conf spark.jars=/usr/a.jar,s3://code/b.jar,local:///usr/c.jar,file:/usr/d.jar,https://example.com/e.jar"
    )
    assert read.image_jars == ["/usr/a.jar", "/usr/c.jar", "/usr/d.jar"]


ICEBERG_7 = "/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar"


@pytest.mark.parametrize("parameters", [f"--conf spark.jars=local://{ICEBERG_7}", ""])
def test_a_job_or_application_that_names_a_jar_which_the_release_lacks_fails_as_on_emr(tmp_path, parameters):
    application = [] if parameters else [{"classification": "spark-defaults", "properties": {"spark.jars": ICEBERG_7}}]
    driver = {"entryPoint": "s3://code/job.py", "sparkSubmitParameters": parameters}
    read = read_submission({"jobDriver": {"sparkSubmit": driver}}, application)
    (tmp_path / "any.jar").touch()
    image = Image("http://127.0.0.1:1", tmp_path, Unpacked(tmp_path / "archives"))
    runner = SparkRunner(image=image, folder=tmp_path / "jobs", credentials=lambda _: {})
    result = runner.run("job", read, log_prefix=None, stop=threading.Event())
    assert (result.exit_code, result.stopped) == (-1, False)
    assert result.error.startswith(f"java.nio.file.NoSuchFileException: {ICEBERG_7} ")


def test_driver_environment_is_read_from_its_properties():
    read = submission("--conf spark.emr-serverless.driverEnv.PYTHONPATH=./environment")
    assert read.driver_environment == {"PYTHONPATH": "./environment"}


def test_parameters_win_over_overrides_and_those_over_the_applications_defaults():
    overrides = {
        "applicationConfiguration": [
            {"classification": "spark-defaults", "properties": {"spark.a": "override", "spark.b": "override"}},
            {"classification": "spark-env", "properties": {"spark.c": "not a property"}},
        ]
    }
    request = {
        "jobDriver": {"sparkSubmit": {"entryPoint": "s3://code/job.py", "sparkSubmitParameters": "--conf spark.b=job"}},
        "configurationOverrides": overrides,
    }
    defaults = [{"classification": "spark-defaults", "properties": {"spark.a": "default", "spark.z": "default"}}]
    assert read_submission(request, defaults).conf == {"spark.a": "override", "spark.b": "job", "spark.z": "default"}


@pytest.mark.parametrize(
    "parameters",
    [
        "--jars s3://code/a.jar",
        "--conf spark.master=local",
        "--conf novalue",
        "--conf 'open",
        "word",
        "--deploy-mode cluster",
    ],
)
def test_options_that_a_job_may_not_set_are_refused(parameters):
    with pytest.raises(EmrValidationError):
        submission(parameters)


def test_a_job_without_spark_is_refused():
    with pytest.raises(EmrValidationError):
        read_submission({"jobDriver": {"hive": {"query": "SELECT 1"}}}, [])


class TestBilling:
    @pytest.mark.parametrize(
        ("string", "size"), [("512m", 0.5), ("14g", 14), ("20 GB", 20), ("2048", 2), ("1T", 1024), ("1048576k", 1)]
    )
    def test_sizes(self, string, size):
        assert billing.gigabytes(string) == size

    @pytest.mark.parametrize("string", ["", "14x", "-1g", "1.5g"])
    def test_strings_that_are_not_sizes(self, string):
        with pytest.raises(EmrValidationError):
            billing.gigabytes(string)

    def test_defaults_are_emrs(self):
        assert billing.read_workers({}) == billing.Workers(billing.Worker(4, 16, 20), billing.Worker(4, 16, 20), 3)

    def test_small_workers(self):
        size = billing.read_workers(
            {
                "spark.driver.cores": "1",
                "spark.driver.memory": "1g",
                "spark.executor.cores": "2",
                "spark.executor.memory": "6g",
                "spark.executor.instances": "1",
                "spark.dynamicAllocation.initialExecutors": "1",
            }
        )
        # The least that 1 vCPU can have is 2 GB; 6 GB and a tenth more is rounded up to 7.
        assert size == billing.Workers(billing.Worker(1, 2, 20), billing.Worker(2, 7, 20), 1)

    @pytest.mark.parametrize(
        ("conf", "executors"),
        [
            ({"executor.instances": "1"}, 3),
            ({"dynamicAllocation.initialExecutors": "1"}, 3),
            ({"executor.instances": "1", "dynamicAllocation.initialExecutors": "1"}, 1),
            ({"executor.instances": "1", "dynamicAllocation.initialExecutors": "2"}, 2),
            ({"executor.instances": "5"}, 5),
            ({"executor.instances": "1", "dynamicAllocation.enabled": "false"}, 1),
        ],
    )
    def test_a_job_starts_with_the_larger_of_two_numbers_whose_defaults_are_three(self, conf, executors):
        assert billing.read_workers({f"spark.{key}": value for key, value in conf.items()}).executors == executors

    @pytest.mark.parametrize("limit", [{"maxExecutors": "2"}, {"minExecutors": "4"}])
    def test_a_job_that_starts_with_more_or_fewer_executors_than_it_may_have_is_refused(self, limit):
        conf = {f"spark.dynamicAllocation.{key}": value for key, value in limit.items()}
        with pytest.raises(EmrValidationError, match=r"initialExecutors: 3 must be between"):
            billing.read_workers(conf)

    def test_memory_beside_the_heap_counts(self):
        conf = {"spark.driver.cores": "1", "spark.driver.memory": "1g", "spark.driver.memoryOverhead": "3g"}
        assert billing.read_workers(conf).driver == billing.Worker(1, 4, 20)

    @pytest.mark.parametrize(
        "conf",
        [{"spark.driver.cores": "3"}, {"spark.driver.memory": "40g"}, {"spark.executor.instances": "many"}],
    )
    def test_impossible_workers_are_refused(self, conf):
        with pytest.raises(EmrValidationError):
            billing.read_workers(conf)

    def test_used_is_by_the_second_and_billed_by_the_minute_at_least(self):
        size = billing.Workers(billing.Worker(4, 16, 200), billing.Worker(4, 16, 200), 1)
        assert billing.used(size, 35.1) == {"vCPUHour": 0.08, "memoryGBHour": 0.32, "storageGBHour": 4.0}
        assert billing.billed(size, 35.1) == {"vCPUHour": 0.133, "memoryGBHour": 0.533, "storageGBHour": 6.0}
        assert billing.billed(size, 3600) == {"vCPUHour": 8.0, "memoryGBHour": 32.0, "storageGBHour": 360.0}


TRACEBACK = """{"message": "reading"}
Traceback (most recent call last):
  File "job.py", line 1, in <module>
    raise ValueError("first")
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "job.py", line 3, in <module>
    raise AuditFailed("second\\nline")
slackwater.errors.AuditFailed: second
line
"""


@pytest.mark.parametrize(
    ("stdout", "stderr", "error"),
    [
        (TRACEBACK, "WARNING: Using incubator modules: jdk\n", "slackwater.errors.AuditFailed: second"),
        ("working\nAuditFailed: not unique\n", "", "AuditFailed: not unique"),
        (TRACEBACK + "DataError: the one that counts\n", "", "DataError: the one that counts"),
        ("", "26/11/21 03:05:59 WARN Utils: nothing\nno such file\n", "no such file"),
        ("", "java.io.IOException: gone\n\tat A.b(A.java)\nCaused by: java.net.E2Exception: why\n\tat C\n", None),
        ("", "", "the driver wrote no log"),
    ],
)
def test_the_error_that_ended_a_driver(tmp_path, stdout, stderr, error):
    (tmp_path / "stdout").write_text(stdout)
    (tmp_path / "stderr").write_text(stderr)
    expected = error or "Caused by: java.net.E2Exception: why"
    assert last_error(tmp_path / "stdout", tmp_path / "stderr") == expected


def test_an_error_of_the_jvm_in_python_includes_its_cause(tmp_path):
    log = """Traceback (most recent call last):
  File "job.py", line 1, in <module>
py4j.protocol.Py4JJavaError: An error occurred while calling o1.x.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.X
"""
    (tmp_path / "stdout").write_text(log)
    (tmp_path / "stderr").write_text("")
    error = last_error(tmp_path / "stdout", tmp_path / "stderr")
    assert error.startswith("py4j.protocol.Py4JJavaError: An error occurred while calling o1.x. ")
    assert error.endswith(": org.apache.spark.SparkException: Job aborted")
