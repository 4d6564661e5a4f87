"""Duplicates of events that a day has read: no listing counts them, and they are not late data."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from slackwater.errors import CloudError, ObjectInvalid
from slackwater.late.check.tasks import DayTask, day_tasks
from slackwater.late.decision import DecisionRule
from slackwater.receiver.push.receive import Receiver
from slackwater.receiver.writing import duplicate_ids
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.runs.inputs import listing as inputs
from slackwater.runs.inputs.difference import Change, difference
from slackwater.runs.inputs.duplicates import ids_in, without_duplicates
from slackwater.runs.inputs.manifest import InputObject
from slackwater.runs.packing.index import ENDING
from slackwater.runs.packing.pack_hours import HourPacker
from slackwater.runs.period import day_of
from slackwater.sources.definition import PackConfig
from slackwater.sources.partitions import Partition
from tests.fakes_check import PIPELINE, World
from tests.fakes_receiver import Clock, a_source, committed_uris, store_file
from tests.fakes_state import MemoryState
from tests.memory import arrow_peak
from tests.pushing import pushed_body

pytestmark = pytest.mark.unit

TODAY = "2013-03-10"
DAY = day_of(date.fromisoformat(TODAY), "America/New_York")
NOON = Partition(TODAY, "16")


class WithIds(World):
    """A pipeline whose flights have ids, and whose reads are counted."""

    def __init__(self, **changes):
        super().__init__()
        self.source = a_source(**{"source": "flights", "event_id": "id", **changes})
        self.project = self.project.model_copy(
            update={"sources": {**self.project.sources, "flights": self.source.model_copy(update={"late": ANY})}}
        )
        self.read, get = [], self.store.get
        self.store.get = lambda uri: self.read.append(uri) or get(uri)
        self.clock = Clock()

    def push(self, *ids, hour=16):
        """Send one batch to the receiver; all events with the same id are equal."""
        events = [{"id": name, "at": f"{TODAY}T{hour:02}:{ord(name[-1]) % 60:02}:00Z"} for name in ids]
        raw_writer = RawWriter(store=self.store, raw_bucket="raw")
        receiver = Receiver(raw_writer=raw_writer, now=self.clock, put_rejected=MemoryState().put_rejected)
        return receiver.store(receiver.check(pushed_body("\n".join(map(json.dumps, events)).encode()), self.source))

    def pack(self):
        """Pack the objects that are no members yet, and delete those of the others after some days."""
        HourPacker(
            store=self.store,
            files=self.files,
            raw_bucket="raw",
            update_table=lambda *_: None,
            now=self.clock,
        ).pack(self.source.model_copy(update={"pack": PackConfig(max_objects=1)}), limit=timedelta(minutes=13))

    def put_file(self, path, content, *ids, column="id"):
        """Store a file's content as a pull does, replacing its former content."""
        self.remove_file(path)
        (uri,) = store_file(self.files, "flights", path, content, [NOON])
        self.store.put(uri, parquet(ids, column), metadata={"rows": str(len(ids)), "file": path})

    def remove_file(self, path):
        """Replace the file's content by an empty one, and remove its raw objects."""
        for entry in self.files.entries("flights", [path]):
            (content,) = self.files.contents("flights", [entry.content])
            store_file(self.files, "flights", path, f"empty {path}")
            self.store.delete(committed_uris(content))

    def list_inputs(self, known=None):
        """Return the manifest, and the raw objects whose events were read for it."""
        self.read.clear()
        manifest = self.inputs.manifest(PIPELINE, DAY, known=known)
        return manifest, [uri for uri in self.read if uri.startswith("s3://raw/raw/")]

    def check_today(self):
        """Return all tasks, and the rule and the reason of TODAY."""
        report = self.check()
        (day,) = (day for day in report.days if day.date == TODAY)
        return day_tasks(report), day.rule, day.reason


ANY = World().project.sources["weather"].late


