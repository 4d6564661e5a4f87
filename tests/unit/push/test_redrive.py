"""Rejected events that are sent again: each is stored once, whatever happens, and is never counted twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DataError, UnknownName
from slackwater.metrics import Metric
from slackwater.receiver.pull.rejects_reader import RejectsReader
from slackwater.receiver.push.receive import receipt_uri
from slackwater.receiver.push.redrive import Redriver
from slackwater.receiver.writing.redrives import Redrive
from slackwater.receiver.writing.rejects import rejects_uri
from slackwater.sources.definition import Source
from slackwater.state.facts import total_of
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_interleaving import take_turns
from tests.fakes_receiver import RECEIVED, Crash, MemoryFileCache, a_source
from tests.pushing import Setup
from tests.reading import stored_events

pytestmark = pytest.mark.unit

DATE = RECEIVED.date().isoformat()
AT = "2013-03-12T08:10:00"
KINDS: dict[str, tuple[dict[str, object] | bytes, int | None]] = {
    "good": ({"at": f"{AT}Z"}, 0),
    "word": ({"at": f"{AT}Z", "count": "many"}, 1),
    "no offset": ({"at": AT}, 2),
    "both": ({"at": AT, "count": "many"}, 2),
    "no time": ({"at": "today"}, None),
    "not JSON": (b'{"id": ', None),
    "not UTF-8": (b'{"id": "a", "at": "2013-03-12T08:10:00Z", "size": -1, "day": "\\\xff"}', None),
}
"""Events, and the first of the definitions that accepts each."""


def a_definition(number: int, **changes: object) -> Source:
    """Return the definition number 0, 1 or 2: each accepts more than the one before."""
    timestamp = {"field": "at", **({"timezone": "Asia/Kolkata"} if number == 2 else {})}
    words = ["many"] if number else []
    settings = {"timestamp": timestamp, "null_values": ["", "NA", *words], "counts": {"window": "5m"}, "pull": None}
    return a_source(**{**settings, **changes})


DEFINITIONS = [a_definition(number) for number in range(3)]


def body_of(kinds: list[str]) -> bytes:
    """Return events of these kinds as NDJSON; `size` is the index of each."""
    lines = []
    for index, kind in enumerate(kinds):
        event, _ = KINDS[kind]
        lines.append(event if isinstance(event, bytes) else json.dumps({"id": "a", "size": index, **event}).encode())
    return b"\n".join(lines)


class World(Setup):
    """A source with one batch that was pushed by its first definition."""

    def __init__(self, kinds: list[str], definition: Source = DEFINITIONS[0]) -> None:
        super().__init__(definition)
        self.kinds = kinds
        self.batch = self.push(body_of(kinds)).batch_id

    def redriver(self, using: Callable = lambda port: port) -> Redriver:
        """Return the redriver of a process, which sees the ports by `using`."""
        state = using(self.state)
        writer = replace(self.receiver.raw_writer, store=using(self.store))
        return Redriver(receiver=replace(self.receiver, raw_writer=writer, put_rejected=state.put_rejected))

    def redrive(self, definition: Source = DEFINITIONS[2], *, rule=None, dry_run=False, using=lambda port: port):
        return self.redriver(using).redrive(definition, DATE, self.batch, rule=rule, dry_run=dry_run)

    def stored(self) -> list[dict[str, object]]:
        return stored_events(self.store, DEFINITIONS[0])

    def stored_indexes(self) -> list[int]:
        return sorted(int(row["size"]) for row in self.stored())

    def counted_rejected(self) -> int:
        return sum(total_of(events.bins) + events.unplaced for events in self.state.rejected.values())

    def listed(self) -> list[int]:
        reader = RejectsReader(store=self.store, files=MemoryFileCache(), raw_bucket="raw")
        return [event.record.index for event in reader.events("things", [DATE])]

    def check_never_twice(self) -> None:
        """Check what a reader sees that lists the objects before it reads the facts."""
        indexes = self.stored_indexes()
        assert max(Counter(indexes).values(), default=1) == 1
        assert len(indexes) + self.counted_rejected() <= len(self.kinds)

    def check_all(self, definition: int) -> None:
        """Check that all events are stored that this definition accepts, and the others are rejected."""
        expected = [index for index, kind in enumerate(self.kinds) if accepts(definition, kind)]
        assert self.stored_indexes() == expected
        rejected = [index for index in range(len(self.kinds)) if index not in expected]
        assert self.listed() == rejected
        assert self.counted_rejected() == len(rejected)


def accepts(definition: int, kind: str) -> bool:
    first = KINDS[kind][1]
    return first is not None and first <= definition


def outcomes(redriven) -> dict[str, tuple[int, dict[str, int]]]:
    return {
        each.rule: (each.accepted, {failed.rule: failed.events for failed in each.failed}) for each in redriven.rules
    }


ALL = [*KINDS]


class TestOneBatch:
    def test_accepted_events_are_stored_once_however_often_they_are_sent(self):
        world = World(ALL)
        world.check_all(0)
        first = world.redrive(DEFINITIONS[1])
        assert outcomes(first) == {
            "wrong_type": (1, {"wrong_type": 3}),
            "not_json": (0, {"not_json": 1}),
            "not_utf8": (0, {"not_utf8": 1}),
        }
        world.check_all(1)
        objects = dict(world.store.objects)
        again = world.redrive(DEFINITIONS[1])
        assert (again.stored_before, outcomes(again)["wrong_type"]) == (1, (0, {"wrong_type": 3}))
        assert world.store.objects == objects
        second = world.redrive(DEFINITIONS[2])
        assert (second.stored_before, outcomes(second)["wrong_type"]) == (1, (2, {"wrong_type": 1}))
        world.check_all(2)

    def test_an_event_is_in_the_hour_that_the_corrected_definition_reads_and_leaves_the_one_where_it_was_counted(self):
        world = World(["no offset"])
        # Its time was not readable, so it was counted in the hour of receipt.
        received = RECEIVED.replace(minute=0)
        assert [key[1] for key in world.state.rejected] == [received]
        world.redrive()
        [row] = world.stored()
        assert row["at"] == datetime(2013, 3, 12, 2, 40, tzinfo=UTC)
        assert {key[1] for key in world.state.rejected} == {received}
        assert world.counted_rejected() == 0

    def test_stored_events_have_their_first_batch_and_the_time_at_which_they_were_sent_again(self):
        world = World(["good", "word"])
        world.clock.time = RECEIVED + timedelta(days=3)
        world.redrive()
        rows = {int(row["size"]): row for row in world.stored()}
        assert {row["_batch_id"] for row in rows.values()} == {world.batch}
        assert rows[1]["_received_at"] == world.clock.time
        assert rows[1]["count"] is None

    def test_a_generated_id_is_that_of_the_first_batch(self):
        queued = a_definition(0, push={"buffer": "queue"}, event_id=None)
        world = World(["word", "good", "word"], queued)
        world.redrive(a_definition(1, push={"buffer": "queue"}, event_id=None))
        ids = {int(row["size"]): row["_event_id"] for row in world.stored()}
        assert ids == {index: f"{world.batch}-{index}" for index in range(3)}

    def test_the_age_of_an_event_is_that_at_its_first_receipt(self):
        def limited(number):
            return a_definition(number, timestamp={"field": "at", "max_age_days": 1})

        world = World(["word"], limited(0))
        world.clock.time = RECEIVED + timedelta(days=30)
        assert outcomes(world.redrive(limited(1))) == {"wrong_type": (1, {})}

    def test_an_event_of_an_array_may_span_lines(self):
        world = World(["word"])
        body = b'[\n {"id": "a",\n  "at": "2013-03-12T08:10:00Z",\n  "count": "many", "size": 0}\n]'
        world.batch = world.push(body, "application/json").batch_id
        assert outcomes(world.redrive()) == {"wrong_type": (1, {})}
        [row] = world.stored()
        assert (row["size"], row["count"]) == (0, None)

    def test_both_reasons_are_kept_and_the_rule_is_that_of_the_latest_rejection(self):
        world = World(["word"])
        fields = {"id": "string", "count": {"type": "int64", "required": True}, "size": "double", "at": "timestamp"}
        world.redrive(a_definition(1, fields=fields))
        reader = RejectsReader(store=world.store, files=MemoryFileCache(), raw_bucket="raw")
        [event] = reader.events("things", [DATE])
        assert (event.record.rule, event.rule, event.sent_again) == ("wrong_type", "missing", 1)
        assert event.document["reason"].startswith("count: ")
        assert event.document["newest_reason"] == "count: no value, but it is required"
        [day] = reader.days("things", [DATE])
        assert (day.rules, day.sent_again) == ({"missing": 1}, {"missing": 1})
        assert day.examples["missing"] == event
        assert outcomes(world.redrive(rule="wrong_type")) == {}
        assert outcomes(world.redrive(rule="missing")) == {"missing": (1, {})}
        assert list(reader.days("things", [DATE])) == []

    def test_only_events_of_the_rule_are_sent(self):
        world = World(["word", "not JSON"])
        before = world.store.writes
        assert outcomes(world.redrive(rule="not_json")) == {"not_json": (0, {"not_json": 1})}
        assert world.stored_indexes() == []
        assert world.store.writes == before + 2
        assert outcomes(world.redrive(rule="wrong_type")) == {"wrong_type": (1, {})}

    def test_a_dry_run_writes_nothing(self):
        world = World(ALL)
        objects, facts = dict(world.store.objects), dict(world.state.rejected)
        found = world.redrive(dry_run=True)
        assert outcomes(found)["wrong_type"] == (3, {"wrong_type": 1})
        assert (world.store.objects, world.state.rejected) == (objects, facts)

    def test_a_source_without_counts_has_no_facts(self):
        world = World(["word"], a_definition(0, counts=None))
        world.redrive()
        assert not world.state.rejected
        assert world.stored_indexes() == [0]

    def test_each_stored_event_counts_once_in_the_metric(self):
        world = World(["word", "good"])
        put = []
        metric = lambda name, events, **labels: put.append((name, events, labels))  # noqa: E731
        world.receiver = replace(world.receiver, put_metric=metric)
        world.redrive()
        world.redrive()
        assert put == [(Metric.EVENTS_ACCEPTED, 1, {"source": "things"})]


class TestRefused:
    def test_a_batch_without_rejected_events(self):
        with pytest.raises(UnknownName, match="has no rejected events of 2013-03-12"):
            World(["good"]).redrive()

    def test_the_rows_of_a_file(self):
        world = World(["word"])
        uri = rejects_uri("raw", "things", received_at=RECEIVED, batch_id=world.batch)
        world.store.put(uri, world.store.get(uri).replace(b"push:acme", b"pull:a.csv"))
        with pytest.raises(DataError, match="slackwater pull things reads the file again"):
            world.redrive()

    def test_a_batch_without_a_receipt(self):
        world = World(["word"])
        world.store.delete([receipt_uri("raw", "things", world.batch)])
        with pytest.raises(DataError, match="has no receipt"):
            world.redrive()

    def test_a_release_that_reads_other_events_than_the_one_that_has_begun(self):
        world = World(["word"])
        process = Process(WriteFault(2, "ends before"))
        with pytest.raises(Crash):
            world.redrive(using=process.using)
        [uri] = world.store.uris("/redriven/")
        record = Redrive.model_validate_json(world.store.get(uri))
        world.store.put(
            uri, record.model_copy(update={"events_digest": "other"}).model_dump_json(by_alias=True).encode()
        )
        with pytest.raises(DataError, match="deploy that release again"):
            world.redrive()


class CheckedStore:
    """A port that checks the world after each of its writes."""

    def __init__(self, port: object, check: Callable[[], None]) -> None:
        self._port, self._check = port, check

    def __getattr__(self, name: str):
        method = getattr(self._port, name)

        def call(*arguments, **named):
            result = method(*arguments, **named)
            self._check()
            return result

        return call if name.startswith("put") else method


@pytest.mark.parametrize("fault_type", FAULT_TYPES)
@pytest.mark.parametrize("write", range(1, 9))
def test_a_process_may_end_at_any_write(write, fault_type):
    world = World([*ALL, "word"])
    process = Process(
        WriteFault(write, fault_type), meanwhile=lambda: (world.redrive(DEFINITIONS[2]), world.check_never_twice())
    )

    def using(port):
        return CheckedStore(process.using(port), world.check_never_twice)

    try:
        world.redrive(DEFINITIONS[1], using=using)
    except Crash:
        assert process.is_fault_reached
    world.check_never_twice()
    world.redrive()
    world.check_all(2)


@dataclass(frozen=True)
class Attempt:
    """A call by one process."""

    definition: int
    rule: str | None
    fault: WriteFault | None
    meanwhile: int
    """The definition of a process that overtakes it."""


FAULTS = st.builds(WriteFault, st.integers(1, 7), st.sampled_from(FAULT_TYPES))
RULES = st.sampled_from([None, None, "wrong_type", "not_json"])
ATTEMPTS = st.builds(Attempt, st.integers(0, 2), RULES, FAULTS | st.none(), st.integers(0, 2))


@given(st.lists(st.sampled_from(ALL), min_size=1, max_size=6), st.lists(ATTEMPTS, max_size=4))
def test_each_event_is_stored_once_whatever_happens(kinds, attempts):
    if all(kind in {"good", "not JSON", "not UTF-8"} for kind in kinds):
        kinds = [*kinds, "word"]
    world = World(kinds)
    for attempt in attempts:
        process = Process(
            attempt.fault, meanwhile=lambda attempt=attempt: world.redrive(DEFINITIONS[attempt.meanwhile])
        )

        def using(port, process=process):
            return CheckedStore(process.using(port), world.check_never_twice)

        try:
            world.redrive(DEFINITIONS[attempt.definition], rule=attempt.rule, using=using)
        except Crash:
            assert process.is_fault_reached
    world.redrive()
    world.check_all(2)


@given(st.lists(st.integers(0, 3), max_size=60), st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(0, 2)))
def test_people_may_send_the_same_events_at_once(order, definitions):
    world = World(["word", "no offset", "not JSON"])

    def work_of(definition):
        return lambda wrap: world.redrive(DEFINITIONS[definition], using=wrap)

    take_turns([work_of(number) for number in definitions], order, after_each=world.check_never_twice)
    world.redrive(DEFINITIONS[max(definitions)])
    world.check_all(max(definitions))


def test_rejected_events_of_the_same_body_again_are_not_counted_again():
    world = World(["word", "good"])
    world.redrive()
    assert [index for index, _ in world.push(body_of(world.kinds)).rejected] == [0]
    world.check_all(2)


def test_events_of_one_id_in_an_hour_count_once_and_the_one_received_first_counts():
    world = World(["word"], a_definition(0, event_id="id"))
    world.clock.pass_by(hours=1)
    world.source = a_definition(1, event_id="id")
    world.push([{"id": "a", "at": f"{AT}Z", "size": 7}])
    world.clock.pass_by(hours=1)
    world.redrive(a_definition(1, event_id="id"))
    received = sorted((row["_received_at"], row["size"]) for row in world.stored())
    # The partner has corrected it meanwhile.
    assert [size for _, size in received] == [7, 0]
