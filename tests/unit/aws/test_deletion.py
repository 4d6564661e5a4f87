"""The stacks of a deployment are deleted in order; what would be lost is found before."""

# ruff: noqa: N803 - boto3's names

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.deletion import StackDeletion
from slackwater.errors import CloudError

pytestmark = pytest.mark.unit

BUCKET, QUEUE, ROLE = "AWS::S3::Bucket", "AWS::SQS::Queue", "AWS::IAM::Role"


class Aws:
    """The stacks of an account, with their buckets and queues: the clients of CloudFormation, S3 and SQS in one."""

    def __init__(self, **stacks: dict[str, tuple[str, str]]) -> None:
        """`stacks` are the resources of each stack by logical id: type and deletion policy."""
        self.stacks = stacks
        self.protected: set[str] = set()
        self.status: dict[str, str] = dict.fromkeys(stacks, "UPDATE_COMPLETE")
        self.deleted: list[str] = []
        self.fails: dict[str, str] = {}
        self.objects: dict[str, list[str]] = {}
        self.messages: dict[str, tuple[int, int, int]] = {}

    def describe_stacks(self, *, StackName: str) -> dict[str, Any]:
        name = StackName.removeprefix("arn:")
        if name not in self.stacks or (self.status[name] == "DELETE_COMPLETE" and name == StackName):
            raise ClientError({"Error": {"Code": "ValidationError", "Message": "does not exist"}}, "DescribeStacks")
        if self.status[name] == "DELETE_IN_PROGRESS":
            self.status[name] = "DELETE_FAILED" if name in self.fails else "DELETE_COMPLETE"
            return {"Stacks": [{"StackId": f"arn:{name}", "StackStatus": "DELETE_IN_PROGRESS"}]}
        stack = {"StackId": f"arn:{name}", "StackStatus": self.status[name]}
        return {"Stacks": [stack | {"EnableTerminationProtection": name in self.protected}]}

    def get_template(self, *, StackName: str) -> dict[str, Any]:
        resources = {
            name: {"Type": type_, "DeletionPolicy": policy} if policy else {"Type": type_}
            for name, (type_, policy) in self.stacks[StackName].items()
        }
        return {"TemplateBody": {"Resources": resources}}

    def get_paginator(self, operation: str) -> Any:
        assert operation == "list_stack_resources"
        return self

    def paginate(self, *, StackName: str) -> Any:
        for name, (type_, _) in self.stacks[StackName].items():
            summary = {"LogicalResourceId": name, "ResourceType": type_, "PhysicalResourceId": name.lower()}
            yield {"StackResourceSummaries": [summary | {"ResourceStatus": "CREATE_COMPLETE"}]}

    def delete_stack(self, *, StackName: str) -> None:
        self.deleted.append(StackName)
        self.status[StackName] = "DELETE_IN_PROGRESS"

    def describe_stack_events(self, *, StackName: str) -> dict[str, Any]:
        reason = self.fails[StackName.removeprefix("arn:")]
        event = {"ResourceStatus": "DELETE_FAILED", "ResourceStatusReason": reason}
        stack = event | {"ResourceType": "AWS::CloudFormation::Stack", "LogicalResourceId": "slackwater"}
        return {"StackEvents": [stack, event | {"ResourceType": BUCKET, "LogicalResourceId": "Raw"}]}

    def list_object_versions(self, *, Bucket: str, MaxKeys: int) -> dict[str, Any]:
        assert MaxKeys == 1
        return {"DeleteMarkers": [{"Key": key} for key in self.objects.get(Bucket, [])]}

    def get_queue_attributes(self, *, QueueUrl: str, AttributeNames: list[str]) -> dict[str, Any]:
        counts = self.messages.get(QueueUrl, (0, 0, 0))
        return {"Attributes": {name: str(count) for name, count in zip(AttributeNames, counts, strict=True)}}

    def deletion(self) -> StackDeletion:
        return StackDeletion(cloudformation=self, s3=self, sqs=self, sleep=lambda _: None)


STORAGE = {"Raw": (BUCKET, "Retain"), "Scratch": (BUCKET, "Delete"), "Role": (ROLE, ""), "Queue": (QUEUE, "Delete")}


@pytest.fixture
def aws() -> Aws:
    stacks: dict[str, Any] = {"slackwater-storage": STORAGE, "slackwater-receiver": {"Arrivals": (QUEUE, "Delete")}}
    return Aws(**stacks, **{"slackwater-schedule": {}, "slackwater-dev-storage": STORAGE})


def test_existing_stacks_are_deleted_in_the_reverse_order_of_their_deployment(aws):
    deletion = aws.deletion()
    stacks = deletion.stacks("slackwater")
    assert list(deletion.problems(stacks)) == []
    for stack in stacks:
        deletion.delete(stack)
    assert aws.deleted == ["slackwater-schedule", "slackwater-receiver", "slackwater-storage"]
    assert deletion.stacks("slackwater") == []
    assert [stack.name for stack in deletion.stacks("slackwater-dev")] == ["slackwater-dev-storage"]


def test_what_is_kept_is_what_the_deployed_template_retains(aws):
    (storage,) = aws.deletion().stacks("slackwater-dev")
    assert [(resource.name, resource.kept) for resource in storage.resources] == [
        ("raw", True), ("scratch", False), ("role", False), ("queue", False),
    ]  # fmt: skip


def test_a_template_that_is_a_string_is_read(aws, monkeypatch):
    template = aws.get_template(StackName="slackwater-dev-storage")["TemplateBody"]
    monkeypatch.setattr(aws, "get_template", lambda **_: {"TemplateBody": json.dumps(template)})
    (storage,) = aws.deletion().stacks("slackwater-dev")
    assert [resource.kept for resource in storage.resources] == [True, False, False, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protected": {"slackwater-storage"}}, "stack slackwater-storage has termination protection: aws cloudform"),
        ({"objects": {"scratch": ["x"]}}, "bucket scratch is not empty, and CloudFormation deletes only an empty one"),
        (
            {"messages": {"queue": (1, 2, 4)}},
            "queue queue has 7 messages with accepted events: wait until they are stored",
        ),
        ({"objects": {"raw": ["x"]}, "messages": {"arrivals": (1, 0, 0)}}, None),
    ],
)
def test_what_prevents_a_deletion_or_would_be_lost_is_found_before(aws, change, message):
    vars(aws).update(change)
    deletion = aws.deletion()
    problems = list(deletion.problems(deletion.stacks("slackwater")))
    assert len(problems) == (message is not None)
    assert not message or problems[0].startswith(message)


def test_a_stack_that_is_being_changed_is_not_deleted(aws):
    aws.status["slackwater-storage"] = "UPDATE_IN_PROGRESS"
    deletion = aws.deletion()
    (problem,) = deletion.problems(deletion.stacks("slackwater"))
    assert problem == "stack slackwater-storage is UPDATE_IN_PROGRESS: repeat the command when that has ended"


def test_a_failed_deletion_names_the_resource_and_can_be_repeated(aws):
    aws.fails["slackwater-receiver"] = "in use"
    deletion = aws.deletion()
    receiver = deletion.stacks("slackwater")[1]
    with pytest.raises(CloudError, match=r"slackwater-receiver is not deleted: AWS::S3::Bucket Raw: in use\. Stacks"):
        deletion.delete(receiver)
    aws.fails.clear()
    assert [stack.status for stack in deletion.stacks("slackwater")][1] == "DELETE_FAILED"
    deletion.delete(receiver)
    assert aws.status["slackwater-receiver"] == "DELETE_COMPLETE"
