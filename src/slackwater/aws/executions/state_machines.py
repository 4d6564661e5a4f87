"""Start executions of state machines, and follow their progress."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.executions.execution_history import (
    FINAL_EVENTS,
    Event,
    read_history,
    translated_execution,
    with_states,
)
from slackwater.aws.failures import code_of, translated, unless_refused
from slackwater.errors import NotDeployed

_FINAL_STATUSES = frozenset({"SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"})
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
class StateMachines:
    """State machines over a Step Functions client, and `slackwater.runs.table.Executions`."""

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

    def start_once(self, machine: str, *, name: str, payload: Mapping[str, Any]) -> bool:
        """Start the machine with this ARN unless it has had an execution of this name; return whether it was started.

        Step Functions reserves a name for 90 days. While the execution of that name runs, this returns True again.
        Raises `CloudError`.
        """
        with translated(f"start {machine}"):
            execution = {"stateMachineArn": machine, "name": name, "input": json.dumps(payload)}
            started = unless_refused("ExecutionAlreadyExists", lambda: self.states.start_execution(**execution))
        return started is not None

    def create(self, name: str, *, definition: str, role: str) -> str:
        """Create a state machine with the role of this ARN, and return the machine's ARN. Raises `CloudError`."""
        with translated(f"create the state machine {name}"):
            tags = [{"key": "slackwater:temporary", "value": "true"}]
            response = self.states.create_state_machine(name=name, definition=definition, roleArn=role, tags=tags)
        return str(response["stateMachineArn"])

    def delete(self, machine: str) -> None:
        """Delete the state machine with this ARN, which ends its executions. Raises `CloudError`."""
        with translated(f"delete {machine}"):
            self.states.delete_state_machine(stateMachineArn=machine)

    def view(self, execution: str) -> ExecutionView:
        """Return the progress of the execution with this ARN. Raises `CloudError`."""
        with translated_execution(f"follow {execution}"):
            description = self.states.describe_execution(executionArn=execution)
        return _view(execution, description, states=_states(read_history(self.states, execution)))

    def summary(self, execution: str) -> ExecutionView | None:
        """Return the execution with this ARN without its states; None if Step Functions does not know it (yet).

        This is one call, however long the history is. Raises `CloudError`.
        """
        description = self._describe(execution)
        return _view(execution, description) if description else None

    def is_running(self, execution: str) -> bool | None:
        """Return whether the execution with this ARN is running; None if Step Functions does not know it (yet)."""
        description = self._describe(execution)
        return description["status"] in {"RUNNING", "PENDING_REDRIVE"} if description else None

    def _describe(self, execution: str) -> dict[str, Any] | None:
        """Return the description of an execution; None if Step Functions does not know it (yet)."""
        with translated(f"describe {execution}"):
            # Reads are eventually consistent, so this may be an execution that has just been started.
            return unless_refused(
                "ExecutionDoesNotExist", lambda: self.states.describe_execution(executionArn=execution)
            )

    def stop(self, execution: str, *, cause: str) -> None:
        """Stop the execution with this ARN, unless it has ended or was never started. Raises `CloudError`."""
        with translated(f"stop {execution}"):
            try:
                self.states.stop_execution(executionArn=execution, error="Stopped", cause=cause)
            except ClientError as error:
                if code_of(error) not in {"ExecutionDoesNotExist", "ValidationException"}:
                    raise

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
                pause = next_pause(waited, described=len(running))
                sleep(pause)
                waited += pause


def next_pause(waited: float, *, described: int) -> float:
    """Return the seconds to wait until the next poll, after polls that have described so many executions each."""
    return max(_MIN_PAUSE, min(waited * _SHARE, _MAX_PAUSE), described / _DESCRIBED_PER_SECOND)


def _view(execution: str, description: Mapping[str, Any], *, states: tuple[StateView, ...] = ()) -> ExecutionView:
    """Return the view of an execution, given by its ARN, from its description."""
    return ExecutionView(
        arn=execution,
        status=description["status"],
        started=description["startDate"],
        ended=description.get("stopDate"),
        states=states,
        output=json.loads(description.get("output") or "{}") if description["status"] == "SUCCEEDED" else {},
        error=description.get("error", ""),
        cause=description.get("cause", ""),
    )


def _states(events: Iterable[Event]) -> tuple[StateView, ...]:
    """Return the states of an execution from its history: each entry, with the exit of the same name.

    A state without an exit ended with the execution. A state whose last attempt failed has failed, even if the machine
    caught the error.
    """
    states: list[StateView] = []
    failing: set[int] = set()  # positions of states whose latest event says that an attempt failed
    for event, position in with_states(events):
        timestamp: datetime = event["timestamp"]
        event_type: str = event["type"]
        if event_type.endswith("StateEntered"):
            name = event["stateEnteredEventDetails"]["name"]
            states.append(StateView(name=name, type=event_type.removesuffix("StateEntered"), entered=timestamp))
        elif event_type.endswith("StateExited"):
            failed = position in failing
            index = _close(states, timestamp, name=event["stateExitedEventDetails"]["name"], failed=failed)
            if event_type in {"ParallelStateExited", "MapStateExited"} and failed:
                # A state that fails its branch, and those that are stopped in other branches, do not exit themselves.
                while _close(states, timestamp, failed=True, after=index) is not None:
                    pass
        elif event_type in FINAL_EVENTS:
            while _close(states, timestamp, failed=event_type != "ExecutionSucceeded") is not None:
                pass
        elif event_type.endswith(("Failed", "TimedOut")):
            failing.add(position)
        else:
            failing.discard(position)
            if event_type == "TaskScheduled":
                service = event["taskScheduledEventDetails"]["resourceType"]
                states[position] = replace(states[position], service=service)
    return tuple(states)


def _close(
    states: list[StateView], timestamp: datetime, *, failed: bool, name: str | None = None, after: int | None = None
) -> int | None:
    """End the first open state, with this name and after this position if they are given; return its position."""
    for index, state in enumerate(states):
        if state.exited is None and name in {None, state.name} and (after is None or index > after):
            states[index] = replace(state, exited=timestamp, failed=failed)
            return index
    return None
