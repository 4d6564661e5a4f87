"""Any time is a function of windows: 10 minutes, hours, local days, dates of several regions. None is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from math import ceil
from operator import attrgetter

from slackwater.sources.definition import Source
from slackwater.state.completeness import (
    CountState,
    KeyCounts,
    PeriodCounts,
    WindowCount,
    count_state,
    total_state,
)
from slackwater.state.facts import HOUR
from slackwater.state.fold import PeriodState, WindowState, key_counts, periods_with


def rolled_up(source: Source, states: Iterable[PeriodState], start: datetime, end: datetime) -> list[PeriodCounts]:
    """Return the counts of the time from `start` to `end`, UTC: for each UTC hour in it, those of its windows in it.

    A window that is longer than an hour, or that begins in an earlier one, is a period of its own: it counts as a
    whole. A time without windows is unknown. `slackwater.state.completeness.total_counts` sums them, and
    `total_state` those of several sources.

    A local day of 23, 24 or 25 hours is the time between its midnights. Where they are within UTC hours, windows of
    five minutes give its exact numbers, and hours those of all hours that it touches.
    """
    windows = [window for state in states for window in state.windows if window.start < end > start < window.end]
    return list(_periods(source, sorted(dict.fromkeys(windows), key=attrgetter("start")), start, end))


def with_values(period: PeriodCounts, state: PeriodState | None) -> PeriodCounts:
    """Return the counts of a period with those of each value in its stored state: it is complete only if each is.

    It is unknown while the state follows from other reports, or if only some of its hours are counted. The total is
    compared too: what the state counts may have been removed since, or be no input of a run.
    """
    if not period.is_whole:
        return period
    if state is None or _sent(state.windows) != _sent(period.windows):
        return period._replace(state=CountState.UNKNOWN)
    of_values = total_state(value.state for value in state.values)
    return period._replace(state=total_state((period.state, of_values)), values=state.values)


def _sent(windows: Iterable[WindowCount | WindowState]) -> list[tuple[datetime, datetime, str, int | None]]:
    """Return what was sent in windows, by their times and keys."""
    return [(window.start, window.end, window.key, window.sent) for window in windows]


def _periods(source: Source, windows: list[WindowState], start: datetime, end: datetime) -> Iterator[PeriodCounts]:
    reached = start
    for _, group in groupby(windows, key=lambda window: _hour(window.start)):
        inside = list(group)
        if inside[0].start > reached:
            yield from _unknown(source, reached, inside[0].start)
        reached = inside[-1].end
        yield _counts(source, inside)
    if reached < end:
        yield from _unknown(source, reached, end)


def _counts(source: Source, windows: list[WindowState]) -> PeriodCounts:
    """Return the counts of the windows of one hour, which follow each other."""
    values = list[KeyCounts]()
    for key in dict.fromkeys(window.key for window in windows):
        of_key = [window for window in windows if window.key == key]
        found = key_counts(key, CountState.UNKNOWN, of_key)
        if all(window.state is not CountState.UNKNOWN for window in of_key):
            state = count_state(source, found.sent or 0, found.stored + found.rejected)
            found = found._replace(state=state)
        values.append(found)
    return PeriodCounts(
        start=windows[0].start,
        end=windows[-1].end,
        windows=tuple(
            WindowCount(window.start, window.sent, window.state is not CountState.UNKNOWN, window.key, window.end)
            for window in windows
        ),
        stored=sum(value.stored for value in values),
        rejected=sum(value.rejected for value in values),
        state=total_state(value.state for value in values),
        values=tuple(values),
    )


def _unknown(source: Source, start: datetime, end: datetime) -> Iterator[PeriodCounts]:
    """Yield the periods of a time without windows."""
    first = start.replace(minute=0, second=0, microsecond=0)
    hours = [first + number * HOUR for number in range(ceil((end - first) / HOUR))]
    for period in periods_with(source, hours):
        yield PeriodCounts(max(period.start, start), min(period.end, end), (), 0, 0, CountState.UNKNOWN)


def _hour(instant: datetime) -> int:
    return int(instant.timestamp() // HOUR.total_seconds())
