"""Days before the window with late data, with the decision that a check would make about them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from slackwater.errors import InputError
from slackwater.late.check.checker import Checker
from slackwater.late.check.older import is_settled
from slackwater.late.check.window_dates import check_window
from slackwater.late.decision import DayDecision, DecisionRule
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.period import check_kind, distance, is_hour, shifted

_WITHOUT_LATE_DATA = frozenset(
    {DecisionRule.UNCHANGED, DecisionRule.NEW_DEFINITION, DecisionRule.DEFINITION_KEPT, DecisionRule.ROLLED_BACK}
)
DAYS_AT_ONCE = 92
"""Days of a pipeline that one call checks at most."""


class OlderDay(NamedTuple):
    """A day before the window whose inputs differ from those of its published run."""

    decision: DayDecision
    """What a check would decide. Nothing acts on it."""
    since: datetime | None
    """When the day was listed, UTC; None if it is not."""
    objects: int
    """New objects that events have named, at least; 0 if the day is not listed, or a check has listed it."""


class UncheckedDays(NamedTuple):
    """The listed days of a pipeline after those that a call has checked."""

    pipeline: str
    days: int
    first: str
    """The first of them, an ISO date."""
    last: str
    """The last day, an ISO date, of a range from `first` on that one call checks."""


class OlderDays(NamedTuple):
    """The result of one call."""

    days: list[OlderDay]
    """In order of pipeline and date."""
    unchecked: list[UncheckedDays]
    """In order of pipeline. One call checks the oldest `DAYS_AT_ONCE` days of a pipeline, or those of a range."""


def older_days(
    checker: Checker, pipelines: Iterable[str], *, first: str | None = None, last: str | None = None
) -> OlderDays:
    """Check the listed days before the window of each pipeline, and return those with late data.

    With `first` or `last`, every published day or hour from the one to the other is checked instead. A listed day
    without late data that waits for a run (`is_settled`) is removed from the list. Nothing else is written. Raises
    `InputError` for a range that is too long, or ends within the window.
    """
    found, unchecked = list[OlderDay](), list[UncheckedDays]()
    for pipeline in pipelines:
        definition = checker.project.pipeline(pipeline)
        begin = check_window(definition, None, checker.now())[0].name
        before = shifted(begin, -1)
        # Read before the inputs are listed: data that is seen meanwhile keeps its day on the list.
        listed = {item.date: item for item in checker.table.late_days(pipeline, last=before)}
        if first or last:
            start, end = _range(first, last, definition, begin=begin)
            dates = [record.date for record in checker.table.days(pipeline, start, end) if record.published]
        else:
            dates = list(listed)[:DAYS_AT_ONCE]
            end = dates[-1] if dates else ""
        if left := [date for date in listed if date > end]:
            longest = shifted(left[0], DAYS_AT_ONCE - 1)
            unchecked.append(UncheckedDays(pipeline, len(left), left[0], min(longest, before)))
        for decision in checker.decide(pipeline=pipeline, dates=dates):
            item = listed.get(decision.date)
            # A day that was rolled back is among the days on hold; its release runs it with all of its data.
            if decision.rule not in _WITHOUT_LATE_DATA:
                found.append(OlderDay(decision, item.since if item else None, item.objects if item else 0))
            if item and is_settled(decision):
                checker.table.remove_unchanged_late_day(pipeline, item)
    return OlderDays(found, unchecked)


def _range(first: str | None, last: str | None, definition: Pipeline, *, begin: str) -> tuple[str, str]:
    """Return the first and the last day or hour of the range. `begin` is the first one of the window."""
    pipeline, unit = definition.pipeline, definition.period
    if unit == "hour":
        # A date at an end stands for its first or its last hour.
        first = first and (first if is_hour(first) else f"{first}T00")
        last = last and (last if is_hour(last) else f"{last}T23")
    for name, value in (("--from", first), ("--to", last)):
        if value:
            check_kind(value, definition, argument=name)
    end = last or shifted(begin, -1)
    start = first or end
    if end >= begin:
        raise InputError(
            f"--to: {end} is not before the window of {pipeline}, which begins on {begin}: "
            f"slackwater monitor checks its {unit}s"
        )
    if not 0 <= distance(start, end) < DAYS_AT_ONCE:
        raise InputError(f"--from: {start} to {end}: use a range of 1 to {DAYS_AT_ONCE} {unit}s in order")
    return start, end
