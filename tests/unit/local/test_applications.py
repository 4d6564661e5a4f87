"""Applications of the local EMR Serverless: states, pages and tags, and the resource type of stacks."""

from __future__ import annotations

from typing import ClassVar

import pytest
from ministack.services.cloudformation import provisioners

from slackwater.local.emr import cloudformation
from slackwater.local.emulator import request_scope
from slackwater.local.service_model import EmrResourceNotFound, EmrValidationError
from tests.fakes_local import SCOPE, Emr

pytestmark = pytest.mark.unit


def test_pages_and_tags():
    emr = Emr(tags={"a": "1"})
    others = [emr.create(str(number)).id for number in range(2)]
    listed, page = [], {}
    while not listed or "nextToken" in page:
        page = emr.api.list_applications(SCOPE, {"maxResults": 1, **page})
        listed += [item["id"] for item in page.pop("applications")]
    assert listed == [emr.application.id, *others]
    with pytest.raises(EmrValidationError, match="nextToken"):
        emr.api.list_applications(SCOPE, {"nextToken": "bm90IG9uZQ"})
    arn = {"resourceArn": emr.application.arn}
    emr.api.tag_resource(SCOPE, {**arn, "tags": {"b": "2"}})
    emr.api.untag_resource(SCOPE, {**arn, "tagKeys": ["a", "never there"]})
    assert emr.api.list_tags_for_resource(SCOPE, arn)["tags"] == {"b": "2"}


class TestApplications:
    def test_deleting_needs_a_stopped_application_and_deletes_its_job_runs(self):
        emr = Emr()
        run = emr.ended(emr.start())
        with pytest.raises(EmrValidationError):
            emr.api.delete_application(SCOPE, emr.id)
        emr.api.stop_application(SCOPE, emr.id)
        emr.api.delete_application(SCOPE, emr.id)
        assert run.id not in emr.store.job_runs

    def test_a_deleted_application_is_terminated_and_is_listed_only_on_request(self):
        emr = Emr()
        emr.api.delete_application(SCOPE, emr.id)
        assert emr.state == "TERMINATED"
        assert emr.api.list_applications(SCOPE, {})["applications"] == []
        [listed] = emr.api.list_applications(SCOPE, {"states": ["TERMINATED"]})["applications"]
        assert (listed["id"], listed["state"]) == (emr.application.id, "TERMINATED")

    def test_a_deleted_application_cannot_be_used(self):
        emr = Emr()
        emr.api.delete_application(SCOPE, emr.id)
        for use in (emr.api.start_application, emr.api.stop_application, emr.api.delete_application):
            with pytest.raises(EmrResourceNotFound):
                use(SCOPE, emr.id)
        with pytest.raises(EmrResourceNotFound):
            emr.start()
        assert emr.create("app").id != emr.application.id

    def test_the_last_hundred_deleted_applications_are_kept(self):
        emr = Emr()
        for number in range(105):
            emr.api.delete_application(SCOPE, {"applicationId": emr.create(str(number)).id})
        assert len(emr.store.applications) == 1 + 100
        assert emr.state == "CREATED"

    def test_stopping_needs_all_job_runs_to_have_ended(self):
        emr = Emr()
        with emr.runner.holding():
            emr.start()
            with pytest.raises(EmrValidationError):
                emr.api.stop_application(SCOPE, emr.id)

    def test_an_idle_application_stops_by_itself(self):
        emr = Emr(autoStopConfiguration={"enabled": True, "idleTimeoutMinutes": 1})
        emr.ended(emr.start())
        assert emr.state == "STARTED"
        emr.application.idle_since -= 61
        assert emr.state == "STOPPED"

    def test_a_started_application_cannot_be_updated(self):
        emr = Emr()
        emr.api.start_application(SCOPE, emr.id)
        request = {"applicationId": emr.application.id, "clientToken": "u", "releaseLabel": "emr-spark-8.1.1"}
        with pytest.raises(EmrValidationError):
            emr.api.update_application(SCOPE, request)
        emr.api.stop_application(SCOPE, emr.id)
        assert emr.api.update_application(SCOPE, request)["application"]["releaseLabel"] == "emr-spark-8.1.1"

    @pytest.mark.parametrize("type_", ["HIVE", "Spark", "spark"])
    def test_only_the_documented_type_of_spark_is_accepted(self, type_):
        emr = Emr()
        with pytest.raises(EmrValidationError, match=type_):
            emr.create("another", releaseLabel="emr-7.0.0", type=type_)


class TestStacks:
    """`AWS::EMRServerless::Application`, as CloudFormation creates, updates and deletes it."""

    PROPERTIES: ClassVar = {"Name": "a", "ReleaseLabel": "emr-spark-8.1.0", "Type": "SPARK", "Architecture": "X86_64"}

    @pytest.fixture
    def emr(self, monkeypatch):
        emr = Emr()
        monkeypatch.setattr(provisioners, "_RESOURCE_HANDLERS", {})
        cloudformation.register(emr.api)
        self.handlers = provisioners._RESOURCE_HANDLERS["AWS::EMRServerless::Application"]
        self.created, _ = self.handlers["create"]("App", self.PROPERTIES, "stack")
        return emr

    def state(self, emr):
        return emr.api.get_application(request_scope(), {"applicationId": self.created})["application"]["state"]

    def update(self, **changes):
        return self.handlers["update"](self.created, self.PROPERTIES, {**self.PROPERTIES, **changes}, "stack")[0]

    @pytest.mark.parametrize(
        "changes",
        [{"MaximumCapacity": {"Cpu": "8 vCPU", "Memory": "32 GB"}}, {"Tags": [{"Key": "owner", "Value": "me"}]}],
    )
    def test_a_started_application_is_not_updated_not_even_its_tags(self, emr, changes):
        emr.api.start_application(request_scope(), {"applicationId": self.created})
        with pytest.raises(EmrValidationError, match="STARTED"):
            self.update(**changes)
        emr.api.stop_application(request_scope(), {"applicationId": self.created})
        assert self.update(**changes) == self.created

    def test_a_started_application_is_not_deleted(self, emr):
        emr.api.start_application(request_scope(), {"applicationId": self.created})
        with pytest.raises(EmrValidationError, match="STARTED"):
            self.handlers["delete"](self.created, self.PROPERTIES)
        assert self.state(emr) == "STARTED"
        emr.api.stop_application(request_scope(), {"applicationId": self.created})
        self.handlers["delete"](self.created, self.PROPERTIES)
        assert self.state(emr) == "TERMINATED"

    def test_an_application_that_the_api_refuses_fails_the_resource_with_the_message(self, emr):
        with pytest.raises(EmrValidationError, match="releaseLabel"):
            self.handlers["create"]("App", {"Name": "b", "Type": "SPARK"}, "stack")

    def test_name_and_type_replace_the_application_and_other_properties_do_not(self, emr):
        assert self.update(Architecture="ARM64") == self.created
        assert self.update(Name="another") != self.created
        assert self.state(emr) == "CREATED"  # CloudFormation deletes it when the update has succeeded
