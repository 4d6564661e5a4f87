"""EMR Serverless of the local cloud, through boto3, the AWS CLI, Step Functions and CloudFormation, on real Spark."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from slackwater.errors import InputError
from slackwater.local import cloud as local_cloud
from tests.cloud.emr_fixtures import BUCKET, HELLO, ROLE, SLEEPER, alive, wait_for
from tests.cloud.roles import create_role

pytestmark = pytest.mark.cloud

REGION = "--conf spark.emr-serverless.driverEnv.AWS_REGION=us-east-1"
CATALOG = f"{REGION} " + " ".join(
    f"--conf spark.sql.{key}"
    for key in (
        "extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "catalog.warehouse=org.apache.iceberg.spark.SparkCatalog",
        "catalog.warehouse.type=glue",
        f"catalog.warehouse.warehouse=s3://{BUCKET}/warehouse",
        "catalog.warehouse.io-impl=org.apache.iceberg.aws.s3.S3FileIO",
    )
)
SPARK_JOB = """
import json, os, sys
import marker
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
jvm = session._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
files, table = sys.argv[1:]
session.range(10).write.mode("overwrite").parquet(files)
session.sql("CREATE NAMESPACE IF NOT EXISTS warehouse.days")
session.read.parquet(files).writeTo(table).createOrReplace()
workers = session.sparkContext.parallelize([1], 1).map(lambda _: __import__("marker").VALUE).collect()
print(json.dumps({
    "rows": session.table(table).count(), "marker": marker.VALUE, "workers": workers,
    "inherited": os.environ.get("SLACKWATER_LEAK"), "python": sys.executable, "name": session.sparkContext.appName,
    "home": os.listdir(os.path.expanduser("~")), "folder": os.listdir(), "started": jvm.getStartTime() / 1000,
}))
"""
DENIED_JOB = """
import json, os, sys
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
jvm = session._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
files, table = sys.argv[1:]
def denied(read):
    try:
        read().count()
    except Exception as error:
        return "AccessDenied" in str(error) or str(error)
print(json.dumps({
    "files": denied(lambda: session.read.parquet(files)), "table": denied(lambda: session.table(table)),
    "inherited": session.conf.get("spark.executorEnv.PYTHONPATH", None), "name": session.sparkContext.appName,
    "folder": os.listdir(), "started": jvm.getStartTime() / 1000,
}))
"""
WRITES = """
import boto3
from botocore.exceptions import ClientError
print(boto3.client("sts", region_name="us-east-1").get_caller_identity()["Arn"])
try:
    boto3.client("s3", region_name="us-east-1").put_object(Bucket="emr-tests", Key="forbidden", Body=b"")
except ClientError as error:
    print(error.response["Error"]["Code"])
"""
PUBLISH_LATE = """
import os, time, boto3
from botocore.exceptions import BotoCoreError
print(os.getpid(), flush=True)
time.sleep(4)
s3 = boto3.client("s3", "us-east-1", aws_access_key_id="test", aws_secret_access_key="test")  # valid after a restart
while True:  # the cloud may be away for a while
    try:
        s3.put_object(Bucket="emr-tests", Key="late", Body=b"late")
        break
    except BotoCoreError:
        time.sleep(0.2)
