"""Steps that write files: content, one object or parts, repeated and interrupted calls, the limits of formats."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import duckdb
import openpyxl
import pandas as pd
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from slackwater.arrow.session import SMALL_WAY, temporary_settings
from slackwater.errors import CloudError, DataError, DefinitionError, InputError, Superseded
from slackwater.runs.period import period_of
from slackwater.steps.extract import read_csv
from slackwater.steps.files import ProjectFiles
from slackwater.steps.io import file_writers, frames, written_files
from slackwater.steps.load import write_csv, write_json, write_parquet, write_xlsx
from slackwater.steps.spark_errors import explain
from slackwater.steps.step import Effect, Load, StepContext
from tests.fakes_spark import FolderStore
from tests.spark.frames import frame_of
from tests.spark.steps.conftest import DAY, PREFIX, run_of

ALL = (write_csv.STEP, write_json.STEP, write_xlsx.STEP, write_parquet.STEP)
EXTENSIONS = {"write_csv": "csv", "write_json": "ndjson", "write_xlsx": "xlsx", "write_parquet": "parquet"}


def write(step: Load, frame: DataFrame, context: StepContext, **parameters: Any) -> Effect:
    return step.write(frame, step.parameters.model_validate(parameters), context)


def content(store: FolderStore, path: str) -> bytes:
    return store.get(PREFIX + path)


def paths(store: FolderStore) -> list[str]:
    return [item.uri.removeprefix(PREFIX) for item in store.list(PREFIX)]


def table_of(step: Load, body: bytes) -> list[tuple[Any, ...]]:
    """Read a file of rows (n, s) with another library than the one that wrote it."""
    match step.name:
        case "write_csv":
            return [(int(n) if n else None, s) for n, s in list(csv.reader(io.StringIO(body.decode(), newline="")))[1:]]
        case "write_json":
            return [tuple(json.loads(line).values()) for line in body.decode().splitlines()]
        case "write_xlsx":
            rows = pd.read_excel(io.BytesIO(body), keep_default_na=False)
            return [(n, s) for n, s in rows.itertuples(index=False)]
        case _:
            return [tuple(row.values()) for row in pq.read_table(io.BytesIO(body)).to_pylist()]


@pytest.fixture
def numbers(spark: SparkSession) -> DataFrame:
    """20 rows in four partitions, in order."""
    return spark.range(0, 20, 1, 4).selectExpr("id AS n", "concat('zahl ü ', id) AS s")


@pytest.fixture
def executors(spark: SparkSession) -> Iterator[None]:
    """Executors write, also a small frame."""
    with temporary_settings(spark, {SMALL_WAY: "false"}):
        yield


NUMBERS = [(n, f"zahl ü {n}") for n in range(20)]

TYPES = """
    SELECT *, NULL AS nothing FROM VALUES
      (1Y, 9007199254740993L, 0.1D, CAST('1234567890123456789.1200' AS DECIMAL(38, 4)), true,
       'a,"b"\nc', DATE'2013-03-10', TIMESTAMP'2013-03-10 01:02:03.123456Z', TIMESTAMP_NTZ'2013-03-10 02:30:00'),
      (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
      (-1Y, -1L, double('-Infinity'), 0, false, '', DATE'9999-12-31', TIMESTAMP'1969-12-31 23:59:59.999999Z',
       TIMESTAMP_NTZ'1900-01-01 00:00:00'),
      (0Y, 0L, double('NaN'), -0.5, false, '=1+1', DATE'0001-01-01', TIMESTAMP'2038-01-19 03:14:08Z', NULL)
    AS t(i, l, f, d, b, s, `a day.x`, t, ntz)
"""


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("path", [{"path": "out.csv"}, {"path": "out/", "parts": True}], ids=["file", "parts"])
def test_an_earlier_attempt_does_not_replace_what_a_later_one_has_written(
    numbers: DataFrame, context: StepContext, store: FolderStore, path: dict[str, Any]
) -> None:
    write(write_csv.STEP, numbers, replace(context, run=run_of(3)), **path)
    written = {name: content(store, name) for name in paths(store)}
    with pytest.raises((Superseded, PySparkException), match=r"attempt 3 has loaded 2013-03-10"):
        write(write_csv.STEP, numbers.limit(1), replace(context, run=run_of(2)), **path)
    assert {name: content(store, name) for name in paths(store)} == written
    write(write_csv.STEP, numbers.limit(1), replace(context, run=run_of(4)), **path)
    assert sum(len(content(store, name).splitlines()) - 1 for name in paths(store) if "_SUCCESS" not in name) == 1


@pytest.mark.usefixtures("way")
def test_csv_is_read_back_exactly_by_duckdb(context: StepContext, store: FolderStore) -> None:
    effect = write(write_csv.STEP, context.spark.sql(TYPES).coalesce(1), context, path="out/{date}.csv")
    body = content(store, "out/2013-03-10.csv")
    assert effect == {"path": "out/2013-03-10.csv", "rows": 4, "bytes": len(body), "files": 1}
    columns = {
        "i": "TINYINT", "l": "BIGINT", "f": "DOUBLE", "d": "DECIMAL(38,4)", "b": "BOOLEAN", "s": "VARCHAR",
        "a day.x": "DATE", "t": "VARCHAR", "ntz": "TIMESTAMP", "nothing": "INT",
    }  # fmt: skip
    with duckdb.connect() as database:
        uri = str(store.path(f"{PREFIX}out/2013-03-10.csv"))
        read = database.execute(
            "SELECT * FROM read_csv(?, header=true, columns=?, allow_quoted_nulls=false)", [uri, columns]
        )
        rows = [tuple(str(value) for value in row) for row in read.fetchall()]
    assert rows == [
        ("1", "9007199254740993", "0.1", "1234567890123456789.1200", "True", 'a,"b"\nc', "2013-03-10",
         "2013-03-10 01:02:03.123456Z", "2013-03-10 02:30:00", "None"),
        ("None",) * 10,
        ("-1", "-1", "-inf", "0.0000", "False", "", "9999-12-31", "1969-12-31 23:59:59.999999Z",
         "1900-01-01 00:00:00", "None"),
        ("0", "0", "nan", "-0.5000", "False", "=1+1", "0001-01-01", "2038-01-19 03:14:08.000000Z", "None", "None"),
    ]  # fmt: skip


@pytest.mark.usefixtures("way")
def test_ndjson_holds_all_types(context: StepContext, store: FolderStore) -> None:
    frame = (
        context.spark.sql(TYPES)
        .selectExpr("*", "struct(i, array(s) AS list) AS nested", "map('k', l) AS m")
        .coalesce(1)
    )
    write(write_json.STEP, frame, context, path="a.ndjson")
    rows = [json.loads(line, parse_float=Decimal) for line in content(store, "a.ndjson").decode().splitlines()]
    assert rows[0] == {
        "i": 1,
        "l": 9007199254740993,
        "f": Decimal("0.1"),
        "d": Decimal("1234567890123456789.1200"),
        "b": True,
        "s": 'a,"b"\nc',
        "a day.x": "2013-03-10",
        "t": "2013-03-10T01:02:03.123456Z",
        "ntz": "2013-03-10T02:30:00.000000",
        "nothing": None,
        "nested": {"i": 1, "list": ['a,"b"\nc']},
        "m": {"k": 9007199254740993},
    }
    assert rows[1] == dict.fromkeys(rows[0]) | {"nested": {"i": None, "list": [None]}, "m": {"k": None}}
    assert (rows[2]["f"], rows[3]["f"], rows[2]["t"]) == ("-Infinity", "NaN", "1969-12-31T23:59:59.999999Z")


@pytest.mark.usefixtures("way")
def test_parquet_keeps_all_types(context: StepContext, store: FolderStore) -> None:
    frame = (
        context.spark.sql(TYPES).selectExpr("*", "struct(i, array(s) AS list) AS nested", "binary(s) AS y").coalesce(1)
    )
    write(write_parquet.STEP, frame, context, path="a.parquet")
    table = pq.read_table(io.BytesIO(content(store, "a.parquet")))
    expected = frame.toArrow()
    assert [str(t) for t in table.schema.types] == [str(t).replace(" not null", "") for t in expected.schema.types]
    assert repr(table.to_pylist()) == repr(expected.to_pylist())  # NaN does not equal NaN


@pytest.mark.usefixtures("way")
def test_a_workbook_holds_values_and_no_formulas(context: StepContext, store: FolderStore) -> None:
    strings = ["=1+1", "+1", "-1", "@SUM(A1)", "#N/A", "\ttab", "Zoë 年 \U0001f680", "007", "x" * 32_767]
    values = (999_999_999_999_999, Decimal("0.10"), 0.1, True, date(2013, 3, 10), datetime(2013, 3, 10, 1, 2, 3))
    columns = "s string, l long, d decimal(15,2), f double, b boolean, day date, t timestamp, nothing void"
    rows = [*((string, *values, None) for string in strings), (None, 1, *[None] * 6)]
    effect = write(write_xlsx.STEP, frame_of(context.spark, rows, columns).coalesce(1), context, path="a.xlsx")
    assert (effect["rows"], effect["files"]) == (10, 1)
    header, *cells = openpyxl.load_workbook(io.BytesIO(content(store, "a.xlsx"))).active.iter_rows()
    assert [cell.value for cell in header] == ["s", "l", "d", "f", "b", "day", "t", "nothing"]
    assert [(row[0].value, row[0].data_type) for row in cells[:-1]] == [(string, "s") for string in strings]
    assert [cell.value for cell in cells[0]][1:] == [
        999_999_999_999_999, 0.1, 0.1, True, datetime(2013, 3, 10), datetime(2013, 3, 10, 1, 2, 3), None,
    ]  # fmt: skip
    assert [cell.value for cell in cells[-1]] == [None, 1, *[None] * 6]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("repeat('x', 32768)", "column v: a string of 32,768 characters, and a cell of Excel has at most 32,767"),
        ("1000000000000000L", "column v: 1000000000000000 has more than 15 digits"),
        ("CAST('1234567890123.456' AS DECIMAL(20, 3))", "column v: 1234567890123.456 has more than 15 digits"),
        ("10000000000000000000000000000000000001", "column v: 10000000000000000000000000000000000001 has more than 15"),
        ("concat('a', chr(1))", r"column v: 'a\\x01' contains a control character"),
        ("decode(X'EFBFBF', 'UTF-8')", "contains a control character"),
        ("double('NaN')", "column v: nan, which Excel lacks"),
        ("double('-Infinity')", "column v: -inf, which Excel lacks"),
        ("DATE'1900-02-28'", "column v: 1900-02-28 is before 1900-03-01"),
    ],
)
def test_values_beyond_excels_limits_are_errors(context: StepContext, expression: str, message: str) -> None:
    """Without executors, whose errors the next test covers."""
    table = context.spark.sql(f"SELECT {expression} AS v").toArrow()
    with closing(file_writers.XlsxWriter(table.schema)) as writer, pytest.raises(DataError, match=message):
        writer.write(table.to_batches()[0])


def test_rows_and_columns_beyond_excels_limits(
    context: StepContext, numbers: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writers, "_EXCEL_COLUMNS", 1)
    with pytest.raises(DataError, match="2 columns, and a sheet of Excel has at most 1"):
        file_writers.XlsxWriter(numbers.toArrow().schema)
    monkeypatch.undo()
    monkeypatch.setattr(file_writers, "_EXCEL_ROWS", 10)
    table = numbers.toArrow().combine_chunks()
    with closing(file_writers.XlsxWriter(table.schema)) as writer:
        assert (writer.has_room(9), writer.has_room(10)) == (True, False)
        writer.write(table.slice(0, 9).to_batches()[0])
        with pytest.raises(DataError, match=r"more than 10 rows with the header.*`parts: true`"):
            writer.write(table.slice(9, 1).to_batches()[0])


@pytest.mark.parametrize("step", ALL, ids=lambda step: step.name)
def test_one_object_and_a_repeated_call(
    context: StepContext, store: FolderStore, numbers: DataFrame, step: Load
) -> None:
    write(step, numbers, context, path="deep/x y.bin")
    assert table_of(step, content(store, "deep/x y.bin")) == NUMBERS
    empty = write(step, numbers.where("n < 0"), context, path="deep/x y.bin")
    assert table_of(step, content(store, "deep/x y.bin")) == []
    assert (empty["rows"], empty["files"], paths(store)) == (0, 1, ["deep/x y.bin"])


@pytest.mark.usefixtures("way")
def test_a_value_that_excel_lacks_fails_the_step(context: StepContext) -> None:
    with pytest.raises(Exception, match="inf") as raised:
        write(write_xlsx.STEP, context.spark.sql("SELECT double('Infinity') AS f"), context, path="a")
    error_type, message = explain(raised.value)
    assert error_type == "DataError"
    assert message.startswith("column f: inf, which Excel lacks: replace it by null")


@pytest.mark.parametrize(
    ("expression", "values", "lines"),
    [
        ("CAST(v AS INT)", (1, None, 3), [b"1", b'""', b"3"]),
        ("CAST(v AS TIMESTAMP)", (0, None), [b"1970-01-01 00:00:00.000000Z", b'""']),
        ("CAST(v AS STRING)", (1, None), [b'"1"', b'""']),
        ("IF(v > 1, '', NULL)", (1, 2), [b'""', b'""']),
        ("NULL", (1, 2), [b'""', b'""']),
    ],
)
def test_a_csv_of_one_column_keeps_its_null_rows(
    context: StepContext, store: FolderStore, expression: str, values: tuple[int | None, ...], lines: list[bytes]
) -> None:
    frame = frame_of(context.spark, [(v,) for v in values], "v int").coalesce(1).selectExpr(f"{expression} AS v")
    write(write_csv.STEP, frame, context, path="a.csv")
    body = content(store, "a.csv")
    assert body.split(b"\n") == [b'"v"', *lines, b""]
    assert len(pd.read_csv(io.BytesIO(body))) == len(list(csv.DictReader(io.StringIO(body.decode())))) == len(values)
    parameters = read_csv.ReadCsv.model_validate({"path": "a.csv", "fields": {"v": "string"}})
    assert read_csv.STEP.read(parameters, context).count() == len(values)
    with duckdb.connect() as database:
        uri = str(store.path(f"{PREFIX}a.csv"))
        assert database.execute("SELECT count(*) FROM read_csv(?, header=true)", [uri]).fetchall() == [(len(values),)]


def test_no_partition_at_all_gives_an_empty_file(context: StepContext, store: FolderStore) -> None:
    none = frame_of(context.spark, [], "n long, s string")
    write(write_csv.STEP, none, context, path="a.csv")
    assert content(store, "a.csv") == b'"n","s"\n'
    write(write_json.STEP, none, context, path="f", parts=True)
    assert [path.rpartition("/")[2][:5] for path in paths(store)] == ["a.csv", "_SUCC", "part-"]


def test_executors_write_one_object_too(
    context: StepContext, store: FolderStore, numbers: DataFrame, executors: None
) -> None:
    assert write(write_parquet.STEP, numbers, context, path="a.parquet")["files"] == 1
    rows = numbers.selectExpr("IF(n > 17, struct(n), NULL) AS nested")  # which the driver could not convert
    write(write_parquet.STEP, rows, context, path="b.parquet")
    nested = pq.read_table(io.BytesIO(content(store, "b.parquet")))["nested"].to_pylist()
    assert nested == [*[None] * 18, {"n": 18}, {"n": 19}]
    assert table_of(write_parquet.STEP, content(store, "a.parquet")) == NUMBERS


@pytest.mark.parametrize("step", ALL, ids=lambda step: step.name)
def test_a_small_folder_has_one_part(context: StepContext, store: FolderStore, numbers: DataFrame, step: Load) -> None:
    write(step, numbers, context, path="out", parts=True)
    [name] = json.loads(content(store, "out/_SUCCESS"))["parts"]
    assert (name[:5], name.rpartition(".")[2]) == ("part-", EXTENSIONS[step.name])
    assert table_of(step, content(store, f"out/{name}")) == NUMBERS


def test_a_folder_is_replaced_also_by_fewer_parts(
    context: StepContext, store: FolderStore, numbers: DataFrame, executors: None
) -> None:
    step = write_csv.STEP
    for name in ("out/readme.txt", "out/part-of/other.csv", "out-2/part-1.csv"):
        store.put(PREFIX + name, b"of somebody else")
    first = write(step, numbers, context, path="out", parts=True)
    second = write(step, numbers.where("n < 7"), context, path="out/", parts=True)
    assert (first["files"], first["rows"], second["files"], second["rows"]) == (4, 20, 2, 7)
    names = json.loads(content(store, "out/_SUCCESS"))["parts"]
    assert [path for path in paths(store) if path.startswith("out/part-") and path.count("/") == 1] == [
        f"out/{n}" for n in names
    ]
    assert sorted(row for name in names for row in table_of(step, content(store, f"out/{name}"))) == NUMBERS[:7]
    assert {"out/readme.txt", "out/part-of/other.csv", "out-2/part-1.csv"} <= set(paths(store))


@dataclass(frozen=True)
class CrashingStores:
    """Stores that fail at a call, as a crash would end the call there."""

    stores: Callable[[], FolderStore]
    at: str

    def __call__(self) -> FolderStore:
        class Crashing(FolderStore):
            def put(store, uri: str, body: bytes, **options: Any) -> None:  # noqa: N805
                if self.at in uri:
                    raise CloudError("crashed")
                super().put(uri, body, **options)

            def list(store, prefix: str) -> Iterator[Any]:  # noqa: N805
                if self.at == "list":
                    raise CloudError("crashed")
                return super().list(prefix)

        return Crashing(self.stores().root)


@pytest.mark.parametrize("at", ["-00001-", "list", "_SUCCESS"])
def test_after_a_crash_no_reader_takes_the_folder_for_complete(
    context: StepContext, store: FolderStore, numbers: DataFrame, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(write_csv.STEP, numbers, context, path="out", parts=True)
    crashing = replace(context, files=ProjectFiles(PREFIX, CrashingStores(partial(FolderStore, store.root), at)))
    monkeypatch.setattr(frames, "DRIVER_ROWS", 1 if at == "-00001-" else 100)
    with pytest.raises(Exception, match="crashed"):
        write(write_csv.STEP, numbers.where("n < 7"), crashing, path="out", parts=True)
    monkeypatch.undo()
    assert "out/_SUCCESS" not in paths(store)
    write(write_csv.STEP, numbers.where("n < 7"), context, path="out", parts=True)
    parameters = read_csv.ReadCsv.model_validate({"path": "out/", "fields": {"n": "int64", "s": "string"}})
    assert sorted(map(tuple, read_csv.STEP.read(parameters, context).collect())) == NUMBERS[:7]


def test_one_object_is_bounded_and_parts_are_rotated(
    context: StepContext, store: FolderStore, numbers: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_files, "MAX_OBJECT_BYTES", 60)
    store.put(f"{PREFIX}a.csv", b"before")
    with pytest.raises(InputError, match=r"path: a.csv: more than 60 bytes in one file: set `parts: true`"):
        write(write_csv.STEP, numbers, context, path="a.csv")
    assert content(store, "a.csv") == b"before"
    context.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2")
    try:
        effect = write(write_csv.STEP, numbers.coalesce(1), context, path="parts", parts=True)
    finally:
        context.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    names = json.loads(content(store, "parts/_SUCCESS"))["parts"]
    assert effect["files"] == len(names) > 3
    assert [row for name in names for row in table_of(write_csv.STEP, content(store, f"parts/{name}"))] == NUMBERS


def test_columns_that_a_format_cannot_hold(context: StepContext) -> None:
    nested = context.spark.sql("SELECT 1 AS a, array(1) AS list, binary('x') AS y")
    for step in (write_csv.STEP, write_xlsx.STEP):
        with pytest.raises(DefinitionError, match=r"cannot hold the columns list \(array<int>\), y \(binary\)"):
            write(step, nested, context, path="a")
    same = context.spark.sql("SELECT 1 AS a, 2 AS A")
    with pytest.raises(DefinitionError, match="more than one column is named a"):
        write(write_csv.STEP, same, context, path="a")


def test_paths_are_confined(context: StepContext, numbers: DataFrame) -> None:
    for path in ("../a.csv", "s3://other/a.csv", "/tmp/a.csv", "a/*.csv", "{week}.csv"):
        with pytest.raises(ValidationError, match="path"):
            write_csv.WriteCsv.model_validate({"path": path})
    with pytest.raises(DefinitionError, match="a file is expected, and not a folder"):
        write(write_csv.STEP, numbers, context, path="a/")
    with pytest.raises(InputError, match="only a run of a pipeline has"):
        write(write_csv.STEP, numbers, replace(context, day=None), path="{date}.csv")


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize(
    "step", [module.STEP for module in (write_csv, write_json, write_parquet, write_xlsx)], ids=lambda step: step.name
)
def test_hours_do_not_replace_each_other_and_have_attempts_of_their_own(
    context: StepContext, store: FolderStore, step: Load, parts: bool
) -> None:
    def write_hour(hour: int, attempt: int, n: int) -> Effect:
        name = f"{DAY}T{hour:02}"
        of_hour = replace(context, day=period_of(name, "UTC"), run=run_of(attempt, name))
        path = "{date}/{hour}" if parts else "{date}/{hour}.out"
        frame = context.spark.sql(f"SELECT {n}L AS n, 'a' AS s")
        return write(step, frame, of_hour, path=path, parts=parts)

    def written(hour: int) -> list[tuple[Any, ...]]:
        (path,) = [path for path in paths(store) if path.startswith(f"{DAY}/{hour:02}") and "_SUCCESS" not in path]
        return table_of(step, content(store, path))

    for hour in (0, 12, 23):
        assert write_hour(hour, 3, hour)["path"].startswith(f"{DAY}/{hour:02}")
    write_hour(12, 4, 120)
    with pytest.raises(Superseded, match=f"attempt 4 has loaded {DAY}T12 already"):
        write_hour(12, 3, 99)
    write_hour(23, 5, 230)
    assert [written(hour) for hour in (0, 12, 23)] == [[(0, "a")], [(120, "a")], [(230, "a")]]
