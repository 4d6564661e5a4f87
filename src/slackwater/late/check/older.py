"""Keeps the list of days whose late data waits for a run: such a day is not forgotten when it leaves the window."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from slackwater.late.decision import DayDecision, DecisionRule, LateDecision
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.table import RunTable


def is_waiting(day: DayDecision) -> bool:
    """Return whether late data of the day has to be processed, now or later.

    A day that runs again is waiting as well: its run may fail.
    """
    has_max_age = day.figures is not None and day.figures.max_age_hours is not None
    aging = has_max_age and day.rule in {DecisionRule.BELOW, DecisionRule.TOO_EXPENSIVE}
    return aging or day.decision in {LateDecision.RERUN, LateDecision.DEFER}


def is_settled(day: DayDecision) -> bool:
    """Return whether the inputs of the day show that no late data of it waits for a run.

    Without figures, the inputs were not compared: the day is running, or could not be read. A day that a person has
    rolled back is on another list, and a release runs it with all of its data.
    """
    is_ignored = day.decision is LateDecision.IGNORE and day.figures is not None and not is_waiting(day)
    return is_ignored or day.rule is DecisionRule.ROLLED_BACK


def update_late_days(
    definition: Pipeline, days: Sequence[DayDecision], *, table: RunTable, complete: bool, now: datetime
) -> tuple[str, ...]:
    """List the waiting days among `days`, and return the listed days before them, in order of date: at most 1,000.

    Days whose inputs show that no late data waits any more are removed from the list. The list is read only if the
    check is `complete`: otherwise the result is empty. `now` is when the check began.
    """
    for day in days:
        if is_waiting(day):
            table.record_late_day(definition.pipeline, day.date, at=now)
    # The check has recorded their holds: they are on another list. That of a day with an error may not be recorded.
    held_days = (day for day in days if day.decision is LateDecision.HOLD)
    held_dates = {day.date for day in held_days if day.figures or day.rule is DecisionRule.MANIFEST_GONE}
    settled = held_dates | {day.date for day in days if is_settled(day)}
    if complete:
        # Read by itself: there may be more older days than one read returns.
        window = table.late_days(definition.pipeline, first=days[0].date, last=days[-1].date)
        settled &= {item.date for item in window}
    # Arrivals list the days of a check that is not complete, so they are removed without reading the list.
    for date in sorted(settled):
        table.remove_late_day(definition.pipeline, date, read_at=now)
    if not complete:
        return ()
    listed = table.late_days(definition.pipeline, last=days[0].date)
    return tuple(item.date for item in listed if item.date < days[0].date)
