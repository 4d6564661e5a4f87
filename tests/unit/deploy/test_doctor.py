"""`slackwater doctor`: each check passes for a healthy account, and finds its fault in one that is not."""

from __future__ import annotations

import gzip
import io
import json
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

import boto3
import pytest

import slackwater.aws.clients as clients_module
from slackwater import __version__
from slackwater.aws.deployment import STACKS, Deployment
from slackwater.cli.main import run
from slackwater.deploy import doctor as doctor_module
from slackwater.deploy.check_account import check_caller
from slackwater.deploy.check_job import check_job
from slackwater.deploy.finding import Status, supported_until
from slackwater.errors import InputError
from slackwater.runs.record import Run
from tests.example_project import PROJECT, example_project
from tests.fakes_aws import FakeAws

pytestmark = pytest.mark.unit

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/sso.amazonaws.com/Admin"
APPLICATION = f"arn:aws:emr-serverless:eu-west-1:{ACCOUNT}:/applications/00abcdefg1234567"
MACHINE = f"arn:aws:states:eu-west-1:{ACCOUNT}:stateMachine:slackwater-"
OUTPUTS = {str(field.alias): f"the-{field.alias}" for field in Deployment.model_fields.values()} | {
    "LibraryVersion": __version__,
    "ConcurrentRuns": "3",
    "CollectMinutes": "5",
    "ApplicationId": "00abcdefg1234567",
    "CheckReleaseUri": "s3://assets/check_release.py",
    "ProjectUri": "s3://assets/project.json",
    "JobRoleArn": f"arn:aws:iam::{ACCOUNT}:role/job",
    "PullMachineArn": f"{MACHINE}pull",
    "PipelineMachinePrefix": f"{MACHINE}pipeline-",
    "ExchangeBucket": "the-ExchangeBucket",
    "LogPrefix": "s3://exchange/logs/",
}
ALL_PRINCIPALS = {"Principal": {"DataLakePrincipalIdentifier": "IAM_ALLOWED_PRINCIPALS"}, "Permissions": ["ALL"]}
FRAME = json.loads(Path("step_functions/pipeline.asl.json").read_text(encoding="utf-8"))


def stacks(status="UPDATE_COMPLETE", *, only=(*STACKS, "schedule"), outputs=OUTPUTS):
    """Answers of DescribeStacks: these stacks have this status, the others do not exist."""

    def describe(request):
        if request["StackName"].removeprefix("slackwater-") not in only:
            return "ValidationError"
        values = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
        stack = {"StackName": request["StackName"], "StackStatus": status, "Outputs": values}
        return {"Stacks": [stack | {"CreationTime": 0}]}

    return describe


def deciding(denied=(), *, principal=ROLE):
    """Answers of SimulatePrincipalPolicy: these actions are denied."""

    def simulate(request):
        assert request["PolicySourceArn"] == principal
        decision = "implicitDeny" if request["ActionNames"][0] in denied else "allowed"
        return {
            "EvaluationResults": [
                {"EvalActionName": action, "EvalResourceName": resource, "EvalDecision": decision}
                for action in request["ActionNames"]
                for resource in request["ResourceArns"]
            ]
        }

    return simulate


def application(**changes):
    return {
        "application": {
            "applicationId": "00abcdefg1234567",
            "arn": APPLICATION,
            "releaseLabel": "emr-spark-8.1.0",
            "type": "Spark",
            "state": "STOPPED",
            "createdAt": 0,
            "updatedAt": 0,
            "maximumCapacity": {"cpu": "16 vCPU", "memory": "64 GB"},
            **changes,
        }
    }


# Of another deployment, whose prefix begins like ours.
_OTHERS = (("slackwater-dev-fetch-file", "python3.9"), ("other", "python3.9"))


def functions(runtime):
    return {
        "Functions": [
            {"FunctionName": name, "Runtime": used} for name, used in (("slackwater-fetch-file", runtime), *_OTHERS)
        ]
    }


def plan(name):
    return {"accountId": ACCOUNT, "accountPlanType": name, "accountPlanStatus": "ACTIVE"}


def project_file(_request):
    return {"Body": io.BytesIO(example_project().model_dump_json(by_alias=True).encode())}


