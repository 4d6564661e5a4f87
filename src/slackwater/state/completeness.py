"""Whether all events of a period are there: the counts of the source against what is stored. Nothing here reads.

A period is a UTC hour, or a day for a source that counts by day. Its windows are known by the reports:

- The newest report that names a window decides about it; of two with the same time, the one with the larger id.
- A window that no report names is 0 if it has ended before the `through` of a report, and does not begin before the
  first window of all reports.
- A window is unknown without a report, and while its report's `through` is before its end. Silence never completes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, NamedTuple

from slackwater.formatting import counted
from slackwater.model import UpdatedRecord
from slackwater.sources.counts import WINDOW_MINUTES
from slackwater.sources.definition import Source
from slackwater.state.facts import HOUR, Coverage, HourFacts, HourReport, total_of
from slackwater.state.reports import counts_of, window_at, window_end

_ALL = 100_000


class CountState(StrEnum):
    """Whether the events of a period are there."""

    UNKNOWN = "unknown"
    """The source has not reported all of its windows."""
    SHORT = "short"
    """Events are missing."""
    COMPLETE = "complete"
    SURPLUS = "surplus"
    """There are more events than were sent."""


class WindowCount(NamedTuple):
    """How many events the source has sent in a window."""

    start: datetime
    sent: int | None
    """None if no report says it."""
    is_known: bool
    """Whether the source has sent all of its events."""
    key: str
    """The events of `Counts.keys` that are counted."""
    end: datetime


class KeyCounts(NamedTuple):
    """The events of one key in a period."""

    key: str
    state: CountState
    sent: int | None
    stored: int
    rejected: int

    @property
    def missing(self) -> int:
        """How many events are missing; 0 while that is unknown."""
        return max(lacking(self.state, self.sent, self.stored, self.rejected), 0)

    @property
    def surplus(self) -> int:
        """How many events there are that were not sent; 0 while that is unknown."""
        return max(-lacking(self.state, self.sent, self.stored, self.rejected), 0)


class PeriodCounts(NamedTuple):
    """The events of one period."""

    start: datetime
    end: datetime
    windows: tuple[WindowCount, ...]
    stored: int
    rejected: int
    state: CountState
    values: tuple[KeyCounts, ...] = ()
    """Of each value, if the source counts by a column: the state is that of the worst one."""
    is_whole: bool = True
    """Whether all of its hours are counted."""

    @property
    def is_unknown(self) -> bool:
        """Whether anything of the period is unknown, also if events of other windows or values are missing."""
        states = {self.state, *(value.state for value in self.values)}
        return CountState.UNKNOWN in states or not all(window.is_known for window in self.windows)

    @property
    def known(self) -> list[PeriodCounts | KeyCounts]:
        """What the totals count: the period, or those of its values that are known if others are not."""
        if not self.is_unknown:
            return [self]
        return [value for value in self.values if self.is_short and value.state is not CountState.UNKNOWN]

    @property
    def sent(self) -> int | None:
        """The events sent in the windows with a report; None without one."""
        return total_sent(window.sent for window in self.windows)

    @property
    def is_short(self) -> bool:
        """Whether more events are missing than the source's `complete_percent` allows."""
        return self.state is CountState.SHORT

    @property
    def missing(self) -> int:
        """How many events are missing, also in a period that is complete; while some is unknown, of known values."""
        of_all = 0 if self.is_unknown else lacking(self.state, self.sent, self.stored, self.rejected)
        return max(of_all, sum(value.missing for value in self.values))

    @property
    def surplus(self) -> int:
        """How many events there are that were not sent; 0 while that is unknown."""
        if self.values:
            return sum(value.surplus for value in self.values)
        return max(-lacking(self.state, self.sent, self.stored, self.rejected), 0)


def total_sent(sent: Iterable[int | None]) -> int | None:
    """Return the events sent in the windows with a report; None without one."""
    numbers = [number for number in sent if number is not None]
    return sum(numbers) if numbers else None


def lacking(state: CountState, sent: int | None, stored: int, rejected: int) -> int:
    """Return how many events are missing; a negative number if there are more than were sent, 0 while it is unknown."""
    return 0 if state is CountState.UNKNOWN else (sent or 0) - stored - rejected


