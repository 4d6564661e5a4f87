"""Extract steps with rows that are easy to get wrong, files that change meanwhile, and folders that lack parts."""

from __future__ import annotations

import io
import json
import math
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from slackwater.arrow.session import temporary_settings
from slackwater.errors import CloudError, InputError, ObjectMissing
from slackwater.outbound.guard import Outbound
from slackwater.steps.extract import read_api, read_csv, read_json, read_ndjson, read_parquet, read_sql, read_xlsx
from slackwater.steps.files import ProjectFiles
from slackwater.steps.io import typed_files
from slackwater.steps.io.local_folder import files_below
from slackwater.steps.load import write_csv
from slackwater.steps.spark_errors import explain
from slackwater.steps.step import Extract, StepContext
from tests.fakes_spark import FolderStore
from tests.fakes_web import Reply, Web
from tests.spark.frames import frame_of
from tests.spark.steps.conftest import PREFIX

Rows = list[tuple[Any, ...]]
FIELDS = {"s": "string", "n": "int64", "v": "double"}
ALL_NULL: Rows = [(None, None, None)] * 2
ROWS: dict[str, Rows] = {
    "no rows": [],
    "one row": [("a", 999_999_999_999_999, -0.5)],
    "all null": ALL_NULL,
    "unicode and nulls": [
        ("Zoë 年 \U0001f680 e\u0301 \u2028 '\"`;,\n\t.", 1, 1e300),
        ("Zoe", 2, 5e-324),
        (None, 1, None),
    ],
}


def content(write: Callable[[io.BytesIO], object]) -> bytes:
    write(body := io.BytesIO())
    return body.getvalue()


def frame(rows: Rows) -> pl.DataFrame:
    return pl.DataFrame(rows, {"s": pl.String, "n": pl.Int64, "v": pl.Float64}, orient="row")


def workbook(*rows: tuple[Any, ...]) -> bytes:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    return content(book.save)


def database(rows: Rows) -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (s, n, v)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        connection.commit()
        return connection.serialize()


WRITERS: dict[str, tuple[Extract, Callable[[Rows], bytes]]] = {
    "csv": (read_csv.STEP, lambda rows: content(frame(rows).write_csv)),
    "json": (read_json.STEP, lambda rows: content(frame(rows).write_json)),
    "ndjson": (read_ndjson.STEP, lambda rows: content(frame(rows).write_ndjson)),
    "parquet": (read_parquet.STEP, lambda rows: content(frame(rows).write_parquet)),
    "xlsx": (read_xlsx.STEP, lambda rows: workbook(tuple(FIELDS), *rows)),
    "sqlite": (read_sql.STEP, database),
    "api": (read_api.STEP, lambda rows: content(frame(rows).write_json)),
}


def read(step: Extract, context: StepContext, **parameters: Any) -> Rows:
    """Return the rows that the step reads; they have the declared columns and types."""
    fields = {} if step in (read_parquet.STEP, read_sql.STEP) else {"fields": FIELDS}
    table = step.read(step.parameters.model_validate({**parameters, **fields}), context).toArrow()
    assert table.schema.equals(pa.schema({"s": pa.string(), "n": pa.int64(), "v": pa.float64()}))
    return [tuple(row.values()) for row in table.to_pylist()]


def read_body(body: bytes, step: Extract, context: StepContext, folder: Path) -> Rows:
    """Return the rows that the step reads from a file, or from an API, with this content."""
    (folder / "a.x").write_bytes(body)
    with Web() as web:
        web.on("/v1", Reply(body=body))
        context = replace(context, files=files_below(folder), outbound=Outbound.of([web.entry]))
        if step is read_api.STEP:
            return read(step, context, url=f"{web.url}/v1")
        if step is read_sql.STEP:
            return read(step, context, query="SELECT s, n, v FROM t", sqlite={"path": "a.x", "fields": FIELDS})
        return read(step, context, path="a.x")


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("name", WRITERS)
def test_rows_are_those_that_another_library_wrote(context: StepContext, tmp_path: Path, name: str, rows: Rows) -> None:
    step, write = WRITERS[name]
    # A sheet has no rows without a value.
    expected = [] if rows is ALL_NULL and name == "xlsx" else rows
    assert read_body(write(rows), step, context, tmp_path) == expected


