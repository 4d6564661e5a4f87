"""Packed hours: what readers see never changes, whatever ends between two writes."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from functools import partial

import pytest

from slackwater.errors import AccessDenied, ObjectInvalid, SlackwaterError
from slackwater.receiver.push.receive import Receiver
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.runs.inputs.consistent_listing import consistent_listing
from slackwater.runs.inputs.partition_objects import objects_of_partitions
from slackwater.runs.packing import pack_hours, turn
from slackwater.runs.packing.event_files import event_files
from slackwater.runs.packing.event_reader import EventReader
from slackwater.runs.packing.index import ENDING, INDEX, OBJECT, ROW, read_index
from slackwater.runs.packing.pack_hours import HourPacker, Packing
from slackwater.runs.packing.write_packed import PackedWriter
from slackwater.runs.period import partition_of
from slackwater.storage import StoredObject
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_receiver import MemoryStore, a_source
from tests.fakes_state import MemoryState
from tests.pulling import Setup, csv_of, row
from tests.pushing import pushed_body
from tests.reading import read_parquet

pytestmark = pytest.mark.unit

NOON = datetime(2013, 3, 11, 12, tzinfo=UTC)
HOURS = {partition_of(datetime(2013, 3, 1, tzinfo=UTC) + timedelta(hours=number)) for number in range(24 * 30)}
HOUR = timedelta(hours=1)


class KeepingStore(MemoryStore):
    """A store that also keeps all raw objects as they were written first, as if none was ever packed or deleted."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.first: dict[str, tuple[StoredObject, bytes]] = {}

    def put(self, uri, body, *, metadata=None):
        super().put(uri, body, metadata=metadata)
        if uri.endswith(".parquet") and uri not in self.first:
            head = self.head(uri)
            self.first[uri] = StoredObject(uri, head.size, head.etag, head.modified), body


class World(Setup):
    """A source with pushed batches and pulled files, whose hours are packed above two objects."""

    def __init__(self, files=None, **source):
        super().__init__(files, a_source(pack={"max_objects": 2}, **source))
        self.store, self.batches = KeepingStore(self.fuse, self.clock), []
        self.frozen = []
        """When runs have listed their inputs, and these."""
        self.clock.time = NOON + 26 * HOUR

    def push(self, *events):
        """Send one batch: ids and times of its events."""
        body = "\n".join(json.dumps({"id": name, "at": at.isoformat()}) for name, at in events).encode()
        self.batches.append(body)
        self.send(body)

    def send(self, body):
        raw_writer = RawWriter(store=self.store, raw_bucket="raw")
        receiver = Receiver(raw_writer=raw_writer, now=self.clock, put_rejected=MemoryState().put_rejected)
        receiver.store(receiver.check(pushed_body(body), self.source))

    def push_small(self, number, at=NOON):
        for index in range(number):
            self.push((f"{at:%d%H}-{index}-{len(self.batches)}", at + timedelta(seconds=index)))

    def pack(self, using=lambda port: port, *, is_open=False, hours=None) -> Packing:
        packer = HourPacker(
            store=using(self.store),
            files=self.cache,
            raw_bucket="raw",
            update_table=lambda *_: None,
            now=self.clock,
        )
        pack = packer.pack_open if is_open else packer.pack
        pack = partial(packer.pack_hours, hours=hours) if hours else pack
        return pack(self.source, limit=timedelta(minutes=13))

    def pack_for(self, *, hours) -> Packing:
        """Pack each hour for so long; return what was done in all."""
        total = Packing()
        for _ in range(hours):
            self.clock.pass_by(hours=1)
            done = self.pack()
            total = Packing(total.packed + done.packed, total.deleted + done.deleted, {**total.failed, **done.failed})
        return total

    def listing(self):
        def listed():
            return objects_of_partitions(self.source.source, HOURS, store=self.store, raw_bucket="raw")

        return consistent_listing(self.source, listed, files=self.cache).objects

    def check(self):
        """Compare what readers see with the objects as they were written."""
        first = [item for item, _ in sorted(self.store.first.values())]
        expected = consistent_listing(self.source, lambda: first, files=self.cache).objects
        assert [item[:4] for item in self.listing()] == [item[:4] for item in expected]
        reader = EventReader(self.store)
        for item in self.listing():
            table = next(iter(reader.blocks(item)))
            if item.packed:
                name = item.uri.rpartition("/")[2]
                assert table[OBJECT].to_pylist() == [name] * len(table)
                assert table[ROW].to_pylist() == [*range(len(table))]
            assert without_nulls(table.drop([c for c in (OBJECT, ROW) if item.packed])) == without_nulls(
                read_parquet(self.store.first[item.uri][1])
            )

        self.runs_find_their_inputs()

    def runs_find_their_inputs(self):
        """Those that were frozen in the last three days."""
        self.frozen = [item for item in self.frozen if item[0] >= self.clock() - timedelta(days=3)]
        for _, listing in self.frozen:
            files = event_files(self.store, {item.uri: item.size for item in listing})
            assert {file.uri for file in files} <= self.store.objects.keys()
        self.frozen.append((self.clock(), self.listing()))

    def ids_seen(self):
        reader = EventReader(self.store)
        return [name for item in self.listing() for table in reader.blocks(item) for name in table["id"].to_pylist()]

    def ids_in_table(self):
        """Return the ids of the rows in the data files of the Iceberg table, which has packed objects as a whole."""
        uris = {item.packed.uri if item.packed else item.uri for item in self.listing()}
        return sorted(name for uri in uris for name in read_parquet(self.store.get(uri))["id"].to_pylist())

    def stored(self, ending=".parquet"):
        return [uri for uri in self.store.uris("/raw/source=") if uri.endswith(ending)]


