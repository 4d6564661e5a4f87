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
    "events": {
        "written": _NUMBER,
        "name": _TEXT,
        "hour": _AT,
        "happened": _AT,
        "id": _TEXT,
        "region": _TEXT,
        "row_index": _NUMBER,
    },
    "rejects": {"key": _TEXT, "happened": _AT},
    "named": {
        "as_of": _AT,
        "id": _TEXT,
        "through": _AT,
        "covers_from": _AT,
        "start": _AT,
        "key": _TEXT,
        "sent": _NUMBER,
    },
    "values": {"position": _NUMBER, "value": _TEXT, "key": _TEXT},
}
_SQL = """
WITH deciding AS (
    SELECT s.since, n.key, arg_max(sent, (as_of, id)) AS sent, arg_max(through, (as_of, id)) AS through
    FROM spans s JOIN named n ON n.start = s.since GROUP BY ALL
), cover AS (SELECT min(covers_from) AS since, max(through) AS until FROM named),
counted AS (
    SELECT happened, coalesce(v.key, (SELECT key FROM "values" WHERE value IS NULL)) AS key, row_number() OVER (
        PARTITION BY hour, coalesce(id, name || '/' || row_index) ORDER BY written, row_index
    ) AS nth FROM events e LEFT JOIN "values" v ON v.value = e.region
)
SELECT s.since, s.after, v.key,
    coalesce(d.sent, CASE WHEN c.since <= s.since AND s.after <= c.until THEN 0 END) AS sent,
    (SELECT count(*) FROM counted e
        WHERE e.key = v.key AND s.since <= e.happened AND e.happened < s.after
        AND (nth = 1 OR NOT $distinct)) AS stored,
    (SELECT count(*) FROM rejects r
        WHERE r.key = v.key AND s.since <= r.happened AND r.happened < s.after) AS rejected,
    CASE WHEN d.sent IS NOT NULL THEN d.through >= s.after
        ELSE c.since <= s.since AND s.after <= c.until END AS is_known
FROM spans s CROSS JOIN "values" v LEFT JOIN deciding d ON d.since = s.since AND d.key = v.key CROSS JOIN cover c
ORDER BY s.since, v.position
"""
_connection = duckdb.connect(":memory:")


class Counted(NamedTuple):
    """A period."""

    keys: dict[str, CountState]
    """The state of each key."""
    windows: list[tuple[Any, ...]]
    """Start, end, key, sent, stored, rejected and state of each."""
    is_known: bool
    """Whether all windows are."""


def count(source: Source, *, is_distinct: bool, **tables: Sequence[Sequence[Any]]) -> Counted:
    """Return the state of a period: `spans` are its windows, `named` what each report says about each window."""
    assert source.counts is not None
    by, listed = source.counts.by, source.counts.values
    # Written down again, as the documentation says it: events are counted by the value if it is listed.
    keyed = [*((value, f"{by}={value}") for value in listed), (None, f"{by}=" if by else "")]
    tables = {**tables, "values": [(number, *row) for number, row in enumerate(keyed)]}
    for name, schema in _TABLES.items():
        columns = [pa.array([row[index] for row in tables[name]], kind) for index, kind in enumerate(schema.values())]
        _connection.register(name, pa.table(columns, names=list(schema)))
    windows, unknown = [], set[str]()
    for since, after, key, sent, stored, rejected, known in _connection.execute(
        _SQL, {"distinct": is_distinct}
    ).fetchall():
        state = judged(source, sent or 0, stored + rejected) if known else CountState.UNKNOWN
        unknown.update(() if known else (key,))
        windows.append((_utc(since), _utc(after), key, sent, stored, rejected, state))
    keys = dict[str, CountState]()
    for _, key in keyed:
        of_key = [row for row in windows if row[2] == key]
        total = judged(source, sum(row[3] or 0 for row in of_key), sum(row[4] + row[5] for row in of_key))
        keys[key] = CountState.UNKNOWN if key in unknown else total
    return Counted(keys, windows, not unknown)


def judged(source: Source, sent: int, present: int) -> CountState:
    """Return the state of a time that is known."""
    assert source.counts is not None
    if present > sent:
        return CountState.SURPLUS
    needed = round(source.counts.complete_percent * 1000) * sent
    return CountState.COMPLETE if 100_000 * present >= needed else CountState.SHORT


def _utc(instant: datetime) -> datetime:
    return instant.astimezone(UTC)
