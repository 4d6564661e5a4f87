"""Whether a run may start: what its inputs are, against what it waits for. Nothing here reads.

A condition that does not hold has a limit: until then the run waits, and then it fails, or runs without what is
missing. Of several, the run fails at the first limit with `fail`; it runs when the last one has passed.

The order is time, inputs, quality. Data that has failed is never published without a person: its run waits as long as
for other conditions, and then fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, NamedTuple

from slackwater.formatting import counted, timestamp
from slackwater.model import Record
from slackwater.state.completeness import CountState, SourceCounts
from slackwater.state.verdicts import Verdict, describe_verdicts

_MOST_DATES = 7
_MOST_VERDICTS = 3

Then = Literal["fail", "run"]
"""What happens when a run has waited for as long as it may."""


class Limit(NamedTuple):
    """For how long a run waits."""

    at: datetime
    """Until this instant, UTC."""
    then: Then


class CompleteSource(NamedTuple):
    """A source must be complete: all events that it has sent are stored or rejected."""

    name: str
    counts: SourceCounts


class NewerInput(NamedTuple):
    """An input must have changed not long ago."""

    name: str
    newest: datetime | None
    """When it changed last, UTC; None without data."""
    newer_than: timedelta


class PublishedDays(NamedTuple):
    """The days of another pipeline must be published."""

    name: str
    table: str
    days: int
    """How many are read."""
    missing: tuple[str, ...]
    """The dates of those that are not published."""


class FailedInput(NamedTuple):
    """An input must not have failed."""

    name: str
    verdicts: tuple[Verdict, ...]
    """Those by which periods that the run reads have failed."""


InputFact = CompleteSource | NewerInput | PublishedDays | FailedInput
Kind = Literal["unknown", "incomplete", "failed"]


class Unmet(Record):
    """A condition that does not hold."""

    input: str
    kind: Kind
    """`unknown`: the source has not sent the counts of the whole day. `failed`: a verdict about what the run reads."""
    text: str
    """What is missing, for people."""
    until: datetime
    """When the run stops waiting for it, UTC."""
    then: Then


class Outcome(StrEnum):
    """What a run does."""

    READY = "ready"
    """All conditions hold."""
    WAIT = "wait"
    RUN = "run"
    """It has waited for as long as it may, and runs without what is missing."""
    FAIL = "fail"
    """It has waited for as long as it may, and fails."""


class Evaluation(NamedTuple):
    """What a run waits for, and what it does."""

    outcome: Outcome
    unmet: tuple[Unmet, ...] = ()


def evaluate(facts: Iterable[InputFact], *, unknown: Limit, incomplete: Limit, now: datetime) -> Evaluation:
    """Return what a run does at `now`, UTC, and which conditions do not hold."""
    limits: dict[Kind, Limit] = {
        "unknown": unknown, "incomplete": incomplete, "failed": incomplete._replace(then="fail")
    }  # fmt: skip
    unmet = tuple(
        Unmet(input=name, kind=kind, text=text, until=limits[kind].at, then=limits[kind].then)
        for name, kind, text in _unmet(facts, now)
    )
    if not unmet:
        return Evaluation(Outcome.READY)
    at, then = end_of_wait(unmet)
    if now < at:
        return Evaluation(Outcome.WAIT, unmet)
    return Evaluation(Outcome.FAIL if then == "fail" else Outcome.RUN, unmet)


def end_of_wait(unmet: Iterable[Unmet]) -> Limit:
    """Return when a run stops waiting for conditions that do not hold, at least one, and what happens then."""
    items = list(unmet)
    failing = [item.until for item in items if item.then == "fail"]
    return Limit(min(failing), "fail") if failing else Limit(max(item.until for item in items), "run")


def describe_unmet(unmet: Iterable[Unmet]) -> tuple[str, ...]:
    """Return the conditions that do not hold, for people: `clicks: sent 1,000, stored 990, missing 10`."""
    return tuple(f"{item.input}: {item.text}" for item in unmet)


def _unmet(facts: Iterable[InputFact], now: datetime) -> Iterator[tuple[str, Kind, str]]:
    for fact in facts:
        match fact:
            case CompleteSource(name, counts):
                # Both, if events are missing and some hours have no counts: each has its own limit.
                if counts.state is CountState.SHORT:
                    yield name, "incomplete", counts.line
                if counts.unknown or not counts.periods:
                    yield name, "unknown", _unknown(counts)
            case NewerInput(name, newest, newer_than):
                if newest is None:
                    yield name, "incomplete", "it has no data"
                elif newest < now - newer_than:
                    yield name, "incomplete", f"its newest data is of {timestamp(newest)}"
            case PublishedDays(name, table, days, missing):
                if missing:
                    yield name, "incomplete", f"{table} has not published {_dates(missing)} of {counted(days, 'day')}"
            case FailedInput(name, verdicts):
                if lines := list(describe_verdicts(verdicts)):
                    more = len(lines) - _MOST_VERDICTS
                    yield name, "failed", "; ".join(lines[:_MOST_VERDICTS]) + (f"; and {more} more" if more > 0 else "")


def _unknown(counts: SourceCounts) -> str:
    if counts.is_unknown:
        return "no counts of the source"
    return f"no counts for {counts.unknown} of {counted(counts.periods, counts.unit)}"


def _dates(dates: tuple[str, ...]) -> str:
    more = len(dates) - _MOST_DATES
    return ", ".join(dates[:_MOST_DATES]) + (f" and {more} more" if more > 0 else "")
