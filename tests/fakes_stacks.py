"""Fakes of an account's stacks, buckets and queues."""

# ruff: noqa: N803 - boto3's names

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.deletion import StackDeletion

BUCKET, QUEUE, ROLE = "AWS::S3::Bucket", "AWS::SQS::Queue", "AWS::IAM::Role"
ALARM, COMPOSITE = "AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm"


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

    @property
    def meta(self) -> SimpleNamespace:
        return SimpleNamespace(region_name="eu-west-1")

    def get_caller_identity(self) -> dict[str, str]:
        return {"Account": "111111111111"}

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
