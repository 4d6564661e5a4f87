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
import urllib.request
import uuid
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from slackwater.errors import CloudError, InputError
from slackwater.local import cloud as local_cloud
from slackwater.local.service_model import check, service_model
from tests.cloud.emr_fixtures import BUCKET, HELLO, ROLE, SLEEPER, alive, own, wait_for
from tests.cloud.roles import create_role

pytestmark = pytest.mark.cloud
__all__ = ["own"]

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
AUDIT = """
class AuditFailed(Exception):
    pass
raise AuditFailed("key (date, origin, carrier) is not unique")
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


@pytest.fixture(scope="module")
def machine(bare):
    """Create a state machine of one job run. Return a function that starts an execution of it."""
    states = bare.client("stepfunctions")

    def create(**changes):
        definition = json.loads(json.dumps(MACHINE))
        definition["States"]["Stage"].update(changes)
        arn = states.create_state_machine(name=f"m-{uuid.uuid4()}", definition=json.dumps(definition), roleArn=ROLE)[
            "stateMachineArn"
        ]
        return lambda request: states.start_execution(stateMachineArn=arn, input=json.dumps(request))["executionArn"]

    return create


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


def test_responses_have_the_shapes_of_the_model(bare, application):
    """The client drops members that its model lacks, so the raw response is read too."""
    job_run = bare.start(application, bare.code("hello.py", HELLO), "a b", name="shapes")
    bare.until(application, job_run)
    responses = {
        "GetApplication": bare.emr.get_application(applicationId=application),
        "ListApplications": bare.emr.list_applications(),
        "GetJobRun": bare.emr.get_job_run(applicationId=application, jobRunId=job_run),
        "ListJobRuns": bare.emr.list_job_runs(applicationId=application),
    }
    for operation, response in responses.items():
        response.pop("ResponseMetadata")
        check(service_model().operation_model(operation).output_shape, response)
    assert bare.log(job_run) == "hello a b\n"
    assert responses["GetJobRun"]["jobRun"]["jobDriver"]["sparkSubmit"]["entryPointArguments"] == ["a b"]
    raw = raw_response(bare, f"/applications/{application}/jobruns/{job_run}")
    assert set(raw["jobRun"]) <= set(service_model().shape_for("JobRun").members)


def raw_response(bare, path: str):
    scope = "AWS4-HMAC-SHA256 Credential=test/20130308/us-east-1/emr-serverless/aws4_request"
    request = urllib.request.Request(bare.cloud.endpoint + path, headers={"Authorization": scope})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


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


def test_pages_and_tags(bare):
    application = bare.application(name="paged", tags={"a": "1"})
    arn = bare.emr.get_application(applicationId=application)["application"]["arn"]
    bare.emr.tag_resource(resourceArn=arn, tags={"b": "2"})
    bare.emr.untag_resource(resourceArn=arn, tagKeys=["a", "never there"])
    assert bare.emr.list_tags_for_resource(resourceArn=arn)["tags"] == {"b": "2"}
    pages = bare.emr.get_paginator("list_applications").paginate(PaginationConfig={"PageSize": 1})
    listed = [item["id"] for page in pages for item in page["applications"]]
    assert application in listed
    assert len(listed) == len(set(listed))
    assert code_of(lambda: bare.emr.list_applications(nextToken="bm90IG9uZQ")) == ("ValidationException", 400)


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


class TestStateMachine:
    def ended(self, bare, arn: str):
        states = bare.client("stepfunctions")
        return wait_for(
            lambda: states.describe_execution(executionArn=arn), lambda execution: execution["status"] != "RUNNING", 180
        )

    def test_a_state_returns_its_job_run(self, bare, application, machine):
        arn = machine()(submitted(application, bare.code("hello.py", HELLO), Tags={"day": "2013-03-08"}))
        execution = self.ended(bare, arn)
        output = json.loads(execution["output"])
        assert (execution["status"], output["State"], output["ApplicationId"]) == ("SUCCEEDED", "SUCCESS", application)
        assert output["Tags"] == {"day": "2013-03-08"}
        assert output["BilledResourceUtilization"]["VCPUHour"] > 0
        assert bare.job(application, output["JobRunId"])["arn"] == output["Arn"]

    def test_a_failed_driver_fails_the_state_with_its_error(self, bare, application, machine):
        execution = self.ended(bare, machine()(submitted(application, bare.code("audit.py", AUDIT))))
        cause = json.loads(execution["cause"])
        assert (execution["status"], execution["error"], cause["State"]) == ("FAILED", "States.TaskFailed", "FAILED")
        assert cause["StateDetails"].endswith("AuditFailed: key (date, origin, carrier) is not unique")
        assert "AuditFailed" in bare.log(cause["JobRunId"])

    @pytest.mark.parametrize(
        ("request_", "error"),
        [
            ({"ApplicationId": "00nothere"}, "EMRServerless.ResourceNotFoundException"),
            ({"ExecutionRoleArn": "x"}, "EMRServerless.ValidationException"),
        ],
    )
    def test_errors_of_the_api_have_their_names(self, bare, application, machine, request_, error):
        entry_point = bare.code("hello.py", HELLO)
        execution = self.ended(bare, machine()({**submitted(application, entry_point), **request_}))
        assert (execution["status"], execution["error"]) == ("FAILED", error)

    def test_a_stopped_execution_cancels_its_job_and_stays_aborted(self, bare, application, machine):
        arn = machine()(submitted(application, bare.code("sleeper.py", SLEEPER), Name="stopped"))
        job_run = self.named(bare, application, "stopped")
        bare.until(application, job_run, "RUNNING")
        bare.client("stepfunctions").stop_execution(executionArn=arn, error="Enough", cause="tests")
        job = bare.until(application, job_run)
        assert (job["state"], job["billedResourceUtilization"]["vCPUHour"] > 0) == ("CANCELLED", True)
        execution = self.ended(bare, arn)
        assert (execution["status"], execution["error"]) == ("ABORTED", "Enough")
        # The history of the execution names the job, although its state has not ended: so its cost is known.
        events = bare.client("stepfunctions").get_execution_history(executionArn=arn)["events"]
        (submission,) = [event for event in events if event["type"] == "TaskSubmitted"]
        assert json.loads(submission["taskSubmittedEventDetails"]["output"])["JobRunId"] == job_run

    def test_a_state_that_times_out_cancels_its_job(self, bare, application, machine):
        start = machine(TimeoutSeconds=3)
        arn = start(submitted(application, bare.code("sleeper.py", SLEEPER), Name="slow"))
        assert bare.until(application, self.named(bare, application, "slow"))["state"] == "CANCELLED"
        execution = self.ended(bare, arn)
        assert (execution["status"], execution["error"]) == ("FAILED", "States.Timeout")

    def named(self, bare, application: str, name: str) -> str:
        """Wait for the job run of that name."""
        listed = wait_for(
            lambda: [
                job for job in bare.emr.list_job_runs(applicationId=application)["jobRuns"] if job.get("name") == name
            ],
            bool,
        )
        return listed[0]["id"]


class TestCloudFormation:
    TEMPLATE = {
        "Parameters": {"Minutes": {"Type": "Number", "Default": "5"}},
        "Resources": {
            "App": {
                "Type": "AWS::EMRServerless::Application",
                "Properties": {
                    "Name": "stacked",
                    "ReleaseLabel": "emr-spark-8.1.0",
                    "Type": "SPARK",
                    "MaximumCapacity": {"Cpu": "16 vCPU", "Memory": "64 GB"},
                    "AutoStopConfiguration": {"Enabled": "true", "IdleTimeoutMinutes": {"Ref": "Minutes"}},
                    "Tags": [{"Key": "stage", "Value": "true"}],
                },
            }
        },
        "Outputs": {
            "Id": {"Value": {"Ref": "App"}},
            "Same": {"Value": {"Fn::GetAtt": ["App", "ApplicationId"]}},
            "Arn": {"Value": {"Fn::GetAtt": ["App", "Arn"]}},
        },
    }

    def outputs(self, formation) -> dict[str, str]:
        stack = formation.describe_stacks(StackName="emr")["Stacks"][0]
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    def test_an_application_is_created_updated_replaced_and_deleted(self, bare):
        formation = bare.client("cloudformation")
        template = json.loads(json.dumps(self.TEMPLATE))
        formation.create_stack(StackName="emr", TemplateBody=json.dumps(template))
        formation.get_waiter("stack_create_complete").wait(StackName="emr", WaiterConfig={"Delay": 1})
        first = self.outputs(formation)
        application = bare.emr.get_application(applicationId=first["Id"])["application"]
        assert (first["Same"], first["Arn"]) == (first["Id"], application["arn"])
        assert application["autoStopConfiguration"] == {"enabled": True, "idleTimeoutMinutes": 5}
        assert (application["maximumCapacity"]["cpu"], application["tags"]) == ("16 vCPU", {"stage": "true"})

        properties = template["Resources"]["App"]["Properties"]
        properties["MaximumCapacity"]["Cpu"] = "8 vCPU"
        properties["Tags"] = [{"Key": "owner", "Value": "me"}]
        self.update(formation, template)
        application = bare.emr.get_application(applicationId=first["Id"])["application"]
        assert (application["maximumCapacity"]["cpu"], application["tags"]) == ("8 vCPU", {"owner": "me"})

        properties["Name"] = "renamed"
        self.update(formation, template)
        second = self.outputs(formation)
        assert second["Id"] != first["Id"]
        assert self.state(bare, first["Id"]) == "TERMINATED"

        formation.delete_stack(StackName="emr")
        formation.get_waiter("stack_delete_complete").wait(StackName="emr", WaiterConfig={"Delay": 1})
        assert self.state(bare, second["Id"]) == "TERMINATED"

    def state(self, bare, application: str) -> str:
        return bare.emr.get_application(applicationId=application)["application"]["state"]

    def update(self, formation, template) -> None:
        formation.update_stack(StackName="emr", TemplateBody=json.dumps(template))
        formation.get_waiter("stack_update_complete").wait(StackName="emr", WaiterConfig={"Delay": 1})

    def test_the_stack_of_a_refused_application_fails_with_the_message(self, bare):
        formation = bare.client("cloudformation")
        template = json.loads(json.dumps(self.TEMPLATE))
        del template["Resources"]["App"]["Properties"]["ReleaseLabel"]
        formation.create_stack(StackName="refused", TemplateBody=json.dumps(template), OnFailure="DO_NOTHING")
        wait_for(
            lambda: formation.describe_stacks(StackName="refused")["Stacks"][0]["StackStatus"],
            lambda status: status == "CREATE_FAILED",
        )
        events = formation.describe_stack_events(StackName="refused")["StackEvents"]
        assert any("releaseLabel" in event.get("ResourceStatusReason", "") for event in events)


class TestRole:
    def test_a_job_has_the_credentials_and_permissions_of_its_role_only(self, bare, application):
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
    def test_a_job_whose_role_cannot_start_it_fails_with_the_reason(self, bare, application, service, actions, reason):
        role = create_role(bare.client("iam"), f"no-{service}", service, actions=actions)
        job_run = bare.start(application, bare.code("hello.py", HELLO), executionRoleArn=role)
        job = bare.until(application, job_run)
        assert job["state"] == "FAILED"
        assert reason in job["stateDetails"]

    def test_a_caller_must_be_allowed_to_pass_the_role(self, bare, application):
        iam = bare.client("iam")
        iam.create_user(UserName="starter")
        allowed = {"Effect": "Allow", "Action": "emr-serverless:StartJobRun", "Resource": "*"}
        document = json.dumps({"Statement": [allowed]})
        iam.put_user_policy(UserName="starter", PolicyName="p", PolicyDocument=document)
        key = iam.create_access_key(UserName="starter")["AccessKey"]
        session = boto3.session.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name="us-east-1")
        emr = session.client("emr-serverless", endpoint_url=bare.cloud.endpoint)
        driver = {"sparkSubmit": {"entryPoint": bare.code("hello.py", HELLO)}}
        request = {"applicationId": application, "executionRoleArn": ROLE, "jobDriver": driver}
        with pytest.raises(ClientError, match=r"user/starter is not authorized to perform: iam:PassRole on .*role/job"):
            emr.start_job_run(**request)


@pytest.fixture(scope="module")
def kept(own) -> str:
    """Return an application that is still there after a restart."""
    return own.application(name="kept")


class TestRestart:
    def test_a_killed_cloud_keeps_its_stacks_and_its_jobs_publish_nothing_later(self, own, kept):
        versioning = {"Status": "Enabled"}
        own.client("s3").put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration=versioning)
        own.client("dynamodb").create_table(
            TableName="runs",
            KeySchema=[{"AttributeName": "pipeline", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pipeline", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        machine = own.client("stepfunctions").create_state_machine(
            name="day", definition=json.dumps(MACHINE), roleArn=ROLE
        )["stateMachineArn"]
        request = submitted(kept, own.code("late.py", PUBLISH_LATE), Name="day")
        execution = own.client("stepfunctions").start_execution(stateMachineArn=machine, input=json.dumps(request))
        listed = wait_for(lambda: own.emr.list_job_runs(applicationId=kept)["jobRuns"], bool)
        job_run = listed[0]["id"]
        driver = int(wait_for(lambda: log_so_far(own, job_run), str.strip).split()[0])
        saved = own.files.state / "emr_serverless.json"
        wait_for(lambda: saved.read_text() if saved.exists() else "", lambda content: '"RUNNING"' in content)

        os.kill(own.cloud.pid, signal.SIGKILL)
        wait_for(lambda: alive(driver), lambda living: not living)
        assert local_cloud.status(own.root) is None
        endpoint = own.cloud.endpoint
        own.up()

        assert own.cloud.endpoint == endpoint
        left = {path.name for path in (own.files.jobs / job_run).iterdir()}
        assert "stdout" in left
        assert not left & {".aws", "tmp", "work"}
        job = own.job(kept, job_run)
        assert (job["state"], job["stateDetails"]) == ("FAILED", "Job failed: the local cloud stopped while it ran")
        states = own.client("stepfunctions")
        assert states.describe_execution(executionArn=execution["executionArn"])["status"] == "FAILED"
        assert own.client("dynamodb").describe_table(TableName="runs")["Table"]["TableStatus"] == "ACTIVE"
        assert own.client("s3").get_bucket_versioning(Bucket=BUCKET)["Status"] == "Enabled"
        assert "late" not in [item["Key"] for item in own.client("s3").list_objects_v2(Bucket=BUCKET)["Contents"]]

        again = states.start_execution(
            stateMachineArn=machine, input=json.dumps(submitted(kept, own.code("hello.py", HELLO)))
        )["executionArn"]
        ended = wait_for(
            lambda: states.describe_execution(executionArn=again), lambda execution: execution["status"] != "RUNNING"
        )
        assert ended["status"] == "SUCCEEDED"

    def test_down_and_up_keep_everything(self, own, kept):
        job_run = own.start(kept, own.code("hello.py", HELLO))
        before = own.until(kept, job_run)
        stopped = own.start(kept, own.code("sleeper.py", SLEEPER))
        wait_for(lambda: log_so_far(own, stopped), lambda log: "started" in log)
        assert list(own.files.jobs.glob("*/.aws/credentials"))
        assert local_cloud.down(own.root)
        assert [path for name in (".aws", "tmp", "work", "driver-*") for path in own.files.jobs.rglob(name)] == []
        assert not local_cloud.down(own.root)
        assert local_cloud.status(own.root) is None
        own.up()
        assert own.job(kept, job_run) == before
        assert own.job(kept, stopped)["stateDetails"] == "Job failed: the local cloud stopped while it ran"
        assert local_cloud.up(own.root) == own.cloud

    def test_the_error_of_a_port_in_use_names_the_port(self, own, tmp_path_factory):
        other = tmp_path_factory.mktemp("other")
        port = int(own.cloud.endpoint.rsplit(":", 1)[1])
        with pytest.raises(InputError, match=str(port)):
            local_cloud.up(other, port=port)
        with pytest.raises(InputError, match="already runs"):
            local_cloud.up(own.root, port=port + 1)
        assert local_cloud.status(other) is None

    def test_a_cloud_that_cannot_start_shows_the_end_of_its_log(self, tmp_path, monkeypatch):
        (tmp_path / "ministack").mkdir()
        (tmp_path / "ministack" / "__init__.py").write_text("raise RuntimeError('no emulator today')")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        with pytest.raises(CloudError, match=r"(?s)did not start.*no emulator today"):
            local_cloud.up(tmp_path)
        assert local_cloud.status(tmp_path) is None

    def test_an_interrupted_start_leaves_no_process(self, tmp_path):
        program = (  # a shell that runs in the background has its children ignore interruptions
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from pathlib import Path; from slackwater.local import cloud; cloud.up(Path(sys.argv[1]))"
        )
        (tmp_path / "ministack").mkdir()
        (tmp_path / "ministack" / "__init__.py").write_text("import time; time.sleep(60)")
        slow = {**os.environ, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-c", program, str(tmp_path)]
        starting = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=slow)
        log = tmp_path / ".slackwater" / "cloud.log"
        wait_for(log.exists, bool)
        starting.send_signal(signal.SIGINT)
        assert starting.wait(30) != 0
        assert not (tmp_path / ".slackwater" / "cloud.json").exists()
        assert not [line for line in running_commands() if str(tmp_path) in line]


def running_commands() -> list[str]:
    listed = subprocess.run(["ps", "-eo", "stat,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if not line.startswith("Z")]