def parquet(ids, column="id"):
    sink = io.BytesIO()
    pq.write_table(pa.table({column: pa.array(ids)}), sink)
    return sink.getvalue()


@pytest.fixture
def world():
    world = WithIds(push={})
    world.store.put("s3://raw/started", b"")
    return world


class TestPushed:
    def test_batches_of_duplicates_are_not_late_data(self, world):
        world.push("a", "b", "c")
        world.push("d", "e", "f")
        before = world.publish(TODAY)
        world.push("b", "a", "d")
        world.push("f")
        assert world.check_today() == (
            (),
            DecisionRule.UNCHANGED,
            "no new data since the published run",
        )
        assert world.freeze(TODAY) == before

    def test_new_events_among_duplicates_are_late_data_and_the_duplicates_are_not(self, world):
        world.push("a", "b", "c")
        world.publish(TODAY)
        world.push("b", "x", "a", "y")
        decided, rule, reason = world.check_today()
        assert decided == (DayTask(date=TODAY, action="rerun"),)
        assert rule is DecisionRule.GROWN
        assert reason.startswith("flights grew by 2 rows (66.7 %), 1 object")
        assert world.publish(TODAY).rows == 5
        assert world.check_today()[1] is DecisionRule.UNCHANGED

    def test_packed_objects_have_the_same_rows_and_no_late_data(self, world):
        world.push("a", "b", "c")
        world.push("b", "d")
        run, before = world.publish(TODAY), world.list_inputs()[0]
        world.pack()
        assert world.check_today()[1] is DecisionRule.UNCHANGED
        assert (world.freeze(TODAY), world.list_inputs()[0].digest) == (run, before.digest)
        world.push("c", "e")
        assert world.check_today()[0] == (DayTask(date=TODAY, action="rerun"),)
        world.clock.pass_by(days=4)
        world.pack()
        manifest, read = world.list_inputs(known=before)
        assert (manifest.rows, sum(uri.endswith(ENDING) for uri in read)) == (5, 1)
        assert [item.rows for item in world.list_inputs()[0].objects] == [item.rows for item in manifest.objects]
        assert manifest.objects[0].identity in {item.identity for item in before.objects}

    def test_a_source_without_ids_counts_every_event(self):
        world = WithIds(event_id=None)
        world.store.put("s3://raw/started", b"")
        world.push("a", "b")
        world.push("b")
        manifest, read = world.list_inputs()
        assert (manifest.rows, read) == (3, [])


class TestReading:
    def test_partitions_with_known_objects_only_are_not_read(self, world):
        world.push("a", "b", hour=16)
        world.push("a", "c", hour=16)
        world.push("a", hour=17)
        first, read = world.list_inputs()
        assert {uri.split("hour=")[1][:2] for uri in read} == {"16"}
        again, read = world.list_inputs(first)
        assert (again.objects, read) == (first.objects, [])

    def test_only_the_partition_with_something_new_is_read(self, world):
        world.push("a", hour=16)
        world.push("b", hour=17)
        known, read = world.list_inputs()
        assert read == []
        world.push("a", "b", hour=17)
        manifest, read = world.list_inputs(known)
        assert len(read) == 2
        assert {uri.split("hour=")[1][:2] for uri in read} == {"17"}
        assert manifest.rows == 3

    def test_memory_is_bounded_and_a_larger_object_is_read_alone(self, monkeypatch):
        monkeypatch.setattr(inputs, "_MAX_BYTES", 10)
        objects = [structs.replace(an_object(n), bytes=size) for n, size in enumerate([4, 6, 1, 11, 10, 0, 5])]
        assert [[item.bytes for item in group] for group in inputs.memory_groups(objects)] == [
            [4, 6],
            [1],
            [11],
            [10, 0],
            [5],
        ]

    def test_the_ids_of_a_large_object_are_read_without_its_other_columns(self, world, monkeypatch):
        world.push("a", "b", "c")
        world.push("c", "d")
        expected, _ = world.list_inputs()
        lengths, get_range = [], world.store.get_range
        world.store.get_range = lambda uri, start, length: lengths.append(length) or get_range(uri, start, length)
        monkeypatch.setattr(inputs, "_MAX_BYTES", 0)
        manifest, read = world.list_inputs()
        assert (manifest.objects, manifest.rows) == (expected.objects, 4)
        assert lengths
        assert read == []

    def test_an_object_that_is_not_parquet_puts_the_day_on_hold(self, world):
        world.push("a")
        world.publish(TODAY)
        world.add("flights", TODAY, "16")
        with pytest.raises(CloudError, match=r"hour=16/a.parquet is not Parquet .*not written by the receiver"):
            world.list_inputs()
        assert world.check_today()[1] is DecisionRule.UNREADABLE

    def test_ids_of_another_type_put_the_day_on_hold(self, world):
        world.push("a")
        world.publish(TODAY)
        uri = world.add("flights", TODAY, "16", name="whole_numbers", rows=1)
        world.store.put(uri, parquet([1]), metadata={"rows": "1"})
        with pytest.raises(ObjectInvalid, match=r"its ids are (int64|string), and other objects .*not written by"):
            world.list_inputs()
        assert world.check_today()[1] is DecisionRule.UNREADABLE


