"""Start executions of state machines, and follow their progress."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.failures import code_of, translated
from slackwater.errors import NotDeployed

_FINAL_STATUSES = frozenset({"SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"})
_FINAL_EVENTS = frozenset({"ExecutionSucceeded", "ExecutionFailed", "ExecutionAborted", "ExecutionTimedOut"})
# The shortest and the longest pause between two polls, in seconds. Between these bounds, a pause is a twentieth of the
# time that was waited, so the end of a short execution is not reported late.
_MIN_PAUSE, _MAX_PAUSE, _SHARE = 0.5, 3.0, 0.05
# Executions that are described in a second, also if that makes the pause longer. Step Functions allows 15 in most
# regions ("Service quotas").
_DESCRIBED_PER_SECOND = 10


@dataclass(frozen=True, kw_only=True)
class StateView:
    """One state that an execution has entered."""

    name: str
    entered: datetime
    type: str = "Task"
    """Its type in Amazon States Language, such as `Task`, `Choice` or `Fail`."""
    service: str = ""
    """The AWS service that a task called, such as `lambda` or `emr-serverless`. Empty before the call."""
    exited: datetime | None = None
    failed: bool = False

    @property
    def seconds(self) -> float:
        """Seconds from its start to its end, or to now."""
        return ((self.exited or datetime.now(UTC)) - self.entered).total_seconds()


@dataclass(frozen=True, kw_only=True)
class ExecutionView:
    """The progress of an execution."""

    arn: str
    status: str
    started: datetime
    ended: datetime | None = None
    states: tuple[StateView, ...] = ()
    """In the order in which they were entered."""
    output: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    cause: str = ""

    @property
    def over(self) -> bool:
        """Whether the execution has ended."""
        return self.status in _FINAL_STATUSES

    @property
    def succeeded(self) -> bool:
        """Whether the execution has ended successfully."""
        return self.status == "SUCCEEDED"

    @property
    def seconds(self) -> float:
        """Seconds from its start to its end, or to now."""
        return ((self.ended or datetime.now(UTC)) - self.started).total_seconds()

    @property
    def current(self) -> StateView | None:
        """The state that is running, or None."""
        return next((state for state in reversed(self.states) if state.exited is None), None)


@dataclass(frozen=True)
class Machines:
    """State machines over a Step Functions client."""

    states: Any

    def start(self, machine: str, *, name: str, payload: Mapping[str, Any]) -> str:
        """Start the machine with this ARN, and return the execution's ARN. Raises `NotDeployed`, `CloudError`.

        While the execution runs, further calls with the same `name` and `payload` return the same ARN. After its end
        they raise `CloudError`: Step Functions reserves a name for 90 days.
        """
        with translated(f"start {machine}"):
            try:
                response = self.states.start_execution(stateMachineArn=machine, name=name, input=json.dumps(payload))
            except ClientError as error:
                if code_of(error) == "StateMachineDoesNotExist":
                    machine_name = machine.rpartition(":")[2]
                    raise NotDeployed(
                        f"there is no state machine {machine_name}: deploy the project (slackwater deploy)"
                    ) from error
                raise
        return str(response["executionArn"])

    def view(self, execution: str) -> ExecutionView:
        """Return the progress of the execution with this ARN. Raises `CloudError`."""
        with translated(f"follow {execution}"):
            description = self.states.describe_execution(executionArn=execution)
            # Without inputs and outputs, which may be 256 KB per event; 1,000 events are the largest page.
            pages = self.states.get_paginator("get_execution_history").paginate(
                executionArn=execution, includeExecutionData=False, PaginationConfig={"PageSize": 1000}
            )
            events = [event for page in pages for event in page["events"]]
        return ExecutionView(
            arn=execution,
            status=description["status"],
            started=description["startDate"],
            ended=description.get("stopDate"),
            states=_states(events),
            output=json.loads(description.get("output") or "{}") if description["status"] == "SUCCEEDED" else {},
            error=description.get("error", ""),
            cause=description.get("cause", ""),
        )

    def failure_input(self, execution: str) -> Mapping[str, Any]:
        """Return the input of the `Fail` state that ended the execution, or nothing if it did not end in one."""
        with translated(f"read the history of {execution}"):
            # A `Fail` state is among the last events, so the newest page is usually enough.
            pages = self.states.get_paginator("get_execution_history").paginate(
                executionArn=execution, reverseOrder=True, PaginationConfig={"PageSize": 100}
            )
            events = (event for page in pages for event in page["events"])
            entered = next((event for event in events if event["type"] == "FailStateEntered"), None)
        result: Mapping[str, Any] = json.loads(entered["stateEnteredEventDetails"]["input"]) if entered else {}
        return result

    def follow(
        self, executions: Sequence[str], *, sleep: Callable[[float], None] = time.sleep
    ) -> Iterator[ExecutionView]:
        """Poll the executions until all have ended; yield a view of each running one at every poll.

        The last view of an execution shows its end. `sleep` waits for a number of seconds. Raises `CloudError`.
        """
        running, waited = list(executions), 0.0
        while running:
            views = [self.view(execution) for execution in running]
            yield from views
            running = [view.arn for view in views if not view.over]
            if running:
                pause = max(_MIN_PAUSE, min(waited * _SHARE, _MAX_PAUSE), len(running) / _DESCRIBED_PER_SECOND)
                sleep(pause)
                waited += pause


class StepFunctionsExecutions:
    """`slackwater.runs.table.Executions` over Step Functions."""

    def __init__(self, states: Any) -> None:
        self._states = states

    def is_running(self, execution: str) -> bool | None:
        """Return whether the execution with this ARN is running; None if Step Functions does not know it (yet)."""
        with translated(f"describe {execution}"):
            try:
                status = self._states.describe_execution(executionArn=execution)["status"]
            except ClientError as error:
                # Reads are eventually consistent, so this may be an execution that has just been started.
                if code_of(error) == "ExecutionDoesNotExist":
                    return None
                raise
        return bool(status in {"RUNNING", "PENDING_REDRIVE"})


def _states(events: Sequence[Mapping[str, Any]]) -> tuple[StateView, ...]:
    """Return the states of an execution from its history: each entry, with the exit of the same name.

    A state without an exit ended with the execution. A state whose last attempt failed has failed, even if the machine
    caught the error.
    """
    states: list[StateView] = []
    failing = False  # whether the latest event says that an attempt failed
    for event in events:
        timestamp: datetime = event["timestamp"]
        event_type: str = event["type"]
        if event_type.endswith("StateEntered"):
            name = event["stateEnteredEventDetails"]["name"]
            states.append(StateView(name=name, type=event_type.removesuffix("StateEntered"), entered=timestamp))
            failing = False
        elif event_type == "TaskScheduled" and states:
            states[-1] = replace(states[-1], service=event["taskScheduledEventDetails"]["resourceType"])
            failing = False
        elif event_type.endswith("StateExited"):
            _close(states, timestamp, name=event["stateExitedEventDetails"]["name"], failed=failing)
            failing = False
        elif event_type in _FINAL_EVENTS:
            while _close(states, timestamp, failed=event_type != "ExecutionSucceeded"):
                pass
        else:
            failing = event_type.endswith(("Failed", "TimedOut"))
    return tuple(states)


def _close(states: list[StateView], timestamp: datetime, *, failed: bool, name: str | None = None) -> bool:
    """End the first open state (with this name, if given); return whether there was one."""
    for index, state in enumerate(states):
        if state.exited is None and name in {None, state.name}:
            states[index] = replace(state, exited=timestamp, failed=failed)
            return True
    return False
