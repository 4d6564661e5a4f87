"""Executions of the deployed state machines: start one, wait for its end, read its output or its error."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slackwater.aws.executions.state_machines import ExecutionView, StateMachines
from slackwater.errors import RunFailed, StillRunning, VersionRemoved
from slackwater.runs.outcome import failure_message

OnProgress = Callable[[ExecutionView], None]
"""Is called with each view of an execution while a method waits for its end."""

# Error names in the Fail states of our own state machines. Their cause is a message for people and needs no prefix.
_OWN_ERRORS = frozenset(
    {"RunFailed", "FilesFailed", "NoEventAccepted", "DaysFailed", "LedgerNotWritten", "ComparisonFailed"}
)
# How `slackwater.spark.job` reports this error of a job.
_VERSION_REMOVED = f"{VersionRemoved.__name__}: "


def ignore(*_: object, **__: object) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, kw_only=True)
class Executions:
    """Starts executions under one correlation id, and follows them."""

    state_machines: StateMachines
    correlation_id: str

    def start(self, machine: str, *, name: str, payload: Mapping[str, Any]) -> str:
        """Start the state machine with this ARN, and return the ARN of the execution.

        `name` is the start of the execution's name. The correlation id is added to `payload`.
        """
        # Step Functions requires a name that no execution of the last 90 days has. A repeated request has the same
        # name, so it starts nothing twice.
        return self.state_machines.start(
            machine,
            name=f"{name}-{self.correlation_id}-{secrets.token_hex(4)}",
            payload={**payload, "correlation_id": self.correlation_id},
        )

    def wait(self, execution: str, *, timeout: float | None = None, on_progress: OnProgress = ignore) -> ExecutionView:
        """Return the last view of an execution when it has ended.

        Raises `StillRunning` when that takes longer than `timeout` seconds; the execution goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout

        def sleep(seconds: float) -> None:
            left = seconds if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise StillRunning(f"{execution} has not ended after {timeout} s; it goes on in the cloud")
            time.sleep(min(seconds, left))

        for view in self.state_machines.follow([execution], sleep=sleep):
            on_progress(view)
        return view


def require_success(view: ExecutionView) -> Mapping[str, Any]:
    """Return the output of an execution that has ended.

    Raises `RunFailed` if it failed, and `VersionRemoved` if a comparison cannot read a version any more.
    """
    if view.succeeded:
        return view.output
    if view.cause.startswith(_VERSION_REMOVED):
        raise VersionRemoved(view.cause.removeprefix(_VERSION_REMOVED))
    raise execution_error(view)


def execution_error(view: ExecutionView) -> RunFailed:
    """Return the error of an execution that has failed, with its reason as the message."""
    if view.error in _OWN_ERRORS:
        return RunFailed(view.cause)
    if view.status == "ABORTED" and not view.error:
        return RunFailed("its execution was stopped")
    return RunFailed(failure_message(view.error or view.status, view.cause))