class TestOlderObjects:
    def test_without_the_column_every_event_counts(self):
        world = WithIds(event_id=None, push={"buffer": "queue"})
        world.put_file("old-1.csv", "one", "a", "b")
        world.put_file("old-2.csv", "two", "a", "c")
        world.put_file("new.csv", "new", "a", "d", column="_event_id")
        assert world.list_inputs()[0].rows == 6

    def test_null_is_not_an_id(self, world):
        world.put_file("x.csv", "one", "a", None, None)
        world.put_file("y.csv", "two", None, "a", "b")
        assert world.list_inputs()[0].rows == 5

    def test_duplicates_that_the_published_run_has_read_have_not_vanished(self):
        """The source gets its ids after the day was published."""
        world = WithIds(event_id=None)
        world.put_file("x.csv", "one", "a", "b")
        world.put_file("y.csv", "two", "b", "a")
        known, _ = world.list_inputs()
        with_ids = WithIds()
        with_ids.store, with_ids.files = world.store, world.files
        assert with_ids.list_inputs(known)[0].digest == known.digest
        with_ids.put_file("z.csv", "three", "a", "new")
        now, _ = with_ids.list_inputs(known)
        assert sorted(item.rows for item in now.objects) == [0, 1, 2]
        (flights,) = difference(known, now, sources=["flights"])
        assert [(item.file, item.change, item.now.rows) for item in flights.changes] == [("z.csv", Change.ADDED, 1)]


@pytest.mark.parametrize(
    ("before", "then", "rows", "expected"),
    [
        ({"x": "abc"}, {"x": "abd"}, [3], [("x", Change.CHANGED, 3, 3)]),
        # The ids of a removed object count again elsewhere.
        ({"x": "ab", "y": "bc"}, {"x": "a"}, [1, 2], [("x", Change.CHANGED, 2, 1)]),
        # A file without an event of its own has shrunk, and not vanished.
        ({"x": "a", "y": "b"}, {"y": "a"}, [1, 0], [("y", Change.CHANGED, 1, 0)]),
        # A duplicate counts when the first event is gone.
        ({"x": "ab", "y": "b"}, {"x": "ac"}, [2, 1], [("x", Change.CHANGED, 2, 2), ("y", Change.ADDED, 0, 1)]),
    ],
)
def test_the_ids_of_changed_files_count(world, before, then, rows, expected):
    for path, ids in before.items():
        world.put_file(path, f"first {path}", *ids)
    read, _ = world.list_inputs()
    for path, ids in then.items():
        world.put_file(path, f"other {path}", *ids)
    now, _ = world.list_inputs(read)
    assert [item.rows for item in of_files(now)] == rows
    assert changes(read, now) == expected


