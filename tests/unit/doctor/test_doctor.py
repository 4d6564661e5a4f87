"""`slackwater doctor`: each check passes for a healthy account, and finds its fault in one that is not."""

from __future__ import annotations

import gzip
import io
import json
from datetime import date
from pathlib import Path

import pytest

import slackwater.aws.clients as clients_module
from slackwater import __version__
from slackwater.aws.stacks.deployment import STACKS, Deployment
from slackwater.cli.main import run
from slackwater.doctor.finding import Status, supported_until
from slackwater.doctor.job import check_job
from slackwater.errors import InputError
from tests.fakes_aws import FakeAws

pytestmark = pytest.mark.unit

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/aws-reserved/sso.amazonaws.com/Admin"
APPLICATION = f"arn:aws:emr-serverless:eu-west-1:{ACCOUNT}:/applications/00abcdefg1234567"
JOB_RUN = {
    "applicationId": "00abcdefg1234567",
    "jobRunId": "00job1234567890",
    "arn": f"{APPLICATION}/jobruns/00job1234567890",
}
MACHINE = f"arn:aws:states:eu-west-1:{ACCOUNT}:stateMachine:slackwater-"
OUTPUTS = {str(field.alias): f"the-{field.alias}" for field in Deployment.model_fields.values()} | {
    "LibraryVersion": __version__,
    "ConcurrentRuns": "3",
    "ApplicationId": "00abcdefg1234567",
    "CheckReleaseUri": "s3://assets/check_release.py",
    "JobRoleArn": f"arn:aws:iam::{ACCOUNT}:role/job",
    "PullMachineArn": f"{MACHINE}pull",
    "LogPrefix": "s3://exchange/logs/",
}
ALL_PRINCIPALS = {"Principal": {"DataLakePrincipalIdentifier": "IAM_ALLOWED_PRINCIPALS"}, "Permissions": ["ALL"]}
PROJECT = ["--project", str(Path(__file__).resolve().parents[3] / "examples" / "nyc_flights")]


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


