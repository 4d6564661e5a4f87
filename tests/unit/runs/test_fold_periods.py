"""The states of hours: what counts, when ids are read, what is announced, and which messages are delivered again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slackwater.aws.dynamodb.period_table import _record
from slackwater.model import json_schema
from slackwater.runs.packing.index import ENDING
from slackwater.runs.packing.pack_hours import HourPacker
from slackwater.runs.period import partition_of
from slackwater.runs.periods import fold_periods
from slackwater.runs.periods.changes import PeriodChanged
from slackwater.runs.periods.read_parts import place_of
from slackwater.runs.periods.state_messages import fold_messages
from slackwater.sources.counts import ALL
from slackwater.sources.definition import PackConfig
from slackwater.state.completeness import CountState
from slackwater.state.facts import HOUR
from slackwater.state.fold import Distinct
from slackwater.state.messages import hours_changed, listed_by_day, partitions_changed, read_message
from slackwater.state.reports import new_report
from slackwater.storage import split_uri
from tests.fakes_receiver import a_source, content_id, store_file
from tests.fakes_state import MemoryPeriods
from tests.state_world import Fault, World

pytestmark = pytest.mark.unit

CONTRACT = Path(__file__).resolve().parents[3] / "docs" / "contracts" / "period-changed.schema.json"
START = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_world(**source) -> World:
    return World(a_source(**{"counts": {"window": "5m"}, **source}), now=START + 2 * HOUR)


def report(world: World, counts: dict[int, int], *, through: int = 60, as_of: int = 90) -> None:
    sent = {START + timedelta(minutes=minute): count for minute, count in counts.items()}
    at, until = (START + timedelta(minutes=minutes) for minutes in (as_of, through))
    made = new_report(world.source, as_of=at, through=until, counts=sent, principal="push:acme")
    world.table.put_report(made)
    world.send_hours({start.replace(minute=0) for start in sent})


def push(world: World, *rows, hour: datetime = START) -> str:
    uri = world.write(hour, rows, f"{world.number:032x}-{len(rows)}", None)
    world.send_event_of(uri)
    return uri


def state(world: World):
    return world.table.stored["things", START]


def test_a_window_is_unknown_then_short_then_complete_and_then_surplus():
    world = a_world()
    push(world, (0, "a"), (7, "b"))
    world.handle_all()
    assert (state(world).state, world.changes) == (CountState.UNKNOWN, [])
    report(world, {0: 1, 5: 2}, through=10)
    world.handle_all()
    assert [window.state for window in state(world).windows[:3]] == ["complete", "short", "unknown"]
    assert (state(world).state, world.changes[-1].files) == ("unknown", None)
    report(world, {0: 1, 5: 2}, through=60, as_of=91)
    world.handle_all()
    assert (state(world).state, state(world).missing) == ("short", 1)
    push(world, (8, "c"))
    world.handle_all()
    assert (state(world).state, state(world).windows[5].sent) == ("complete", 0)
    push(world, (8, "d"))
    world.handle_all()
    assert (state(world).state, state(world).surplus) == ("surplus", 1)
    versions = [change.version for change in world.changes]
    assert versions == sorted(set(versions))
    assert [change.state for change in world.changes] == ["unknown", "short", "complete", "surplus"]
    assert set(world.woken) == {START}


def test_a_report_covers_hours_that_it_does_not_name():
    world = a_world()
    push(world, (0, "a"), hour=START + 3 * HOUR)
    report(world, {0: 0}, through=300)
    world.handle_all()
    states = {start: each.state for (_, start), each in world.table.stored.items()}
    assert states == {START + number * HOUR: ("surplus" if number == 3 else "complete") for number in range(5)}


def test_a_report_covers_the_hour_before_although_it_names_none_of_its_windows():
    world = a_world()
    for minute in range(5, 70, 5):
        report(world, {minute - 5: 1}, through=minute, as_of=minute)
        world.handle_all()
    # The reports of an hour move the coverage once; the last window of 12:00 is named, those of 13:00 are not.
    assert world.table.coverage("things") == (START, START + timedelta(minutes=65))
    report(world, {65: 1}, through=70, as_of=70)
    push(world, (0, "a"), hour=START + HOUR)
    world.handle_all()
    assert world.table.coverage("things") == (START, START + timedelta(minutes=65))
    second = world.table.stored["things", START + HOUR]
    assert [window.state for window in second.windows[:3]] == ["complete", "short", "unknown"]


@pytest.mark.parametrize("event_id", ["id", None])
def test_the_facts_of_packed_objects_are_read_again(event_id):
    """Their facts were lost, and so were the objects of the members."""
    world = a_world(event_id=event_id)
    for minute in range(4):
        push(world, (minute, "a"), (minute + 5, f"b{minute}"))
    report(world, {0: 4, 5: 4})
    world.handle_all()
    before, objects, facts = state(world), world.store.uris(".parquet"), {**world.table.parts}
    first = world.store.get(objects[0])
    world.now += timedelta(hours=3)
    packer = HourPacker(
        store=world.store, files=world.cache, raw_bucket="raw", update_table=lambda *_: None, now=lambda: world.now
    )
    source = world.source.model_copy(update={"pack": PackConfig(max_objects=1)})
    assert packer.pack(source, limit=timedelta(minutes=13)).packed == 4
    world.store.delete(objects)
    world.table = MemoryPeriods()
    report(world, {0: 4, 5: 4})
    world.send_hours([START], listing=True)
    world.handle_all()
    assert state(world)._replace(version=0, announced=0) == before._replace(version=0, announced=0)
    [file] = json.loads(world.store.get(world.changes[-1].files))["files"]
    assert (file["uri"].endswith(ENDING), file["events"], len(file["members"])) == (True, 8, 4)
    # A batch is sent again: the packed object has its first rows, and says when they came.
    world.now += timedelta(days=4)
    world.store.put(objects[0], first)
    world.send_event_of(objects[0])
    world.handle_all()
    assert world.table.parts == facts


def test_a_message_about_an_object_reads_the_coverage_once_for_each_hour(monkeypatch):
    world = a_world()
    reads, real = [], world.table.covered
    monkeypatch.setattr(world.table, "covered", lambda source: reads.append(source) or real(source))
    for minute in (0, 7, 8):
        push(world, (minute, None))
        world.handle_all()
    assert len(reads) == 1
    report(world, {0: 0}, through=60, as_of=61)
    world.handle_all()
    push(world, (9, None))
    world.handle_all()
    assert (len(reads), state(world).state, state(world).windows[1].sent) == (2, "surplus", 0)


@pytest.mark.parametrize("number", [1, 2])
def test_an_hour_that_fails_once_beside_the_report_that_covers_it_is_computed_again(monkeypatch, number):
    """A late event of 12:00 comes with the report of 13:00 that makes the silent end of 12:00 known."""
    monkeypatch.setattr(fold_periods, "_THREADS", 1)
    world = a_world()
    push(world, (0, "a"))
    report(world, {0: 2}, through=30, as_of=31)
    world.handle_all()
    report(world, {60: 0}, through=65, as_of=66)
    push(world, (1, "b"))
    messages, world.queue = world.queue, []
    world.handle(messages, Fault("fails", "all_facts", number))
    assert sorted(world.queue) == sorted(messages)
    # The message about the object comes first, and alone.
    object_first = sorted(world.queue, key=lambda body: "listing" in body)
    world.queue = []
    for message in object_first:
        world.handle([message])
    assert (state(world).state, state(world).stored) == (CountState.COMPLETE, 2)
    assert {each.sent for each in state(world).windows[1:]} == {0}


def test_a_state_that_was_read_too_early_is_read_again():
    world = a_world()
    push(world, (0, "a"))
    world.handle_all()
    report(world, {0: 1})
    world.handle_all()
    assert state(world).version == 2
    behind = Fault("behind", "states", 1)
    push(world, (1, "b"))
    messages, world.queue = world.queue, []
    world.handle(messages, behind)
    assert (state(world).version, state(world).state) == (3, "surplus")


def test_a_state_whose_facts_are_those_of_an_earlier_one_is_stored_again():
    world = a_world()
    [uri] = store_file(world.cache, "things", "one.csv", "1", [partition_of(START)])
    place = place_of(split_uri(uri)[1])
    assert place is not None
    world.write(START, [(0, "a")], place[2], content_id("1"))
    world.send_event_of(uri)
    world.handle_all()
    for removed in (1, -1):
        [content] = world.cache.saved_contents.values()
        world.cache.save(content.with_removed(removed))
        world.send_hours([START])
        messages, world.queue = world.queue, []
        world.handle(messages, Fault("behind", "states", 1))
        assert (state(world).stored, world.queue) == (1 if removed < 0 else 0, [])
    assert state(world).version == 3


def test_the_list_has_exactly_the_files_that_count():
    world = a_world()
    uris = sorted([push(world, (0, "a")), push(world, (0, "b"), (1, "c"))])
    report(world, {0: 3})
    world.handle_all()
    [change] = world.changes
    listed = json.loads(world.store.get(change.files))
    assert [item["uri"] for item in listed["files"]] == uris
    assert sorted(item["events"] for item in listed["files"]) == [1, 2]
    # No event of the bucket of lists leads to a message, and none is below `raw/`.
    assert change.files.startswith("s3://exchange/state/things/2026-01-01T12/")


def test_ids_are_read_once_when_the_number_with_duplicates_is_large_enough(monkeypatch):
    world = a_world(event_id="id")
    reads = []
    real = world.store.get
    monkeypatch.setattr(world.store, "get", lambda uri: (uri.endswith(".parquet") and reads.append(uri)) or real(uri))
    push(world, (0, "a"), (7, "b"))
    push(world, (0, "a"))
    report(world, {0: 2, 5: 2})
    world.handle_all()
    # The first window seems to be complete, and is short by the event that came twice.
    assert [window.state for window in state(world).windows[:2]] == ["short", "short"]
    assert (state(world).stored, len(reads)) == (2, 2)
    world.send_hours([START])
    report(world, {0: 1, 5: 1}, as_of=91)
    world.handle_all()
    assert (state(world).state, len(reads)) == ("complete", 2)


def test_no_ids_are_read_while_the_hour_is_open(monkeypatch):
    world = a_world(event_id="id")
    monkeypatch.setattr(world.store, "get", pytest.fail)
    push(world, (0, "a"))
    push(world, (0, "b"))
    report(world, {0: 2}, through=5)
    world.handle_all()
    assert (state(world).state, state(world).windows[0].state) == ("unknown", "unknown")


def test_objects_of_sources_without_counts_and_other_keys_are_left_out():
    world = a_world(counts=None)
    push(world, (0, "a"))
    folder = world.folder()
    keys = ["raw/source=things/date=2026-02-30/hour=05/x.parquet", "landing/source=things/x", "raw/source=things/x"]
    bodies = {
        str(number): json.dumps({"id": "e", "key": key, "time": "2026-01-01T00:00:00Z"})
        for number, key in enumerate(keys)
    }
    assert fold_messages({"pushed": world.queue[0], **bodies}, folder).failed == {}
    assert not world.table.stored
    assert not world.table.parts


def test_only_messages_that_fail_are_delivered_again():
    world = a_world()
    push(world, (0, "a"))
    bad = push(world, (0, "b"), hour=START + HOUR)
    world.store.objects[bad] = (b"no Parquet", {})
    gone = push(world, (0, "c"))
    world.store.delete([gone])
    messages = {"good": world.queue[0], "bad": world.queue[1], "gone": world.queue[2], "text": "{}"}
    result = fold_messages(messages, world.folder())
    assert result.failed.keys() == {"bad", "text"}
    assert "has no timestamps" in result.failed["bad"]
    assert (result.objects, state(world).stored) == (1, 1)


def test_the_daily_check_finds_objects_without_events():
    world = a_world()
    uri = push(world, (0, "a"))
    world.queue.clear()
    days = list(listed_by_day("things", [partition_of(START), partition_of(START + 14 * HOUR)]))
    assert [(message.hours, message.listing) for message in days] == [
        (("2026-01-01T12",), True),
        (("2026-01-02T02",), True),
    ]
    world.queue = [message.model_dump_json() for message in days]
    world.handle_all()
    assert state(world).stored == 1
    assert uri in world.store.objects


def test_messages_are_read_as_they_were_made():
    for message in (hours_changed("things", [START]), partitions_changed("things", [partition_of(START)])):
        assert read_message(message.model_dump_json()) == message
        assert message.hours == ("2026-01-01T12",)
    assert hours_changed("things", []).hours == ()
    for text in ("", "[]", '{"source": "things", "hours": ["2026-01-01T24"]}'):
        with pytest.raises(ValueError, match="validation error"):
            read_message(text)


@pytest.mark.parametrize("method", ["states", "coverage", "all_facts", "contents", "put_state"])
@pytest.mark.parametrize("after", [False, True])
def test_no_fact_is_lost_when_another_process_computes_the_same_hour(method, after):
    world = a_world()
    report(world, {0: 2})
    world.handle_all()
    for minute in (0, 1):
        push(world, (minute, None))
    first, world.queue = world.queue[0], world.queue[1:]
    world.handle([first], Fault("overtaken", method, 1, after))
    world.handle_all()
    assert (state(world).state, state(world).stored) == ("complete", 2)


def test_a_report_that_changes_no_number_is_a_new_version(monkeypatch):
    """Otherwise a process that has not read it would replace the state of one that has."""
    world = a_world()
    push(world, (0, None), (1, None))
    report(world, {0: 2})
    world.handle_all()
    report(world, {0: 3}, as_of=95)
    messages, world.queue = world.queue, []
    read, overtakes = world.table.all_facts, [True]

    def read_then_overtake(source, hours):
        facts = read(source, hours)
        if overtakes and overtakes.pop():
            # Newer than the report that this process has read, and the numbers are again those that are stored.
            report(world, {0: 2}, as_of=99)
            world.handle_all()
        return facts

    monkeypatch.setattr(world.table, "all_facts", read_then_overtake)
    world.handle(messages)
    assert (state(world).state, state(world).sent) == ("complete", 2)


def test_a_state_of_400_kilobytes_is_out_of_reach():
    """The largest item is that of a day of 25 hours with ids: DynamoDB allows 400 KB."""
    world = a_world(counts={"window": "day"}, timestamp={"field": "at", "timezone": "America/New_York"})
    push(world, (0, "a"))
    world.handle_all()
    [found] = world.table.stored.values()
    assert len(_record(found._replace(distinct=Distinct("d" * 16, {ALL: (10**11,) * 300})))) < 10_000


def test_the_contract_in_docs_is_up_to_date():
    assert CONTRACT.read_text(encoding="utf-8") == json_schema(PeriodChanged), (
        "write it again: python -m slackwater.runs.periods.changes > docs/contracts/period-changed.schema.json"
    )
