"""Steps that read files of the project: formats, types, several files, and errors that name file, row and field."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from pyspark.sql import DataFrame

from slackwater.arrow import exchange
from slackwater.errors import DataError, InputError
from slackwater.steps.extract import read_csv, read_json, read_ndjson, read_parquet, read_partition, read_xlsx
from slackwater.steps.io.local_folder import LocalFolder, files_below
from slackwater.steps.spark_errors import explain
from slackwater.steps.step import Extract, StepContext
from tests.fakes_spark import FolderStore
from tests.spark.steps.conftest import PREFIX

FIELDS = {
    "name": "string",
    "count": "int64",
    "fare": {"type": "double", "from": "Fare EUR"},
    "late": "boolean",
    "left": "timestamp",
    "day": "date",
}
CSV = (
    "name,count,Fare EUR,late,left,day,other\n"
    "Zoë 年,9007199254740993,0.1,true,2013-03-10T01:02:03.123456Z,2013-03-10,x\n"
    '"a ""b""\nc",-1,,FALSE,2013-03-10T00:00:00+01:00,,\n'
    ",,,,,,\n"
)
ROWS = [
    ("Zoë 年", 9007199254740993, 0.1, True, datetime(2013, 3, 10, 1, 2, 3, 123456), date(2013, 3, 10)),
    ('a "b"\nc', -1, None, False, datetime(2013, 3, 9, 23), None),
    (None,) * 6,
]


def run(step: Extract, context: StepContext, **parameters: Any) -> DataFrame:
    return step.read(step.parameters.model_validate(parameters), context)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows; timestamps without their timezone, which is UTC."""
    return [tuple(row.values()) for row in frame.toArrow().to_pylist()]


