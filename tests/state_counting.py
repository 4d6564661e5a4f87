"""The states of windows as DuckDB counts them, from what was sent and without our code."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from slackwater.sources.definition import Source
from slackwater.state.completeness import CountState

_AT, _TEXT, _NUMBER = pa.timestamp("us", "UTC"), pa.string(), pa.int64()
_TABLES = {
    "spans": {"since": _AT, "after": _AT},
    "events": {"written": _NUMBER, "name": _TEXT, "hour": _AT, "happened": _AT, "id": _TEXT, "row_index": _NUMBER},
    "rejects": {"happened": _AT},
    "named": {"as_of": _AT, "id": _TEXT, "through": _AT, "covers_from": _AT, "start": _AT, "sent": _NUMBER},
}
_SQL = """
WITH deciding AS (
    SELECT s.since, arg_max(sent, (as_of, id)) AS sent, arg_max(through, (as_of, id)) AS through
    FROM spans s JOIN named n ON n.start = s.since GROUP BY ALL
), cover AS (SELECT min(covers_from) AS since, max(through) AS until FROM named),
counted AS (
    SELECT happened, row_number() OVER (
        PARTITION BY hour, coalesce(id, name || '/' || row_index) ORDER BY written, row_index
    ) AS nth FROM events
)
SELECT s.since, s.after,
    coalesce(d.sent, CASE WHEN c.since <= s.since AND s.after <= c.until THEN 0 END) AS sent,
    (SELECT count(*) FROM counted e
        WHERE s.since <= e.happened AND e.happened < s.after AND (nth = 1 OR NOT $distinct)) AS stored,
    (SELECT count(*) FROM rejects r WHERE s.since <= r.happened AND r.happened < s.after) AS rejected,
    CASE WHEN d.sent IS NOT NULL THEN d.through >= s.after
        ELSE c.since <= s.since AND s.after <= c.until END AS is_known
FROM spans s LEFT JOIN deciding d USING (since) CROSS JOIN cover c ORDER BY ALL
"""
_connection = duckdb.connect(":memory:")


class Counted(NamedTuple):
    """A period."""

    state: CountState
    windows: list[tuple[Any, ...]]
    """Start, end, sent, stored, rejected and state of each."""


def count(source: Source, *, is_distinct: bool, **tables: Sequence[Sequence[Any]]) -> Counted:
    """Return the state of a period: `spans` are its windows, `named` what each report says about each window."""
    for name, schema in _TABLES.items():
        columns = [pa.array([row[index] for row in tables[name]], kind) for index, kind in enumerate(schema.values())]
        _connection.register(name, pa.table(columns, names=list(schema)))
    windows, is_known = [], True
    for since, after, sent, stored, rejected, known in _connection.execute(_SQL, {"distinct": is_distinct}).fetchall():
        state = judged(source, sent or 0, stored + rejected) if known else CountState.UNKNOWN
        is_known &= bool(known)
        windows.append((_utc(since), _utc(after), sent, stored, rejected, state))
    total = judged(source, sum(row[2] or 0 for row in windows), sum(row[3] + row[4] for row in windows))
    return Counted(total if is_known else CountState.UNKNOWN, windows)


def judged(source: Source, sent: int, present: int) -> CountState:
    """Return the state of a time that is known."""
    assert source.counts is not None
    if present > sent:
        return CountState.SURPLUS
    needed = round(source.counts.complete_percent * 1000) * sent
    return CountState.COMPLETE if 100_000 * present >= needed else CountState.SHORT


def _utc(instant: datetime) -> datetime:
    return instant.astimezone(UTC)
