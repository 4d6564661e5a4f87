"""The Iceberg tables of raw events equal the listing, whatever happens to commits; pyiceberg reads them."""

from __future__ import annotations

import io
import json
import random
from contextlib import suppress
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ReadTimeoutError
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from slackwater.aws import raw_tables
from slackwater.aws.raw_tables import Difference, RawTables
from slackwater.errors import ObjectInvalid, Unavailable
from slackwater.project.project import Project
from slackwater.runs.inputs.consistent_listing import consistent_listing
from slackwater.runs.packing.index import ENDING, INDEX, format_index, packed_object
from slackwater.sources.event_schema import raw_schema
from slackwater.sources.partitions import ROWS, Partition, object_name, object_partition, object_uri
from slackwater.storage import StoredObject
from tests.fakes_aws import DictGlue, FakeAws
from tests.fakes_functions import resources_of
from tests.fakes_receiver import MemoryFileCache, a_source, begin_file, store_file
from tests.pauses import record_pauses

pytestmark = pytest.mark.unit

AT = datetime(2013, 3, 8, 12, 30, tzinfo=UTC)
HOURS = [Partition("2013-03-08", "05"), Partition("2013-03-08", "23"), Partition("2013-03-09", "00")]


class Crashed(BaseException):
    """The process ends."""


class FolderIO(PyArrowFileIO):
    """`s3://bucket/key` at `folder/bucket/key`."""

    def __init__(self, properties):
        super().__init__(properties)
        self.fs_by_scheme = lambda *_: SubTreeFileSystem(properties["folder"], LocalFileSystem())


class Store:
    """The objects of the folder, and how many requests were made."""

    def __init__(self, folder):
        self.folder, self.metadata_of, self.listings = folder, {}, 0

    def put(self, uri, rows, source, *, named=True, **columns):
        schema = raw_schema(source)
        table = pa.table({field.name: pa.nulls(rows, field.type) for field in schema}, schema=schema)
        for name, values in columns.items():
            table = table.set_column(schema.get_field_index(name), schema.field(name), pa.array(values))
        path = self.path(uri)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        if not named:
            self.metadata_of[uri] = {ROWS: str(rows)}

    def path(self, uri):
        return self.folder / uri.removeprefix("s3://")

    def get(self, uri):
        return self.path(uri).read_bytes()

    def metadata(self, uri):
        return self.metadata_of.get(uri, {})

    def list(self, prefix, *, start_after=""):
        self.listings += 1
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            uri = f"s3://{path.relative_to(self.folder)}"
            if uri.startswith(prefix) and uri > start_after:
                yield StoredObject(uri, path.stat().st_size, "etag", AT)

    def delete(self, uris):
        for uri in uris:
            self.path(uri).unlink(missing_ok=True)


