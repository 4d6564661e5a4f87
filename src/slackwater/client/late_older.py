"""Days before the window with late data, with the decision that a check would make about them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date as date_type
from datetime import datetime, timedelta
from typing import NamedTuple

from slackwater.errors import InputError
from slackwater.late.check.checker import Checker
from slackwater.late.check.decision import DayDecision, DecisionRule
from slackwater.late.check.window import check_window

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


class OlderDays(NamedTuple):
    """The result of one call."""

    days: list[OlderDay]
    """In order of pipeline and date."""
    unchecked: int
    """Listed days that a later call has to check: one call checks `DAYS_AT_ONCE` of a pipeline, the oldest ones."""


def older_days(
    checker: Checker, pipelines: Iterable[str], *, first: str | None = None, last: str | None = None
) -> OlderDays:
    """Check the listed days before the window of each pipeline, and return those with late data.

    With `first` or `last`, ISO dates, every published day from the one to the other is checked instead. A listed day
    without late data is removed from the list. Nothing else is written. Raises `InputError` for a range that is too
    long, or ends within the window.
    """
    found, unchecked = list[OlderDay](), 0
    for pipeline in pipelines:
        now = checker.now()
        begin = check_window(checker.project.pipeline(pipeline), None, now)[0].date
        before = (begin - timedelta(days=1)).isoformat()
        listed = {item.date: item for item in checker.table.late_days(pipeline, last=before)}
        if first or last:
            dates = _published(checker, pipeline, *_range(first, last, pipeline=pipeline, begin=begin))
        else:
            dates, unchecked = list(listed)[:DAYS_AT_ONCE], unchecked + max(0, len(listed) - DAYS_AT_ONCE)
        for decision in checker.decide(pipeline=pipeline, dates=dates):
            item = listed.get(decision.date)
            if decision.rule is not DecisionRule.UNCHANGED:
                found.append(OlderDay(decision, item.since if item else None, item.objects if item else 0))
            elif item:
                checker.table.remove_late_day(pipeline, decision.date, read_at=now)
    return OlderDays(found, unchecked)


def _range(first: str | None, last: str | None, *, pipeline: str, begin: date_type) -> tuple[str, str]:
    """Return the first and the last date of the range. `begin` is the first day of the window."""
    end = date_type.fromisoformat(last) if last else begin - timedelta(days=1)
    start = date_type.fromisoformat(first) if first else end
    if end >= begin:
        raise InputError(
            f"--to: {end} is not before the window of {pipeline}, which begins on {begin}: "
            "slackwater monitor checks its days"
        )
    if not 0 <= (end - start).days < DAYS_AT_ONCE:
        raise InputError(f"--from: {start} to {end}: use a range of 1 to {DAYS_AT_ONCE} days in order")
    return start.isoformat(), end.isoformat()


def _published(checker: Checker, pipeline: str, first: str, last: str) -> list[str]:
    return [record.date for record in checker.table.days(pipeline, first, last) if record.published]