def objects_of(source, number):
    """Answers of ListObjectsV2: this source has so many objects in the present hour."""

    def listed(request):
        if f"source={source}/" not in request["Prefix"]:
            return {}
        hour = datetime.now(UTC).strftime("date=%Y-%m-%d/hour=%H/")
        entry = {"ETag": "e", "LastModified": 0}
        return {
            "Contents": [{**entry, "Key": f"{request['Prefix']}{hour}{i:03}.parquet", "Size": 1} for i in range(number)]
        }

    return listed


HEALTHY = {
    "freetier:GetAccountPlanState": plan("PAID"),
    "sts:GetCallerIdentity": {"Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/Admin/me", "Account": ACCOUNT},
    "cloudformation:DescribeStacks": stacks(),
    "cloudformation:ListStackResources": {"StackResourceSummaries": []},
    "emr-serverless:ListApplications": {"applications": []},
    "emr-serverless:GetApplication": application(),
    "service-quotas:GetServiceQuota": {"Quota": {"Value": 16.0}},
    "lambda:GetAccountSettings": {"AccountLimit": {"ConcurrentExecutions": 1000}},
    "lambda:ListFunctions": functions("python3.13"),
    "apigateway:GetAccount": {"cloudwatchRoleArn": f"arn:aws:iam::{ACCOUNT}:role/logs"},
    "ssm:GetParameter": {"Parameter": {"Value": "28"}},
    "iam:GetRole": {
        "Role": {"Path": "/", "RoleName": "Admin", "RoleId": "A" * 16, "Arn": ROLE, "CreateDate": 0},
    },
    "iam:SimulatePrincipalPolicy": deciding(),
    "glue:GetTables": {"TableList": []},
    "s3:GetObject": project_file,
    "s3:ListObjectsV2": {},
    "lakeformation:GetDataLakeSettings": {
        "DataLakeSettings": {
            "CreateDatabaseDefaultPermissions": [ALL_PRINCIPALS],
            "CreateTableDefaultPermissions": [ALL_PRINCIPALS],
        }
    },
}
NOT_DEPLOYED = {
    "cloudformation:DescribeStacks": "ValidationError",
    "logs:DescribeLogGroups": {"logGroups": [{"logGroupName": "/aws/lambda/slackwater-dev-fetch-file"}]},
    "stepfunctions:ListStateMachines": {
        "stateMachines": [
            {"stateMachineArn": "arn", "name": "slackwater-dev-pipeline-x", "type": "STANDARD", "creationDate": 0}
        ]
    },
    "glue:GetDatabases": {"DatabaseList": [{"Name": "default"}]},
}