def of_files(manifest):
    return sorted(manifest.objects, key=lambda item: item.file)


def changes(before, now):
    (flights,) = difference(before, now, sources=["flights"])
    return [(item.file, item.change, item.before.rows, item.now.rows) for item in flights.changes]


def test_memory_is_bounded_for_any_number_of_ids(monkeypatch):
    monkeypatch.setattr(duplicate_ids, "BUDGET", 2**18)
    objects = [an_object(number) for number in range(40)]

    def read_ids(items):
        for start in range(0, 1_800 * len(items), 1_800):
            yield [pa.array([f"{number:036}" for number in range(start, start + 2_000)])]

    with arrow_peak() as peak:
        rows = [item.rows for item in without_duplicates(objects, known=[], read_ids=read_ids)]
    assert rows == [2_000, *[1_800] * 39]
    assert peak.bytes < 3 * 2**20  # the ids alone have 3.2 MB


def test_whole_numbers_can_be_ids():
    (ids,) = ids_in(io.BytesIO(parquet([1, 2])), "id", uri="x")
    assert ids.to_pylist() == [1, 2]
    objects = [an_object(number) for number in range(2)]
    ids = [[pa.array([1, 2])], [pa.array([2**62]), pa.array([2])]]
    assert [item.rows for item in without_duplicates(objects, known=[], read_ids=lambda items: ids)] == [2, 1]


def an_object(number, *, seconds=0, hour="16"):
    return InputObject(
        uri=f"s3://raw/raw/source=flights/date={TODAY}/hour={hour}/{number}.parquet",
        source="flights",
        date=TODAY,
        hour=hour,
        etag="e",
        bytes=1,
        rows=0,
        arrived=datetime(2013, 3, 11, tzinfo=UTC) + timedelta(seconds=seconds),
    )


_ids = st.lists(st.sampled_from("abcdef"), max_size=4, unique=True)
_stored = st.lists(st.tuples(st.sampled_from(["16", "17"]), st.integers(0, 3), _ids, st.integers(0, 2)), max_size=7)


@given(stored=_stored, arriving=_stored)
def test_rows_add_up_to_the_distinct_ids_and_published_objects_keep_their_counts(stored, arriving):
    stored_ids = {
        an_object(n, seconds=at + 4 * (n >= len(stored)), hour=hour): [*event_ids, *[None] * nulls]
        for n, (hour, at, event_ids, nulls) in enumerate([*stored, *arriving])
    }
    ids = {item.uri: event_ids for item, event_ids in stored_ids.items()}

    def count_rows(objects, known=()):
        rows = {item.uri: len(ids[item.uri]) for item in objects} | {item.uri: item.rows for item in known}
        raw_objects = [structs.replace(item, rows=rows[item.uri]) for item in objects]
        read = lambda items: [[pa.array(ids[item.uri], pa.string())] for item in items]  # noqa: E731
        return sorted(without_duplicates(raw_objects, known=known, read_ids=read), key=lambda item: item.uri)

    def count_events(objects):
        event_ids = [(item.hour, name) for item in objects for name in ids[item.uri]]
        return sum(name is None for _, name in event_ids) + len({event for event in event_ids if event[1] is not None})

    before = list(stored_ids)[: len(stored)]
    first = count_rows(before)
    assert sum(item.rows for item in first) == count_events(before) == count_events(first)
    assert count_rows(before, first) == first
    second = count_rows(stored_ids, first)
    assert sum(item.rows for item in second) == count_events(stored_ids) == count_events(second)
    assert [item for item in second if item.uri in {known.uri for known in first}] == first
    third = count_rows(stored_ids, second)
    assert [item.uri for item in third] == [item.uri for item in second]
    assert sum(item.rows for item in third) == count_events(stored_ids)
