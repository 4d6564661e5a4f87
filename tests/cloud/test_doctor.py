"""`slackwater doctor` on a deployment: what the local cloud answers, and the job."""

from __future__ import annotations

import json
import re

import pytest

pytestmark = pytest.mark.cloud


def machines(cloud) -> list[str]:
    found = cloud.client("stepfunctions").list_state_machines()["stateMachines"]
    return [machine["name"] for machine in found if "_doctor" in machine["name"]]


def test_a_deployment_is_checked_and_runs_the_job(cloud):
    document = cloud.json("doctor", "--job", code=None)
    checks = {check.pop("check"): check for check in document["checks"]}
    passing = {"region", "credentials", "stacks", "EMR Serverless", "CDK bootstrap", "library", "resources", "job"}
    assert {name: checks[name]["status"] for name in passing} == dict.fromkeys(passing, "ok")
    assert "an Iceberg commit with a tag with Spark" in checks["job"]["found"]
    assert re.match(
        r"\d+ replaced versions? of \d+ tables: .*, about 0.00 USD a month", checks["old versions"]["found"]
    )
    assert machines(cloud) == []
    # The local cloud has none of these services.
    for name in ("account plan", "vCPU quota", "Lake Formation"):
        assert checks[name]["status"] == "not checked"


@pytest.mark.parametrize(
    ("output", "action"),
    [
        ("JobRoleArn", "dynamodb:GetItem"),
        ("JobRoleArn", "s3:DeleteObject"),
        ("AnyPipelineRoleArn", "emr-serverless:StartJobRun"),
        ("AnyPipelineRoleArn", "iam:PassRole"),
    ],
)
def test_a_permission_that_a_role_of_runs_lacks_fails_the_job_and_is_named(cloud, output, action):
    iam, arn = cloud.client("iam"), cloud.outputs()[output]
    role = arn.rpartition("/")[2]
    denial = {"Effect": "Deny", "Action": action, "Resource": "*"}
    iam.put_role_policy(RoleName=role, PolicyName="deny", PolicyDocument=json.dumps({"Statement": [denial]}))
    try:
        document = cloud.json("doctor", "--job", code=1)
    finally:
        iam.delete_role_policy(RoleName=role, PolicyName="deny")
    [job] = [check for check in document["checks"] if check["check"] == "job"]
    assert job["status"] == "failed"
    assert action in job["found"]
    assert f"the role {arn} lacks this permission" in job["remedy"]
    assert machines(cloud) == []