def read_index_of(world):
    (index,) = world.stored(INDEX)
    return read_index(world.store, index.removesuffix(INDEX))


def without_nulls(table):
    return [{name: value for name, value in each.items() if value is not None} for each in table.to_pylist()]


def test_small_objects_of_a_finished_hour_are_packed_and_deleted_three_days_later():
    world = World()
    world.push_small(5)
    before = world.listing()
    assert world.pack() == Packing(packed=5)
    assert len(world.stored(ENDING)) == 1
    assert len(world.stored()) == 5
    assert {item.packed.uri for item in world.listing()} == set(world.stored(ENDING))
    assert [item[:4] for item in world.listing()] == [item[:4] for item in before]
    world.clock.pass_by(days=3)
    assert world.pack() == Packing()
    world.clock.pass_by(seconds=1)
    assert world.pack() == Packing(deleted=5)
    assert world.stored() == []
    world.check()
    assert world.pack() == Packing()


def test_hours_with_few_objects_hours_that_have_just_ended_and_large_objects_stay_as_they_are(monkeypatch):
    world = World()
    world.push_small(2)
    world.push_small(3, NOON + 24 * HOUR)
    world.clock.time = NOON + 26 * HOUR - timedelta(seconds=1)
    assert world.pack() == Packing()
    world.clock.pass_by(seconds=1)
    monkeypatch.setattr("slackwater.runs.packing.pack_hours._MAX_MEMBER_BYTES", 10)
    assert world.pack() == Packing()
    monkeypatch.undo()
    assert world.pack() == Packing(packed=3)


def test_late_objects_are_packed_with_the_others_when_there_are_enough():
    world = World()
    world.push_small(3)
    world.pack()
    world.push_small(2)
    assert world.pack() == Packing()
    world.check()
    world.push_small(1)
    assert world.pack() == Packing(packed=6)
    world.check()
    assert {item.packed.uri for item in world.listing()} < set(world.stored(ENDING))
    world.clock.pass_by(days=4)
    assert world.pack() == Packing(deleted=6 + 1)
    assert len(world.stored("")) == 2  # the packed object and the index
    world.check()


def test_full_packed_objects_are_not_written_again(monkeypatch):
    world = World()
    world.push_small(3)
    world.pack()
    monkeypatch.setattr("slackwater.runs.packing.pack_hours._FULL_BYTES", 1)
    world.push_small(3)
    assert world.pack() == Packing(packed=3)
    assert len({item.packed.uri for item in world.listing()}) == 2
    world.check()


