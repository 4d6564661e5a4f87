"""Sources as steps see them: objects that the receiver has written, each id once in its partition."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as sf

from slackwater.receiver.push.receive import Receiver
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.steps.spark.sources import read_source
from tests.fakes_receiver import Clock, MemoryPartitions, a_source
from tests.reading import counted_events, stored_events

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

DAY = {"start": datetime(2013, 3, 8, tzinfo=UTC), "end": datetime(2013, 3, 9, tzinfo=UTC)}


class Partitions:
    """Partitions that the receiver fills and Spark reads."""

    def __init__(self, spark, store, **source):
        self.spark, self.store, self.clock = spark, store, Clock()
        self.source = a_source(**source)

    def push(self, *events):
        """Take one batch; the next one is received a minute later."""
        delivery = RawWriter(store=self.store, partitions=MemoryPartitions(), raw_bucket="raw")
        Receiver(delivery=delivery, now=self.clock).receive(
            "\n".join(map(json.dumps, events)).encode(),
            source=self.source,
            content_type="application/x-ndjson",
            content_encoding=None,
            origin="push:acme",
        )
        self.clock.pass_by(minutes=1)

    def read(self, **day):
        found = self.store.list(f"s3://raw/raw/source={self.source.source}/")
        uris = [f"file://{self.store.path(item.uri)}" for item in found]
        return read_source(self.spark, self.source, uris, **{**DAY, **day})

    def ids(self, **day):
        return sorted((row["id"], row["count"]) for row in self.read(**day).collect())


@pytest.fixture
def partitions(spark, store):
    return lambda **source: Partitions(spark, store, **{"event_id": "id", **source})


def event(name, at="2013-03-08T12:00:00Z", **more):
    return {"id": name, "at": at, **more}


def test_the_first_received_of_an_id_counts(partitions):
    found = partitions()
    found.push(event("b", count=1), event("a", count=1))
    found.push(event("a", count=2), event("c", count=2))
    found.push(event("a", count=3), event("b", count=3), event("d", count=3))
    assert found.ids() == [("a", 1), ("b", 1), ("c", 2), ("d", 3)]


def test_of_two_that_came_at_once_the_address_of_the_object_decides(partitions):
    """And not the order in which Spark reads them: the largest first."""
    found = partitions()
    for count in range(8):
        found.push(event("a", count=count), *(event(f"{count}-{n}") for n in range(40 * count)))
        found.clock.time = Clock().time
    copies = [row for row in stored_events(found.store, found.source) if row["id"] == "a"]
    assert [row["count"] for row in found.read().where("id = 'a'").collect()] == [
        min(copies, key=lambda row: row["_object"])["count"]
    ]


def test_an_id_of_two_hours_is_two_events(partitions):
    found = partitions()
    found.push(event("a", count=1), event("a", "2013-03-08T13:00:00Z", count=2))
    found.push(event("a", "2013-03-08T13:59:59.999999Z", count=3))
    assert found.ids() == [("a", 1), ("a", 2)]


def test_whole_numbers_are_ids_too(partitions):
    fields = {"id": "int64", "count": "int64", "at": "timestamp"}
    found = partitions(fields=fields)
    found.push(event(2**62, count=1), event(-1, count=1))
    found.push(event(2**62, count=2), event(2**62 + 1, count=2))
    assert found.ids() == [(-1, 1), (2**62, 1), (2**62 + 1, 2)]


def test_re_cut_batches_make_the_same_events(partitions):
    found = partitions(fields={"id": "string", "hour": "int64", "at": "timestamp"})
    events = [event(f"e{n % 90}", f"2013-03-08T{n % 5:02}:{n % 60:02}:00Z", hour=n) for n in range(400)]
    for start in (200, *range(0, 400, 35)):
        found.push(*events[start : start + 60])
    stored = stored_events(found.store, found.source)
    counted = counted_events(stored, "id")
    assert (len(counted), len(stored) > 5 * len(counted)) == (90, True)
    assert sorted((row["id"], row["hour"]) for row in found.read().collect()) == sorted(
        (row["id"], row["hour"]) for row in counted
    )


def test_a_source_without_ids_has_every_event_and_no_shuffle(partitions):
    found = partitions(event_id=None)
    found.push(event("a", count=1), event("b", count=1))
    found.push(event("a", count=2))
    assert found.ids() == [("a", 1), ("a", 2), ("b", 1)]
    assert "Exchange" not in plan(found.read())


def plan(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def test_objects_from_before_the_receiver_made_ids_count_whole_and_stay_spread(partitions, spark):
    """The source is pushed to directly, then through the queue: ids are the receiver's from then on."""
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


def test_what_a_queue_handed_over_twice_counts_once(partitions):
    found = partitions(event_id=None, push={"buffer": "queue"})
    found.push(event("a"), event("a"))
    (path,) = (found.store.path(item.uri) for item in found.store.list("s3://raw/raw/"))
    (path.parent / "again.parquet").write_bytes(path.read_bytes())
    assert [name for name, _ in found.ids()] == ["a", "a"]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_a_partition_is_an_hour_of_utc_wherever_a_day_ends(partitions, spark, zone):
    found = partitions()
    found.push(event("a", "2013-03-08T18:10:00Z", count=1), event("b", "2013-03-08T18:50:00Z", count=1))
    found.push(event("a", "2013-03-08T18:40:00Z", count=2), event("b", "2013-03-08T18:20:00Z", count=2))
    midnight = datetime(2013, 3, 8, 18, 30, tzinfo=UTC)  # in India
    session = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert found.ids(end=midnight) == [("a", 1)]
        assert found.ids(start=midnight) == [("b", 1)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", session)


def test_events_of_before_1970_are_of_their_hour(partitions):
    found = partitions()
    found.push(event("a", "1969-12-31T23:30:00Z", count=1), event("a", "1970-01-01T00:30:00Z", count=2))
    assert found.ids(start=datetime(1969, 12, 31, tzinfo=UTC)) == [("a", 1), ("a", 2)]