class World:
    """A source, its objects, its file cache and its table."""

    def __init__(self, folder, **definition):
        self.store, self.files = Store(folder), MemoryFileCache()
        self.glue = DictGlue("s3://warehouse")
        self.catalog = GlueCatalog(
            "c", client=self.glue, **{"py-io-impl": f"{__name__}.FolderIO", "folder": str(folder)}
        )
        (folder / "warehouse/raw/things/metadata").mkdir(parents=True)
        self.define(**definition)

    def define(self, **definition):
        self.source = a_source(**definition)
        self.tables = RawTables(
            catalog=self.catalog,
            database="db",
            location="s3://warehouse/raw",
            project=Project(sources={"things": self.source}, pipelines={}),
            store=self.store,
            files=self.files,
            raw_bucket="raw",
        )

    def push(self, number, partition, rows=1, **columns):
        uri = object_uri("raw", "things", partition, object_name(f"{number:032x}", rows))
        self.store.put(uri, rows, self.source, **columns)
        return uri

    def pull(self, record, path, content, partitions):
        for uri in record(self.files, "things", path, content, partitions):
            self.store.put(uri, 2, self.source, named=False)

    def pack(self, members, rows):
        """Write a packed object beside its members, and the index that names them."""
        folder = members[0].rpartition("/")[0] + "/"
        uri = f"{folder}{'f' * 32}-{rows}{ENDING}"
        self.store.put(uri, rows, self.source)
        size = self.store.path(uri).stat().st_size
        listed = [item[:4] for item in self.store.list(folder) if item.uri in members]
        index = [packed_object(uri, size=size, etag="e", packed_at=AT, members=listed)]
        self.store.path(f"{folder}{INDEX}").write_bytes(format_index(index))
        return uri

    def listing(self, partitions=None):
        listed = consistent_listing(self.source, lambda: self.store.list("s3://raw/raw/"), files=self.files).objects
        return {
            item.uri: item.size for item in listed if partitions is None or object_partition(item.uri) in partitions
        }

    def table(self):
        return self.catalog.load_table("db.things")

    def stored(self, partitions=None):
        """The files of the table, each of them once."""
        tasks = [task.file for task in self.table().scan().plan_files()]
        assert len({file.file_path for file in tasks}) == len(tasks)
        for file in tasks:
            assert (file.partition[0], file.partition[1]) == object_partition(file.file_path)
            if (path := self.store.path(file.file_path)).exists():
                assert file.record_count == pq.read_metadata(path).num_rows
        return {
            file.file_path: file.file_size_in_bytes
            for file in tasks
            if partitions is None or object_partition(file.file_path) in partitions
        }

    def snapshots(self):
        """The operation of each snapshot, and the rows that it has added and removed."""
        summaries = [snapshot.summary for snapshot in self.table().snapshots()]
        return [
            (each.operation.value, int(each["added-records"] or 0), int(each["deleted-records"] or 0))
            for each in summaries
        ]

    def appended(self):
        """The files whose rows an incremental scan of the whole history reads."""
        return sorted(task.file.file_path for task in self.table().incremental_append_scan().plan_files())

    def metadata_files(self):
        return {uri.uri for uri in self.store.list("s3://warehouse/")}


def test_a_packed_object_takes_the_places_of_its_members(tmp_path):
    """Also when another object has come, and when the members are deleted."""
    world, hour = World(tmp_path), HOURS[0]
    members = [world.push(number, hour, rows=number + 1) for number in range(3)]
    world.tables.reconcile("things", HOURS)
    packed = world.pack(members, rows=6)
    late = world.push(7, hour)
    assert world.tables.reconcile("things", HOURS) == Difference(added=2, removed=3)
    world.store.delete(members)
    assert world.tables.reconcile("things", HOURS) == Difference()
    assert {*world.stored()} == {packed, late}


def test_readers_of_appended_rows_do_not_read_those_of_packed_objects_again(tmp_path):
    """Hours without packed objects append what is new in them, in the same commit."""
    world = World(tmp_path)
    members = [world.push(number, HOURS[0], rows=number + 1) for number in range(3)]
    world.tables.reconcile("things", HOURS)
    version = world.glue.tables["things"]["VersionId"]
    packed, late = world.pack(members, rows=6), world.push(6, HOURS[0])
    new = [late, *(world.push(number, HOURS[2], rows=2) for number in (7, 8))]
    assert world.tables.reconcile("things", HOURS) == Difference(added=4, removed=3)
    assert int(world.glue.tables["things"]["VersionId"]) == int(version) + 1
    assert world.snapshots() == [("append", 6, 0), ("append", 5, 0), ("overwrite", 6, 6)]
    assert world.appended() == sorted([*members, *new])
    assert {*world.stored()} == {packed, *new}