def test_open_hours_get_a_packed_object_each_time_and_are_packed_as_one_when_they_have_ended():
    world = World()
    world.clock.time = NOON + timedelta(minutes=20)
    world.push_small(2)
    assert world.pack(is_open=True) == Packing()
    world.push_small(1)
    assert (world.pack(), world.pack(is_open=True)) == (Packing(), Packing(packed=3))
    first = world.stored(ENDING)
    world.check()
    world.push_small(3)
    world.clock.pass_by(minutes=60)
    # The hour before, and the present one.
    world.push_small(4, NOON + HOUR)
    assert world.pack(is_open=True) == Packing(packed=3 + 4)
    assert set(first) < set(world.stored(ENDING))
    assert len(world.stored(ENDING)) == 3
    world.check()
    world.clock.time = NOON + 2 * HOUR - timedelta(seconds=1)
    assert world.pack() == Packing()
    world.clock.pass_by(seconds=1)
    assert (world.pack(is_open=True), world.pack(), world.pack()) == (Packing(), Packing(packed=6), Packing())
    (noon, _) = sorted({item.packed.uri for item in world.listing()})
    assert len(read_index(world.store, f"{noon.rpartition('/')[0]}/")) == 1
    world.check()
    # The next hour has one packed object: nothing has to be joined.
    world.clock.pass_by(hours=1)
    assert world.pack() == Packing()


def test_the_open_hours_of_two_days_are_packed():
    world = World()
    world.clock.time = datetime(2013, 3, 12, 0, 10, tzinfo=UTC)
    for hour in (-2, -1, 0, 1):
        world.push_small(3, datetime(2013, 3, 12, tzinfo=UTC) + hour * HOUR)
    assert world.pack(is_open=True) == Packing(packed=6)
    places = {tuple(item.uri.split("/")[5:7]) for item in world.listing() if item.packed}
    assert places == {("date=2013-03-11", "hour=23"), ("date=2013-03-12", "hour=00")}
    world.check()


def test_full_objects_of_an_hour_that_was_open_are_not_joined(monkeypatch):
    world = World()
    world.clock.time = NOON + timedelta(minutes=20)
    monkeypatch.setattr("slackwater.runs.packing.pack_hours._FULL_BYTES", 1)
    for _ in range(2):
        world.push_small(3)
        assert world.pack(is_open=True) == Packing(packed=3)
    world.clock.pass_by(hours=3)
    assert world.pack() == Packing()


def test_rows_that_do_not_fit_into_memory_become_several_packed_objects(monkeypatch):
    monkeypatch.setattr("slackwater.runs.packing.write_packed.MAX_BYTES", 1)
    monkeypatch.setattr("slackwater.runs.packing.write_packed._READ_OBJECTS", 2)
    world = World()
    world.push_small(5)
    world.pack()
    assert len(world.stored(ENDING)) == 3
    world.check()


def test_members_are_deleted_if_their_hour_has_left_the_window_meanwhile(monkeypatch):
    """An hour before the window is not packed for the first time."""
    monkeypatch.setattr(turn, "_DAYS", 0)
    world = World()
    world.push_small(3)
    world.clock.time = datetime(2013, 3, 11, tzinfo=UTC) + timedelta(days=38, seconds=-1)
    assert world.pack() == Packing(packed=3)
    world.push_small(3, NOON + HOUR)
    assert world.pack_for(hours=72) == Packing()
    assert world.pack_for(hours=1) == Packing(deleted=3)
    world.check()


@pytest.mark.parametrize("is_removed", [False, True])
def test_members_of_hours_of_any_age_are_deleted_within_an_hour_for_each_day_of_age(is_removed):
    """Hours that were packed by request, also if `pack` was removed from the source since."""
    world = World()
    world.push_small(3)
    world.clock.pass_by(days=120)
    world.push_small(3, NOON + HOUR)
    assert world.pack(hours=[NOON]) == Packing(packed=3)
    if is_removed:
        world.source = world.source.model_copy(update={"pack": None})
    assert world.pack_for(hours=72) == Packing()
    assert world.pack_for(hours=128) == Packing(deleted=3)
    world.check()


