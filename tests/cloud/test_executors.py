"""Python workers of executors: they belong to one job, also when the driver's JVM has run other jobs before.

The JVM is one for jobs with much input. Nearly all other tests on a cloud run jobs with little input.
"""

from __future__ import annotations

import io
import json
import tarfile

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from slackwater.local.emr.job_program import wait_for_connection
from tests.cloud.emr_fixtures import BUCKET, alive
from tests.cloud.roles import create_role

pytestmark = pytest.mark.cloud

# Four tasks, so that both threads of Spark start workers, and workers are used again.
JOB = """
import json
from pyspark.sql import SparkSession

def describe(number):
    import os, sys, tempfile, boto3, marker
    sys.stderr.write(f"worker of {marker.VALUE}\\n")
    return {
        "role": boto3.client("sts", region_name="us-east-1").get_caller_identity()["Arn"].split("/")[1],
        "home": os.path.expanduser("~"), "temporary": tempfile.mkdtemp(), "folder": os.listdir(),
        "marker": marker.VALUE, "path": os.environ["PYTHONPATH"].split(os.pathsep)[-1], "pid": os.getpid(),
        "setting": os.environ.get("SETTING"),
    }

session = SparkSession.builder.getOrCreate()
jvm = session._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
workers = session.sparkContext.parallelize(range(4), 4).map(describe).collect()
numbers = session.sparkContext.broadcast([1])  # in a file that stays until the JVM ends
print(json.dumps({"started": jvm.getStartTime(), "options": list(jvm.getInputArguments()), "workers": workers}))
"""


def test_workers_have_the_role_the_folders_and_the_archive_of_their_job(bare):
    application = bare.application(schedulerConfiguration={"maxConcurrentRuns": 1})
    entry_point = bare.code("workers.py", JOB)
    described, pids = {}, {}
    for name in ("first", "second"):
        role = create_role(bare.client("iam"), f"workers-{name}", "emr-serverless", actions="s3:GetObject")
        conf = {"driver.cores": 1, "driver.memory": "1g", "executor.cores": 1, "executor.memory": "1g"}
        conf["slackwater.inputBytes"] = 200_000_000
        if name == "first":
            conf["executorEnv.SETTING"] = "first"
        parameters = " ".join([_archive(bare, name), *(f"--conf spark.{key}={value}" for key, value in conf.items())])
        job_run = bare.start(application, entry_point, parameters=parameters, executionRoleArn=role)
        job = bare.until(application, job_run)
        assert job["state"] == "SUCCESS", bare.log(job_run) + bare.log(job_run, "stderr")
        described[name] = json.loads(bare.log(job_run))
        folder = bare.files.jobs / job_run
        pids[name] = {worker.pop("pid") for worker in described[name]["workers"]}
        for worker in described[name]["workers"]:
            assert worker.pop("temporary").startswith(f"{folder}/tmp/")
            assert worker == {
                "role": f"workers-{name}",
                "home": str(folder),
                "folder": ["environment"],
                "marker": name,
                "path": "./environment",
                "setting": "first" if name == "first" else None,
            }
        assert f"worker of {name}\n" in bare.log(job_run, "stderr")
        # Nothing stays for the next job.
        assert not (folder / "tmp").exists()
        assert not list(bare.files.jobs.rglob(".aws/credentials"))
        assert not any(map(alive, pids[name]))
        [connection] = bare.files.jobs.glob("driver-*/connection")
        assert not _properties_of_waiting_driver(connection)
        temporary = connection.with_name("tmp")
        # Spark's own folders, which are empty.
        assert set(temporary.rglob("*")) == {path for path in temporary.iterdir() if path.is_dir()}
    assert "worker of first" not in bare.log(job_run, "stderr")
    assert described["first"]["started"] == described["second"]["started"]  # one JVM
    # Only a JVM for much input has both compilers, and the memory of the executors: here of three.
    assert "-XX:TieredStopAtLevel=1" not in described["first"]["options"]
    assert "-Xmx6656m" in described["first"]["options"]
    assert not pids["first"] & pids["second"]


def _properties_of_waiting_driver(connection) -> list[str]:
    """Return the names of the properties of jobs, credentials included, in a JVM that waits for the next job."""
    port, secret = wait_for_connection(connection)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret))
    try:
        properties = gateway.jvm.java.lang.System.getProperties()
        names, temporary = list(properties.stringPropertyNames()), properties.getProperty("java.io.tmpdir")
    finally:
        gateway.close()
    # Files of a JVM that is killed are removed with the folder of the driver.
    assert temporary == str(connection.with_name("tmp"))
    return [name for name in names if name.startswith(("aws.", "spark."))]


def _archive(bare, value: str) -> str:
    """Store an archive whose module `marker` has this value; return the properties of a job that imports from it."""
    packed, content = io.BytesIO(), f"VALUE = {value!r}\n".encode()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("marker.py")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    bare.client("s3").put_object(Bucket=BUCKET, Key=f"code/{value}.tar.gz", Body=packed.getvalue())
    paths = (f"--conf spark.{name}Env.PYTHONPATH=./environment" for name in ("emr-serverless.driver", "executor"))
    return f"--conf spark.archives=s3://{BUCKET}/code/{value}.tar.gz#environment {' '.join(paths)}"
