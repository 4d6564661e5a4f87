"""Some rows of a sample: as the partner has written them, and as the receiver reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.dev.infer import LocalSample
from slackwater.errors import DataError
from slackwater.receiver.formats.blocks import ParsedRows, row_as_json, rows_as_json
from slackwater.receiver.formats.read import parse_file, read_file
from slackwater.receiver.parsing.event_checks import check_events
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import EVENT_TIME
from slackwater.sources.fields import FieldType

# Rows whose values decide the column by which the pipeline counts, and among which those of the test are found.
_MOST_ROWS, _CANDIDATES = 100_000, 500
# Rows of the test, all of one day.
_TEST_ROWS = 5
# Different values of a column by which it is useful to count, and how many rows each has on average.
_FEWEST, _MOST, _ROWS_EACH = 2, 20, 2


@dataclass(frozen=True, kw_only=True)
class SampleRows:
    """What a sample says about a pipeline that counts its rows."""

    column: str | None
    """A column of strings with few values; None if there is none."""
    day: date
    """The local day of the test."""
    rows: tuple[Mapping[str, Any], ...]
    """Rows of the day with the partner's names and values, which the receiver accepts."""
    counts: Mapping[str | int | None, int]
    """Of these rows by the value of `column`, or else by the local hour."""


def sample_rows(sample: LocalSample, source: Source, *, timezone: str) -> SampleRows | None:
    """Read a sample by the definition `source`, which has `pull`; days are those of the timezone.

    Returns None if no row is accepted, also when it is written as JSON.
    """
    try:
        events = _events(sample, source)
        raw = _raw_rows(next(parse_file(sample.path, source, name=sample.name)), source)
    except (DataError, StopIteration):
        return None
    checked = check_events(raw, source, received_at=datetime.now(UTC))
    rejected = set(checked.rejections["index"].to_pylist())
    accepted = [row for index, row in enumerate(raw) if index not in rejected]
    if not accepted:
        return None
    column = _column(events, source)
    zone = ZoneInfo(timezone)
    times = [time.astimezone(zone) for time in checked.table[EVENT_TIME].to_pylist()]
    day = times[0].date()
    ids = checked.table[source.event_id].to_pylist() if source.event_id else range(len(accepted))
    values = checked.table[column].to_pylist() if column else [time.hour for time in times]
    rows: dict[object, tuple[Mapping[str, Any], Any]] = {}
    for row, time, identity, value in zip(accepted, times, ids, values, strict=True):
        if time.date() == day and len(rows) < _TEST_ROWS:
            rows.setdefault(identity, (row, value))
    counts: dict[str | int | None, int] = {}
    for _, value in rows.values():
        counts[value] = counts.get(value, 0) + 1
    return SampleRows(column=column, day=day, rows=tuple(row for row, _ in rows.values()), counts=counts)


def _events(sample: LocalSample, source: Source) -> pa.Table:
    found: list[pa.Table] = []
    for block in read_file(sample.path, source, name=sample.name, received_at=datetime.now(UTC)):
        found.append(block.table)
        if sum(table.num_rows for table in found) >= _MOST_ROWS or not sample.is_whole:
            break  # the last rows of an incomplete file are not complete
    return pa.concat_tables(found)


def _raw_rows(parsed: ParsedRows, source: Source) -> list[Mapping[str, Any]]:
    """Return the first rows as JSON objects of the source's fields."""
    events = parsed.events[:_CANDIDATES]
    if isinstance(events, pa.Table):
        texts: Sequence[str] = rows_as_json(events, range(events.num_rows))
    else:
        texts = [row_as_json(event) for event in events if isinstance(event, Mapping)]
    # Of a path such as `a.b`, the object `a` is kept.
    names = {known for name in source.partner_fields for known in (name, name.partition(".")[0])}
    return [{name: value for name, value in json.loads(text).items() if name in names} for text in texts]


def _column(events: pa.Table, source: Source) -> str | None:
    """Return the first column of strings with few values, of those with the fewest nulls."""
    candidates = []
    for name, field in source.fields.items():
        if field.type is FieldType.STRING and name not in {source.event_id, "date"}:
            count = pc.count_distinct(events[name], mode="all").as_py()
            if _FEWEST <= count <= _MOST and count * _ROWS_EACH <= events.num_rows:
                candidates.append((events[name].null_count, name))
    return min(candidates, key=lambda candidate: candidate[0])[1] if candidates else None