@pytest.mark.parametrize("age", [0, 1, 2, 37, 600, 3500])
def test_each_day_has_its_turn_within_an_hour_for_each_day_of_age(age, monkeypatch):
    """A call looks at the hours of few days, whatever the age of the source."""
    world, visited = World(), []
    world.push_small(3)
    world.clock.pass_by(days=age)
    world.source = world.source.model_copy(update={"pack": None})
    monkeypatch.setattr(HourPacker, "_packed_of", lambda _, source, hours: visited.append(hours[0].date) or [])
    world.pack_for(hours=max(age, 2))
    assert len(visited) <= 2 * max(age, 2)
    assert {f"{NOON + timedelta(days=number):%Y-%m-%d}" for number in range(age + 1)} <= set(visited)


@pytest.mark.parametrize("dates", [["1970-01-01"], ["9999-12-31"], ["0001-01-01", "2100-01-01"]])
def test_events_with_wrong_times_do_not_delay_the_turn_of_a_day(dates):
    world = World()
    world.push(*((each, datetime.fromisoformat(f"{each}T12:00:00+00:00")) for each in dates))
    assert world.pack_for(hours=3) == Packing()
    world.push_small(3)
    assert world.pack(hours=[NOON]) == Packing(packed=3)
    world.clock.pass_by(days=120)
    assert world.pack_for(hours=128) == Packing(deleted=3)


def test_a_batch_that_is_sent_again_after_its_object_was_deleted_counts_once():
    world = World()
    world.push_small(3)
    world.pack()
    world.clock.pass_by(days=4)
    world.pack()
    for body in world.batches:
        world.send(body)
    assert len(world.stored()) == 3
    world.check()
    world.clock.pass_by(days=4)
    assert world.pack().deleted == 3
    world.check()


def test_a_packed_hour_to_which_nothing_has_come_is_only_listed(monkeypatch):
    monkeypatch.setattr(turn, "_DAYS", 0)
    world = World()
    world.push_small(3)
    world.pack()
    world.clock.pass_by(days=4)
    world.pack()
    world.store.get = lambda uri: pytest.fail(f"{uri} is read")
    assert world.pack() == Packing()


FILES = {f"things-2013-03-1{n}.csv": csv_of(row(f"f{n}")) for n in range(3)}


def test_pulled_files_are_packed_when_they_have_left_the_look_back_window():
    """A file may be dated a day after its arrival."""
    world = World(FILES)
    world.pull(date(2013, 3, 12))
    assert len(world.stored()) == 3
    world.clock.pass_by(days=world.source.pull.lookback_days + 2)
    assert world.pack() == Packing()
    world.clock.pass_by(seconds=1)
    assert world.pack() == Packing(packed=3)
    world.check()


def test_the_object_of_a_changed_file_is_never_packed():
    world = World(FILES)
    world.pull(date(2013, 3, 12))
    world.clock.pass_by(hours=1)
    world.partner.files = {**FILES, "things-2013-03-12.csv": csv_of(row("f2"), row("g"))}
    world.pull(date(2013, 3, 12))
    world.push_small(3)
    world.clock.pass_by(days=10)
    assert world.pack() == Packing(packed=5)
    world.check()


def test_a_member_whose_file_is_read_again_is_left_out_of_new_packed_objects():
    world = World(FILES)
    world.pull(date(2013, 3, 12))
    world.clock.pass_by(days=10)
    world.pack()
    world.clock.pass_by(days=4)
    world.pack()
    assert world.stored() == []
    world.partner.files = {**FILES, "things-2013-03-11.csv": csv_of(row("f1"), row("g"))}
    world.pull(date(2013, 3, 12))
    world.check()
    assert sorted(world.ids_seen()) == ["f0", "f1", "f2", "g"]
    # A run that has listed its inputs before still reads them.
    assert world.pack() == Packing()
    world.check()
    world.clock.pass_by(days=3, seconds=1)
    assert world.pack().packed == 2
    world.check()
    assert sorted(world.ids_seen()) == ["f0", "f1", "f2", "g"]


