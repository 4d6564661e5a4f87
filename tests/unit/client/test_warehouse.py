"""Raw partitions as a dataset: which files are read, and with which columns."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from slackwater.aws.warehouse import Warehouse
from slackwater.client.sql import CloudTables, run_query
from slackwater.client.states import states_table
from slackwater.project.project import Project
from slackwater.receiver.push.receive import Receiver
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.runs.packing.pack_hours import HourPacker
from slackwater.sources.counts import ALL
from slackwater.sources.event_schema import raw_schema
from slackwater.sources.partitions import Partition, named_rows
from slackwater.state.completeness import CountState
from slackwater.state.facts import HOUR, Coverage, HourFacts, Part
from slackwater.state.fold import fold, periods_with
from slackwater.storage import StoredObject
from tests.fakes_receiver import Clock, MemoryFileCache, a_source, begin_file, store_file
from tests.fakes_spark import FolderStore
from tests.fakes_state import MemoryPeriods, MemoryState
from tests.pushing import pushed_body
from tests.reading import counted_events, stored_events

pytestmark = pytest.mark.unit

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
SCHEMA = pa.schema([("origin", pa.string()), ("hour", pa.int64()), ("added_later", pa.float64())])


class Listing:
    """An object store that lists the files of a folder."""

    def __init__(self, folder):
        self._folder = folder

    def list(self, prefix):
        for path in sorted(self._folder.rglob("*.*")):
            uri = f"s3://{path.relative_to(self._folder)}"
            if uri.startswith(prefix):
                yield StoredObject(uri, path.stat().st_size, "etag", datetime.now(UTC))


@pytest.fixture
def warehouse(tmp_path):
    for date, hour, origins in (("2013-03-08", "05", ["JFK", "EWR"]), ("2013-03-09", "00", ["LGA"])):
        folder = tmp_path / "raw" / "raw" / "source=weather" / f"date={date}" / f"hour={hour}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"origin": origins, "hour": [7] * len(origins)}), folder / "a.parquet")
        (folder / "note.txt").write_text("no Parquet")
    return Warehouse(
        catalog=None,
        files=SubTreeFileSystem(str(tmp_path), LocalFileSystem()),
        store=Listing(tmp_path),
        database="warehouse",
        raw_bucket="raw",
    )


def events(warehouse, source):
    """The events; the file of the first object has changed."""
    objects = list(warehouse.objects(source))
    first_received = {item.uri: NOW for item in objects[:1]}
    return warehouse.partitions(objects, SCHEMA, first_received=first_received)


def test_events_come_with_their_partitions_beside_their_own_fields(warehouse):
    table = events(warehouse, "weather").to_table()
    assert table.column_names == ["origin", "hour", "added_later", "_date", "_hour", "_object", "_first_received_at"]
    assert table.sort_by("origin")["_first_received_at"].to_pylist() == [NOW, NOW, None]
    assert table.drop(["_first_received_at"]).sort_by("origin").to_pylist() == [
        {"origin": "EWR", "hour": 7, "added_later": None, "_date": "2013-03-08", "_hour": "05", "_object": "a.parquet"},
        {"origin": "JFK", "hour": 7, "added_later": None, "_date": "2013-03-08", "_hour": "05", "_object": "a.parquet"},
        {"origin": "LGA", "hour": 7, "added_later": None, "_date": "2013-03-09", "_hour": "00", "_object": "a.parquet"},
    ]


def test_a_filter_by_partition_opens_no_other_file(warehouse):
    condition = (ds.field("_date") == "2013-03-09") & (ds.field("_hour") == "00")
    fragments = list(events(warehouse, "weather").get_fragments(condition))
    assert [fragment.path for fragment in fragments] == ["raw/raw/source=weather/date=2013-03-09/hour=00/a.parquet"]


def test_a_source_without_events_has_its_columns(warehouse):
    table = events(warehouse, "flights").to_table()
    assert table.num_rows == 0
    assert table.column_names == ["origin", "hour", "added_later", "_date", "_hour", "_object", "_first_received_at"]


class Cloud:
    """The receiver, and queries over the objects that it has written."""

    def __init__(self, folder, **source):
        self.source = a_source(**source)
        self.store, self.files, self.clock = FolderStore(folder), MemoryFileCache(), Clock()
        files = SubTreeFileSystem(str(folder), LocalFileSystem())
        warehouse = Warehouse(catalog=None, files=files, store=self.store, database="w", raw_bucket="raw")
        project = Project(sources={"things": self.source}, pipelines={})
        self.states = MemoryPeriods()
        states = partial(states_table, self.states, project.sources.values(), NOW.date())
        self.tables = CloudTables(project=project, warehouse=warehouse, files=self.files, states=states)

    def push(self, events):
        raw_writer = RawWriter(store=self.store, raw_bucket="raw")
        receiver = Receiver(raw_writer=raw_writer, now=self.clock, put_rejected=MemoryState().put_rejected)
        receiver.store(receiver.check(pushed_body(json.dumps(events).encode(), "application/json"), self.source))

    def query(self, sql):
        return run_query(sql, tables=self.tables, pipelines=[], sources=["things"]).rows


def test_a_query_reads_the_first_received_event_of_each_id(tmp_path):
    """The expected counts are computed in plain Python."""
    cloud = Cloud(tmp_path, event_id="id")
    for batch in range(6):
        cloud.push(
            [{"id": str((batch * 3 + n) % 7), "count": batch, "at": f"2013-03-08T1{n % 2}:00:00Z"} for n in range(5)]
        )
        cloud.clock.pass_by(minutes=batch % 2)
    stored = stored_events(cloud.store, cloud.source)
    counted = sorted((row["at"].hour, row["id"], row["count"]) for row in counted_events(stored, "id"))
    assert len(stored) > len(counted)
    assert cloud.query("SELECT CAST(hour AS INT), id, count FROM raw.things ORDER BY ALL") == counted


@pytest.mark.parametrize("event_id", ["id", None])
def test_a_query_reads_the_same_rows_of_packed_objects(tmp_path, event_id):
    """Also while only some of the members of a packed object are seen."""
    cloud = Cloud(tmp_path, event_id=event_id, pack={"max_objects": 1})
    for batch in range(6):
        cloud.push(
            [{"id": str((batch + n) % 4), "count": batch, "at": f"2013-03-08T1{n % 2}:00:00Z"} for n in range(5)]
        )
        cloud.clock.pass_by(minutes=batch % 2)
    sql = "SELECT date, hour, id, count FROM raw.things ORDER BY ALL"
    before, listed = cloud.query(sql), list(cloud.tables.warehouse.objects("things"))
    packer = HourPacker(
        store=cloud.store, files=cloud.files, raw_bucket="raw", update_table=lambda *_: None, now=cloud.clock
    )
    assert packer.pack(cloud.source, limit=timedelta(minutes=13)).packed == 12
    cloud.store.delete([item.uri for item in listed])
    cloud.push([{"id": "late", "count": 9, "at": "2013-03-08T10:00:00Z"}])
    assert cloud.query(sql) == sorted([*before, ("2013-03-08", "10", "late", 9)])
    seen = [item for item in cloud.tables.warehouse.objects("things") if item.uri != listed[0].uri]
    events = cloud.tables.warehouse.partitions(seen, raw_schema(cloud.source), first_received={})
    [(rows,)] = duckdb.sql("SELECT count(*) FROM events").fetchall()
    assert (rows, {item.uri.rpartition("/")[2] for item in seen}) == (
        sum(named_rows(item.uri) for item in seen),
        {*events.to_table()["_object"].to_pylist()},
    )
    # The content of another file is that of a member now, and was received earlier.
    times = {item.uri: NOW for item in seen[:1]}
    table = cloud.tables.warehouse.partitions(seen, raw_schema(cloud.source), first_received=times).to_table()
    of_first = table["_object"].to_pylist().count(seen[0].uri.rpartition("/")[2])
    assert (table.num_rows, table["_first_received_at"].to_pylist().count(NOW)) == (rows, of_first)
    assert of_first == named_rows(seen[0].uri)


def test_a_query_reads_one_version_of_a_file_while_the_file_is_replaced(tmp_path):
    cloud, hour = Cloud(tmp_path), Partition("2013-03-08", "12")

    def put(uris, number):
        (uri,) = uris
        sink = io.BytesIO()
        pq.write_table(pa.table({"count": [number]}), sink)
        cloud.store.put(uri, sink.getvalue())

    put(store_file(cloud.files, "things", "x.csv", "before", [hour]), 0)
    put(begin_file(cloud.files, "things", "x.csv", "after", [hour]), 1)
    put(store_file(cloud.files, "things", "y.csv", "superseded", [hour]), 2)
    store_file(cloud.files, "things", "y.csv", "empty")
    assert cloud.query("SELECT count FROM raw.things") == [(0,)]
    store_file(cloud.files, "things", "x.csv", "after", [hour])
    assert cloud.query("SELECT count FROM raw.things") == [(1,)]


def test_a_query_reads_the_states_of_hours(tmp_path):
    cloud = Cloud(tmp_path, counts={"window": "1h"})
    [period] = periods_with(cloud.source, [NOW.replace(hour=2)])
    facts = {period.start: HourFacts(parts=(Part("a", {ALL: (7, *[0] * 11)}, 1, NOW),))}
    state = fold(period, facts, Coverage(period.start, NOW), distinct=None)
    cloud.states.put_state(state._replace(version=1))
    rows = cloud.query("SELECT source, start, state, stored, surplus, missing, version FROM state")
    assert rows == [("things", datetime(2026, 1, 2, 2, tzinfo=UTC), "surplus", 7, 7, 0, 1)]
    by_value = state._replace(
        start=state.start + HOUR,
        end=state.end + HOUR,
        windows=tuple(window._replace(key="id=EU") for window in state.windows),
        keys=(("id=EU", CountState.SURPLUS),),
    )
    cloud.states.put_state(by_value._replace(version=1))
    rows = cloud.query("SELECT value, state, stored FROM state ORDER BY start")
    assert rows == [(None, "surplus", 7), ("EU", "surplus", 7)]
    # A column of that name opens no table.
    cloud.tables = replace(cloud.tables, states=pytest.fail)
    assert cloud.query("SELECT 1 AS state WHERE state = 1") == [(1,)]