class SourceCounts(UpdatedRecord):
    """The events of a source in the UTC hours of a day, as records, messages and pages show them.

    All numbers are those of the periods that are known.
    """

    source: str
    state: CountState
    sent: int
    stored: int
    rejected: int
    missing: int
    surplus: int
    unit: Literal["hour", "day"]
    """A day if the source counts by day."""
    periods: int
    """Hours or days."""
    unknown: int
    """Those among them without counts, or without those of all values."""

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known."""
        return self.unknown == self.periods and self.state is not CountState.SHORT

    @property
    def line(self) -> str:
        """For people: `sent 1,000,000, stored 999,412, rejected 500, missing 88`."""
        if self.is_unknown:
            return "no counts of the source"
        parts = [f"sent {self.sent:,}", f"stored {self.stored:,}", f"rejected {self.rejected:,}"]
        parts += [f"missing {self.missing:,}"] if self.missing or not self.surplus else []
        parts += [f"surplus {self.surplus:,}"] if self.surplus else []
        parts += [f"no counts for {self.unknown} of {counted(self.periods, self.unit)}"] if self.unknown else []
        return ", ".join(parts)


def period_counts(
    source: Source,
    hours: Iterable[datetime],
    *,
    facts: Mapping[datetime, HourFacts],
    coverage: Coverage | None,
    stored: Mapping[datetime, int],
    is_current: Callable[[str], bool],
) -> list[PeriodCounts]:
    """Return the counts of the periods of a source that overlap the UTC hours, in order.

    `facts` and `stored`, the number of stored events that count, are by hour. `is_current` says whether the origin of
    rejected events counts: of a file that has got another content, it does not. A day that is only partly in `hours`
    is unknown.
    """
    wanted, periods = sorted(hours), list[PeriodCounts]()
    for start, end, inside in periods_of(source, wanted):
        is_whole = (end - start) / HOUR == len(inside)
        windows = tuple(windows_of(source, start, end, facts, coverage))
        rejected = sum(
            total_of(item.bins)
            for hour in inside
            for item in facts.get(hour, HourFacts()).rejected
            if is_current(item.origin)
        )
        held = sum(stored.get(hour, 0) for hour in inside)
        is_known = is_whole and all(window.is_known for window in windows)
        sent = sum(window.sent or 0 for window in windows)
        state = count_state(source, sent, held + rejected) if is_known else CountState.UNKNOWN
        periods.append(PeriodCounts(start, end, windows, held, rejected, state, is_whole=is_whole))
    return periods


def total_counts(source: Source, periods: Iterable[PeriodCounts]) -> SourceCounts:
    """Return the totals of periods. Missing events of one period are not made up for by a surplus of another."""
    periods = list(periods)
    known = [each for period in periods for each in period.known]
    return SourceCounts(
        source=source.source,
        unit="day" if counts_of(source).window == "day" else "hour",
        state=total_state(period.state for period in periods),
        sent=sum(each.sent or 0 for each in known),
        stored=sum(each.stored for each in known),
        rejected=sum(each.rejected for each in known),
        missing=sum(each.missing for each in known),
        surplus=sum(each.surplus for each in known),
        periods=len(periods),
        unknown=sum(period.is_unknown for period in periods),
    )


def total_state(states: Iterable[CountState]) -> CountState:
    """Return the state of several periods together, also of several sources: of the worst one, unknown without any."""
    found = set(states)
    # No period at all is no proof of anything.
    order = (CountState.SHORT, CountState.UNKNOWN, CountState.SURPLUS, CountState.COMPLETE)
    return next((state for state in order if state in found), CountState.UNKNOWN)


def fact_hours(source: Source, hours: Iterable[datetime]) -> set[datetime]:
    """Return the UTC hours whose facts say what was sent and rejected in these hours: also those where days begin."""
    wanted = set(hours)
    return wanted.union(start for start, _, _ in periods_of(source, sorted(wanted)))


def periods_of(source: Source, hours: list[datetime]) -> Iterator[tuple[datetime, datetime, list[datetime]]]:
    """Yield start and end of each period, with those of the hours, in order, that are in it."""
    if counts_of(source).window != "day":
        yield from ((hour, hour + HOUR, [hour]) for hour in hours)
        return
    days: dict[datetime, list[datetime]] = {}
    for hour in hours:
        days.setdefault(window_at(hour, source), []).append(hour)
    for start, inside in days.items():
        yield start, window_end(start, "day", source.pull_timezone), inside


def keys_at(source: Source, start: datetime, facts: Mapping[datetime, HourFacts]) -> tuple[str, ...]:
    """Return the keys by which the newest report about a period counts; without one, those of the source."""
    newest_first = _newest_first(source, start, facts)
    return newest_first[0].keys if newest_first else counts_of(source).keys


def _newest_first(source: Source, start: datetime, facts: Mapping[datetime, HourFacts]) -> list[HourReport]:
    is_day = counts_of(source).window == "day"
    reports = [item for item in facts.get(start, HourFacts()).reports if (item.window == "day") == is_day]
    return sorted(reports, key=lambda item: (item.as_of, item.id), reverse=True)


def windows_of(
    source: Source,
    start: datetime,
    end: datetime,
    facts: Mapping[datetime, HourFacts],
    coverage: Coverage | None,
) -> Iterator[WindowCount]:
    """Yield the windows of a period: of each, the keys by which the newest report about it counts."""
    all_reports = facts.get(start, HourFacts()).reports
    through = max([coverage.through, *(item.through for item in all_reports)]) if coverage else start
    newest_first = _newest_first(source, start, facts)
    window = newest_first[0].window if newest_first else counts_of(source).window
    keys = keys_at(source, start, facts)
    # After a change of the definition, reports with the windows or keys of before say nothing about those of now.
    deciding = [item for item in newest_first if (item.window, item.keys) == (window, keys)]
    # They keep a window unknown that a newer report does not name: its number of before is not 0.
    otherwise = {minute for item in newest_first if item.keys != keys for minute in item.counts}
    length = end - start if window == "day" else timedelta(minutes=WINDOW_MINUTES[window])
    while start < end:
        after = start + length
        for key in keys:
            naming = next((item for item in deciding if key in item.counts.get(start.minute, {})), None)
            if naming:
                yield WindowCount(start, naming.counts[start.minute][key], naming.through >= after, key, after)
            else:
                is_empty = coverage is not None and coverage.first <= start and after <= through
                is_empty = is_empty and start.minute not in otherwise
                yield WindowCount(start, 0 if is_empty else None, is_empty, key, after)
        start = after


def count_state(source: Source, sent: int, present: int) -> CountState:
    """Return the state of a time whose events have all been sent; `present` are the events stored or rejected."""
    if present > sent:
        return CountState.SURPLUS
    # Integers: in floating point, 99,995 of 100,000 events could be less than 99.995 percent.
    is_complete = _ALL * present >= counts_of(source).percent_units * sent
    return CountState.COMPLETE if is_complete else CountState.SHORT
