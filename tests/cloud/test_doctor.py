"""`slackwater doctor` on a deployment: what the local cloud answers, and the job."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cloud


def test_a_deployment_is_checked_and_runs_the_job(cloud):
    document = cloud.json("doctor", "--job", code=None)
    checks = {check.pop("check"): check for check in document["checks"]}
    passing = {"region", "credentials", "stacks", "EMR Serverless", "CDK bootstrap", "library", "resources", "job"}
    assert {name: checks[name]["status"] for name in passing} == dict.fromkeys(passing, "ok")
    assert "wrote and read an Iceberg table with Spark" in checks["job"]["found"]
    # The local cloud has neither of these services.
    for name in ("vCPU quota", "Lake Formation"):
        assert checks[name]["status"] == "not checked"