@pytest.mark.parametrize(
    ("at", "is_removed", "days"),
    [
        ("2013-03-11T12:00:00Z", False, 0),
        ("2013-03-11T15:00:00Z", True, 0),
        ("2013-03-11T15:00:00Z", False, 90),
        ("2013-03-11T12:00:00Z", True, 90),
    ],
)
def test_a_file_of_any_age_that_is_read_again_is_in_the_table_once(at, is_removed, days):
    """Also if `pack` was removed, and if its new rows are of another hour: then nothing new is in the packed one."""
    world = World(FILES)
    world.pull(date(2013, 3, 12))
    world.clock.pass_by(days=10)
    assert world.pack_for(hours=75) == Packing(packed=3, deleted=3)
    world.clock.pass_by(days=days)
    if is_removed:
        world.source = world.source.model_copy(update={"pack": None})
    world.partner.files = {**FILES, "things-2013-03-11.csv": csv_of(row("f1", at), row("g", at))}
    world.pull(date(2013, 3, 12))
    # A run may still read the former rows.
    assert world.pack_for(hours=72) == Packing()
    assert world.ids_in_table() == ["f0", "f1", "f1", "f2", "g"]
    world.check()
    world.pack_for(hours=20 + days)
    assert world.ids_in_table() == ["f0", "f1", "f2", "g"]
    world.check()
    world.pack_for(hours=72 + 20 + days)
    world.check()
    assert len(world.stored(ENDING)) == 1


def test_members_stay_if_the_records_of_their_files_were_lost():
    world = World(FILES)
    world.pull(date(2013, 3, 12))
    world.clock.pass_by(days=10)
    world.pack()
    contents = {**world.cache.saved_contents}
    world.cache.saved_contents.clear()
    assert world.listing() == []
    assert world.pack() == Packing()
    world.push_small(3)
    world.pack()
    world.clock.pass_by(days=4)
    world.pack()
    world.cache.saved_contents |= contents
    world.check()
    assert len(world.listing()) == 6


def test_objects_of_members_stay_while_the_packed_object_is_not_as_it_was_written():
    world = World()
    world.push_small(3)
    world.pack()
    world.clock.pass_by(days=4)
    (uri,) = world.stored(ENDING)
    kept = world.store.objects.pop(uri)
    failed = world.pack().failed
    assert list(failed) == ["2013-03-11T12"]
    assert f"{uri} is not as it was written: restore its first version" in failed["2013-03-11T12"]
    assert len(world.stored()) == 3
    world.store.objects[uri] = kept
    assert world.pack() == Packing(deleted=3)


def test_an_object_with_other_rows_than_its_name_says_fails_its_hour_only():
    world = World()
    world.push_small(3)
    world.push_small(3, NOON + HOUR)
    uri = next(iter(world.stored()))
    wrong = uri.replace("-1.parquet", "-2.parquet")
    world.store.objects[wrong] = world.store.objects.pop(uri)
    packing = world.pack()
    assert packing.packed == 3
    assert packing.failed == {"2013-03-11T12": f"{wrong} has 1 rows: it was not written by the receiver (remove it)"}


def test_an_index_that_is_not_readable_is_an_error():
    world = World()
    world.push_small(3)
    world.pack()
    (index,) = world.stored(INDEX)
    for body in (b"", b"{}", b'{"objects": [{"name": "x"}]}', b"[1]"):
        world.store.objects[index] = body, {}
        with pytest.raises(ObjectInvalid, match=rf"{INDEX} is not readable .*: restore its former version"):
            world.listing()


def test_an_index_that_is_not_readable_fails_its_hour_only():
    world = World()
    world.push_small(3)
    world.pack()
    (index,) = world.stored(INDEX)
    world.store.objects[index] = b"", {}
    world.push_small(1)
    world.push_small(3, NOON + HOUR)
    packing = world.pack()
    assert (packing.packed, list(packing.failed)) == (3, ["2013-03-11T12"])
    assert "members.json is not readable" in packing.failed["2013-03-11T12"]


def test_of_two_processes_that_pack_late_objects_one_does(monkeypatch):
    """The second one has listed them before the first one writes the index, and reads the index after it."""
    world = World()
    world.push_small(3)
    world.pack()
    world.push_small(3)
    read = pack_hours.read_index

    def read_after_the_other_one(store, folder):
        monkeypatch.setattr(pack_hours, "read_index", read)
        assert world.pack() == Packing(packed=6)
        return read(store, folder)

    monkeypatch.setattr(pack_hours, "read_index", read_after_the_other_one)
    assert world.pack() == Packing()
    world.check()


