"""Deletes the stacks of a deployment, and tells before what is deleted and what is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from slackwater.aws.deployment import OPTIONAL_STACKS, STACKS
from slackwater.aws.failures import translated, unless_refused
from slackwater.errors import CloudError

_ALARM_TYPES = {"AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm", "AWS::CDK::Metadata"}
_KEPT_POLICIES = ("Retain", "RetainExceptOnCreate")
_QUEUE_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_PAUSE = 1.0  # seconds


class StackResource(NamedTuple):
    """A resource of a deployed stack."""

    stack: str
    type: str
    """The CloudFormation type, such as `AWS::S3::Bucket`."""
    name: str
    """The physical id: a name, a URL or an ARN, depending on the type."""
    kept: bool
    """Whether the resource stays when its stack is deleted."""


class DeployedStack(NamedTuple):
    """A stack that exists."""

    id: str
    """Its ARN, by which a deleted stack can still be described."""
    name: str
    status: str
    is_protected: bool
    resources: Sequence[StackResource]

    @property
    def has_only_alarms(self) -> bool:
        """Whether the stack has alarms and nothing else, so that its deletion loses no data."""
        return {resource.type for resource in self.resources} <= _ALARM_TYPES


@dataclass(frozen=True, kw_only=True)
class StackDeletion:
    """Reads and deletes stacks, over clients of CloudFormation, S3 and SQS."""

    cloudformation: Any
    s3: Any
    sqs: Any
    sleep: Callable[[float], None] = time.sleep

    def stacks(self, prefix: str, names: Sequence[str] = (*STACKS, *OPTIONAL_STACKS)) -> list[DeployedStack]:
        """Return the stacks of a deployment that exist, in the order in which they can be deleted.

        `names` are those of the stacks to look for, without the prefix, in order of deployment.
        """
        return [stack for name in reversed(names) if (stack := self._stack(f"{prefix}-{name}"))]

    def problems(self, stacks: Sequence[DeployedStack]) -> Iterator[str]:
        """Yield why the stacks cannot be deleted, or what would be lost, each with its remedy."""
        for stack in stacks:
            if stack.status.endswith("_IN_PROGRESS"):
                yield f"stack {stack.name} is {stack.status}: repeat the command when that has ended"
            if stack.is_protected:
                yield (
                    f"stack {stack.name} has termination protection: aws cloudformation "
                    f"update-termination-protection --no-enable-termination-protection --stack-name {stack.name}"
                )
            for resource in stack.resources:
                if not resource.kept:
                    yield from self._loss(resource)

    def delete(self, stack: DeployedStack) -> None:
        """Delete a stack, and wait for it. Raises `CloudError` that names the resource that could not be deleted."""
        with translated(f"delete the stack {stack.name}"):
            # The stack keeps the role with which the CDK has deployed it.
            self.cloudformation.delete_stack(StackName=stack.name)
            while (status := self._status(stack.id)) not in ("DELETE_COMPLETE", "DELETE_FAILED"):
                if not status.startswith("DELETE"):
                    raise CloudError(f"the stack {stack.name} is not deleted: its state is {status}")
                self.sleep(_PAUSE)
        if status == "DELETE_FAILED":
            raise CloudError(
                f"the stack {stack.name} is not deleted: {self._failure(stack.id)}. Stacks before it are deleted. "
                "Remove the cause and repeat the command"
            )

    def _stack(self, name: str) -> DeployedStack | None:
        with translated(f"read the stack {name}"):
            # CloudFormation's answer for a stack that does not exist
            found = unless_refused("ValidationError", lambda: self.cloudformation.describe_stacks(StackName=name))
            if found is None or found["Stacks"][0]["StackStatus"] == "DELETE_COMPLETE":
                return None
            (stack,) = found["Stacks"]
            template = self.cloudformation.get_template(StackName=name)["TemplateBody"]
            pages = self.cloudformation.get_paginator("list_stack_resources").paginate(StackName=name)
            summaries = [summary for page in pages for summary in page["StackResourceSummaries"]]
        # A template that is no valid JSON, such as one in YAML, is a string.
        declared: Mapping[str, Any] = (json.loads(template) if isinstance(template, str) else template)["Resources"]
        return DeployedStack(
            id=stack["StackId"],
            name=name,
            status=stack["StackStatus"],
            is_protected=stack.get("EnableTerminationProtection", False),
            resources=[
                StackResource(
                    stack=name,
                    type=summary["ResourceType"],
                    name=summary.get("PhysicalResourceId", summary["LogicalResourceId"]),
                    kept=declared.get(summary["LogicalResourceId"], {}).get("DeletionPolicy") in _KEPT_POLICIES,
                )
                for summary in summaries
                if summary["ResourceStatus"] != "DELETE_COMPLETE"
            ],
        )

    def _loss(self, resource: StackResource) -> Iterator[str]:
        """Yield what a deletion of the resource would lose."""
        if resource.type == "AWS::S3::Bucket":
            with translated(f"list the bucket {resource.name}"):
                found = self.s3.list_object_versions(Bucket=resource.name, MaxKeys=1)
            if found.get("Versions") or found.get("DeleteMarkers"):
                yield (
                    f"bucket {resource.name} is not empty, and CloudFormation deletes only an empty one: empty it in "
                    "the console of S3, with all versions (the policy of the raw bucket denies it: delete the policy "
                    "first), or keep it: slackwater deploy --set removal_policy=retain"
                )
        # Other queues only have messages about objects and about deliveries.
        if resource.type == "AWS::SQS::Queue" and resource.stack.endswith("-storage"):
            with translated(f"read the queue {resource.name}"):
                counts = self.sqs.get_queue_attributes(QueueUrl=resource.name, AttributeNames=[*_QUEUE_COUNTS])
            messages = sum(int(counts["Attributes"][name]) for name in _QUEUE_COUNTS)
            if messages:
                yield (
                    f"queue {resource.name} has {messages} messages with accepted events: wait until they are stored "
                    "(slackwater buffer status), and store or delete dead letters (docs/operations/dead-letters.md)"
                )

    def _status(self, stack: str) -> str:
        (described,) = self.cloudformation.describe_stacks(StackName=stack)["Stacks"]
        status: str = described["StackStatus"]
        return status

    def _failure(self, stack: str) -> str:
        """Return the first resource that could not be deleted in the latest attempt, with CloudFormation's reason."""
        with translated("read the events of the stack"):
            events = self.cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
        reasons = [
            f"{event['ResourceType']} {event['LogicalResourceId']}: {event.get('ResourceStatusReason', 'no reason')}"
            for event in events
            if event["ResourceStatus"] == "DELETE_FAILED" and event["ResourceType"] != "AWS::CloudFormation::Stack"
        ]
        return reasons[0] if reasons else "CloudFormation gives no reason"
