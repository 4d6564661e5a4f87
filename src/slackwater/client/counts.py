"""What a source has sent in each hour of a day, against what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date as date_type
from datetime import datetime

from slackwater.model import Record
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.inputs.source_counts import CountsReader, rows_by_hour
from slackwater.runs.period import day_of, start_of
from slackwater.runs.periods.changes import ValueChange, value_changes
from slackwater.sources.counts import value_of
from slackwater.sources.definition import Source
from slackwater.state.completeness import CountState, PeriodCounts, SourceCounts, total_counts
from slackwater.state.reports import counts_of

ValueCounts = ValueChange
"""The events of one value."""


class SentWindow(Record):
    """How many events were sent in a window."""

    start: datetime
    """UTC."""
    value: str | None
    """Of the column by which the source counts, or `other`; None without a column."""
    sent: int | None
    """None without a report."""
    known: bool
    """Whether the source has sent all of its events."""


class Period(Record):
    """The events of a UTC hour, or of a day for a source that counts by day."""

    start: datetime
    """UTC."""
    end: datetime
    state: CountState
    sent: int | None
    """In the windows with a report; None without one."""
    stored: int
    """Events that count: of several events with one id, one does."""
    rejected: int
    missing: int
    surplus: int
    values: tuple[ValueCounts, ...]
    """Of a source that counts by a column: those of its stored state, some seconds old. Otherwise empty."""
    windows: tuple[SentWindow, ...]
    """What was stored is known by hour only, so a window has no more than what was sent."""


class DayCounts(Record):
    """The events of a source in the hours of a day."""

    source: str
    date: str
    timezone: str
    """Of the day."""
    state: CountState
    line: str
    """The totals for people: `sent 1,000,000, stored 999,412, rejected 500, missing 88`."""
    total: SourceCounts
    periods: tuple[Period, ...]


@dataclass(frozen=True, kw_only=True)
class DayCounter:
    """Counts the events of days."""

    reader: CountsReader
    inputs: InputListing

    def counts(self, source: Source, date: str) -> DayCounts:
        """Return the counts of a day, an ISO date in the timezone of the source's timestamps, or else of its files.

        Raises `DataError` for a source without `counts`, `DayChanged` while its files keep changing, `CloudError`.
        """
        counts_of(source)
        day = day_of(date_type.fromisoformat(date), source.pull_timezone)
        partitions = list(day.partitions())
        stored = rows_by_hour(self.inputs.of_source(source.source, partitions))
        hours = [start_of(partition) for partition in partitions]
        periods = self.reader.periods(source, hours, stored, reads_unknown=True)
        total = total_counts(source, periods)
        return DayCounts(
            source=source.source,
            date=date,
            timezone=source.pull_timezone,
            state=total.state,
            line=total.line,
            total=total,
            periods=_periods(periods),
        )


def _periods(periods: Sequence[PeriodCounts]) -> tuple[Period, ...]:
    return tuple(
        Period(
            start=period.start,
            end=period.end,
            state=period.state,
            sent=period.sent,
            stored=period.stored,
            rejected=period.rejected,
            missing=period.missing,
            surplus=period.surplus,
            values=value_changes(period.values),
            windows=tuple(
                SentWindow(start=item.start, value=value_of(item.key), sent=item.sent, known=item.is_known)
                for item in period.windows
            ),
        )
        for period in periods
    )