def test_each_packed_object_is_read_once_in_any_order_of_its_members(monkeypatch):
    monkeypatch.setattr("slackwater.runs.packing.write_packed.MAX_BYTES", 1)
    monkeypatch.setattr("slackwater.runs.packing.write_packed._READ_OBJECTS", 3)
    world = World()
    world.push_small(6)
    world.push_small(6, NOON + HOUR)
    world.pack()
    listing, read, get = world.listing(), [], world.store.get
    monkeypatch.setattr(world.store, "get", lambda uri: read.append(uri) or get(uri))
    reader = EventReader(world.store)
    for hour in ("hour=12/", "hour=13/"):
        items = [item for item in listing if hour in item.uri]
        in_turns = [item for pair in zip(items[:3], items[3:], strict=True) for item in pair]
        ids = {item.uri: table["id"].to_pylist() for item in in_turns for table in reader.blocks(item, ["id"])}
        assert ids == {item.uri: read_parquet(world.store.first[item.uri][1])["id"].to_pylist() for item in items}
    assert sorted(read) == sorted(world.stored(ENDING))
    assert len(read) == 4


def test_objects_are_read_in_groups_of_few_rows(monkeypatch):
    monkeypatch.setattr("slackwater.runs.packing.write_packed._READ_ROWS", 2)
    monkeypatch.setattr("slackwater.runs.packing.write_packed.MAX_BYTES", 1)
    world = World()
    world.push_small(5)
    world.pack()
    assert sorted(len(rows.members) for rows in read_index_of(world)) == [1, 2, 2]
    world.check()


def test_of_two_processes_that_pack_an_hour_one_does():
    world = World()
    world.push_small(4)
    overtaken = Process(WriteFault(2, "is overtaken"), meanwhile=world.pack)
    assert world.pack(overtaken.using) == Packing()
    world.check()
    assert len({item.packed.uri for item in world.listing()}) == 1
    world.clock.pass_by(days=4)
    assert world.pack().deleted == 4 + 1
    world.check()


def packer_of(world, updates):
    """Return a packer of the world that adds its updates of the table of raw events to a list."""
    return HourPacker(
        store=world.store,
        files=world.cache,
        raw_bucket="raw",
        update_table=lambda *update: updates.append(update),
        now=world.clock,
    )


@pytest.mark.parametrize("apart", [24, -1])
def test_the_time_limit_ends_a_call_and_the_next_one_continues(apart, monkeypatch):
    """Between two days, and between two hours of a day."""
    world = World()
    hours = [NOON - number * apart * HOUR for number in range(3)]
    for hour in hours:
        world.push_small(3, hour)
    write, updates = PackedWriter.write, []
    monkeypatch.setattr(PackedWriter, "write", lambda *call: world.clock.pass_by(minutes=8) or write(*call))
    packer = packer_of(world, updates)
    assert packer.pack(world.source, limit=timedelta(minutes=13)) == Packing(packed=6)
    assert packer.pack(world.source, limit=timedelta(minutes=13)) == Packing(packed=3)
    assert updates == [
        ("things", [partition_of(hour) for hour in found])
        for found in ([hours[:1], hours[1:2], hours[2:]] if apart == 24 else [hours[:2], hours[2:]])
    ]


def test_the_hours_of_a_day_are_one_update_of_the_table():
    world, updates = World(), []
    for number in range(3):
        world.push_small(3, NOON + number * HOUR)
    packer = packer_of(world, updates)
    packer.pack(world.source, limit=timedelta(minutes=13))
    world.clock.pass_by(days=4)
    assert packer.pack(world.source, limit=timedelta(minutes=13)).deleted == 9
    assert updates == [("things", [partition_of(NOON + number * HOUR) for number in range(3)])] * 2