def test_nan_and_infinities_of_parquet(context: StepContext, tmp_path: Path) -> None:
    rows = [("a", 1, v) for v in (math.nan, math.inf, -math.inf, -0.0, None)]
    body = content(frame(rows).write_parquet)
    # NaN does not equal NaN.
    assert repr(read_body(body, read_parquet.STEP, context, tmp_path)) == repr(rows)


@pytest.mark.parametrize(
    ("step", "body", "message"),
    [
        *((read_csv.STEP, f"v\n1\n{v}\n".encode(), f"line 3: v: '{v}' is not a") for v in ("NaN", "-inf", "1e999")),
        *((read_json.STEP, f'[{{"v": {v}}}]'.encode(), "row 1: v: .* is not a") for v in ("NaN", "-Infinity", '"NaN"')),
        *((read_ndjson.STEP, f'{{"v": {v}}}'.encode(), "line 1: v: .* is not a") for v in ("NaN", "1e999", '"inf"')),
        *((read_xlsx.STEP, workbook(("v",), (v,)), f"line 2: v: '{v}' is not a") for v in ("NaN", "#NUM!")),
        (read_sql.STEP, database([("a", 1, 2.0), ("a", 1, math.inf)]), "row 2: v: inf is not a finite number"),
        (read_api.STEP, b'[{"v": 1}, {"v": NaN}]', "row 2: v: nan is not a finite number"),
        (read_json.STEP, b"", "a JSON array is expected"),
        (read_xlsx.STEP, b"", "not readable as an Excel workbook"),
        (read_xlsx.STEP, workbook(), "empty: a header with the names of its columns is expected"),
        (read_parquet.STEP, b"", r".*/a.x is not a Parquet file \(length is too low: 0\): correct the file"),
        (read_parquet.STEP, content(frame([]).write_parquet)[:-9], ".*/a.x is not a Parquet file.*: correct the file"),
        (read_parquet.STEP, content(pl.DataFrame().write_parquet), "no columns: write the files with at least one"),
        (read_parquet.STEP, content(pl.DataFrame(schema={"t": pl.Datetime("ns")}).write_parquet), ".*in microseconds"),
    ],
)
def test_a_faulty_file_is_named(context: StepContext, tmp_path: Path, step: Extract, body: bytes, message: str) -> None:
    with pytest.raises(InputError, match=f"(a.x|/v1): {message}") as raised:
        read_body(body, step, context, tmp_path)
    assert "org.apache.spark" not in str(raised.value)


class BusyStore(FolderStore):
    """Another program replaces or deletes an object while it is read; ranges beyond its end are refused, as by S3."""

    replacement: bytes | None = None

    def get(self, uri: str) -> bytes:
        self.replace(uri)
        return super().get(uri)

    def get_range(self, uri: str, start: int, length: int) -> bytes:
        data = super().get_range(uri, start, length)
        if not data:
            raise CloudError("could not read: InvalidRange")
        self.replace(uri)
        return data

    def replace(self, uri: str) -> None:
        self.delete([uri])
        if self.replacement is not None:
            self.put(uri, self.replacement)


CHANGED = "^in.csv: it changed while it was read: run again"
OTHER_SIZES = (b"", b"n\n4\n", b"n\n4\n5\n", b"n\n4\n5\n6\n7\n")


@pytest.mark.parametrize(
    ("chunk", "replacement", "expected"),
    [
        *((4, body, CHANGED) for body in (*OTHER_SIZES, b"n\n4\n5\n6\n", None)),
        *((100, body, CHANGED) for body in OTHER_SIZES),
        (100, None, "in.csv: NoSuchKey"),
        (100, b"n\n4\n5\n6\n", [4, 5, 6]),  # one request reads one version
    ],
)
def test_a_file_that_is_replaced_while_it_is_read(
    context: StepContext, tmp_path: Path, chunk: int, replacement: bytes | None, expected: Any
) -> None:
    store = BusyStore(tmp_path)
    store.put(f"{PREFIX}in.csv", b"n\n1\n2\n3\n")
    os.utime(store.path(f"{PREFIX}in.csv"), (0, 0))  # a replacement has another time, however soon it is written
    store.replacement = replacement
    busy = replace(context, files=ProjectFiles(PREFIX, lambda: store))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typed_files, "_CHUNK", chunk)
        if isinstance(expected, list):
            assert [n for _, n, _ in read(read_csv.STEP, busy, path="in.csv")] == expected
        else:
            with pytest.raises((InputError, ObjectMissing), match=expected):
                read(read_csv.STEP, busy, path="in.csv")