def naive(values: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [
        tuple(v.astimezone(UTC).replace(tzinfo=None) if isinstance(v, datetime) and v.tzinfo else v for v in row)
        for row in values
    ]


@pytest.mark.usefixtures("way")
def test_csv_files_are_read_with_the_types_of_their_fields(context: StepContext, store: FolderStore) -> None:
    store.put(f"{PREFIX}in/2013-03-10/b.csv", b"Fare EUR,name\n-2,last\n")
    store.put(f"{PREFIX}in/2013-03-10/a.csv", gzip.compress(CSV.encode()))
    store.put(f"{PREFIX}in/2013-03-10/_SUCCESS", b"not a file of rows")
    frame = run(read_csv.STEP, context, path="in/{date}/", fields=FIELDS)
    assert frame.columns == list(FIELDS)
    assert [t.simpleString() for t in (f.dataType for f in frame.schema)] == [
        "string", "bigint", "double", "boolean", "timestamp", "date",
    ]  # fmt: skip
    assert naive(rows(frame)) == [*ROWS, ("last", None, -2.0, None, None, None)]


@pytest.mark.usefixtures("way")
def test_options_of_csv_and_of_values(context: StepContext, store: FolderStore) -> None:
    text = "a report of 2013\nM\xfcller; 1.234,5;10.03.2013 12:00;n/a\n"
    store.put(f"{PREFIX}x.csv", text.encode("latin-1"))
    frame = run(
        read_csv.STEP,
        context,
        path="x.csv",
        fields={
            "n": "string",
            "fare": {"type": "double", "decimal": ",", "thousands": "."},
            "t": {"type": "timestamp", "formats": ["%d.%m.%Y %H:%M"]},
            "z": "int64",
        },
        format={"delimiter": ";", "encoding": "latin-1", "skip_lines": 1, "columns": ["n", "fare", "t", "z"]},
        timezone="Europe/Berlin",
        trim=True,
        null_values=["n/a"],
    )
    assert naive(rows(frame)) == [("Müller", 1234.5, datetime(2013, 3, 10, 11), None)]


@pytest.mark.usefixtures("way")
def test_json_and_ndjson(context: StepContext, store: FolderStore) -> None:
    objects = [
        {"name": "a", "count": 1, "Fare EUR": 1e300, "late": True, "left": "2013-03-10T00:00:00Z", "day": "2013-03-10"},
        {"Fare EUR": 2, "ignored": {"deep": [1]}},
    ]
    expected = [("a", 1, 1e300, True, datetime(2013, 3, 10), date(2013, 3, 10)), (None, None, 2.0, None, None, None)]
    store.put(f"{PREFIX}a.json", json.dumps(objects).encode())
    store.put(f"{PREFIX}a.ndjson", "\n\n".join(map(json.dumps, objects)).encode())
    assert naive(rows(run(read_json.STEP, context, path="a.json", fields=FIELDS))) == expected
    assert naive(rows(run(read_ndjson.STEP, context, path="a.ndjson", fields=FIELDS))) == expected


@pytest.mark.usefixtures("way")
def test_a_sheet_of_a_workbook(context: StepContext, store: FolderStore) -> None:
    workbook, body = openpyxl.Workbook(), io.BytesIO()
    workbook.active.append(["not this sheet"])
    sheet = workbook.create_sheet("data")
    for row in (["name", "count", "left", "day"], ["a", 3.0, datetime(2013, 3, 10, 1), date(2013, 3, 9)], [None, 4]):
        sheet.append(row)
    workbook.save(body)
    store.put(f"{PREFIX}a.xlsx", body.getvalue())
    fields = {name: FIELDS[name] for name in ("name", "count", "left", "day")}
    frame = run(read_xlsx.STEP, context, path="a.xlsx", sheet="data", fields=fields, timezone="UTC")
    assert naive(rows(frame)) == [("a", 3, datetime(2013, 3, 10, 1), date(2013, 3, 9)), (None, 4, None, None)]


@pytest.mark.parametrize(
    ("step", "body", "message"),
    [
        (read_csv.STEP, b"name,count\na,1\nb,x\nc,y\n", "bad/a.csv: line 3: count: 'x' is not .*1 more row"),
        (read_csv.STEP, b"name,count\na\n", "bad/a.csv: line 2: the row has 1 column"),
        (read_csv.STEP, b"name,count\n\xff,1\n", "bad/a.csv: line 2: name: not UTF-8"),
        (read_csv.STEP, b"", "bad/a.csv: empty"),
        (read_csv.STEP, b"name\nx\n", "bad/a.csv: its header lacks count"),
        (read_json.STEP, b'[{"count": 1}, {"count": 1.5}]', "bad/a.json: row 2: count: 1.5"),
        (read_json.STEP, b'{"count": 1}', "bad/a.json: a JSON array is expected"),
        (read_ndjson.STEP, b'{"count": 1}\n\n{}\n', "bad/a.ndjson: line 3: count: no value"),
        (read_ndjson.STEP, b"{\n", "bad/a.ndjson: line 1: "),
        (read_xlsx.STEP, b"PK", "bad/a.xlsx: not readable as an Excel workbook"),
    ],
)
def test_a_row_that_does_not_fit_fails_the_step(
    context: StepContext, store: FolderStore, step: Extract, body: bytes, message: str
) -> None:
    name = message.partition(":")[0].removeprefix("bad/")
    store.put(f"{PREFIX}bad/{name}", body)
    with pytest.raises(DataError, match=message):
        run(step, context, path=f"bad/{name}", fields={"name": "string", "count": {"type": "int64", "required": True}})


def test_large_files_are_read_by_executors(
    context: StepContext, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "DRIVER_BYTES", 1000)
    for part in range(3):
        store.put(f"{PREFIX}large/{part}.csv", b"n\n" + b"".join(b"%d\n" % (part * 1000 + i) for i in range(1000)))
    frame = run(read_csv.STEP, context, path="large/*.csv", fields={"n": "int64"})
    assert frame.rdd.getNumPartitions() == 3
    assert [n for (n,) in rows(frame)] == list(range(3000))
    store.put(f"{PREFIX}large/3.csv", b"n\n1\nx\n")
    broken = run(read_csv.STEP, context, path="large/*.csv", fields={"n": "int64"})
    with pytest.raises(Exception, match="not") as raised:
        broken.collect()
    assert explain(raised.value) == ("DataError", "large/3.csv: line 3: n: 'x' is not a whole number")


def test_a_small_file_that_expands_to_much_is_read_by_executors(
    context: StepContext, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "DRIVER_BYTES", 1000)
    store.put(f"{PREFIX}bomb.csv", gzip.compress(b"n\n" + b"1\n" * 100_000))
    frame = run(read_csv.STEP, context, path="bomb.csv", fields={"n": "int64"})
    assert "MapInArrow" in frame._jdf.queryExecution().toString()
    assert frame.count() == 100_000


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"path": "../x.csv", "fields": {"a": "string"}}, "not a path below"),
        ({"path": "x.csv", "fields": {}}, "at least 1 item"),
        ({"path": "x.csv", "fields": {"a": "string", "b": {"type": "string", "from": "a"}}}, "a is read from 'a' too"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        read_csv.ReadCsv.model_validate(parameters)


def test_outside_of_a_deployment_there_are_no_files(context: StepContext) -> None:
    with pytest.raises(InputError, match="no project files here"):
        run(read_csv.STEP, replace(context, files=None), path="x.csv", fields={"a": "string"})


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


@pytest.mark.usefixtures("way")
def test_parquet_files_keep_their_types(context: StepContext, tmp_path: Path) -> None:
    # Spark itself opens the files.
    context, store = replace(context, files=files_below(tmp_path)), LocalFolder(tmp_path)
    first = pa.table(
        {
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(20, 2)),
            "s": pa.array([{"x": [1, 2]}, None]),
            "t": pa.array([datetime(2013, 3, 10, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        }
    )
    second = pa.table({"d": pa.array([Decimal("2.25")], pa.decimal128(20, 2)), "only here.x": ["年"]})
    store.put(f"file://{tmp_path}/p/1.parquet", parquet(first))
    store.put(f"file://{tmp_path}/p/2.parquet", parquet(second))
    read = run(read_parquet.STEP, context, path="p/").toArrow().to_pandas().sort_values("d", ignore_index=True)
    expected = pd.concat([first.to_pandas(), second.to_pandas()]).sort_values("d", ignore_index=True)
    assert read.astype(object).where(read.notna(), None).to_dict("list").keys() == expected.to_dict("list").keys()
    assert read["d"].tolist() == expected["d"].tolist()
    assert read["only here.x"].dropna().tolist() == ["年"]
    assert read["t"].dropna().tolist() == expected["t"].dropna().tolist()
    store.put(f"file://{tmp_path}/p/3.parquet", parquet(pa.table({"d": ["text"]})))
    with pytest.raises(InputError, match=r"(?s)p/: .*FAILED_MERGE_SCHEMAS|CANNOT_MERGE"):
        run(read_parquet.STEP, context, path="p/")
    store.put(f"file://{tmp_path}/q/1.parquet", b"no parquet")
    with pytest.raises(InputError, match=r"q/: .*1.parquet"):
        run(read_parquet.STEP, context, path="q/")


def test_a_partition_is_read_by_the_run(context: StepContext) -> None:
    frozen = replace(context, read_source=lambda name: context.spark.range(3).withColumnRenamed("id", name))
    assert run(read_partition.STEP, frozen, source="flights").columns == ["flights"]
    with pytest.raises(InputError, match="in a run of a pipeline only"):
        run(read_partition.STEP, context, source="flights")