def test_an_hour_with_many_packed_objects_appends_none(tmp_path, monkeypatch):
    monkeypatch.setattr(raw_tables, "_MANIFEST_FILES", 2)
    world = World(tmp_path)
    members = [world.push(number, hour) for number, hour in enumerate([HOURS[0], HOURS[1], HOURS[2]] * 2)]
    world.tables.reconcile("things", HOURS)
    packed = [world.pack(members[hour::3], rows=2) for hour in range(3)]
    assert world.tables.reconcile("things", HOURS) == Difference(added=3, removed=6)
    overwrites = [each for each in world.snapshots() if each[0] == "overwrite"]
    assert overwrites == [("overwrite", 4, 6), ("overwrite", 2, 0)]
    assert world.appended() == sorted(members)
    assert sorted(world.stored()) == sorted(packed)


def test_commits_that_always_remove_files_leave_a_bounded_number_of_manifests(world, monkeypatch):
    monkeypatch.setattr(raw_tables, "_MAX_MANIFESTS", 5)
    world.push(0, HOURS[1])
    for number in range(13):
        world.push(number, HOURS[0])
    world.tables.reconcile("things", HOURS)
    for _ in range(12):
        world.store.delete([max(world.listing())])
        world.tables.reconcile("things", HOURS)
    table = world.table()
    assert all(len(snapshot.manifests(table.io)) <= 7 for snapshot in table.snapshots())
    assert len(table.snapshots()) <= 12 + 12 / 2
    world.tables.reconcile("things", HOURS)
    assert world.stored() == world.listing()


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


EVENTS = st.one_of(
    st.tuples(st.just("push"), st.sampled_from(HOURS)),
    st.tuples(st.sampled_from(["store", "begin"]), st.sampled_from("abc"), st.sampled_from(HOURS)),
    st.tuples(st.just("delete"), st.integers(0, 99)),
    st.tuples(
        st.just("reconcile"),
        st.sets(st.sampled_from(HOURS), min_size=1),
        st.sampled_from(["", "", "answer lost", "request lost", "killed", "killed after", "second writer"]),
    ),
)


@settings(max_examples=25, deadline=None)
@given(events=st.lists(EVENTS, min_size=1, max_size=14))
def test_the_table_equals_the_listing_after_any_arrivals_faults_and_writers(tmp_path_factory, events):
    world = World(tmp_path_factory.mktemp("world"))
    for number, event in enumerate([*events, ("reconcile", set(HOURS), "")]):
        match event:
            case "push", partition:
                world.push(number, partition)
            case "store", path, partition:
                world.pull(store_file, f"{path}.csv", f"{path}{number}", [partition])
            case "begin", path, partition:
                world.pull(begin_file, f"{path}.csv", f"{path}{number}", [partition])
            case "delete", position:
                if uris := sorted(world.listing()):
                    world.store.delete([uris[position % len(uris)]])
            case "reconcile", partitions, fault:
                with fault_in(world, fault, number), suppress(Unavailable, Crashed):
                    world.tables.reconcile("things", partitions)
                    assert world.stored(partitions) == world.listing(partitions)
    assert world.stored() == world.listing()
    rows = world.table().scan().to_arrow().num_rows
    assert rows == sum(pq.read_metadata(world.store.path(uri)).num_rows for uri in world.listing())


class fault_in:  # noqa: N801
    """Let the next commit fail in one way."""

    def __init__(self, world, fault, number):
        self.world, self.fault, self.number = world, fault, number
        self.update = world.glue.update_table

    def __enter__(self):
        if self.fault:
            self.world.glue.update_table = self.fail

    def __exit__(self, *_):
        self.world.glue.update_table = self.update

    def fail(self, **arguments):
        self.world.glue.update_table = self.update
        match self.fault:
            case "killed":
                raise Crashed
            case "request lost":
                raise ReadTimeoutError(endpoint_url="glue")
            case "second writer":
                # It sees an object that the first writer has not listed.
                self.world.push(self.number + 1000, HOURS[0])
                self.world.tables.reconcile("things", HOURS)
        self.update(**arguments)
        if self.fault in ("answer lost", "killed after"):
            raise Crashed if self.fault == "killed after" else ReadTimeoutError(endpoint_url="glue")