def test_the_table_is_updated_if_the_answer_to_the_write_of_an_index_was_lost(monkeypatch):
    """The request is repeated then, and S3 answers that the index exists."""
    world, updates = World(), []
    world.push_small(4)
    put = world.store.put_new
    monkeypatch.setattr(world.store, "put_new", lambda uri, *more: put(uri, *more) and not uri.endswith(INDEX))
    assert packer_of(world, updates).pack(world.source, limit=timedelta(minutes=13)) == Packing()
    assert len(world.stored(INDEX)) == len(updates) == 1


def test_objects_that_cannot_be_deleted_fail_their_hour_only(monkeypatch):
    world, delete = World(), MemoryStore.delete
    world.push_small(3)
    world.push_small(3, NOON + HOUR)
    world.pack()
    world.clock.pass_by(days=4)

    def delete_if_allowed(store, uris):
        if any("hour=12" in uri for uri in uris):
            raise AccessDenied("no access")
        delete(store, uris)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "delete", delete_if_allowed)
        done = world.pack()
    assert (done.deleted, done.failed) == (3, {"2013-03-11T12": "no access"})
    assert world.pack().deleted == 3
    world.check()


def test_an_object_with_a_damaged_page_fails_its_hour_only():
    world = World()
    world.push_small(4)
    world.push_small(4, NOON + HOUR)
    uri = next(uri for uri in world.stored() if "hour=13" in uri)
    body = bytearray(world.store.get(uri))
    for position in range(4, len(body) // 3):
        body[position] ^= 0x5A
    world.store.put(uri, bytes(body))
    done = world.pack()
    assert (done.packed, list(done.failed)) == (4, ["2013-03-11T13"])
    assert f"{uri} is not readable as Parquet" in done.failed["2013-03-11T13"]


def test_a_full_disk_fails_its_hour_only(monkeypatch):
    world, write = World(), PackedWriter.write
    world.push_small(4)
    world.push_small(4, NOON + HOUR)

    def write_if_there_is_room(writer, folder, members):
        if "hour=12" in folder:
            raise OSError(28, "No space left on device")
        return write(writer, folder, members)

    with monkeypatch.context() as patch:
        patch.setattr(PackedWriter, "write", write_if_there_is_room)
        done = world.pack()
    assert (done.packed, list(done.failed)) == (4, ["2013-03-11T12"])
    assert world.pack() == Packing(packed=4)
    world.check()


@pytest.mark.parametrize("seed", range(4))
def test_readers_see_the_same_whatever_happens(seed):
    """Pushes, retries, pulls, changed files, and processes that end or fail at any write."""
    chosen = random.Random(seed)  # noqa: S311 - reproducible examples
    world = World()
    for step in range(40):
        match chosen.randrange(9):
            case 0 | 1:
                at = world.clock().replace(minute=0, second=0) - chosen.randrange(72) * HOUR
                times = [at + chosen.randrange(2) * HOUR for _ in range(chosen.randint(1, 4))]
                world.push(*((f"{step}-{n}", time) for n, time in enumerate(times)))
            case 2:
                world.push_small(3, NOON + chosen.randrange(3) * HOUR)
            case 3 if world.batches:
                world.send(chosen.choice(world.batches))
            case 4:
                name, at = f"things-2013-03-1{chosen.randrange(3)}.csv", NOON + chosen.randrange(3) * HOUR
                rows = (row(f"{step}-{n}", at.isoformat()) for n in range(chosen.randint(1, 3)))
                world.partner.files = {**world.partner.files, name: csv_of(*rows)}
                # A person may pull an old window again.
                world.pull(chosen.choice([date(2013, 3, 12), world.clock().date()]))
            case 5:
                world.remove_stale()
            case 6:
                world.clock.pass_by(hours=chosen.randrange(60))
            case _:
                fault = WriteFault(chosen.randint(1, 6), chosen.choice(FAULT_TYPES))
                is_open, other = chosen.random() < 0.3, partial(world.pack, is_open=chosen.random() < 0.3)
                process = Process(fault, meanwhile=other)
                try:
                    world.pack(process.using, is_open=is_open)
                except SlackwaterError:
                    assert process.has_ended or process.is_fault_reached
        world.check()
    world.clock.pass_by(days=12)
    for _ in range(3):
        world.clock.pass_by(days=4)
        world.pack()
        world.remove_stale()
        world.check()
