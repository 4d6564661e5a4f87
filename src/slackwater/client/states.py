"""The states of the hours of sources, as they were computed when their facts last changed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from slackwater.model import Record
from slackwater.runs.periods.changes import PeriodChanged, period_changed
from slackwater.sources.counts import value_of
from slackwater.sources.definition import Source
from slackwater.state.completeness import CountState, SourceCounts, total_counts
from slackwater.state.facts import HOUR
from slackwater.state.fold import PeriodState, periods_with
from slackwater.state.rollup import rolled_up

if TYPE_CHECKING:
    import pyarrow as pa

    from slackwater.aws.dynamodb.period_table import DynamoPeriodTable

SourcePeriod = PeriodChanged
"""One hour or day of a source."""
QUERY_DAYS = 31
"""So many days are in the table `state` of a query, today included."""
_OF_PERIOD = ("source", "start", "end", "version")
_OF_VALUE = ("state", "sent", "stored", "rejected", "missing", "surplus")


class SourceStates(Record):
    """The states of a source in some days, UTC."""

    source: str
    first: date
    last: date
    state: CountState
    """Of all hours together."""
    line: str
    """The totals for people: `sent 1,000,000, stored 999,412, rejected 500, missing 88`."""
    total: SourceCounts
    periods: tuple[SourcePeriod, ...]
    """The hours, or the days of a source that counts by day. Those that nothing is known about are missing."""


def source_states(table: DynamoPeriodTable, source: Source, first: date, last: date) -> SourceStates:
    """Return the states of a source with `counts` from one UTC date to another. Raises `CloudError`."""
    start, end = _midnight(first), _midnight(last + timedelta(days=1))
    states = read_states(table, source, start, end)
    total = total_counts(source, rolled_up(source, states, start, end))
    return SourceStates(
        source=source.source,
        first=first,
        last=last,
        state=total.state,
        line=total.line,
        total=total,
        periods=tuple(period_changed(state, None) for state in states),
    )


def read_states(table: DynamoPeriodTable, source: Source, start: datetime, end: datetime) -> list[PeriodState]:
    """Return the states of the periods of a source that touch this time, in order. Raises `CloudError`."""
    hours = [start + number * HOUR for number in range(round((end - start) / HOUR))]
    return table.states(source.source, [period.start for period in periods_with(source, hours)])


def states_table(table: DynamoPeriodTable, sources: Iterable[Source], today: date) -> pa.Table:
    """Return the table `state` of a query: a row for each period of the sources with `counts`.

    Of a source that counts by a column, a row for each value. Raises `CloudError`.
    """
    import pyarrow as pa

    start, end = _midnight(today - timedelta(days=QUERY_DAYS - 1)), _midnight(today + timedelta(days=1))
    counted = [source for source in sources if source.counts]
    states = [state for source in counted for state in read_states(table, source, start, end)]
    rows = [
        {**{name: getattr(state, name) for name in _OF_PERIOD}, "value": value_of(value.key)}
        | {name: getattr(value, name) for name in _OF_VALUE}
        for state in states
        for value in state.values
    ]
    instant, number = pa.timestamp("us", "UTC"), pa.int64()
    types = {"source": pa.string(), "start": instant, "end": instant, "value": pa.string(), "state": pa.string()}
    schema = pa.schema([(name, types.get(name, number)) for name in (*_OF_PERIOD, "value", *_OF_VALUE)])
    return pa.Table.from_pylist(rows, schema)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
