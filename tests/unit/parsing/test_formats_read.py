"""`read_file`: every format in every compression."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import zipfile
from datetime import UTC, date, datetime

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.errors import DataError, DefinitionError
from slackwater.receiver.formats import read
from slackwater.receiver.formats.read import count_rows, read_file
from slackwater.sources.event_schema import event_schema
from tests.fakes_receiver import RECEIVED, a_source

pytestmark = pytest.mark.unit

AT = datetime(2013, 3, 11, 12, tzinfo=UTC)
ROW = {"id": "a", "count": 1, "at": "2013-03-11T12:00:00Z"}
LIMITED = {"field": "at", "max_age_days": 1}


def zipped(content: bytes) -> bytes:
    created = io.BytesIO()
    with zipfile.ZipFile(created, "w") as archive:
        archive.writestr("data", content)
    return created.getvalue()


def content_of(file_format: str, *rows: dict[str, object]) -> bytes:
    created = io.BytesIO()
    if file_format == "json":
        return json.dumps(rows, default=str).encode()
    if file_format == "ndjson":
        return "\n".join(json.dumps(row, default=str) for row in rows).encode()
    if file_format == "parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), created)
    elif file_format == "xlsx":
        workbook = openpyxl.Workbook()
        for cells in (list(rows[0]), *(list(row.values()) for row in rows)):
            workbook.active.append(cells)
        workbook.save(created)
    else:
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter="\t" if file_format == "tsv" else ",")
        writer.writerows([rows[0], *(row.values() for row in rows)])
        return text.getvalue().encode()
    return created.getvalue()


FORMATS = ("csv", "tsv", "json", "ndjson", "parquet", "xlsx")
COMPRESSIONS = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "zstd": lambda content: pa.compress(content, "zstd", asbytes=True),
    "zip": zipped,
}


def source_with_format(file_format: str, **changes: object):
    return a_source(pull={"url": "http://x/y", "files": "{date}", "format": file_format}, **changes)


MANY = [ROW | {"id": name} for name in ("a", "b\nc", "", "é, \u2028", '"d"')] + [{"id": None, "count": "x", "at": ""}]
"""Rows that are accepted, and rows that are rejected."""


def many_rows(file_format: str) -> bytes:
    created = io.BytesIO()
    if file_format == "json":
        return json.dumps(MANY, indent=1).encode()
    if file_format == "ndjson":
        return b"\n \r\n".join(json.dumps(row).encode() for row in MANY) + b"\n{\n"
    if file_format == "parquet":
        pq.write_table(pa.table({name: [str(row[name]) for row in MANY] for name in ROW}), created, row_group_size=2)
    elif file_format == "xlsx":
        workbook = openpyxl.Workbook()
        for cells in (list(ROW), [], *([row[name] for name in ROW] for row in MANY), [None] * 3):
            workbook.active.append(cells)
        workbook.save(created)
    else:
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter="\t" if file_format == "tsv" else ",")
        writer.writerows([list(ROW), [], *(list(row.values()) for row in MANY), ["too", "few"]])
        return text.getvalue().encode()
    return created.getvalue()


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("compression", ["plain", "gzip"])
def test_rows_are_counted_as_they_are_read(tmp_path, file_format, compression):
    path, source = tmp_path / "file", source_with_format(file_format)
    path.write_bytes(COMPRESSIONS[compression](many_rows(file_format)))
    blocks = list(read_file(path, source, name="f", received_at=RECEIVED))
    rows = sum(block.table.num_rows + len(block.rejected) for block in blocks)
    assert count_rows(path, source, name="f") == rows >= len(MANY)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("file_format", ["csv", "tsv", "ndjson", "parquet"])
def test_rows_are_counted_without_parsing_them(tmp_path, monkeypatch, file_format):
    path, source = tmp_path / "file", source_with_format(file_format)
    path.write_bytes(many_rows(file_format))
    expected = sum(rows.row_count for rows in read.parse_file(path, source, name="f"))
    monkeypatch.delattr(read, "parse_file")
    assert count_rows(path, source, name="f") == expected


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("file_format", FORMATS)
def test_every_format_is_read_in_every_compression(tmp_path, file_format, compression):
    path = tmp_path / "file"
    path.write_bytes(COMPRESSIONS[compression](content_of(file_format, ROW)))
    (block,) = read_file(path, source_with_format(file_format), name="f", received_at=RECEIVED)
    assert block.table.select(["id", "count", "at"]).to_pylist() == [{**ROW, "at": AT}]
    assert block.rejected == []
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("unknown", "extra", "rules"),
    [("keep", ['{"x":"ü"}'], []), ("ignore", [None], []), ("reject", [], ["unknown_field"])],
)
@pytest.mark.parametrize("file_format", FORMATS)
def test_every_format_has_all_types_the_partners_names_and_unknown_fields(tmp_path, file_format, unknown, extra, rules):
    own = {"count": 2**31, "size": 1.25, "good": True, "day": date(2013, 3, 8)}
    path, renamed = tmp_path / "file", {"id": ("string", "Order No."), "at": ("timestamp", "Booked")}
    fields = {
        **a_source().fields,
        **{name: {"type": type_, "from": partner} for name, (type_, partner) in renamed.items()},
    }
    source = source_with_format(
        file_format, fields=fields, unknown_fields=unknown, timestamp={"field": "at", "timezone": "America/New_York"}
    )
    path.write_bytes(content_of(file_format, {"Booked": "2013-03-11T08:00:00", "Order No.": "ä", **own, "x": "ü"}))
    (block,) = read_file(path, source, name="f", received_at=RECEIVED)
    assert block.table.schema == event_schema(source)
    expected = [{"id": "ä", "at": AT, **own, "_event_time": AT, "_extra": value} for value in extra]
    assert block.table.to_pylist() == expected
    assert [item.rule for item in block.rejected] == rules


@pytest.mark.parametrize("file_format", FORMATS)
def test_ages_are_measured_at_the_time_of_receipt(tmp_path, file_format):
    path = tmp_path / "file"
    path.write_bytes(content_of(file_format, ROW))
    source, received_at = source_with_format(file_format, timestamp=LIMITED), datetime(2013, 3, 12, 12, 1, tzinfo=UTC)
    (changed,) = read_file(path, source, name="f", received_at=received_at, first_received_at=AT)
    assert changed.table.num_rows == 1
    (block,) = read_file(path, source, name="f", received_at=received_at)
    assert (block.table.num_rows, [(item.index, item.rule) for item in block.rejected]) == (0, [(0, "too_old")])
    assert all(ROW["at"] in str(item.text) for item in block.rejected)


@pytest.mark.parametrize("file_format", FORMATS)
def test_errors_of_a_file_in_another_format_name_the_file(tmp_path, file_format):
    path = tmp_path / "file"
    path.write_bytes(b"{" if file_format == "json" else b"\x00\x01nothing")
    if file_format == "ndjson":
        (block,) = read_file(path, source_with_format(file_format), name="f.x", received_at=RECEIVED)
        assert [item.rule for item in block.rejected] == ["not_json"]
        return
    with pytest.raises(DataError, match=r"^f\.x: "):
        list(read_file(path, source_with_format(file_format), name="f.x", received_at=RECEIVED))


def test_a_source_that_is_not_pulled_has_no_format(tmp_path):
    with pytest.raises(DefinitionError, match="no `pull`"):
        list(read_file(tmp_path / "file", a_source(pull=None), name="f", received_at=RECEIVED))
