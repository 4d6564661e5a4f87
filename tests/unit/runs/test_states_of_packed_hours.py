"""The states of hours with many packed objects: how often each object is read, and what a later call continues."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from slackwater.runs.packing.index import ENDING, INDEX
from slackwater.runs.packing.pack_hours import HourPacker
from slackwater.runs.period import partition_of
from slackwater.runs.periods import state_messages
from slackwater.runs.periods.read_parts import HourReader
from slackwater.sources.definition import PackConfig
from slackwater.state.facts import HOUR, Part
from slackwater.state.messages import listed_by_day
from slackwater.state.reports import new_report
from slackwater.storage import ObjectHead, StoredObject
from tests.fakes_receiver import MemoryStore, a_source
from tests.fakes_state import MemoryPeriods
from tests.state_world import Fault, World

pytestmark = pytest.mark.unit

START = datetime(2026, 1, 1, 22, tzinfo=UTC)
HOURS = [START, START + HOUR, START + 2 * HOUR]
"""Of two UTC dates."""
MEMBERS = 40
COUNTS, BY_REGION = {"window": "5m"}, {"window": "5m", "by": "region", "values": ["EU"]}
FIELDS = {"id": "string", "region": "string", "at": "timestamp"}


class CountingStore(MemoryStore):
    """Counts the requests that read, by method and kind of object."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.requests: Counter[str] = Counter()

    def get(self, uri: str) -> bytes:
        self._count("get", uri)
        return super().get(uri)

    def head(self, uri: str) -> ObjectHead | None:
        self._count("head", uri)
        return super().head(uri)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[StoredObject]:
        self._count("list", prefix)
        return super().list(prefix, start_after=start_after)

    def _count(self, method: str, uri: str) -> None:
        kind = next((kind for kind in (INDEX, ENDING, ".parquet") if uri.endswith(kind)), "")
        self.requests[f"{method} {kind}".strip()] += 1

    def since(self) -> Counter[str]:
        """The requests since the last call."""
        found, self.requests = self.requests, Counter()
        return found


class PackedWorld(World):
    """Each hour has 40 objects with one event, which are packed and deleted. No facts about them are stored."""

    store: CountingStore

    def __init__(self, hours: Sequence[datetime] = HOURS, **source: Any) -> None:
        super().__init__(a_source(counts=COUNTS, fields=FIELDS, **source), now=hours[0])
        self.store = CountingStore(clock=lambda: self.now)
        self.uris = [self.push(hour, minute) for hour in hours for minute in range(MEMBERS)]
        self.handle_all()
        self.facts: Mapping[Any, Part] = self.table.parts
        self.table = MemoryPeriods()
        for _ in range(2):
            self.now += timedelta(days=4)
            self.pack()
        assert not self.store.uris(".parquet")
        self.store.since()

    def push(self, hour: datetime, minute: int) -> str:
        self.now = max(self.now, hour + timedelta(minutes=minute))
        uri = self.write(hour, [(minute, f"{hour:%H}-{minute}", "EU")], f"{self.number:032x}-1", None)
        self.send_event_of(uri)
        return uri

    def pack(self) -> None:
        packer = HourPacker(
            store=self.store, files=self.cache, raw_bucket="raw", update_table=lambda *_: None, now=lambda: self.now
        )
        source = self.source.model_copy(update={"pack": PackConfig(max_objects=1)})
        assert not packer.pack(source, limit=timedelta(minutes=13)).failed

    def list_days(self, hours: Iterable[datetime] = HOURS) -> None:
        """The messages of the daily check, one for each UTC date."""
        days = listed_by_day("things", [partition_of(hour) for hour in hours])
        self.queue += [message.model_dump_json() for message in days]

    def report(self, hour: datetime, number: Any) -> None:
        """A report that each five minutes with events have so many."""
        sent = {hour + timedelta(minutes=minute): number for minute in range(0, MEMBERS, 5)}
        made = new_report(self.source, as_of=self.now, through=hour + HOUR, counts=sent, principal="push:acme")
        self.table.put_report(made)
        self.send_hours([hour])


def test_listed_members_whose_objects_were_deleted_are_read_with_two_requests_of_an_hour():
    world = PackedWorld()
    world.list_days()
    world.handle_all()
    assert world.table.parts == world.facts
    assert world.store.since() == {"list": 2, f"get {INDEX}": 3, f"get {ENDING}": 3}


def test_events_of_deleted_members_look_for_the_first_object_only(monkeypatch):
    """Their messages come late, as from the dead-letter queue: whether the hours are packed is not known."""
    monkeypatch.setattr(state_messages, "_READERS", 1)
    world = PackedWorld()
    for uri in world.uris:
        world.send_event_of(uri)
    world.handle_all()
    assert world.table.parts == world.facts
    assert world.store.since() == {"head .parquet": 3, f"get {INDEX}": 3, f"get {ENDING}": 3}