def test_a_commit_is_sent_once_and_a_lost_answer_is_repaired_by_the_next_call(world):
    world.push(1, HOURS[0])
    with fault_in(world, "answer lost", 0), pytest.raises(Unavailable):
        world.tables.reconcile("things", HOURS)
    version = world.glue.tables["things"]["VersionId"]
    assert world.tables.reconcile("things", HOURS) == Difference()
    assert world.glue.tables["things"]["VersionId"] == version
    assert world.stored() == world.listing()


def test_a_writer_that_always_loses_says_so(world, monkeypatch):
    def lose(**_):
        raise world.glue.exceptions.ConcurrentModificationException

    world.push(1, HOURS[0])
    monkeypatch.setattr(world.glue, "update_table", lose)
    pauses = record_pauses(monkeypatch, "slackwater.aws.raw_tables")
    monkeypatch.setattr(random, "uniform", lambda _, longest: longest)
    with pytest.raises(Unavailable, match=r"other writers keep changing the table db\.things"):
        world.tables.reconcile("things", HOURS)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32]
    monkeypatch.undo()
    assert world.tables.reconcile("things", HOURS) == Difference(1, 0)


def test_fields_named_like_partition_keys_keep_their_values_beside_the_partition(tmp_path):
    fields = {"hour": "int64", "date": "string", "at": "timestamp"}
    world = World(tmp_path, fields=fields, push={}, pull=None)
    world.push(1, HOURS[0], rows=2, hour=[19, 20], date=["a", "b"])
    world.push(2, HOURS[2], hour=[21], date=["c"])
    world.tables.reconcile("things", HOURS)
    rows = world.table().scan(row_filter="_hour = '05'").to_arrow().to_pylist()
    assert sorted((row["hour"], row["date"], row["_date"], row["_hour"]) for row in rows) == [
        (19, "a", "2013-03-08", "05"),
        (20, "b", "2013-03-08", "05"),
    ]


def test_a_definition_with_more_columns_adds_them_and_one_with_fewer_drops_none(world):
    fields = {"id": {"type": "string", "required": True}, "at": "timestamp"}
    world.define(fields=fields)
    world.push(1, HOURS[0], id=["old"])
    world.tables.reconcile("things", HOURS)
    world.define(fields={**fields, "later": "double"})
    world.push(2, HOURS[0], id=["new"], later=[1.5])
    world.tables.reconcile("things", HOURS)
    world.define(fields=fields)
    world.tables.reconcile("things", HOURS)
    rows = world.table().scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["later"]) for row in rows) == [("new", 1.5), ("old", None)]
    mapping = json.loads(world.table().properties["schema.name-mapping.default"])
    assert {"field-id": world.table().schema().find_field("later").field_id, "names": ["later"]} in mapping


