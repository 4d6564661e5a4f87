"""Arrow IPC files in a store: files of bounded size, other libraries read them, and reads verify every byte."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import polars as pl
import pyarrow as pa
import pytest
import xxhash
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from slackwater.arrow.files import read_batches, write_empty, write_files
from slackwater.arrow.names import quoted
from slackwater.errors import CloudError, ObjectMissing
from tests.fakes_spark import FolderStore

pytestmark = pytest.mark.unit

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
PREFIX = "s3://exchange/p/"


class CountingStore(FolderStore):
    """Keeps the number of bytes of each read."""

    def __init__(self, root) -> None:
        super().__init__(root)
        self.reads: list[int] = []

    def get_range(self, uri, start, length):
        self.reads.append(length)
        return super().get_range(uri, start, length)


@pytest.fixture
def store(tmp_path) -> CountingStore:
    return CountingStore(tmp_path)


def batch(start: int, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(range(start, start + rows)), "name": ["x"] * rows}, schema=SCHEMA)


def read(file, store, *, schema=SCHEMA, columns=None) -> list[pa.RecordBatch]:
    return list(read_batches(file, schema=schema, store=store, columns=columns))


def ids(files, store) -> list[int]:
    return [row for file in files for one in read(file, store) for row in one["id"].to_pylist()]


def test_no_rows_leave_no_file(store):
    for batches in ([], [batch(0, 0)], [batch(0, 0), batch(0, 0)]):
        assert list(write_files(batches, prefix=PREFIX, schema=SCHEMA, store=store)) == []
    assert list(store.list(PREFIX)) == []


def test_a_file_ends_after_the_batch_that_passes_the_limit(store):
    batches = [batch(start, 100) for start in range(0, 500, 100)]
    files = list(write_files(batches, prefix=PREFIX, schema=SCHEMA, store=store, limit=3000))
    assert [file.rows for file in files] == [200, 200, 100]
    assert [len(file.batches) for file in files] == [2, 2, 1]
    assert ids(files, store) == list(range(500))


def test_files_appear_as_they_fill_and_never_under_one_name(store):
    writing = write_files([batch(0, 10), batch(10, 10)], prefix=PREFIX, schema=SCHEMA, store=store, limit=0)
    first = next(writing)
    assert [stored.uri for stored in store.list(PREFIX)] == [first.uri]
    again = list(write_files([batch(0, 10)], prefix=PREFIX, schema=SCHEMA, store=store))
    assert again[0].uri != first.uri
    assert again[0].checksum == first.checksum


def test_the_manifest_describes_the_stored_file(store):
    (file,) = write_files([batch(0, 10), batch(10, 20)], prefix=PREFIX, schema=SCHEMA, store=store)
    body = store.get(file.uri)
    assert (file.rows, file.bytes, file.checksum) == (30, len(body), xxhash.xxh3_64_hexdigest(body))
    assert file.uri.startswith(PREFIX)
    assert file.uri.endswith(".arrow")
    for entry, rows in zip(file.batches, (10, 20), strict=True):
        message = pa.ipc.read_message(body[entry.offset :][: entry.metadata_bytes + entry.body_bytes])
        assert pa.ipc.read_record_batch(message, SCHEMA).num_rows == rows


def test_batches_are_cast_to_the_datasets_schema(store):
    zoned = pa.schema([pa.field("at", pa.timestamp("us", "UTC"))])
    other = pa.RecordBatch.from_pydict(
        {"at": [0]}, schema=pa.schema([pa.field("at", pa.timestamp("us", "+05:45"), False)])
    )
    (file,) = write_files([other], prefix=PREFIX, schema=zoned, store=store)
    (back,) = read(file, store, schema=zoned)
    assert back.schema == zoned


def test_an_empty_dataset_has_a_file_with_its_schema(store):
    file = write_empty(prefix=PREFIX, schema=SCHEMA, store=store)
    assert (file.rows, file.batches) == (0, ())
    assert pa.ipc.open_file(store.get(file.uri)).schema == SCHEMA
    assert read(file, store) == []
    assert read(file, store, columns=["id"]) == []


NESTED = pa.schema(
    [
        ("id", pa.int64()), ("text", pa.string()), ("raw", pa.binary()), ("yes", pa.bool_()), ("nothing", pa.null()),
        ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")),
        ("price", pa.decimal128(38, 9)), ("list", pa.list_(pa.int32())),
        ("nested", pa.struct([("a", pa.string()), ("b", pa.list_(pa.struct([("c", pa.float64())])))])),
        ("pairs", pa.map_(pa.string(), pa.decimal128(10, 2))), ("real", pa.float64()),
    ]
)  # fmt: skip
"""Every type of Arrow that Spark's types become, nested in each other."""

ROW = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "text": st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
        "raw": st.none() | st.binary(max_size=3),
        "yes": st.none() | st.booleans(),
        "nothing": st.none(),
        "day": st.none() | st.dates(date(1, 1, 1), date(9999, 12, 31)),
        "at": st.none() | st.datetimes(datetime(1, 1, 2), datetime(9999, 1, 1), timezones=st.just(UTC)),
        "local": st.none() | st.datetimes(datetime(1, 1, 2), datetime(9999, 1, 1)),
        "price": st.none() | st.decimals(-(10**15), 10**15, places=9),
        "list": st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=2),
        "nested": st.none()
        | st.fixed_dictionaries(
            {"a": st.none() | st.just("x"), "b": st.none() | st.just([]) | st.just([None, {"c": 0.5}])}
        ),
        "pairs": st.none() | st.just([]) | st.just([("k", Decimal("0.10")), ("l", None)]),
        "real": st.none() | st.floats(allow_nan=False),
    }
)


