"""Frames pass between stages as Arrow IPC files: by the driver when small, by the executors when large."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PythonException, SparkRuntimeException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from slackwater.arrow import exchange
from slackwater.arrow.columns import columns_read
from slackwater.arrow.dataset import load_manifest, store_dataset
from slackwater.arrow.exchange import read_frame, write_frame
from slackwater.arrow.messages import buffer_counts, column_bounds, decode_schema
from slackwater.arrow.reference import REFERENCE_LIMIT, ArrowManifest, ArrowReference
from slackwater.arrow.session import SMALL_WAY, temporary_settings
from slackwater.errors import CloudError, DefinitionError, ObjectInvalid, ObjectMissing
from tests.fakes_spark import PRODUCER
from tests.spark.frames import frame_of

PREFIX = "s3://exchange/runs/p/2013-03-10/r/1/s/"
SMALL, LARGE = 0, 1 << 40
"""Sizes of inputs on either side of the threshold: by the driver, by the executors."""
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["driver", "executors"])

EVERY_TYPE = """
    string string, whole bigint, small int, tiny tinyint, short smallint, real double, single float, yes boolean,
    day date, instant timestamp, local timestamp_ntz, price decimal(38, 9), raw binary, pause interval day to second,
    list array<int>,
    nested struct<a: int, instants: array<timestamp>, local: timestamp_ntz>, pairs map<string, decimal(10, 2)>,
    structs array<struct<key: string, pairs: map<string, array<date>>>>, nothing void
