"""The scheduler: schedules of EventBridge Scheduler, and the function that they invoke. Without work they cost nothing.

A schedule could start a state machine itself, but cannot compute the date that the execution is for.
"""

from __future__ import annotations

import json

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra.constructs.common import states_arn
from infra.constructs.library_function import LibraryFunction
from infra.constructs.permissions import grants
from infra.constructs.permissions.roles import InlineRole
from infra.constructs.queues import DEAD_LETTERS
from infra.stacks.base import FunctionStack, Parts
from slackwater.project.cron import eventbridge_expressions, skipped_expression
from slackwater.project.schedule import ScheduledTask, ScheduledWork, schedule_of
from slackwater.project.scheduled_starts import task_name

START_FUNCTION = "start_scheduled"
# The longest and the most that AWS allows. A late start does no harm: its date is that of the scheduled time.
_MAX_AGE_SECONDS, _MAX_RETRIES = 86_400, 185
# EventBridge Scheduler replaces it with the time at which the schedule was due.
_SCHEDULED_AT = "<aws.scheduler.scheduled-time>"


class EventBridgeScheduleStack(FunctionStack):
    """A group of schedules, at least one for each scheduled task, and the function that starts their executions."""

    def __init__(self, scope: Construct, parts: Parts) -> None:
        """Schedule the tasks of the project. What cannot be started goes to the queue of the dead letters of topics."""
        super().__init__(scope, "schedule", parts, "the schedule, on EventBridge Scheduler")
        settings = parts.settings
        # By name, not by reference: the queue's stack could otherwise not be deployed without this one.
        self._dead_letters = self.format_arn(service="sqs", resource=settings.named(DEAD_LETTERS))
        tasks = schedule_of(parts.project).tasks
        self.start_scheduled = self._start_scheduled({task.state_machine for task in tasks})
        self._group = scheduler.CfnScheduleGroup(self, "Group", name=settings.prefix)
        self._role = self._schedule_role()
        for task in tasks:
            self._add(task)

    def _start_scheduled(self, machines: set[str]) -> LibraryFunction:
        function = self.function(
            START_FUNCTION,
            description="Starts the execution of a scheduled task",
            environment={"STATE_MACHINE_PREFIX": states_arn(self, "stateMachine", self.settings.named(""))},
            timeout=Duration.minutes(1),
        )
        arns = [states_arn(self, "stateMachine", self.settings.named(name)) for name in sorted(machines)]
        if arns:
            grants.allow(function.role, ["states:StartExecution"], arns)
        # Schedules invoke the function asynchronously: Lambda repeats a failed invocation twice, and then drops it.
        grants.allow(function.role, ["sqs:SendMessage"], [self._dead_letters])
        failures = lambda_.CfnEventInvokeConfig(
            self,
            "Failures",
            function_name=function.function.function_name,
            qualifier="$LATEST",
            maximum_retry_attempts=2,
            destination_config={"onFailure": {"destination": self._dead_letters}},
        )
        failures.node.add_dependency(function.role)  # AWS checks the permission when it creates the destination
        return function

    def _schedule_role(self) -> InlineRole:
        """Create the role of the schedules. Only those of this group may assume it."""
        conditions = {
            "StringEquals": {"aws:SourceAccount": self.account},
            "ArnEquals": {"aws:SourceArn": self._group.attr_arn},
        }
        role = InlineRole(
            self,
            "ScheduleRole",
            assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com", conditions=conditions),
            description="Invokes the function that starts scheduled tasks",
        )
        grants.allow(role, ["lambda:InvokeFunction"], [self.start_scheduled.arn])
        grants.allow(role, ["sqs:SendMessage"], [self._dead_letters])
        return role

    def _add(self, task: ScheduledTask) -> None:
        """Add the schedules of a task: two, if its cron expression means one day or another.

        One more, if clock changes skip some of its times, starts the task at the times that come instead.
        """
        for number, expression in enumerate(eventbridge_expressions(task.cron), start=1):
            self._schedule(task, expression, suffix="" if number == 1 else f"-{number}")
        # The minutes of an hour are the same in each timezone.
        is_live = task.work is ScheduledWork.LIVE
        if not is_live and (skipped := skipped_expression(task.cron, task.timezone)):
            self._schedule(task, skipped, suffix="-dst", for_skipped_time=True)

    def _schedule(self, task: ScheduledTask, expression: str, *, suffix: str, for_skipped_time: bool = False) -> None:
        start: dict[str, object] = {
            "task": task.model_dump(mode="json", exclude={"stages"}),
            "scheduled_at": _SCHEDULED_AT,
        }
        if for_skipped_time:
            start["for_skipped_time"] = True
        name = f"{task_name(task)}{suffix}"
        scheduler.CfnSchedule(
            self,
            name,
            name=name,
            group_name=self._group.ref,
            # 512 characters are allowed.
            description=f"{task.work} {task.subject}: {task.cron} in {task.timezone}",
            schedule_expression=expression,
            # In a timezone whose clocks change, the hour that is repeated would have no run.
            schedule_expression_timezone="UTC" if task.work is ScheduledWork.LIVE else task.timezone,
            flexible_time_window={"mode": "OFF"},
            target={
                "arn": self.start_scheduled.arn,
                "roleArn": self._role.role_arn,
                "input": json.dumps(start),
                "retryPolicy": {
                    "maximumEventAgeInSeconds": _MAX_AGE_SECONDS,
                    "maximumRetryAttempts": _MAX_RETRIES,
                },
                "deadLetterConfig": {"arn": self._dead_letters},
            },
        )