class CrashingStore(FolderStore):
    """A store whose user crashes before it writes an object with `at` in its name."""

    at: str | None = None

    def put(self, uri: str, body: bytes, **options: Any) -> None:
        if self.at and self.at in uri:
            raise CloudError("crashed")
        super().put(uri, body, **options)


def test_a_folder_of_a_load_step_is_refused_until_it_is_complete(context: StepContext, tmp_path: Path) -> None:
    store = CrashingStore(tmp_path)
    context = replace(context, files=ProjectFiles(PREFIX, lambda: store))
    row = frame_of(context.spark, ROWS["one row"], "s string, n long, v double")

    def write(crash: str | None = None) -> None:
        store.at = crash
        write_csv.STEP.write(row, write_csv.WriteCsv(path="out", parts=True), context)

    def expect_refused(message: str = "out/: its parts are not those that _SUCCESS names.*run it again") -> None:
        for step in (read_csv.STEP, read_parquet.STEP):
            for path in ("out/", "out/*.csv", "*/part-*"):
                with pytest.raises(InputError, match=f"^path: .*{message}"):
                    read(step, context, path=path)

    with pytest.raises(CloudError, match="crashed"):
        write(crash="part-")
    expect_refused("no file")
    for crash in ("_SUCCESS", "part-", "_SUCCESS"):  # without an earlier folder, then twice with one
        with pytest.raises(CloudError, match="crashed"):
            write(crash)
        expect_refused()
        write()
        assert read(read_csv.STEP, context, path="out/") == ROWS["one row"]
    [name] = json.loads(store.get(f"{PREFIX}out/_SUCCESS"))["parts"]
    # Of another program, or of a call that has ended after the parts were listed.
    for success in (b"", b"[]", b'{"parts": ["another.csv"]}', json.dumps({"parts": [name, "another.csv"]}).encode()):
        store.put(f"{PREFIX}out/_SUCCESS", success)
        expect_refused()
    assert read(read_csv.STEP, context, path=f"out/{name}") == ROWS["one row"]


def test_a_folder_of_another_program_needs_no_marker(context: StepContext, tmp_path: Path) -> None:
    rows = context.spark.range(4).selectExpr("'x' AS s", "id AS n", "1.5D AS v").repartition(2)
    rows.write.csv(str(tmp_path / "spark"), header=True)
    (tmp_path / "spark" / "_SUCCESS").unlink()
    read_rows = read(read_csv.STEP, replace(context, files=files_below(tmp_path)), path="spark/part-*.csv")
    assert sorted(read_rows) == [("x", n, 1.5) for n in range(4)]


@pytest.mark.parametrize("reader", ["true", "false"], ids=["vectorised", "by row"])
def test_a_parquet_file_that_is_damaged_inside_is_named(spark, tmp_path, reader):
    body = bytearray(content(pl.DataFrame({"n": range(100_000)}).write_parquet))
    body[4:-2000] = bytes(len(body) - 2004)
    context = StepContext(spark=spark, files=files_below(tmp_path))
    (tmp_path / "damaged.parquet").write_bytes(body)
    with temporary_settings(spark, {"spark.sql.parquet.enableVectorizedReader": reader}):
        frame = read_parquet.STEP.read(read_parquet.ReadParquet(path="damaged.parquet"), context)
        with pytest.raises((PySparkException, Py4JJavaError)) as raised:
            frame.agg({"n": "sum"}).collect()
    assert "damaged.parquet" in explain(raised.value)[1]