def test_events_of_late_objects_read_the_index_once_and_those_of_new_objects_do_not():
    world = PackedWorld(HOURS[:1])
    late = [world.push(START, minute) for minute in range(MEMBERS)]
    world.handle_all()
    assert world.store.since() == {"head .parquet": MEMBERS, f"get {INDEX}": 1}
    now = world.now.replace(minute=0, second=0, microsecond=0)
    for minute in range(MEMBERS):
        world.push(now, minute)
    world.handle_all()
    assert world.store.since() == {"head .parquet": MEMBERS}
    assert len(world.table.parts) == 2 * len(late)


def test_late_objects_that_are_listed_are_no_members(monkeypatch):
    world = PackedWorld(HOURS[:1])
    for minute in range(MEMBERS):
        world.push(START, minute)
    world.queue.clear()
    world.list_days(HOURS[:1])
    world.handle_all()
    assert world.store.since() == {"list": 1, "head .parquet": MEMBERS, f"get {INDEX}": 1, f"get {ENDING}": 1}
    assert world.table.parts.items() > world.facts.items()
    assert len(world.table.parts) == 2 * MEMBERS


@pytest.mark.parametrize("is_listed", [True, False])
def test_the_member_counts_if_its_batch_was_sent_again(is_listed):
    world = PackedWorld(HOURS[:1])
    [first, *_] = world.uris
    for uri in (first, *world.uris[::7]):
        # Whatever it has: the packed object has the rows of the first one.
        world.store.put(uri, b"sent again", metadata={"windows": ",".join("9" * 12)})
        world.send_event_of(uri)
    if is_listed:
        world.queue.clear()
        world.list_days(HOURS[:1])
    world.handle_all()
    assert world.table.parts.items() <= world.facts.items()
    assert len(world.table.parts) == (MEMBERS if is_listed else len(world.uris[::7]))


def test_other_keys_of_deleted_members_are_read_with_two_requests_of_an_hour():
    world = PackedWorld()
    world.list_days()
    world.handle_all()
    world.store.since()
    world.source = a_source(counts=BY_REGION, fields=FIELDS)
    for hour in HOURS:
        world.report(hour, {"region=EU": 5, "region=": 0})
    world.handle_all()
    assert {str(state.state) for state in world.table.stored.values()} == {"complete"}
    # The index is read once more for the list of the files.
    assert world.store.since() == {f"get {INDEX}": 2 * 3, f"get {ENDING}": 3}


def test_ids_of_deleted_members_are_read_with_two_requests_of_an_hour():
    world = PackedWorld(event_id="id")
    world.list_days()
    for hour in HOURS:
        world.report(hour, 5)
    world.handle_all()
    assert {str(state.state) for state in world.table.stored.values()} == {"complete"}
    # For the histograms, the ids, and the list of the files.
    assert world.store.since() == {"list": 2, f"get {INDEX}": 3 * 3, f"get {ENDING}": 2 * 3}


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_call_continues_where_the_one_before_has_ended(monkeypatch, is_listed):
    monkeypatch.setattr(state_messages, "_STORED_AT_ONCE", 15)
    monkeypatch.setattr(state_messages, "_READERS", 1)
    world, stored = PackedWorld(), list[int]()
    if is_listed:
        world.list_days()
    else:
        for uri in world.uris:
            world.send_event_of(uri)
    put = world.table.put_parts

    def counted(source: str, parts: Mapping[datetime, Sequence[Part]]) -> None:
        stored.append(sum(map(len, parts.values())))
        put(source, parts)

    monkeypatch.setattr(world.table, "put_parts", counted)
    messages, world.queue = world.queue, []
    world.handle(messages, Fault("killed", "put_parts", 4))
    # The first date has two hours, 80 objects.
    assert (stored, len(world.table.parts), len(world.queue)) == ([15] * 3, 45, len(messages))
    world.handle_all()
    assert world.table.parts == world.facts
    assert sum(stored) == (3 * MEMBERS if is_listed else 45 + 3 * MEMBERS)


def test_nothing_else_is_read_when_objects_cannot_be_stored(monkeypatch):
    monkeypatch.setattr(state_messages, "_STORED_AT_ONCE", 15)
    monkeypatch.setattr(state_messages, "_READERS", 2)
    world, read = PackedWorld(), list[str]()
    reads = HourReader.read
    monkeypatch.setattr(HourReader, "read", lambda *call: time.sleep(0.005) or read.append(call[1]) or reads(*call))
    world.list_days()
    messages, world.queue = world.queue, []
    world.handle(messages, Fault("killed", "put_parts", 1))
    assert 15 <= len(read) < MEMBERS