HEALTHY = {
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
        monkeypatch.setattr(clients_module, "client", aws.client)
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


@pytest.mark.parametrize("name", ["/aws/vendedlogs/apis/slackwater-receiver", "aws-waf-logs-slackwater-receiver"])
def test_the_log_groups_of_the_push_api_are_leftovers_too(doctor, name):
    checks, _ = doctor(**NOT_DEPLOYED | {"logs:DescribeLogGroups": {"logGroups": [{"logGroupName": name}]}})
    assert name in checks["leftovers"]["found"]


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
        "warning", "IAM_ALLOWED_PRINCIPALS", "docs/operations.md",
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
    "schedule": (
        {"cloudformation:DescribeStacks": stacks(only=STACKS)},
        "warning", "nothing starts by itself", "docs/schedule.md",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_remedy(doctor, name):
    answers, status, found, remedy = FAULTS[name]
    checks, code = doctor(**answers)
    assert checks[name]["status"] == status
    assert found in checks[name]["found"]
    assert remedy in checks[name]["remedy"]
    assert code == (status == "failed")


def test_every_check_has_a_fault_here(doctor):
    checks = {**doctor()[0], **doctor(**NOT_DEPLOYED)[0]}
    assert set(checks) - set(FAULTS) == {"region", "job"}


@pytest.mark.parametrize(
    ("stack_answer", "status", "found"),
    [
        (stacks("UPDATE_IN_PROGRESS"), "warning", "is UPDATE_IN_PROGRESS"),
        (stacks(only=STACKS[:2]), "failed", "slackwater-late is missing"),
        (stacks("ROLLBACK_COMPLETE"), "failed", "slackwater-storage is ROLLBACK_COMPLETE"),
    ],
)
def test_stacks_that_are_not_complete_are_named(doctor, stack_answer, status, found):
    check = doctor(**{"cloudformation:DescribeStacks": stack_answer})[0]["stacks"]
    assert check["status"] == status
    assert found in check["found"]


def test_the_quota_is_compared_with_the_capacity_of_the_application(doctor):
    answers = {"emr-serverless:GetApplication": application(maximumCapacity={"cpu": "64 vCPU", "memory": "64 GB"})}
    checks, code = doctor(**answers)
    assert "up to 64" in checks["vCPU quota"]["found"]
    assert (checks["vCPU quota"]["status"], code) == ("failed", 1)


@pytest.mark.parametrize("operation", sorted(set(HEALTHY) - {"sts:GetCallerIdentity", "iam:GetRole"}))
def test_a_call_that_is_not_allowed_never_passes_a_check(doctor, operation):
    checks, code = doctor(**{operation: "AccessDeniedException"})
    refused = [check for check in checks.values() if "AccessDenied" in check["found"]]
    assert refused
    assert {check["status"] for check in refused} == {"not checked"}
    assert code == 0


def test_a_missing_region_is_named_and_nothing_else_is_checked(doctor, monkeypatch, capsys):
    def no_region(service):
        raise InputError("no AWS region is set")

    monkeypatch.setattr(clients_module, "client", no_region)
    assert run(["doctor", *PROJECT]) == 1
    shown = capsys.readouterr().out
    assert "no AWS region is set" in shown
    assert "set AWS_REGION" in shown
    assert len(shown.splitlines()) == 2


@pytest.mark.parametrize(
    ("arn", "status"),
    [(f"arn:aws:iam::{ACCOUNT}:root", "warning"), (f"arn:aws:sts::{ACCOUNT}:federated-user/x", "not checked")],
)
def test_a_caller_that_iam_does_not_simulate_does_not_pass(doctor, arn, status):
    checks, _ = doctor(**{"sts:GetCallerIdentity": {"Arn": arn, "Account": ACCOUNT}})
    assert checks["permission to deploy"]["status"] == status
    assert checks["permission to operate"]["status"] == status


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


def job_answers(state, *, log=b""):
    """Answers for a job that is running first and then in this state."""
    states = iter(["RUNNING", state])
    required = {
        "createdBy": ROLE,
        "executionRole": ROLE,
        "jobDriver": {"sparkSubmit": {"entryPoint": "s3://x"}},
        "createdAt": 0,
        "updatedAt": 0,
    }

    def get(request):
        return {
            "jobRun": {
                **required,
                **JOB_RUN,
                "releaseLabel": "emr-spark-8.1.0",
                "state": next(states),
                "stateDetails": "256 characters",
            }
        }

    return {
        "emr-serverless:StartJobRun": JOB_RUN,
        "emr-serverless:GetJobRun": get,
        "s3:GetObject": (lambda _: {"Body": io.BytesIO(gzip.compress(log))}) if log else "NoSuchKey",
    }


DEPLOYMENT = Deployment.model_validate(OUTPUTS)


def run_job(answers):
    states = []
    finding = check_job(FakeAws(answers).client, DEPLOYMENT, on_state=states.append, sleep=lambda _: None)
    assert states[0] == "running"
    return finding


def test_the_job_reports_the_versions_that_it_found():
    line = json.dumps({"message": "release checked", "spark": "4.1.1", "python": "3.11.9", "modules": 98})
    finding = run_job(job_answers("SUCCESS", log=f"noise\n{line}\n".encode()))
    assert finding.status == Status.OK
    assert "Spark 4.1.1 and Python 3.11.9" in finding.found


def test_a_failed_job_gives_the_reason_of_its_log_or_of_emr():
    finding = run_job(job_answers("FAILED", log=b"...\nModuleNotFoundError: No module named 'x'\n"))
    assert (finding.status, finding.found) == (Status.FAILED, "ModuleNotFoundError: No module named 'x'")
    assert "s3://exchange/logs/applications/00abcdefg1234567/jobs/00job1234567890/" in finding.remedy
    assert run_job(job_answers("CANCELLED")).found == "256 characters"


def test_a_job_that_may_not_be_started_is_not_checked(doctor):
    checks, code = doctor("--job", **{"emr-serverless:StartJobRun": "AccessDeniedException"})
    assert checks["job"]["status"] == "not checked"
    assert "AccessDenied" in checks["job"]["found"]
    assert code == 0


def test_a_job_without_a_deployment_is_not_checked(doctor):
    assert doctor("--job", **NOT_DEPLOYED)[0]["job"]["status"] == "not checked"
