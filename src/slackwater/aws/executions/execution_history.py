"""The history of an execution: its events, the states that they belong to, and the transitions that people read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.failures import code_of, translated
from slackwater.errors import CloudError

FINAL_EVENTS = frozenset({"ExecutionSucceeded", "ExecutionFailed", "ExecutionAborted", "ExecutionTimedOut"})

Event = Mapping[str, Any]
"""One `HistoryEvent` of Step Functions."""


@dataclass(frozen=True, kw_only=True)
class Transition:
    """What happened to one state, or to the whole execution."""

    at: datetime
    state: str
    """Empty for the execution itself."""
    event: str
    """`entered`, `failed`, `timed out` or `retried`; for the execution `started`, or how it ended."""
    error: str = ""
    cause: str = ""


def read_history(states: Any, execution: str) -> Iterator[Event]:
    """Generate the events of the execution with this ARN, oldest first, page by page. Raises `CloudError`."""
    with translated_execution(f"read the history of {execution}"):
        yield from history_events(states, execution, with_data=False)


def history_events(states: Any, execution: str, *, with_data: bool) -> Iterator[Event]:
    """Generate the events of an execution; inputs and outputs, `with_data`, may be 256 KB per event.

    Raises botocore's errors.
    """
    # 1,000 events are the largest page.
    pages = states.get_paginator("get_execution_history").paginate(
        executionArn=execution, includeExecutionData=with_data, PaginationConfig={"PageSize": 1000}
    )
    for page in pages:
        yield from page["events"]


@contextmanager
def translated_execution(what: str) -> Iterator[None]:
    """Translate errors like `translated`, and say why Step Functions may not know an execution."""
    with translated(what):
        try:
            yield
        except ClientError as error:
            if code_of(error) != "ExecutionDoesNotExist":
                raise
            raise CloudError(
                f"could not {what}: Step Functions keeps it for 90 days after its end, and that of a pipeline that was "
                "run from its file until the run has ended"
            ) from error


def with_states(events: Iterable[Event]) -> Iterator[tuple[Event, int]]:
    """Generate each event with the state that it belongs to: its position among the entered states, or -1 for none."""
    # Branches of a parallel state write their events in any order. Each event names the one before it in its branch.
    positions: dict[int | None, int] = {}
    entered = -1
    for event in events:
        if event["type"].endswith("StateEntered"):
            entered += 1
            position = entered
        else:
            position = positions.get(event.get("previousEventId"), entered)
        positions[event.get("id")] = position
        yield event, position


def transitions(events: Iterable[Event]) -> Iterator[Transition]:
    """Generate the transitions of an execution from its events: each state that was entered, failed or retried."""
    names: list[str] = []
    failing: set[int] = set()
    for event, position in with_states(events):
        at, event_type = event["timestamp"], event["type"]
        details: Mapping[str, str] = next((value for key, value in event.items() if key.endswith("EventDetails")), {})
        error = {"error": details.get("error", ""), "cause": details.get("cause", "")}
        if event_type == "ExecutionStarted" or event_type in FINAL_EVENTS:
            verb = _verb(event_type.removeprefix("Execution"))
            yield Transition(at=at, state="", event=verb, **error)
        elif event_type.endswith("StateEntered"):
            names.append(details["name"])
            yield Transition(at=at, state=details["name"], event="entered")
        elif event_type.endswith(("Failed", "TimedOut")):
            failing.add(position)
            verb = "timed out" if event_type.endswith("TimedOut") else "failed"
            yield Transition(at=at, state=names[position], event=verb, **error)
        elif event_type.endswith("Scheduled") and position in failing:
            failing.discard(position)
            yield Transition(at=at, state=names[position], event="retried")


def _verb(ending: str) -> str:
    return "timed out" if ending == "TimedOut" else ending.lower()