time.sleep(600)
"""
MACHINE = {
    "QueryLanguage": "JSONata",
    "StartAt": "Stage",
    "States": {
        "Stage": {
            "Type": "Task",
            "Resource": "arn:aws:states:::emr-serverless:startJobRun.sync",
            "Arguments": "{% $states.input %}",
            "TimeoutSeconds": 120,
            "End": True,
        }
    },
}


def code_of(call) -> tuple[str, int]:
    with pytest.raises(ClientError) as error:
        call()
    response = error.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


@pytest.fixture(scope="module")
def application(bare) -> str:
    """Return an application that runs one job at a time, so that jobs share a driver."""
    return bare.application(name="tests", schedulerConfiguration={"maxConcurrentRuns": 1})


def submitted(application: str, entry_point: str, **more):
    driver = {"SparkSubmit": {"EntryPoint": entry_point}}
    return {"ApplicationId": application, "ExecutionRoleArn": ROLE, "JobDriver": driver, **more}


def test_a_driver_runs_two_jobs_with_an_archive_and_a_role_of_their_own(bare):
    application = bare.application()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        content = b"VALUE = 'from the archive'\n"
        member = tarfile.TarInfo("marker.py")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    bare.client("s3").put_object(Bucket=BUCKET, Key="code/environment.tar.gz", Body=packed.getvalue())
    parameters = (
        f"{CATALOG} --conf spark.archives=s3://{BUCKET}/code/environment.tar.gz#environment "
        "--conf spark.emr-serverless.driverEnv.PYTHONPATH=./environment "
        "--conf spark.executorEnv.PYTHONPATH=./environment "
        "--conf spark.driver.cores=1 --conf spark.driver.memory=1g --conf spark.executor.instances=1 "
        "--conf spark.dynamicAllocation.initialExecutors=1"
    )
    logs = {"monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": f"s3://{BUCKET}/logs/"}}}
    arguments = (f"s3://{BUCKET}/files/", "warehouse.days.tests")
    entry_point = bare.code("spark.py", SPARK_JOB)
    job_run = bare.start(
        application, entry_point, *arguments, parameters=parameters, configurationOverrides=logs, tags={"run": "r1"}
    )
    job = bare.until(application, job_run)
    role = create_role(bare.client("iam"), "gets-objects", "emr-serverless", actions="s3:GetObject")
    size_only = parameters.partition("--conf spark.executorEnv")[2].partition(" ")[2]
    entry_point = bare.code("denied.py", DENIED_JOB)
    second = bare.start(
        application, entry_point, *arguments, parameters=f"{CATALOG} {size_only}", executionRoleArn=role
    )
    assert bare.until(application, second)["state"] == "SUCCESS", bare.log(second)
    bare.emr.stop_application(applicationId=application)  # which closes the driver
    assert job["state"] == "SUCCESS", bare.log(job_run) + bare.log(job_run, "stderr")

    [printed] = map(json.loads, bare.log(job_run).splitlines())
    started = printed.pop("started")
    assert {"stdout", "stderr", ".aws"} < set(printed.pop("home"))
    assert printed == {
        "rows": 10,
        "marker": "from the archive",
        "workers": ["from the archive"],
        "inherited": None,
        "python": sys.executable,
        "name": job_run,
        "folder": ["environment"],
    }
    # The next job runs in the same JVM, without the rights, the files and the properties of the first one.
    [denied] = map(json.loads, bare.log(second).splitlines())
    assert denied == {"files": True, "table": True, "folder": [], "inherited": None, "started": started, "name": second}
    table = bare.client("glue").get_table(DatabaseName="days", Name="tests")["Table"]
    assert table["Parameters"]["table_type"].lower() == "iceberg"
    for name in ("stdout", "stderr"):
        key = f"logs/applications/{application}/jobs/{job_run}/SPARK_DRIVER/{name}.gz"
        body = bare.client("s3").get_object(Bucket=BUCKET, Key=key)["Body"].read()
        assert gzip.decompress(body).decode() == bare.log(job_run, name)
    assert job["tags"] == {"run": "r1"}
    assert job["startedAt"] <= job["endedAt"]
    # 1 vCPU with 2 GB drives, 4 vCPU with 16 GB execute.
    used = job["totalResourceUtilization"]
    assert used["vCPUHour"] == pytest.approx(5 * job["totalExecutionDurationSeconds"] / 3600, abs=0.005)
    assert job["billedResourceUtilization"]["vCPUHour"] >= round(5 / 60, 3)


def test_a_busy_application_queues_and_a_cancelled_job_leaves_no_process(bare, application):
    first = bare.start(application, bare.code("pid.py", f"import os; print(os.getpid(), flush=True)\n{SLEEPER}"))
    pid = int(wait_for(lambda: log_so_far(bare, first), str.strip).split()[0])
    second = bare.start(application, bare.code("hello.py", HELLO))
    bare.until(application, second, "QUEUED")
    assert alive(pid)
    bare.emr.cancel_job_run(applicationId=application, jobRunId=first)
    assert bare.until(application, first)["state"] == "CANCELLED"
    wait_for(lambda: alive(pid), lambda living: not living)
    assert code_of(lambda: bare.emr.cancel_job_run(applicationId=application, jobRunId=first)) == (
        "ValidationException",
        400,
    )
    job = bare.until(application, second)
    assert (job["state"], job["queuedDurationMilliseconds"] > 0) == ("SUCCESS", True)


def log_so_far(bare, job_run: str) -> str:
    path = bare.files.jobs / job_run / "stdout"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("entry_point", "parameters"),
    [
        ("s3://emr-tests/code/missing.py", ""),
        ("s3://no-such-bucket/job.py", ""),
        ("local:///job.py", ""),
        ("s3://emr-tests/code/hello.py", "--conf spark.archives=s3://emr-tests/code/hello.py#environment"),
    ],
)
def test_a_file_that_cannot_be_fetched_fails_the_job(bare, application, entry_point, parameters):
    bare.code("hello.py", HELLO)
    job = bare.until(application, bare.start(application, entry_point, parameters=parameters))
    assert job["state"] == "FAILED"
    assert job["stateDetails"].startswith("Job failed: ")
    uri = parameters.removeprefix("--conf spark.archives=").partition("#")[0] or entry_point
    assert uri in job["stateDetails"]


def test_the_aws_command_line_works_unmodified(bare, application):
    environment = {"PATH": os.environ["PATH"], "HOME": str(bare.root), **bare.cloud.environment()}
    aws = str(Path(sys.executable).parent / "aws")

    def run(*arguments: str):
        command = [aws, "emr-serverless", *arguments, "--output", "json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        return json.loads(done.stdout) if done.stdout else None

    driver = json.dumps({"sparkSubmit": {"entryPoint": bare.code("hello.py", HELLO)}})
    started = run(
        "start-job-run", "--application-id", application, "--execution-role-arn", ROLE, "--job-driver", driver
    )
    job_run = ("--application-id", application, "--job-run-id", started["jobRunId"])
    bare.until(application, started["jobRunId"])
    assert run("get-job-run", *job_run)["jobRun"]["state"] == "SUCCESS"
    assert bare.log(started["jobRunId"]) == "hello\n"
    assert application in [item["id"] for item in run("list-applications")["applications"]]


def test_the_application_of_a_stack_is_created_updated_replaced_and_deleted(bare):
    formation = bare.client("cloudformation")
    properties = {
        "Name": "stacked",
        "ReleaseLabel": "emr-spark-8.1.0",
        "Type": "SPARK",
        "MaximumCapacity": {"Cpu": "16 vCPU", "Memory": "64 GB"},
        "AutoStopConfiguration": {"Enabled": "true", "IdleTimeoutMinutes": {"Ref": "Minutes"}},
        "Tags": [{"Key": "stage", "Value": "true"}],
    }
    values = {"Id": {"Ref": "App"}, "Same": {"Fn::GetAtt": ["App", "ApplicationId"]}, "Arn": {"Fn::GetAtt": "App.Arn"}}

    def deployed(change: str, **changes) -> tuple[dict[str, str], dict]:
        """Create or update the stack; return its outputs and the application."""
        template = {
            "Parameters": {"Minutes": {"Type": "Number", "Default": "5"}},
            "Resources": {"App": {"Type": "AWS::EMRServerless::Application", "Properties": properties | changes}},
            "Outputs": {name: {"Value": value} for name, value in values.items()},
        }
        getattr(formation, f"{change}_stack")(StackName="emr", TemplateBody=json.dumps(template))
        formation.get_waiter(f"stack_{change}_complete").wait(StackName="emr", WaiterConfig={"Delay": 1})
        [stack] = formation.describe_stacks(StackName="emr")["Stacks"]
        outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
        return outputs, application(outputs["Id"])

    def application(id_: str) -> dict:
        return bare.emr.get_application(applicationId=id_)["application"]

    first, created = deployed("create")
    assert (first["Same"], first["Arn"]) == (first["Id"], created["arn"])
    assert created["autoStopConfiguration"] == {"enabled": True, "idleTimeoutMinutes": 5}
    assert (created["maximumCapacity"]["cpu"], created["tags"]) == ("16 vCPU", {"stage": "true"})
    changes = {"MaximumCapacity": {"Cpu": "8 vCPU", "Memory": "64 GB"}, "Tags": [{"Key": "owner", "Value": "me"}]}
    same, updated = deployed("update", **changes)
    assert same == first
    assert (updated["maximumCapacity"]["cpu"], updated["tags"]) == ("8 vCPU", {"owner": "me"})
    second, _ = deployed("update", **changes, Name="renamed")
    assert second["Id"] != first["Id"]
    assert application(first["Id"])["state"] == "TERMINATED"
    formation.delete_stack(StackName="emr")
    formation.get_waiter("stack_delete_complete").wait(StackName="emr", WaiterConfig={"Delay": 1})
    assert application(second["Id"])["state"] == "TERMINATED"


def test_a_job_has_the_credentials_and_permissions_of_its_role_only(bare, application):
    role = create_role(bare.client("iam"), "reader", "emr-serverless", actions="s3:GetObject")
    job_run = bare.start(application, bare.code("writes.py", WRITES), executionRoleArn=role)
    bare.until(application, job_run)
    assert bare.log(job_run).splitlines() == [
        f"arn:aws:sts::000000000000:assumed-role/reader/{job_run}",
        "AccessDenied",
    ]


@pytest.mark.parametrize(
    ("service", "actions", "reason"),
    [
        ("lambda", "*", "emr-serverless.amazonaws.com is not authorized to perform: sts:AssumeRole"),
        ("emr-serverless", "s3:PutObject", f"lacks the permission for GET s3://{BUCKET}/code/hello.py"),
    ],
)
def test_a_job_whose_role_cannot_start_it_fails_with_the_reason(bare, application, service, actions, reason):
    role = create_role(bare.client("iam"), f"no-{service}", service, actions=actions)
    job_run = bare.start(application, bare.code("hello.py", HELLO), executionRoleArn=role)
    job = bare.until(application, job_run)
    assert job["state"] == "FAILED"
    assert reason in job["stateDetails"]


@pytest.fixture(scope="module")
def kept(bare) -> str:
    """Return an application that is still there after a restart."""
    return bare.application(name="kept")


class TestRestart:
    """The last tests of this file: they kill and stop the cloud, which other files go on with."""

    def test_a_killed_cloud_keeps_its_stacks_and_its_jobs_publish_nothing_later(self, bare, kept):
        versioning = {"Status": "Enabled"}
        bare.client("s3").put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration=versioning)
        bare.client("dynamodb").create_table(
            TableName="runs",
            KeySchema=[{"AttributeName": "pipeline", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pipeline", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        machine = bare.client("stepfunctions").create_state_machine(
            name="day", definition=json.dumps(MACHINE), roleArn=ROLE
        )["stateMachineArn"]
        request = submitted(kept, bare.code("late.py", PUBLISH_LATE), Name="day")
        execution = bare.client("stepfunctions").start_execution(stateMachineArn=machine, input=json.dumps(request))
        listed = wait_for(lambda: bare.emr.list_job_runs(applicationId=kept)["jobRuns"], bool)
        job_run = listed[0]["id"]
        driver = int(wait_for(lambda: log_so_far(bare, job_run), str.strip).split()[0])
        saved = bare.files.state / "emr_serverless.json"

        def saved_states() -> dict[str, str]:
            saved_runs = json.loads(saved.read_text())["payload"]["job_runs"] if saved.exists() else []
            return {each["id"]: each["state"] for each in saved_runs}

        # Also an earlier checkpoint may have a running job, of another test.
        wait_for(saved_states, lambda states: states.get(job_run) == "RUNNING")

        os.kill(bare.cloud.pid, signal.SIGKILL)
        wait_for(lambda: alive(driver), lambda living: not living)
        assert local_cloud.status(bare.root) is None
        endpoint = bare.cloud.endpoint
        bare.up()

        assert bare.cloud.endpoint == endpoint
        left = {path.name for path in (bare.files.jobs / job_run).iterdir()}
        assert "stdout" in left
        assert not left & {".aws", "tmp", "work"}
        job = bare.job(kept, job_run)
        assert (job["state"], job["stateDetails"]) == ("FAILED", "Job failed: the local cloud stopped while it ran")
        states = bare.client("stepfunctions")
        assert states.describe_execution(executionArn=execution["executionArn"])["status"] == "FAILED"
        assert bare.client("dynamodb").describe_table(TableName="runs")["Table"]["TableStatus"] == "ACTIVE"
        assert bare.client("s3").get_bucket_versioning(Bucket=BUCKET)["Status"] == "Enabled"
        assert "late" not in [item["Key"] for item in bare.client("s3").list_objects_v2(Bucket=BUCKET)["Contents"]]

        again = states.start_execution(
            stateMachineArn=machine, input=json.dumps(submitted(kept, bare.code("hello.py", HELLO)))
        )["executionArn"]
        ended = wait_for(
            lambda: states.describe_execution(executionArn=again), lambda execution: execution["status"] != "RUNNING"
        )
        assert ended["status"] == "SUCCEEDED"

    def test_down_and_up_keep_everything(self, bare, kept):
        job_run = bare.start(kept, bare.code("hello.py", HELLO))
        before = bare.until(kept, job_run)
        stopped = bare.start(kept, bare.code("sleeper.py", SLEEPER))
        wait_for(lambda: log_so_far(bare, stopped), lambda log: "started" in log)
        assert list(bare.files.jobs.glob("*/.aws/credentials"))
        assert local_cloud.down(bare.root)
        assert [path for name in (".aws", "tmp", "work", "driver-*") for path in bare.files.jobs.rglob(name)] == []
        assert not local_cloud.down(bare.root)
        assert local_cloud.status(bare.root) is None
        bare.up()
        assert bare.job(kept, job_run) == before
        assert bare.job(kept, stopped)["stateDetails"] == "Job failed: the local cloud stopped while it ran"
        assert local_cloud.up(bare.root) == bare.cloud

    def test_the_error_of_a_port_in_use_names_the_port(self, bare, tmp_path_factory):
        other = tmp_path_factory.mktemp("other")
        port = int(bare.cloud.endpoint.rsplit(":", 1)[1])
        with pytest.raises(InputError, match=str(port)):
            local_cloud.up(other, port=port)
        with pytest.raises(InputError, match="already runs"):
            local_cloud.up(bare.root, port=port + 1)
        assert local_cloud.status(other) is None
