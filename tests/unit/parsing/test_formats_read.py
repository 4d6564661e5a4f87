"""`read_file`: every format in every compression."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import zipfile
from datetime import UTC, datetime

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.errors import DataError, DefinitionError
from slackwater.receiver.formats.read import count_rows, read_file
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


def parquet() -> bytes:
    created = io.BytesIO()
    pq.write_table(pa.table({name: [value] for name, value in ROW.items()}), created)
    return created.getvalue()


def xlsx() -> bytes:
    created, workbook = io.BytesIO(), openpyxl.Workbook()
    for row in (list(ROW), list(ROW.values())):
        workbook.active.append(row)
    workbook.save(created)
    return created.getvalue()


CONTENTS = {
    "csv": lambda: b"id,count,at\na,1,2013-03-11T12:00:00Z\n",
    "tsv": lambda: b"id\tcount\tat\na\t1\t2013-03-11T12:00:00Z\n",
    "json": lambda: json.dumps([ROW]).encode(),
    "ndjson": lambda: json.dumps(ROW).encode(),
    "parquet": parquet,
    "xlsx": xlsx,
}
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


@pytest.mark.parametrize("file_format", CONTENTS)
@pytest.mark.parametrize("compression", ["plain", "gzip"])
def test_rows_are_counted_as_they_are_read(tmp_path, file_format, compression):
    path, source = tmp_path / "file", source_with_format(file_format)
    path.write_bytes(COMPRESSIONS[compression](many_rows(file_format)))
    blocks = list(read_file(path, source, name="f", received_at=RECEIVED))
    read = sum(block.table.num_rows + len(block.rejected) for block in blocks)
    assert count_rows(path, source, name="f") == read >= len(MANY)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("file_format", CONTENTS)
def test_every_format_is_read_in_every_compression(tmp_path, file_format, compression):
    path = tmp_path / "file"
    path.write_bytes(COMPRESSIONS[compression](CONTENTS[file_format]()))
    (block,) = read_file(path, source_with_format(file_format), name="f", received_at=RECEIVED)
    assert block.table.select(["id", "count", "at"]).to_pylist() == [{**ROW, "at": AT}]
    assert block.rejected == []
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("file_format", CONTENTS)
def test_ages_are_measured_at_the_time_of_receipt(tmp_path, file_format):
    path = tmp_path / "file"
    path.write_bytes(CONTENTS[file_format]())
    source, received_at = source_with_format(file_format, timestamp=LIMITED), datetime(2013, 3, 12, 12, 1, tzinfo=UTC)
    (changed,) = read_file(path, source, name="f", received_at=received_at, first_received_at=AT)
    assert changed.table.num_rows == 1
    (block,) = read_file(path, source, name="f", received_at=received_at)
    assert (block.table.num_rows, [(item.index, item.rule) for item in block.rejected]) == (0, [(0, "too_old")])
    assert all(ROW["at"] in str(item.text) for item in block.rejected)


@pytest.mark.parametrize("file_format", CONTENTS)
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
