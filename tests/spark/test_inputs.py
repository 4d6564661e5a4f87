"""Sources as steps see them: each id of the receiver's objects once in its partition, also when they are packed."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime
from itertools import groupby

import pytest
from pyspark.sql import functions as sf

from slackwater.errors import ObjectInvalid
from slackwater.receiver.push.receive import Receiver
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.runs.packing.event_files import event_files
from slackwater.runs.packing.index import INDEX, format_index, with_members
from slackwater.runs.packing.write_packed import PackedWriter
from slackwater.runs.period import Period
from slackwater.sources.partitions import named_rows
from slackwater.spark import read_events
from slackwater.spark.read_events import read_source
from tests.fakes_receiver import Clock, a_source
from tests.fakes_state import MemoryState
from tests.pushing import pushed_body
from tests.reading import counted_events, stored_events

DAY = {"start": datetime(2013, 3, 8, tzinfo=UTC), "end": datetime(2013, 3, 9, tzinfo=UTC)}


class Partitions:
    """Partitions that the receiver fills and Spark reads."""

    def __init__(self, spark, store, *, packs=False, **source):
        self.spark, self.store, self.clock, self.packs = spark, store, Clock(), packs
        self.source, self.first_received, self.left_out = a_source(**source), {}, set()

    def push(self, *events):
        """Take one batch; the next one is received a minute later."""
        raw_writer = RawWriter(store=self.store, raw_bucket="raw")
        receiver = Receiver(raw_writer=raw_writer, now=self.clock, put_rejected=MemoryState().put_rejected)
        receiver.store(receiver.check(pushed_body("\n".join(map(json.dumps, events)).encode()), self.source))
        self.clock.pass_by(minutes=1)

    def read(self, **day):
        if self.packs:
            self.pack()
        listed = with_members(self.store.list(f"s3://raw/raw/source={self.source.source}/"), self.store)
        sizes = {item.uri: item.size for item in listed if item.uri not in self.left_out}
        files = event_files(self.store, sizes)
        return read_source(
            self.spark,
            self.source,
            [file._replace(uri=f"file://{self.store.path(file.uri)}") for file in files],
            day=Period(date(2013, 3, 8), **{**DAY, **day}),
            store=self.store,
            first_received={
                uri: self.first_received[name] for uri in sizes for name in self.first_received if name in uri
            },
        )

    def pack(self):
        """Pack all objects but those of changed files, two at a time, and delete them."""
        listed = [*with_members(self.store.list(f"s3://raw/raw/source={self.source.source}/"), self.store)]
        writer = PackedWriter(store=self.store, now=self.clock)
        for folder, items in groupby(listed, key=lambda item: f"{item.uri.rpartition('/')[0]}/"):
            members = [item for item in items if named_rows(item.uri) and not self.has_changed(item.uri)]
            packed = [each for n in range(0, len(members), 2) for each in writer.write(folder, members[n : n + 2])]
            self.store.put(f"{folder}{INDEX}", format_index(packed))
            self.store.delete([item.uri for item in members])

    def has_changed(self, uri):
        return any(name in uri for name in self.first_received)

    def ids(self, **day):
        return sorted((row["id"], row["count"]) for row in self.read(**day).collect())


@pytest.fixture(params=["driver", "executors", "packed driver", "packed executors"])
def partitions(request, spark, store, monkeypatch):
    """Partitions that the driver or the executors read, from objects of their own or from packed ones."""
    if "executors" in request.param:
        monkeypatch.setattr(read_events, "SMALL_BYTES", -1)
    packs = "packed" in request.param
    return lambda **source: Partitions(spark, store, packs=packs, **{"event_id": "id", **source})


def event(name, at="2013-03-08T12:00:00Z", **more):
    return {"id": name, "at": at, **more}


def test_the_first_received_event_of_an_id_counts(partitions):
    source = partitions()
    source.push(event("b", count=1), event("a", count=1))
    source.push(event("a", count=2), event("c", count=2))
    source.push(event("a", count=3), event("b", count=3), event("d", count=3))
    assert source.ids() == [("a", 1), ("b", 1), ("c", 2), ("d", 3)]


def test_the_uri_of_the_object_decides_between_events_received_at_the_same_time(partitions):
    """Spark reads the largest object first: the order of reading does not decide."""
    source = partitions()
    for count in range(8):
        source.push(event("a", count=count), *(event(f"{count}-{n}") for n in range(40 * count)))
        source.clock.time = Clock().time
    duplicates = [row for row in stored_events(source.store, source.source) if row["id"] == "a"]
    assert [row["count"] for row in source.read().where("id = 'a'").collect()] == [
        min(duplicates, key=lambda row: row["_object"])["count"]
    ]


def test_an_object_of_a_changed_file_counts_from_its_first_content_on(partitions):
    """Of two objects whose files begin at the same time, the later one counts."""
    source, began = partitions(), Clock().time
    source.push(event("c", count=1))
    source.push(event("a", count=2), event("b", count=2))
    source.push(event("a", count=3), event("b", count=3), event("c", count=3))
    corrected = {row["_object"] for row in stored_events(source.store, source.source) if row["count"] == 3}
    source.first_received = dict.fromkeys((uri.rpartition("/")[2] for uri in corrected), began)
    assert source.ids() == [("a", 3), ("b", 3), ("c", 3)]


def test_a_run_reads_only_the_objects_that_it_has_frozen(partitions):
    """Packed objects have the rows of later objects too."""
    source = partitions()
    for number in range(3):
        source.push(event(f"a{number}", count=number), event("b", "2013-03-08T13:00:00Z", count=number))
    late = [row["_object"] for row in stored_events(source.store, source.source) if row["count"] == 2]
    source.left_out = {*late}
    assert source.ids() == [("a0", 0), ("a1", 1), ("b", 0)]


def test_an_id_in_two_hours_is_two_events(partitions):
    source = partitions()
    source.push(event("a", count=1), event("a", "2013-03-08T13:00:00Z", count=2))
    source.push(event("a", "2013-03-08T13:59:59.999999Z", count=3))
    assert source.ids() == [("a", 1), ("a", 2)]


def test_ids_may_be_integers(partitions):
    fields = {"id": "int64", "count": "int64", "at": "timestamp"}
    source = partitions(fields=fields)
    source.push(event(2**62, count=1), event(-1, count=1))
    source.push(event(2**62, count=2), event(2**62 + 1, count=2))
    assert source.ids() == [(-1, 1), (2**62, 1), (2**62 + 1, 2)]


def test_the_same_events_in_other_batches_count_once(partitions):
    source = partitions(fields={"id": "string", "hour": "int64", "at": "timestamp"})
    events = [event(f"e{n % 90}", f"2013-03-08T{n % 5:02}:{n % 60:02}:00Z", hour=n) for n in range(400)]
    for start in (200, *range(0, 400, 35)):
        source.push(*events[start : start + 60])
    stored = stored_events(source.store, source.source)
    counted = counted_events(stored, "id")
    assert (len(counted), len(stored) > 5 * len(counted)) == (90, True)
    assert sorted((row["id"], row["hour"]) for row in source.read().collect()) == sorted(
        (row["id"], row["hour"]) for row in counted
    )


def test_a_source_without_ids_has_every_event_and_no_shuffle(partitions):
    source = partitions(event_id=None)
    source.push(event("a", count=1), event("b", count=1))
    source.push(event("a", count=2))
    assert source.ids() == [("a", 1), ("a", 2), ("b", 1)]
    assert "Exchange" not in plan(source.read())


def plan(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("partitions", ["executors"], indirect=True)
def test_events_without_an_id_all_count_and_stay_spread_over_tasks(partitions, spark):
    """The source is pushed to directly at first, then through the queue: from then on the receiver generates ids."""
    before = partitions(event_id=None)
    for count in range(3):
        before.push(*(event("old", count=count) for _ in range(20)))
    after = partitions(event_id=None, push={"buffer": "queue"})
    after.clock = before.clock
    after.push(event("new"), event("new"))
    assert Counter(name for name, _ in after.ids()) == {"old": 60, "new": 2}
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        tasks = after.read().where("id = 'old'").select(sf.spark_partition_id().alias("task")).distinct().count()
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    assert tasks > 1


def test_an_object_that_a_queue_delivered_twice_counts_once(partitions):
    source = partitions(event_id=None, push={"buffer": "queue"})
    source.push(event("a"), event("a"))
    (path,) = (source.store.path(item.uri) for item in source.store.list("s3://raw/raw/"))
    (path.parent / "again.parquet").write_bytes(path.read_bytes())
    assert [name for name, _ in source.ids()] == ["a", "a"]


@pytest.mark.parametrize("timezone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_a_partition_is_an_hour_of_utc_wherever_a_day_ends(partitions, spark, timezone):
    source = partitions()
    source.push(event("a", "2013-03-08T18:10:00Z", count=1), event("b", "2013-03-08T18:50:00Z", count=1))
    source.push(event("a", "2013-03-08T18:40:00Z", count=2), event("b", "2013-03-08T18:20:00Z", count=2))
    midnight = datetime(2013, 3, 8, 18, 30, tzinfo=UTC)  # in India
    session = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", timezone)
    try:
        assert source.ids(end=midnight) == [("a", 1)]
        assert source.ids(start=midnight) == [("b", 1)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", session)


def test_events_before_1970_belong_to_their_hour(partitions):
    source = partitions()
    source.push(event("a", "1969-12-31T23:30:00Z", count=1), event("a", "1970-01-01T00:30:00Z", count=2))
    assert source.ids(start=datetime(1969, 12, 31, tzinfo=UTC)) == [("a", 1), ("a", 2)]


@pytest.fixture
def small(spark, store):
    """Partitions that are small enough for the driver."""
    return Partitions(spark, store, event_id="id")


def test_few_bytes_of_many_rows_are_read_by_the_executors(small, monkeypatch):
    small.push(event("a"), event("b"), event("b"))
    assert "LocalTableScan" in plan(small.read())
    monkeypatch.setattr(read_events, "SMALL_ROWS", 1)
    assert "LocalTableScan" not in plan(small.read())
    assert small.ids() == [("a", None), ("b", None)]


def test_an_object_that_is_no_parquet_file_is_named(small):
    small.push(event("a"))
    (item,) = small.store.list("s3://raw/raw/")
    small.store.put(item.uri, b"")
    with pytest.raises(ObjectInvalid, match=r"\.parquet is not a Parquet file"):
        small.read()