def test_engines_neither_delete_objects_nor_expect_statistics(world):
    world.push(1, HOURS[0])
    world.tables.reconcile("things", HOURS)
    expected = {
        "gc.enabled": "false",
        "write.metadata.metrics.default": "none",
        "write.delete.isolation-level": "snapshot",
        "commit.manifest.target-size-bytes": "1048576",
        "write.metadata.previous-versions-max": "20",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    assert expected.items() <= world.table().properties.items()
    [task] = world.table().scan().plan_files()
    assert not task.file.value_counts


def test_old_snapshots_leave_with_the_manifests_that_only_they_have(world, monkeypatch):
    monkeypatch.setattr(raw_tables, "_MAX_SNAPSHOTS", 4)
    monkeypatch.setattr(raw_tables, "_KEPT_SNAPSHOTS", 2)
    for number in range(12):
        world.push(number, HOURS[number % 3])
        world.tables.reconcile("things", HOURS)
        if number % 3 == 2:
            world.store.delete([min(world.listing())])
            world.tables.reconcile("things", HOURS)
    table = world.table()
    assert len(table.snapshots()) <= 5
    manifests = {m.manifest_path for snapshot in table.snapshots() for m in snapshot.manifests(table.io)}
    kept = {uri for uri in world.metadata_files() if uri.endswith(".avro")}
    assert kept == manifests | {snapshot.manifest_list for snapshot in table.snapshots()}
    assert world.stored() == world.listing()


def test_a_rebuilt_table_replaces_one_that_lies_and_keeps_every_object(world):
    for number, partition in enumerate(HOURS):
        world.push(number, partition)
    world.store.put("s3://raw/raw/source=things/date=2013-02-30/hour=05/x-1.parquet", 1, world.source)
    world.tables.reconcile("things", HOURS)
    old, objects = world.metadata_files(), sorted(world.store.list("s3://raw/"))
    table = world.table()
    with table.transaction() as transaction:
        transaction.delete("_hour = '05'")
    assert world.stored() != world.listing(HOURS)
    assert world.tables.rebuild("things") == Difference(3, 0)
    assert world.stored() == world.listing(HOURS)
    assert not old & world.metadata_files()
    assert sorted(world.store.list("s3://raw/")) == objects
    world.glue.tables.clear()
    assert world.tables.rebuild("things") == Difference(3, 0)


def test_a_writer_of_the_dropped_table_does_not_change_the_rebuilt_one(world):
    for number in range(4):
        world.push(number, HOURS[0])
        world.tables.reconcile("things", HOURS)
    world.push(4, HOURS[1])
    update = world.glue.update_table

    def rebuild_before(**arguments):
        world.glue.update_table = update
        world.tables.rebuild("things")
        update(**arguments)

    world.glue.update_table = rebuild_before
    world.tables.reconcile("things", HOURS)
    assert world.stored() == world.listing()


def test_many_changes_are_committed_in_parts_and_consecutive_hours_listed_together(world, monkeypatch):
    monkeypatch.setattr(raw_tables, "_MAX_CHANGES", 2)
    day = [Partition("2013-03-08", f"{hour:02}") for hour in range(24)]
    for number, partition in enumerate([*day[:2], HOURS[2]]):
        world.push(number, partition)
    world.store.listings = 0
    assert world.tables.reconcile("things", [*day, HOURS[2]]) == Difference(3, 0)
    assert world.store.listings == 2
    assert len(world.table().snapshots()) == 2
    assert world.stored() == world.listing()


def test_an_object_that_the_receiver_has_not_written_is_named(world):
    uri = object_uri("raw", "things", HOURS[0], "foreign")
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"]}), sink)
    world.store.path(uri).parent.mkdir(parents=True)
    world.store.path(uri).write_bytes(sink.getvalue())
    with pytest.raises(ObjectInvalid, match=uri):
        world.tables.reconcile("things", HOURS)


def test_an_update_is_requested_in_payloads_of_bounded_size_and_a_refusal_stops_nothing():
    requests = []
    aws = FakeAws({"lambda:Invoke": lambda request: requests.append(request) or {"StatusCode": 202}})
    resources = resources_of({"raw_tables_function": "update-raw-tables"}, clients=aws.client)
    del vars(resources)["update_raw_table"]
    days = [f"{year}-01-{day:02}" for year in range(1000, 1400) for day in range(1, 29)]
    resources.update_raw_table("things", {Partition(day, "05") for day in days})
    asked = [json.loads(request["Payload"]) for request in requests]
    assert [partition for request in asked for partition in request["partitions"]] == [[day, "05"] for day in days]
    assert max(len(request["Payload"]) for request in requests) < 256 * 1024
    assert {(request["FunctionName"], request["InvocationType"]) for request in requests} == {
        ("update-raw-tables", "Event")
    }
    aws.answers["lambda:Invoke"] = "TooManyRequestsException"
    resources.update_raw_table("things", HOURS)