@pytest.fixture
def doctor(monkeypatch, capsys):
    """Run the command in an account that is healthy except for these answers; return its checks and exit code."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("SLACKWATER_PREFIX", raising=False)

    def doctor(*arguments, **answers):
        aws = FakeAws(HEALTHY | answers)
        monkeypatch.setattr(doctor_module, "client", aws.client)
        code = run(["doctor", "--json", *arguments, *PROJECT])
        return {check.pop("check"): check for check in json.loads(capsys.readouterr().out)["checks"]}, code

    return doctor


def test_a_healthy_deployment_passes_every_check_except_the_job_that_was_not_asked_for(doctor):
    checks, code = doctor()
    assert {name: check["status"] for name, check in checks.items() if check["status"] != "ok"} == {
        "job": "not checked"
    }
    assert code == 0


def test_a_healthy_account_passes_every_check_before_the_first_deployment(doctor):
    checks, code = doctor(**NOT_DEPLOYED)
    assert {check["status"] for check in checks.values()} == {"ok"}
    assert {"stacks", "leftovers", "vCPU quota", "CDK bootstrap", "permission to deploy"} <= set(checks)
    assert "SLACKWATER_PREFIX" in checks["stacks"]["found"]
    assert code == 0


LEAKED = "/aws/lambda/slackwater-freeze-inputs"
FAULTS = {
    "credentials": ({"sts:GetCallerIdentity": "ExpiredToken"}, "failed", "ExpiredToken", "AWS_PROFILE"),
    "EMR Serverless": ({"emr-serverless:ListApplications": "ServiceUnavailable"}, "failed", "no", "region"),
    "vCPU quota": (
        {"service-quotas:GetServiceQuota": {"Quota": {"Value": 8.0}}}, "failed", "8 vCPU", "L-D05C8A75",
    ),
    "Lambda concurrency": (
        {"lambda:GetAccountSettings": {"AccountLimit": {"ConcurrentExecutions": 10}}}, "warning", "10 f", "L-B99A9384",
    ),
    "CDK bootstrap": ({"ssm:GetParameter": {"Parameter": {"Value": "5"}}}, "warning", "version 5", "slackwater deploy"),
    "API Gateway's log role": ({"apigateway:GetAccount": {}}, "warning", "no role for its logs", "slackwater deploy"),
    "permission to deploy": (
        {"iam:SimulatePrincipalPolicy": deciding(["sts:AssumeRole"])},
        "failed", f"sts:AssumeRole on arn:aws:iam::{ACCOUNT}:role/cdk-hnb659fds-deploy-role-{ACCOUNT}-eu-west-1", ROLE,
    ),
    "permission to operate": (
        {"iam:SimulatePrincipalPolicy": deciding(["states:StartExecution"])},
        "failed", f"states:StartExecution on {MACHINE}pull", ROLE,
    ),
    "Lake Formation": (
        {"lakeformation:GetDataLakeSettings": {"DataLakeSettings": {"CreateTableDefaultPermissions": []}}},
        "warning", "IAM_ALLOWED_PRINCIPALS", "docs/deploy/account.md",
    ),
    "leftovers": (
        NOT_DEPLOYED | {"logs:DescribeLogGroups": {"logGroups": [{"logGroupName": LEAKED}]}},
        "failed", LEAKED, "delete them",
    ),
    "stacks": (
        {"cloudformation:DescribeStacks": stacks("UPDATE_ROLLBACK_FAILED")},
        "failed", "slackwater-storage is UPDATE_ROLLBACK_FAILED", "deploy.log",
    ),
    "outputs": ({"cloudformation:DescribeStacks": stacks(outputs={})}, "failed", "ApiUrl", "slackwater deploy"),
    "library": (
        {"cloudformation:DescribeStacks": stacks(outputs=OUTPUTS | {"LibraryVersion": "0.0.9"})},
        "failed", "0.0.9 is deployed", "deploy again",
    ),
    "EMR release": (
        {"emr-serverless:GetApplication": application(releaseLabel="emr-7.0.0")}, "not checked", "emr-7.0.0", "",
    ),
    "Spark jars": (
        {
            "emr-serverless:GetApplication": application(
                runtimeConfiguration=[{"classification": "spark-defaults", "properties": {"spark.jars": "/usr/x.jar"}}]
            )
        },
        "warning", "/usr/x.jar", "remove spark.jars",
    ),
    "account plan": (
        {"freetier:GetAccountPlanState": plan("FREE")}, "failed", "the free plan", "--account-plan-type PAID",
    ),
    "functions' Python": ({"lambda:ListFunctions": {"Functions": []}}, "failed", "no function", "slackwater deploy"),
    "resources": (
        {
            "cloudformation:ListStackResources": {
                "StackResourceSummaries": [
                    {
                        "LogicalResourceId": "x",
                        "ResourceType": "AWS::X",
                        "LastUpdatedTimestamp": 0,
                        "ResourceStatus": "CREATE_COMPLETE",
                    }
                ] * 450
            }
        },
        "warning", "450 of the 500", "divide",
    ),
    "old versions": ({"glue:GetTables": "AccessDeniedException"}, "not checked", "AccessDenied", ""),
    "raw objects": (
        {"s3:ListObjectsV2": objects_of("flights", 301)},
        "warning", "an hour: flights in 20", "sources/flights.yaml: ",
    ),
    "schedule": (
        {"cloudformation:DescribeStacks": stacks(only=STACKS)},
        "warning", "nothing starts by itself", "docs/schedule.md",
    ),
}  # fmt: skip


def logging(group):
    return NOT_DEPLOYED | {"logs:DescribeLogGroups": {"logGroups": [{"logGroupName": group}]}}


def deployed(**changes):
    return {"cloudformation:DescribeStacks": stacks(**changes)}


def calling(arn):
    return {"sts:GetCallerIdentity": {"Arn": arn, "Account": ACCOUNT}}


JARS_OF_SETTINGS = OUTPUTS | {"SparkSubmitParameters": "--conf spark.jars=s3://code/a.jar,/b.jar --conf spark.x=y"}
LARGE = application(maximumCapacity={"cpu": "64 vCPU", "memory": "64 GB"})
ROOT, FEDERATED = f"arn:aws:iam::{ACCOUNT}:root", f"arn:aws:sts::{ACCOUNT}:federated-user/x"
MORE_FAULTS = [
    ("leftovers", logging(name := "/aws/vendedlogs/apis/slackwater-receiver"), "failed", name, "delete them"),
    ("leftovers", logging(name := "aws-waf-logs-slackwater-receiver"), "failed", name, "delete them"),
    ("Spark jars", deployed(outputs=JARS_OF_SETTINGS), "warning", "every job loads s3://code/a.jar,/b.jar, and f", ""),
    ("stacks", deployed(status="UPDATE_IN_PROGRESS"), "warning", "is UPDATE_IN_PROGRESS", "wait"),
    ("stacks", deployed(only=STACKS[:2]), "failed", "slackwater-late is missing", ""),
    ("stacks", deployed(status="ROLLBACK_COMPLETE"), "failed", "slackwater-storage is ROLLBACK_COMPLETE", ""),
    ("vCPU quota", {"emr-serverless:GetApplication": LARGE}, "failed", "up to 64", ""),
    ("schedule", deployed(only=STACKS, outputs=OUTPUTS | {"Schedule": "airflow"}), "ok", "an Airflow environment", ""),
    # An account without a plan.
    ("account plan", {"freetier:GetAccountPlanState": "ResourceNotFoundException"}, "not checked", "", ""),
    ("account plan", {"freetier:GetAccountPlanState": "UnknownOperationException"}, "not checked", "", ""),
    *(
        (f"permission to {name}", calling(arn), status, "", "")
        for name in ("deploy", "operate")
        for arn, status in ((ROOT, "warning"), (FEDERATED, "not checked"))
    ),
]


@pytest.mark.parametrize(
    ("name", "answers", "status", "found", "remedy"), [*((name, *case) for name, case in FAULTS.items()), *MORE_FAULTS]
)
def test_a_fault_is_named_with_its_remedy(doctor, *, name, answers, status, found, remedy):
    checks, code = doctor(**answers)
    assert checks[name]["status"] == status
    assert found in checks[name]["found"]
    assert remedy in checks[name]["remedy"]
    assert code == (checks[name]["status"] == "failed")


def test_every_check_has_a_fault_here(doctor):
    checks = {**doctor()[0], **doctor(**NOT_DEPLOYED)[0]}
    assert set(checks) - set(FAULTS) == {"region", "job"}


@pytest.mark.parametrize("operation", sorted(set(HEALTHY) - {"sts:GetCallerIdentity", "iam:GetRole"}))
def test_a_call_that_is_not_allowed_never_passes_a_check(doctor, operation):
    checks, code = doctor(**{operation: "AccessDeniedException"})
    refused = [check for check in checks.values() if "AccessDenied" in check["found"]]
    assert refused
    assert {check["status"] for check in refused} == {"not checked"}
    assert code == 0


def test_a_missing_region_is_named_and_nothing_else_is_checked(doctor, monkeypatch, printed_by):
    def no_region(service):
        raise InputError("no AWS region is set")

    monkeypatch.setattr(doctor_module, "client", no_region)
    shown = printed_by("doctor", *PROJECT, code=1).out
    assert "no AWS region is set" in shown
    assert "set AWS_REGION" in shown
    assert len(shown.splitlines()) == 2


def test_no_region_is_a_fault_although_sts_answers_without_one(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    session = boto3.session.Session("test", "test")
    caller, findings = check_caller(partial(clients_module.client, session=session))
    assert (caller, list(findings)) == (None, ["region"])
    assert findings["region"].status == Status.FAILED


def test_a_user_is_simulated_with_its_own_arn(doctor):
    user = f"arn:aws:iam::{ACCOUNT}:user/teams/me"
    answers = {
        "sts:GetCallerIdentity": {"Arn": user, "Account": ACCOUNT},
        "iam:SimulatePrincipalPolicy": deciding(["dynamodb:Query"], principal=user),
    }
    checks, _ = doctor(**answers)
    assert checks["permission to deploy"]["status"] == "ok"
    assert checks["permission to operate"]["found"].startswith("denied: dynamodb:Query on arn:aws:dynamodb:eu-west-1:")


def test_a_bootstrap_with_a_name_of_its_own_that_is_missing_is_a_fault(doctor, monkeypatch):
    monkeypatch.setattr("slackwater.client.workspace.Workspace.bootstrap_qualifier", "acme")
    checks, code = doctor(**{"ssm:GetParameter": "ParameterNotFound"})
    assert checks["CDK bootstrap"]["remedy"].startswith("run `cdk bootstrap --qualifier acme`")
    assert code == 1


@pytest.mark.parametrize(
    ("today", "status"),
    [
        (date(2026, 12, 31), Status.OK),
        (date(2027, 1, 2), Status.WARNING),
        (date(2027, 6, 30), Status.WARNING),
        (date(2027, 7, 1), Status.FAILED),
    ],
)
def test_the_end_of_support_is_announced_half_a_year_before(today, status):
    finding = supported_until("python3.11", date(2027, 6, 30), today=today, remedy="newer")
    assert finding.status == status
    assert finding.remedy == ("" if status == Status.OK else "newer")


CREATED = datetime(2026, 11, 1, tzinfo=UTC)
MACHINE_ARN = f"{MACHINE}pipeline-_doctor-1"
EXECUTION = MACHINE_ARN.replace("stateMachine", "execution") + ":1"


def job_answers(status="SUCCEEDED", *, log=b"", failure=b"", error="", jobs=({"stateDetails": "none"},)):
    """Answers for an execution that is running first and then has this status, and for its jobs.

    `log` is the log of the driver, and `failure` the error that the job has stored.
    """
    statuses, machines = iter(["RUNNING", status]), []

    def create(request):
        machines.append(request["name"])
        return {"stateMachineArn": MACHINE_ARN, "creationDate": CREATED}

    def read(request):
        content = failure if request["Key"].endswith("failure.txt") else log and gzip.compress(log)
        return {"Body": io.BytesIO(content)} if content else "NoSuchKey"

    def describe(request):
        ended = {"executionArn": EXECUTION, "stateMachineArn": MACHINE_ARN, "status": next(statuses)}
        return {**ended, "startDate": CREATED, **({"error": error, "cause": "why"} if error else {})}

    listed = {
        "applicationId": "00abcdefg1234567",
        "id": "00job1234567890",
        "arn": f"{APPLICATION}/jobruns/00job1234567890",
        "createdBy": ROLE,
        "createdAt": CREATED,
        "updatedAt": CREATED,
        "executionRole": ROLE,
        "state": "FAILED",
        "releaseLabel": "emr-spark-8.1.0",
    }
    return {
        "stepfunctions:CreateStateMachine": create,
        "stepfunctions:StartExecution": {"executionArn": EXECUTION, "startDate": CREATED},
        "stepfunctions:DescribeExecution": describe,
        "stepfunctions:GetExecutionHistory": {"events": []},
        "stepfunctions:StopExecution": {"stopDate": CREATED},
        "stepfunctions:DeleteStateMachine": {},
        "emr-serverless:ListJobRuns": lambda _: {
            "jobRuns": [{**listed, "name": f"_doctor 2000-01-01 {machines[0][-8:]}", **job} for job in jobs]
        },
        "s3:GetObject": read,
    }


DEPLOYMENT = Deployment.model_validate(OUTPUTS)


def run_job(answers):
    """Run the check; return its finding, and the requests by operation."""
    states, requests = [], {}

    def keep(name, answer):
        def respond(request):
            requests[name.partition(":")[2]] = request
            return answer(request) if callable(answer) else answer

        return respond

    fake = FakeAws({name: keep(name, answer) for name, answer in answers.items()})
    finding = check_job(fake.client, DEPLOYMENT, on_state=states.append, sleep=lambda _: None)
    assert states[0] == "running"
    return finding, requests


def test_the_job_is_that_of_a_stage_with_another_program():
    _, requests = run_job(job_answers())
    created = requests["CreateStateMachine"]
    assert created["roleArn"] == OUTPUTS["AnyPipelineRoleArn"]
    assert "${" not in created["definition"]
    [frame] = [state for name, state in FRAME["States"].items() if name == "Run <stage>"]
    [job] = [state for state in json.loads(created["definition"])["States"].values() if state["Type"] == "Task"]
    assert set(job) - set(frame) == {"End"}
    submit, of_a_stage = (state["Arguments"]["JobDriver"]["SparkSubmit"] for state in (job, frame))
    assert submit["EntryPoint"] == "s3://assets/check_release.py"
    pairs = zip(submit["EntryPointArguments"], of_a_stage["EntryPointArguments"], strict=True)
    assert all(given == expected for given, expected in pairs if not {"<", "$"} & set(expected))
    assert job["Arguments"]["ExecutionRoleArn"] == OUTPUTS["JobRoleArn"]
    run = Run.model_validate_json(requests["StartExecution"]["input"])
    assert run.prefix == f"s3://the-ExchangeBucket/runs/_doctor/2000-01-01/{run.run_id}/1/"
    assert requests["DeleteStateMachine"] == {"stateMachineArn": MACHINE_ARN}


def test_the_job_reports_the_versions_that_it_found():
    line = json.dumps({"message": "release checked", "spark": "4.1.1", "python": "3.11.9", "modules": 98})
    finding, _ = run_job(job_answers(log=f"noise\n{line}\n".encode()))
    assert finding.status == Status.OK
    assert "Spark 4.1.1 and Python 3.11.9" in finding.found


def test_a_failed_job_gives_the_reason_that_it_stored_or_of_its_log_or_of_emr():
    log = b"...\nModuleNotFoundError: No module named 'y'\n"
    assert run_job(job_answers("FAILED", log=log, failure=b"AuditFailed: x"))[0].found == "AuditFailed: x"
    finding, requests = run_job(job_answers("FAILED", log=b"...\nModuleNotFoundError: No module named 'x'\n"))
    assert (finding.status, finding.found) == (Status.FAILED, "ModuleNotFoundError: No module named 'x'")
    assert "s3://exchange/logs/applications/00abcdefg1234567/jobs/00job1234567890/" in finding.remedy
    assert "DeleteStateMachine" in requests
    assert run_job(job_answers("FAILED", jobs=[{"stateDetails": "256 characters"}]))[0].found == "256 characters"


JARS = "slackwater deploy --set spark_jars="


@pytest.mark.parametrize(
    ("log", "detail", "remedy"),
    [
        (
            "AnalysisException: Cannot find catalog plugin class for catalog 'warehouse': org.apache.iceberg.x",
            "",
            f"{JARS}/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar and",
        ),
        ("ClassNotFoundException: org.apache.iceberg.spark.SparkCatalog", "", f"{JARS}/usr/share/aws/iceberg/"),
        ("", "Job failed. Exception in thread main java.nio.file.NoSuchFileException: /usr/share/x.jar", f"{JARS} and"),
        ("AccessDenied: could not write s3://e/k: AccessDenied: no", "", f"the role {OUTPUTS['JobRoleArn']} lacks"),
        ("AccessDeniedException: Insufficient Lake Formation permission(s): x", "", "account.md, Lake Format"),
    ],
)
def test_the_remedy_of_a_known_failure_is_named(log, detail, remedy):
    finding, _ = run_job(job_answers("FAILED", log=log.encode(), jobs=[{"stateDetails": detail or "none"}]))
    assert finding.status == Status.FAILED
    assert remedy in finding.remedy


def test_a_job_that_the_machine_may_not_start_names_the_role_of_the_machine():
    # Another check has started its job at the same time.
    other = {"name": "_doctor 2000-01-01 otherrun", "stateDetails": "another"}
    finding, _ = run_job(job_answers("FAILED", error="EMRServerless.AccessDeniedException", jobs=[other]))
    assert finding.found == "EMRServerless.AccessDeniedException: why"
    assert f"the role {OUTPUTS['AnyPipelineRoleArn']} lacks this permission" in finding.remedy


def test_a_job_that_may_not_be_started_is_not_checked(doctor):
    checks, code = doctor("--job", **{"stepfunctions:CreateStateMachine": "AccessDeniedException"})
    assert checks["job"]["status"] == "not checked"
    assert "AccessDenied" in checks["job"]["found"]
    assert code == 0


def test_a_job_without_a_deployment_is_not_checked(doctor):
    assert doctor("--job", **NOT_DEPLOYED)[0]["job"]["status"] == "not checked"