@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    rows=st.lists(ROW, max_size=12),
    columns=st.sets(st.sampled_from(NESTED.names), min_size=1),
    codec=st.sampled_from([None, "lz4", "zstd"]),
    size=st.integers(1, 5),
)
def test_any_columns_are_read_as_other_libraries_read_them(store, rows, columns, codec, size):
    table = pa.Table.from_pylist(rows, schema=NESTED)
    files = list(
        write_files(table.to_batches(max_chunksize=size), prefix=PREFIX, schema=NESTED, store=store, codec=codec)
    )
    assert sum(file.rows for file in files) == len(rows)
    for file in files:
        whole = pa.Table.from_batches(read(file, store, schema=NESTED), schema=NESTED)
        assert whole.equals(table)
        named = [name for name in NESTED.names if name in columns]
        part = pa.Table.from_batches(read(file, store, schema=NESTED, columns=list(columns)))
        part.validate(full=True)
        assert part.equals(table.select(named))
        path = store.path(file.uri)
        scalar = table.drop_columns(["pairs", "nothing"])  # Polars has no maps, DuckDB no type of nulls
        assert pl.read_ipc(path, columns=scalar.column_names).rows() == [
            tuple(row.values()) for row in scalar.to_pylist()
        ]
        with pa.ipc.open_file(path) as reader:
            stored = reader.read_all().drop_columns(["nothing"])  # noqa: F841 - DuckDB finds it by its name
        sums = duckdb.sql("SELECT count(id), count(text), sum(price), count(pairs), max(day) FROM stored").fetchall()
        given_rows = table.to_pylist()
        known = [row["price"] for row in given_rows if row["price"] is not None]
        assert sums == [
            (
                sum(row["id"] is not None for row in given_rows),
                sum(row["text"] is not None for row in given_rows),
                sum(known) if known else None,
                sum(row["pairs"] is not None for row in given_rows),
                max((row["day"] for row in given_rows if row["day"] is not None), default=None),
            )
        ]


def test_only_the_bytes_of_the_columns_are_requested(store):
    schema = pa.schema([(f"c{n}", pa.int64()) for n in range(100)])
    batches = [pa.RecordBatch.from_arrays([pa.array(range(10_000))] * 100, schema=schema)] * 3
    (file,) = write_files(batches, prefix=PREFIX, schema=schema, store=store)
    read_back = read(file, store, schema=schema, columns=["c7", "c8", "c90"])
    assert [one.schema.names for one in read_back] == [["c7", "c8", "c90"]] * 3
    metadata = sum(entry.metadata_bytes for entry in file.batches)
    assert sum(store.reads) == metadata + 3 * 3 * 80_000
    # The metadata of each batch, then two ranges of each: two columns are adjacent.
    assert len(store.reads) == 3 + 2 * 3


def test_ranges_near_each_other_are_one_request(store):
    (file,) = write_files([batch(0, 10), batch(10, 10)], prefix=PREFIX, schema=SCHEMA, store=store)
    read(file, store, columns=["id"])
    assert len(store.reads) == 2


@pytest.mark.parametrize("columns", [None, ["id"], ["name"]], ids=["all", "id", "name"])
def test_every_altered_byte_that_is_read_is_an_error_that_names_the_file(store, columns):
    (file,) = write_files([batch(0, 2), batch(2, 2)], prefix=PREFIX, schema=SCHEMA, store=store)
    body = store.get(file.uri)
    expected = read(file, store, columns=columns)
    unread = 0
    for position in range(0, len(body), 5):
        altered = bytearray(body)
        altered[position] ^= 0xFF
        store.put(file.uri, bytes(altered))
        try:
            assert read(file, store, columns=columns) == expected
            unread += 1
        except CloudError as error:
            assert f"{file.uri} differs from its manifest" in str(error)  # noqa: PT017 - most positions raise it
    assert (unread == 0) == (columns is None)


def test_a_short_or_missing_file_is_an_error_that_names_it(store):
    (file,) = write_files([batch(0, 2)], prefix=PREFIX, schema=SCHEMA, store=store)
    for length in (0, 40, file.batches[0].offset + file.batches[0].metadata_bytes + 4):
        store.put(file.uri, store.get(file.uri)[:length])
        for columns in (None, ["name"]):
            with pytest.raises(CloudError, match=f"{file.uri} differs from its manifest"):
                read(file, store, columns=columns)
    store.delete([file.uri])
    for columns in (None, ["id"]):
        with pytest.raises(ObjectMissing, match=file.uri):
            read(file, store, columns=columns)


def test_a_file_of_another_dataset_under_its_name_is_refused(store):
    first, second = (
        next(write_files([batch(start, 2)], prefix=PREFIX, schema=SCHEMA, store=store)) for start in (0, 5)
    )
    store.put(first.uri, store.get(second.uri))
    for columns in (None, ["id"]):
        with pytest.raises(CloudError, match=first.uri):
            read(first, store, columns=columns)


@pytest.mark.parametrize(("name", "expected"), [("a", "`a`"), ("a.b c", "`a.b c`"), ("a`b", "`a``b`"), ("", "``")])
def test_names_are_quoted(name, expected):
    assert quoted(name) == expected