def test_the_columns_of_one_hour_are_read_at_a_time(monkeypatch):
    """They are on the local disk, until the objects of the hour are stored."""
    monkeypatch.setattr(state_messages, "_STORED_AT_ONCE", 10)
    world, ahead = PackedWorld(), list[set[datetime]]()
    reads, put = HourReader.read, world.table.put_parts
    read: set[datetime] = set()
    monkeypatch.setattr(HourReader, "read", lambda each, *call: read.add(each.hour) or reads(each, *call))

    def slow_put(source: str, parts: Mapping[datetime, Sequence[Part]]) -> None:
        time.sleep(0.05)
        ahead.append(read - {hour for _, hour, _ in world.table.parts} - parts.keys())
        put(source, parts)

    monkeypatch.setattr(world.table, "put_parts", slow_put)
    world.list_days()
    world.handle_all()
    assert world.table.parts == world.facts
    assert ahead == [set()] * len(ahead)


def test_a_message_about_an_object_that_is_listed_too_fails_with_it():
    world = PackedWorld()
    first = world.store.uris(ENDING)[0]
    world.store.put(first, b"damaged")
    world.send_event_of(world.uris[0])
    world.list_days()
    messages = list(world.queue)
    world.handle_all()
    assert sorted(world.queue) == sorted(messages[:2])


def test_each_date_is_stored_before_the_next_one_is_listed(monkeypatch):
    world, calls = PackedWorld(), list[tuple[str, int]]()
    listed, put = world.store.list, world.table.put_parts
    monkeypatch.setattr(world.store, "list", lambda *a, **n: calls.append(("list", 1)) or listed(*a, **n))
    monkeypatch.setattr(
        world.table, "put_parts", lambda source, parts: calls.append(("put", len(parts))) or put(source, parts)
    )
    world.list_days()
    world.handle_all()
    assert calls == [("list", 1), ("put", 2), ("list", 1), ("put", 1)]


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("kind", [INDEX, ENDING])
def test_an_hour_that_is_packed_again_while_it_is_read_has_the_same_facts(monkeypatch, kind, is_listed):
    world = PackedWorld(HOURS[:1])
    late = [world.push(START, minute) for minute in range(10)]
    before, expected = world.store.uris(ENDING), {**world.facts}
    if is_listed:
        world.queue.clear()
        world.list_days(HOURS[:1])
    else:
        for uri in world.uris:
            world.send_event_of(uri)
    get, replaces = world.store.get, [True]

    def get_and_replace(uri: str) -> bytes:
        body = get(uri)
        if uri.endswith(kind) and replaces and replaces.pop():
            world.pack()
        return body

    monkeypatch.setattr(world.store, "get", get_and_replace)
    world.handle_all()
    assert not replaces
    assert len(world.store.uris(ENDING)) == 2 > len(before)
    assert {key: world.table.parts[key] for key in expected} == expected
    assert len(world.table.parts) == MEMBERS + len(late)


def test_an_hour_that_is_packed_while_its_objects_are_read_has_the_same_facts(monkeypatch):
    world = PackedWorld(HOURS[:1])
    now = world.now.replace(minute=0, second=0, microsecond=0) - 2 * HOUR
    uris = [world.push(now, minute) for minute in range(MEMBERS)]
    head, packs = world.store.head, [True]

    def head_and_pack(uri: str) -> ObjectHead | None:
        found = head(uri)
        if packs and packs.pop():
            world.pack()
        return found

    monkeypatch.setattr(world.store, "head", head_and_pack)
    world.handle_all()
    assert len(world.store.uris(INDEX)) == 2
    assert {part.written for part in world.table.parts.values()} == {world.store.modified[uri] for uri in uris}


def test_a_damaged_packed_object_fails_once_and_leaves_the_other_hours(monkeypatch):
    monkeypatch.setattr(state_messages, "_READERS", 1)
    world = PackedWorld()
    first = world.store.uris(ENDING)[0]
    world.store.put(first, b"damaged")
    world.list_days()
    messages = list(world.queue)
    world.handle_all()
    assert world.queue == messages[:1]
    assert world.store.since() == {"list": 2, f"get {INDEX}": 3, f"get {ENDING}": 3}
    assert {hour for _, hour, _ in world.table.parts} == set(HOURS[1:])


def test_a_damaged_index_fails_once_and_leaves_the_other_hours():
    world = PackedWorld()
    [first, *_] = world.store.uris(INDEX)
    world.store.put(first, b"damaged")
    world.list_days()
    world.send_event_of(world.uris[-1])
    messages = list(world.queue)
    world.handle_all()
    assert world.queue == messages[:1]
    assert {hour for _, hour, _ in world.table.parts} == set(HOURS[1:])
