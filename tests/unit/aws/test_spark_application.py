"""The Spark application is stopped before a deployment that changes it, unless it has something to do."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from slackwater.aws import spark_application
from slackwater.aws.spark_application import SparkApplications
from slackwater.errors import CloudError
from slackwater.local.service_model import EmrError
from tests.fakes_local import SCOPE, Emr

pytestmark = pytest.mark.unit

PROPERTIES = {"Name": "slackwater", "Type": "SPARK", "MaximumCapacity": {"Cpu": "16 vCPU", "Memory": "64 GB"}}


def template(**changes: Any) -> dict[str, Any]:
    application = {"Type": "AWS::EMRServerless::Application", "Properties": {**PROPERTIES, **changes}}
    return {"Resources": {"Spark": application, "Role": {"Type": "AWS::IAM::Role"}}}


class CloudFormation:
    """One deployed stack."""

    def __init__(self, application: str) -> None:
        self.application = application

    def get_template(self, *, StackName: str) -> dict[str, Any]:  # noqa: N803 - boto3's name
        if StackName != "slackwater-processing":
            error = {"Code": "ValidationError", "Message": f"Stack with id {StackName} does not exist"}
            raise ClientError({"Error": error}, "GetTemplate")
        return {"TemplateBody": template()}

    def describe_stack_resource(self, *, StackName: str, LogicalResourceId: str) -> dict[str, Any]:  # noqa: N803
        assert (StackName, LogicalResourceId) == ("slackwater-processing", "Spark")
        return {"StackResourceDetail": {"PhysicalResourceId": self.application}}


class EmrClient:
    """A client of the local EMR Serverless."""

    def __init__(self, emr: Emr) -> None:
        self._api = emr.api
        self.calls: list[str] = []

    def __getattr__(self, operation: str) -> Any:
        def call(**request: Any) -> Any:
            self.calls.append(operation)
            try:
                return getattr(self._api, operation)(SCOPE, request)
            except EmrError as error:
                raise ClientError({"Error": {"Code": error.code, "Message": str(error)}}, operation) from error

        return call

    def get_paginator(self, operation: str) -> Any:
        class Paginator:
            def paginate(_self, **request: Any) -> Any:  # noqa: N805
                yield getattr(self, operation)(**request)

        return Paginator()


@pytest.fixture
def emr() -> Emr:
    return Emr()


@pytest.fixture
def applications(emr: Emr) -> SparkApplications:
    return SparkApplications(cloudformation=CloudFormation(emr.application.id), emr=EmrClient(emr))


def elsewhere() -> dict[str, Any]:
    """The template with changes outside of the application's properties."""
    same = template()
    same["Resources"]["Spark"]["Metadata"] = {"aws:cdk:path": "elsewhere"}
    same["Resources"]["Role"]["Properties"] = {"Description": "changed"}
    return same


@pytest.mark.parametrize(
    ("stack", "deployed", "is_changed"),
    [
        ("slackwater", template(MaximumCapacity={"Cpu": "32 vCPU", "Memory": "64 GB"}), True),
        ("slackwater", template(Tags=[{"Key": "owner", "Value": "me"}]), True),
        ("slackwater", {"Resources": {}}, True),
        ("slackwater", elsewhere(), False),
        # A first deployment.
        ("other", template(), False),
    ],
)
def test_a_removed_application_and_any_other_property_change_it(
    emr: Emr, applications: SparkApplications, stack: str, deployed: dict[str, Any], *, is_changed: bool
) -> None:
    assert applications.changed(f"{stack}-processing", deployed) == [emr.application.id] * is_changed


def test_an_idle_application_is_stopped(emr, applications):
    emr.ended(emr.start())
    assert applications.stop(emr.application.id) is True
    assert emr.state == "STOPPED"


@pytest.mark.parametrize("started", [True, False])
def test_an_application_that_does_not_run_is_left_alone(emr, applications, started):
    if started:
        emr.api.delete_application(SCOPE, emr.id)
    assert applications.stop(emr.application.id) is False
    assert applications.emr.calls == ["get_application"]


def test_an_application_with_jobs_is_not_stopped_and_the_error_lists_them(emr, applications):
    with emr.runner.holding():
        emr.until(emr.start("one", name="daily_delays 2013-03-08 flights"), "RUNNING")
        with pytest.raises(CloudError) as refused:
            applications.stop(emr.application.id)
        assert emr.state == "STARTED"
    message = str(refused.value)
    assert message.startswith("nothing was changed: AWS changes and deletes the Spark application")
    assert "it has unfinished jobs:\n  daily_delays 2013-03-08 flights (RUNNING)\nRepeat the command" in message


def test_stopping_waits_until_the_application_has_stopped(monkeypatch, emr, applications):
    """AWS answers at once, while the application is `STOPPING`."""
    emr.ended(emr.start())
    monkeypatch.setattr(emr.api, "stop_application", lambda _scope, _request: emr.application.change_state("STOPPING"))
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            emr.application.change_state("STOPPED")

    assert applications.stop(emr.application.id, sleep=sleep) is True
    assert len(pauses) == 3
    emr.application.change_state("STOPPING")
    monkeypatch.setattr(spark_application, "_STOP_SECONDS", -1)
    with pytest.raises(CloudError, match="has not stopped within"):
        applications.stop(emr.application.id, sleep=sleep)
