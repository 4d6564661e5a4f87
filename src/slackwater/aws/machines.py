"""Starting executions of state machines, and looking at where they stand."""

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

_OVER = frozenset({"SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"})
_ENDS = frozenset({"ExecutionSucceeded", "ExecutionFailed", "ExecutionAborted", "ExecutionTimedOut"})
_QUICK, _SLOW = 0.5, 3.0
"""Seconds between two looks: the first ones, and those of an execution that takes its time."""


@dataclass(frozen=True, kw_only=True)
class StateView:
    """One state that an execution has entered."""

    name: str
    entered: datetime
    exited: datetime | None = None
    failed: bool = False

    @property
    def seconds(self) -> float:
        """How long it took, or has taken until now."""
        return ((self.exited or datetime.now(UTC)) - self.entered).total_seconds()


@dataclass(frozen=True, kw_only=True)
class ExecutionView:
    """Where an execution stands."""

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
        """Whether nothing more will happen."""
        return self.status in _OVER

    @property
    def succeeded(self) -> bool:
        """Whether it ended well."""
        return self.status == "SUCCEEDED"

    @property
    def seconds(self) -> float:
        """From its start to its end, or to now."""
        return ((self.ended or datetime.now(UTC)) - self.started).total_seconds()

    @property
    def current(self) -> StateView | None:
        """The state that it is in."""
        return next((state for state in reversed(self.states) if state.exited is None), None)


@dataclass(frozen=True)
class Machines:
    """State machines over a Step Functions client."""

    states: Any

    def start(self, machine: str, *, name: str, payload: Mapping[str, Any]) -> str:
        """Start the machine of that ARN, and return the execution's ARN. Raises `NotDeployed` when it is not there.

        The same `name` and `payload` start one execution, however often they are sent.
        """
        with translated(f"start {machine}"):
            try:
                answer = self.states.start_execution(stateMachineArn=machine, name=name, input=json.dumps(payload))
            except ClientError as error:
                if code_of(error) == "StateMachineDoesNotExist":
                    what = machine.rpartition(":")[2]
                    raise NotDeployed(
                        f"there is no state machine {what}: deploy the project (slackwater deploy)"
                    ) from error
                raise
        return str(answer["executionArn"])

    def look(self, execution: str) -> ExecutionView:
        """Return where the execution of that ARN stands."""
        with translated(f"follow {execution}"):
            found = self.states.describe_execution(executionArn=execution)
            pages = self.states.get_paginator("get_execution_history").paginate(
                executionArn=execution, includeExecutionData=False, PaginationConfig={"PageSize": 1000}
            )
            events = [event for page in pages for event in page["events"]]
        return ExecutionView(
            arn=execution,
            status=found["status"],
            started=found["startDate"],
            ended=found.get("stopDate"),
            states=_states(events),
            output=json.loads(found.get("output") or "{}") if found["status"] == "SUCCEEDED" else {},
            error=found.get("error", ""),
            cause=found.get("cause", ""),
        )

    def given_to(self, execution: str, state: str) -> Mapping[str, Any]:
        """Return what the state was given when the execution entered it; nothing if it has not."""
        with translated(f"read the history of {execution}"):
            pages = self.states.get_paginator("get_execution_history").paginate(
                executionArn=execution, reverseOrder=True, PaginationConfig={"PageSize": 100}
            )
            entries = (event.get("stateEnteredEventDetails", {}) for page in pages for event in page["events"])
            found: Mapping[str, Any] = next((entry for entry in entries if entry.get("name") == state), {})
        given: Mapping[str, Any] = json.loads(found.get("input") or "{}")
        return given

    def follow(
        self, executions: Sequence[str], *, sleep: Callable[[float], None] = time.sleep
    ) -> Iterator[ExecutionView]:
        """Look at the executions again and again until all are over; each look gives one view, the last one final."""
        open_ones, pause = list(executions), _QUICK
        while open_ones:
            views = [self.look(execution) for execution in open_ones]
            yield from views
            open_ones = [view.arn for view in views if not view.over]
            if open_ones:
                sleep(pause)
                pause = min(pause * 1.2, _SLOW)


def _states(events: Sequence[Mapping[str, Any]]) -> tuple[StateView, ...]:
    """Pair entries with exits by name; what never exited ended with the execution.

    A state whose last try failed has failed, also when the machine caught it and went on.
    """
    found: list[StateView] = []
    failing = False
    for event in events:
        at: datetime = event["timestamp"]
        kind: str = event["type"]
        if kind.endswith("StateEntered"):
            found.append(StateView(name=event["stateEnteredEventDetails"]["name"], entered=at))
            failing = False
        elif kind.endswith("StateExited"):
            _close(found, at, name=event["stateExitedEventDetails"]["name"], failed=failing)
            failing = False
        elif kind in _ENDS:
            while _close(found, at, failed=kind != "ExecutionSucceeded"):
                pass
        else:
            failing = kind.endswith(("Failed", "TimedOut"))
    return tuple(found)


def _close(found: list[StateView], at: datetime, *, failed: bool, name: str | None = None) -> bool:
    """End the first open state, of that name if one is given; say whether there was one."""
    for place, state in enumerate(found):
        if state.exited is None and name in {None, state.name}:
            found[place] = replace(state, exited=at, failed=failed)
            return True
    return False
