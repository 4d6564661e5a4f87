"""The alarms for executions of state machines that fail.

A run that fails before it has an attempt, such as one whose inputs cannot be frozen, has no record and no other metric.
No state machine has a timeout of its own, so no execution times out: a state that does fails its execution. An
execution is aborted only when a person or a command stops it, which is no reason for an alarm.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from aws_cdk import Duration

from infra.constructs.alarms.alarm_rules import Severity
from slackwater.project.project import Project
from slackwater.project.schedule import BACKFILL_MACHINE, COMPARE_MACHINE, PIPELINE_MACHINE_PREFIX, PULL_MACHINE

EXECUTION_FAILED, MACHINE_FAILED = "execution-failed", "machine-failed"
EXECUTION_PERIOD = Duration.hours(1)
"""A pull of every hour that fails each time fires its alarm once."""


class ExecutionAlarm(NamedTuple):
    """An alarm for failed executions of one state machine."""

    name: str
    subject: str
    """The pipeline, or the state machine."""
    severity: Severity
    machine: str
    """Without the deployment's prefix."""
    description: str


def execution_alarms(project: Project) -> Iterator[ExecutionAlarm]:
    """Return the alarms for all state machines but the monitor, which has its own."""
    for pipeline in sorted(project.pipelines):
        yield ExecutionAlarm(
            EXECUTION_FAILED,
            pipeline,
            Severity.PAGE,
            f"{PIPELINE_MACHINE_PREFIX}{pipeline}",
            f"An execution of {pipeline} has failed, perhaps before its run had an attempt. Look: `slackwater runs "
            f"{pipeline}` shows failed runs. If there is none, the failed execution of the state machine names the "
            f"cause. Fix it, then `slackwater run {pipeline} --date DATE`.",
        )
    for machine in (PULL_MACHINE, COMPARE_MACHINE, BACKFILL_MACHINE):
        yield ExecutionAlarm(
            MACHINE_FAILED,
            machine,
            Severity.WARNING,
            machine,
            f"An execution of {machine} has failed. Look: the failed execution has the source, the day or the pipeline "
            "in its input, and names the cause. Fix it, and start the same again.",
        )
