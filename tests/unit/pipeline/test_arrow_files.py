"""Arrow IPC files in a store: pieces of bounded size, checked when they are read."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

from slackwater.arrow.files import read_batches, write_empty, write_files
from slackwater.arrow.names import quoted
from slackwater.arrow.reference import REFERENCE_LIMIT, ArrowFile, ArrowManifest, ArrowReference
from slackwater.errors import CloudError, ObjectMissing
from tests.fakes_spark import FolderStore

pytestmark = pytest.mark.unit

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
PREFIX = "s3://exchange/p/"


@pytest.fixture
def store(tmp_path) -> FolderStore:
    return FolderStore(tmp_path)


def batch(start: int, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(range(start, start + rows)), "name": ["x"] * rows}, schema=SCHEMA)


def ids(files, store) -> list[int]:
    return [row for file in files for one in read_batches(file, store=store) for row in one["id"].to_pylist()]


def test_no_rows_leave_no_file(store):
    for batches in ([], [batch(0, 0)], [batch(0, 0), batch(0, 0)]):
        assert list(write_files(batches, prefix=PREFIX, schema=SCHEMA, store=store)) == []
    assert list(store.list(PREFIX)) == []


def test_a_file_ends_after_the_batch_that_passes_the_limit(store):
    batches = [batch(start, 100) for start in range(0, 500, 100)]
    files = list(write_files(batches, prefix=PREFIX, schema=SCHEMA, store=store, limit=3000))
    assert [file.rows for file in files] == [200, 200, 100]
    assert ids(files, store) == list(range(500))


def test_files_appear_as_they_fill_and_never_under_one_name(store):
    writing = write_files([batch(0, 10), batch(10, 10)], prefix=PREFIX, schema=SCHEMA, store=store, limit=0)
    first = next(writing)
    assert [stored.uri for stored in store.list(PREFIX)] == [first.uri]
    again = list(write_files([batch(0, 10)], prefix=PREFIX, schema=SCHEMA, store=store))
    assert again[0].uri != first.uri
    assert again[0].sha256 == first.sha256


def test_the_manifest_describes_the_stored_file(store):
    (file,) = write_files([batch(0, 10)], prefix=PREFIX, schema=SCHEMA, store=store)
    body = store.get(file.uri)
    assert file == ArrowFile(uri=file.uri, rows=10, bytes=len(body), sha256=hashlib.sha256(body).hexdigest())
    assert file.uri.startswith(PREFIX)
    assert file.uri.endswith(".arrow")


def test_batches_are_cast_to_the_datasets_schema(store):
    zoned = pa.schema([pa.field("at", pa.timestamp("us", "UTC"))])
    other = pa.RecordBatch.from_pydict(
        {"at": [0]}, schema=pa.schema([pa.field("at", pa.timestamp("us", "+05:45"), False)])
    )
    (file,) = write_files([other], prefix=PREFIX, schema=zoned, store=store)
    (read,) = read_batches(file, store=store)
    assert read.schema == zoned


def test_columns_are_selected_in_order(store):
    (file,) = write_files([batch(0, 2)], prefix=PREFIX, schema=SCHEMA, store=store)
    (read,) = read_batches(file, store=store, columns=["name", "id"])
    assert read.to_pydict() == {"name": ["x", "x"], "id": [0, 1]}


def test_an_empty_dataset_has_a_file_with_its_schema(store):
    file = write_empty(prefix=PREFIX, schema=SCHEMA, store=store)
    assert file.rows == 0
    assert pa.ipc.open_file(store.get(file.uri)).schema == SCHEMA
    assert list(read_batches(file, store=store)) == []


def test_a_changed_or_missing_file_is_an_error_that_names_it(store):
    (file,) = write_files([batch(0, 2)], prefix=PREFIX, schema=SCHEMA, store=store)
    store.put(file.uri, store.get(file.uri)[:-1])
    with pytest.raises(CloudError, match=f"{file.uri} differs from its manifest"):
        list(read_batches(file, store=store))
    store.delete([file.uri])
    with pytest.raises(ObjectMissing, match=file.uri):
        list(read_batches(file, store=store))


def test_a_manifest_adds_up_its_files_and_a_reference_stays_small():
    files = tuple(ArrowFile(uri=f"s3://b/{i}", rows=i, bytes=10 * i, sha256="0" * 64) for i in range(4))
    manifest = ArrowManifest(producer="p", arrow_schema="", files=files)
    assert (manifest.rows, manifest.bytes) == (6, 60)
    longest = ArrowReference(
        manifest="s3://" + "b" * 63 + "/" + "k" * 512, rows=2**62, bytes=2**62, files=10**9, seconds=1e9
    )
    assert len(longest.model_dump_json()) < REFERENCE_LIMIT


@pytest.mark.parametrize(("name", "expected"), [("a", "`a`"), ("a.b c", "`a.b c`"), ("a`b", "`a``b`"), ("", "``")])
def test_names_are_quoted(name, expected):
    assert quoted(name) == expected
