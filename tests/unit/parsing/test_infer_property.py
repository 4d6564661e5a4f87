"""Any table is accepted by the definition that is inferred from it, with the values that were written."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slackwater.receiver.formats.read import read_file
from slackwater.receiver.inference.infer import infer_definition
from slackwater.sources.definition import Source
from tests.fakes_receiver import RECEIVED

pytestmark = pytest.mark.unit

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
AT = datetime(2013, 3, 8, tzinfo=UTC)
AWARE = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).flatmap(
    lambda local: st.sampled_from([0, 60, -300, 330]).map(
        lambda minutes: local.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    )
)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "words": st.sampled_from(["EWR", "JFK", "N/A", "", "00501", "ja", "5", "-", "x;y", 'say "hi"', "a,b\nc", " x "]),
    "text": TEXT,
    "integer": st.integers(-(2**70), 2**70)
    | st.integers(-10, 2000)
    | st.integers(1_300_000_000, 1_400_000_000)
    | st.integers(1_300_000_000_000, 1_400_000_000_000),
    "double": st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(-100, 100).map(lambda value: round(value, 2)),
    "boolean": st.booleans(),
    "date": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    "timestamp": AWARE,
}


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Columns of one kind each, some with nulls, and a timestamp in each row."""
    rows = draw(st.integers(1, 8))
    table: dict[str, list[Any]] = {"at": draw(st.lists(AWARE, min_size=rows, max_size=rows))}
    for kind in draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5)):
        values = KINDS[kind] if draw(st.booleans()) else KINDS[kind] | st.none()
        name = f"{kind} {len(table)}" if draw(st.booleans()) else f"{kind}{len(table)}_at"
        table[name] = draw(st.lists(values, min_size=rows, max_size=rows))
    return table


def as_text(value: Any, null: str = "") -> str:
    match value:
        case None:
            return null
        case bool():
            return str(value).lower()
        case date():
            return value.isoformat()
        case _:
            return str(value)


def inferred(content: bytes, name: str) -> tuple[Source, list[dict[str, Any]], str]:
    """Infer the definition of a file; return it decided, the accepted rows, and its YAML."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        result = infer_definition(path, name=name)
        source = Source.model_validate(yaml.safe_load(result.definition))
        blocks = list(read_file(path, source, name=name, received_at=RECEIVED))
    rejected = [event.reason for block in blocks for event in block.rejected]
    assert (rejected, result.rejected, result.undecided.keys() & {"timestamp.field"}) == ([], 0, set()), (
        result.definition
    )
    return source, [row for block in blocks for row in block.table.to_pylist()], result.definition


READERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "int64": int,
    "double": float,
    "boolean": lambda text: {"true": True, "false": False}[text.lower()],
    "date": date.fromisoformat,
    "timestamp": lambda text: datetime.fromisoformat(text).astimezone(UTC),
    "epoch": lambda text: (
        datetime(1970, 1, 1, tzinfo=UTC)
        + timedelta(microseconds=int(Decimal(text) * (10**6 if Decimal(text) < 10**11 else 1000)))
    ),
}


def check(source: Source, rows: list[dict[str, Any]], texts: dict[str, list[str]]) -> None:
    assert len(rows) == len(texts["at"])
    for name, field in source.fields.items():
        values = [row[name] for row in rows]
        # Numbers that may be seconds as well stay numbers.
        is_epoch = "epoch_ms" in field.formats
        read = READERS["epoch" if is_epoch else field.type]
        # Without our code, and without a loss: no digit of a number is dropped or rounded.
        for text, value in zip(texts[source.partner_name(name)], values, strict=True):
            assert value == (None if text in source.null_values else read(text)), name
            assert field.type != "int64" or value is None or str(value) == text
            assert field.type != "double" or value is None or Decimal(repr(value)) == Decimal(text)


@settings(suppress_health_check=[HealthCheck.too_slow])
@example({"at": [AT], "integer1_at": [631152000000]}, ",", "")
@example({"at": [AT, AT], "double1_at": [1362700800000.25, None]}, ";", "NA")
@given(tables(), st.sampled_from(",;\t|"), st.sampled_from(["", "NA", "null", "-"]))
def test_any_csv_file_is_accepted_with_its_values(table, delimiter, null):
    texts = {name: [as_text(value, null) for value in values] for name, values in table.items()}
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=delimiter)
    writer.writerow(texts)
    writer.writerows(zip(*texts.values(), strict=True))
    source, rows, _ = inferred(written.getvalue().encode(), "table.csv")
    assert set(source.partner_fields) == set(texts)
    check(source, rows, texts)


def json_value(value: Any) -> Any:
    return as_text(value) if isinstance(value, date) else value


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(tables(), st.booleans())
def test_any_json_file_is_accepted_with_its_values(table, is_array):
    events = [dict(zip(table, map(json_value, row), strict=True)) for row in zip(*table.values(), strict=True)]
    content = json.dumps(events) if is_array else "\n".join(map(json.dumps, events))
    source, rows, _ = inferred(content.encode(), "table.json" if is_array else "table.ndjson")
    assert [json.loads(row["_extra"] or "{}") for row in rows] == [
        {name: value for name, value in event.items() if name not in source.partner_fields} for event in events
    ]
    check(source, rows, {name: [as_text(event[name]) for event in events] for name in source.partner_fields})


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_any_parquet_file_is_accepted_with_its_values(table):
    arrays = {
        name: pa.array(map(str, values) if any(isinstance(v, int) and abs(v) >= 2**63 for v in values) else values)
        for name, values in table.items()
    }
    written = io.BytesIO()
    pq.write_table(pa.table(arrays), written)
    source, rows, _ = inferred(written.getvalue(), "table.parquet")
    texts = {name: [as_text(value) for value in array.to_pylist()] for name, array in arrays.items()}
    assert set(source.partner_fields) == set(texts)
    check(source, rows, texts)