"""
INSTANT = datetime(2013, 3, 10, 7, 59, 59, 999999, tzinfo=UTC)
LOCAL = datetime(2013, 3, 10, 2, 30)
"""An hour that New York skipped."""
FULL = (
    "Zürich ✈ \u0000", -(2**63), 2**31 - 1, -128, 32767, 1e-308, 0.5, True, date(1, 1, 1), INSTANT, LOCAL,
    Decimal("-12345678901234567890123456789.123456789"), b"\x00\xff", INSTANT - datetime(2013, 3, 9, tzinfo=UTC),
    [1, None], (1, [INSTANT, None], LOCAL), {"a": Decimal("0.10"), "b": None},
    [("k", {"days": [date(2013, 3, 10), None]}), None], None,
)  # fmt: skip
ROWS = [FULL, tuple(None for _ in FULL)]


def every_type(spark) -> DataFrame:
    return frame_of(spark, ROWS, EVERY_TYPE)


def write(frame, stores, size, **more: Any) -> ArrowManifest:
    return write_frame(frame, PREFIX, producer=PRODUCER, stores=stores, input_bytes=size, **more).manifest


def read_by(way: int, spark, manifest, stores) -> DataFrame:
    """Read a small dataset by either way."""
    with temporary_settings(spark, {SMALL_WAY: str(way == SMALL).lower()}):
        return read_frame(spark, manifest, stores=stores)


@SIZES
@pytest.mark.parametrize("read_size", [SMALL, LARGE], ids=["read by driver", "read by executors"])
def test_every_type_is_read_back_unchanged(spark, stores, size, read_size):
    frame = every_type(spark)
    manifest = write(frame, stores, size)
    back = read_by(read_size, spark, manifest, stores)
    assert back.schema == frame.schema
    key = lambda row: row["string"] is None  # noqa: E731
    assert sorted(back.collect(), key=key) == sorted(frame.collect(), key=key)
    assert manifest.rows == 2


VALUES = {
    "whole bigint": st.integers(-(2**63), 2**63 - 1),
    "price decimal(38, 9)": st.decimals(min_value=-(10**28), max_value=10**28, places=9),
    "real double": st.floats(),
    "yes boolean": st.booleans(),
    "text string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "day date": st.dates(),
    "local timestamp_ntz": st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    "instant timestamp": st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    "raw binary": st.binary(max_size=5),
    "list array<int>": st.lists(st.none() | st.integers(-9, 9), max_size=3),
    "nested struct<a: int, b: string>": st.tuples(st.integers(0, 9), st.none() | st.text("xü", max_size=2)),
    "pairs map<string, int>": st.dictionaries(st.text("ab", max_size=2), st.none() | st.integers(0, 9), max_size=2),
}
SCALARS = [column.partition(" ")[0] for column in list(VALUES)[:7]]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(*(st.none() | values for values in VALUES.values())), max_size=6),
    written_by=st.sampled_from([SMALL, LARGE]),
    way=st.sampled_from([SMALL, LARGE]),
)
def test_any_rows_are_what_spark_and_other_libraries_read(spark, store, stores, *, rows, written_by, way):
    numbered = [(number, *row) for number, row in enumerate(rows)]
    frame = frame_of(spark, numbered, f"id int, {', '.join(VALUES)}").repartition(2)
    manifest = write(frame, stores, written_by)
    back = read_by(way, spark, manifest, stores)
    assert back.schema == frame.schema
    assert in_order(back.collect()) == in_order(frame.collect())
    paths = [str(store.path(file.uri)) for file in manifest.files]
    tables = [pa.ipc.open_file(path).read_all() for path in paths]
    sizes = [(len(table), Path(path).stat().st_size) for table, path in zip(tables, paths, strict=True)]
    assert sizes == [(file.rows, file.bytes) for file in manifest.files]
    stored = pa.concat_tables(tables)
    names = ["id", *SCALARS]
    expected = in_order([row[: len(names)] for row in numbered])
    assert in_order(zip(*(stored[name].to_pylist() for name in names), strict=True)) == expected
    assert in_order(row for path in paths for row in pl.read_ipc(path, columns=names).rows()) == expected
    assert in_order(duckdb.sql(f"SELECT {', '.join(names)} FROM stored").fetchall()) == expected


def in_order(rows):
    """Rows by their first column, with NaN equal to NaN."""
    return sorted(([str(v) if isinstance(v, float) else v for v in row] for row in rows), key=lambda row: row[0])


@SIZES
def test_timestamps_are_utc_in_every_session_timezone(spark, stores, store, size):
    frame = every_type(spark)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        manifest = write(frame, stores, size)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    schema = decode_schema(manifest.arrow_schema)
    assert schema.field("instant").type == pa.timestamp("us", "UTC")
    assert schema.field("local").type == pa.timestamp("us")
    tables = [pa.ipc.open_file(store.get(file.uri)).read_all() for file in manifest.files]
    assert all(table.schema.equals(schema) for table in tables)
    table = pa.concat_tables(tables)
    assert set(table["instant"].to_pylist()) == {INSTANT, None}
    assert set(table["local"].to_pylist()) == {LOCAL, None}


@SIZES
def test_an_empty_frame_keeps_its_schema_in_one_file(spark, stores, store, size):
    frame = every_type(spark).where("false")
    manifest = write(frame, stores, size)
    assert (manifest.rows, len(manifest.files)) == (0, 1)
    assert pa.ipc.open_file(store.get(manifest.files[0].uri)).schema == decode_schema(manifest.arrow_schema)
    for way in (SMALL, LARGE):
        back = read_by(way, spark, manifest, stores)
        assert back.schema == frame.schema
        assert back.collect() == []


@SIZES
def test_files_are_rolled_at_their_limit(spark, stores, store, size):
    frame = spark.range(0, 30_000, 1, 1).select("id", sf.repeat(sf.lit("x"), 100).alias("text"))
    manifest = write(frame, stores, size, file_bytes=500_000)
    assert len(manifest.files) > 1
    assert manifest.rows == 30_000
    assert len({file.uri for file in manifest.files}) == len(manifest.files)
    assert read_frame(spark, manifest, stores=stores).agg(sf.sum("id")).first()[0] == sum(range(30_000))


def test_a_small_input_that_grows_is_written_by_the_executors(spark, stores, monkeypatch):
    monkeypatch.setattr(exchange, "DRIVER_ROWS", 10)
    manifest = write(spark.range(0, 100, 1, 4), stores, SMALL)
    assert manifest.rows == 100
    assert len(manifest.files) == 4
    exact = write(spark.range(0, 10, 1, 4), stores, SMALL)
    assert (exact.rows, len(exact.files)) == (10, 1)


def test_executors_read_and_write_few_rows_without_a_way_for_these(spark, stores):
    with temporary_settings(spark, {SMALL_WAY: "false"}):
        manifest = write(spark.range(0, 10, 1, 4), stores, SMALL)
        back = read_frame(spark, manifest, stores=stores)
    assert (manifest.rows, len(manifest.files)) == (10, 4)
    assert "MapInArrow" in back._jdf.queryExecution().toString()
    assert sorted(row.id for row in back.collect()) == list(range(10))


@SIZES
def test_what_spark_observes_is_returned(spark, stores, size):
    rows = sf.count(sf.lit(1)).alias("rows")
    first = spark.range(0, 100, 1, 4).observe("first", rows)
    second = first.where("id % 3 = 0").observe("second", rows, sf.max("id").alias("largest"))
    written = write_frame(second, PREFIX, producer=PRODUCER, stores=stores, input_bytes=size)
    assert written.observed == {"first": {"rows": 100}, "second": {"rows": 34, "largest": 99}}


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_only_the_bytes_of_the_named_columns_are_read(spark, stores, store, monkeypatch, codec):
    monkeypatch.setattr(exchange, "DRIVER_BYTES", -1)
    monkeypatch.setattr(exchange, "WHOLE_FILE_BYTES", -1)
    frame = spark.range(0, 2000, 1, 2).selectExpr(
        "id", "uuid() AS noise", "if(id % 3 = 0, null, cast(id AS string)) AS text", "array(id, null) AS list"
    )
    with_small_batches = {"spark.sql.execution.arrow.maxRecordsPerBatch": "300"}
    with temporary_settings(spark, with_small_batches):
        manifest = write(frame, stores, LARGE, codec=codec)
    assert manifest.codec == codec
    assert [len(file.batches) for file in manifest.files] == [4, 4]
    for file in manifest.files:
        # Whoever reads a byte of the column `noise` gets another one.
        _garble(store, file, decode_schema(manifest.arrow_schema), column=1)
    back = read_frame(spark, manifest, stores=stores, columns=["text", "id", "list"])
    assert back.columns == ["id", "noise", "text", "list"]
    expected = [(n, None if n % 3 == 0 else str(n), [n, None]) for n in range(2000)]
    assert sorted(tuple(row) for row in back.select("id", "text", "list").collect()) == expected
    assert read_frame(spark, manifest, stores=stores, columns=[]).count() == 2000
    with pytest.raises(SparkRuntimeException, match="needs a column that was not read; these were: text, id, list"):
        back.select(sf.max("noise")).collect()
    with pytest.raises(PythonException, match=r"ObjectInvalid: .*\.arrow differs from its manifest: column 'noise'"):
        read_frame(spark, manifest, stores=stores, columns=["noise"]).select("noise").collect()
    with pytest.raises(KeyError):
        read_frame(spark, manifest, stores=stores, columns=["nothing"])


def _garble(store, file, schema, *, column: int) -> None:
    content = bytearray(store.get(file.uri))
    for batch in file.batches:
        start = batch.offset + batch.metadata_bytes
        bounds = column_bounds(content[batch.offset : start], buffer_counts(schema))
        content[start + bounds[column] : start + bounds[column + 1]] = b"?" * (bounds[column + 1] - bounds[column])
    store.put(file.uri, bytes(content))


COLUMNS = {
    "a": pa.schema(
        [("id", pa.int64()), ("k", pa.string()), ("v", pa.float64()), ("n", pa.struct([("x", pa.int32())]))]
    ),
    "b": pa.schema([("k", pa.string()), ("name", pa.string()), ("other", pa.int64())]),
}
"""The columns of the inputs of the queries below."""


@pytest.mark.parametrize(
    ("query", "a", "b"),
    [
        ("SELECT * FROM a", "id k v n", ""),
        ("SELECT count(*) FROM a", "", ""),
        ("SELECT id FROM a LIMIT 5", "id", ""),
        ("SELECT k, sum(v) FROM a WHERE id > 1 GROUP BY k", "id k v", ""),
        ("SELECT n.x FROM a", "n", ""),
        ("SELECT a.id, b.name FROM a LEFT JOIN b ON a.k = b.k", "id k", "k name"),
        ("SELECT id FROM a WHERE k IN (SELECT k FROM b WHERE other > 1)", "id k", "k other"),
        ("SELECT id FROM a WHERE v > (SELECT max(other) FROM b)", "id v", "other"),
        ("SELECT x.id FROM a x JOIN a y ON x.k = y.k AND y.v > 1", "id k v", ""),
        ("SELECT id FROM a UNION ALL SELECT other FROM b", "id", "other"),
        ("SELECT id FROM a EXCEPT SELECT other FROM b", "id", "other"),
        ("WITH t AS (SELECT k, rand() AS r FROM a) SELECT l.k FROM t l JOIN t r ON l.r = r.r", "k", ""),
        ("SELECT row_number() OVER (PARTITION BY k ORDER BY other) FROM b", "", "k other"),
        ("SELECT explode(split(k, ',')) FROM b", "", "k"),
    ],
)
def test_the_columns_that_a_query_needs_are_known_before_it_reads(spark, query, a, b):
    def build(frames):
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        result = spark.sql(query)
        # Counting rows in the same pass, as each step does, needs no column.
        return [result.observe("rows", sf.count(sf.lit(1)).alias("rows"))]

    try:
        assert columns_read(spark, build, COLUMNS) == {"a": tuple(a.split()), "b": tuple(b.split())}
    finally:
        for name in COLUMNS:
            spark.catalog.dropTempView(name)


def test_a_changed_file_is_refused(spark, stores, store):
    manifest = write(spark.range(5).toDF("id"), stores, SMALL)
    uri = manifest.files[0].uri
    sink = io.BytesIO()
    table = pa.table({"id": [1, 2, 3, 4, 6]}, schema=decode_schema(manifest.arrow_schema))
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    store.put(uri, sink.getvalue())
    with pytest.raises(CloudError, match=uri):
        read_by(SMALL, spark, manifest, stores)
    with pytest.raises(PythonException, match=f"ObjectInvalid: {uri}"):
        read_by(LARGE, spark, manifest, stores).collect()


def test_a_missing_file_is_named(spark, stores, store):
    manifest = write(spark.range(5).toDF("id"), stores, SMALL)
    uri = manifest.files[0].uri
    store.delete([uri])
    with pytest.raises(ObjectMissing, match=uri):
        read_by(SMALL, spark, manifest, stores)
    with pytest.raises(PythonException, match=f"ObjectMissing: {uri} does not exist"):
        read_by(LARGE, spark, manifest, stores).collect()


def test_stray_files_are_not_read(spark, stores, store):
    manifest = write(spark.range(5).toDF("id"), stores, SMALL)
    store.put(f"{PREFIX}stray.arrow", store.get(manifest.files[0].uri))
    again = write(spark.range(7).toDF("id"), stores, SMALL)
    assert read_frame(spark, manifest, stores=stores).count() == 5
    assert read_frame(spark, again, stores=stores).count() == 7


def test_the_reference_is_small_and_names_the_manifest(spark, stores, store):
    manifest = write(spark.range(5).toDF("id"), stores, SMALL, parents=["s3://exchange/before/manifest.json"])
    reference = store_dataset(manifest, PREFIX, store=store, seconds=1.23456)
    body = store.get(f"{PREFIX}reference.json")
    assert len(body) < REFERENCE_LIMIT
    assert ArrowReference.model_validate_json(body) == reference
    assert (reference.rows, reference.files, reference.seconds) == (5, 1, 1.235)
    assert load_manifest(reference.manifest, store=store) == manifest


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT 1 AS a, 2 AS A", "more than one column is named a"),
        ("SELECT make_ym_interval(1, 2) AS pause", "'pause' is of type interval year to month"),
        ("SELECT array(make_ym_interval(1, 2)) AS pauses", "'pauses'"),
        ("SELECT 'a' COLLATE UNICODE_CI AS name", "'name'"),
    ],
)
def test_a_type_without_an_arrow_equivalent_is_refused_by_name(spark, stores, query, named):
    with pytest.raises(DefinitionError, match=named):
        write(spark.sql(query), stores, SMALL)


@SIZES
def test_a_column_of_nulls_and_odd_names_pass(spark, stores, size):
    frame = spark.sql("SELECT null AS nothing, 1 AS `a.b`, 2 AS `c ``d`, 'x' AS `größe`")
    manifest = write(frame, stores, size)
    for way in (SMALL, LARGE):
        back = read_by(way, spark, manifest, stores)
        assert back.schema == frame.schema
        assert [tuple(row) for row in back.collect()] == [(None, 1, 2, "x")]


@SIZES
def test_variants_and_null_structs_pass(spark, stores, store, size):
    frame = spark.sql("""
        SELECT id, if(id = 0, parse_json('{"a": [1, 2.5, "x"]}'), null) AS variant,
          if(id = 0, named_struct('a', 1, 'l', array(1)), null) AS struct, array(parse_json('1')) AS list
        FROM range(2)
    """)
    manifest = write(frame, stores, size)
    texts = ["id", "to_json(variant)", "struct", "to_json(list[0])"]
    for way in (SMALL, LARGE):
        back = read_by(way, spark, manifest, stores)
        assert back.schema == frame.schema
        assert sorted(map(str, back.selectExpr(*texts).collect())) == sorted(
            map(str, frame.selectExpr(*texts).collect())
        )
    for file in manifest.files:
        table = pa.ipc.open_file(store.get(file.uri)).read_all()  # a struct of two binary fields for other readers
        assert table.schema.field("variant").type.field(0).name == "value"


def test_a_thousand_columns_pass(spark, stores, monkeypatch):
    frame = spark.range(3).selectExpr(*(f"id + {n} AS c{n}" for n in range(1000)))
    manifest = write(frame, stores, SMALL)
    monkeypatch.setattr(exchange, "WHOLE_FILE_BYTES", -1)
    monkeypatch.setattr(exchange, "DRIVER_BYTES", -1)
    back = read_frame(spark, manifest, stores=stores, columns=["c999", "c0"])
    assert sorted(map(tuple, back.select("c0", "c999").collect())) == [(0, 999), (1, 1000), (2, 1001)]


def test_a_manifest_of_another_format_is_an_error_that_names_it(store):
    uri = "s3://exchange/manifest.json"
    for content in (b'{"version": 2}', b"{", b""):
        store.put(uri, content)
        with pytest.raises(ObjectInvalid, match=f"{uri} is not a manifest that this version can read"):
            load_manifest(uri, store=store)
