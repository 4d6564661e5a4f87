"""Exactly once: every event that is sent is read from one partition or among the rejected events, whatever happens.

Processes end before or after any write, writes fail or their answer is lost, another process runs between two writes, a
queue delivers twice, partners send again: later, joined with other events, in another format. The source's definition
changes between any two of these steps, or between two writes. The expected result is computed without the receiver.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DataError
from slackwater.metrics import Metric
from slackwater.receiver.push.queue import receive, store_messages
from slackwater.receiver.push.receive import Receipt, Receiver, receipt_uri
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.sources.definition import Source
from slackwater.state.facts import total_of
from tests.before_named_rows import ReceiverBefore
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_receiver import RECEIVED, Clock, Crash, MemoryStore, a_source
from tests.fakes_state import MemoryState
from tests.pushing import pushed_body
from tests.reading import EventKey, read_once, rejected_indexes
from tests.sending import AGE, EVENT_TIMES, FUTURE, LIMITS, SOON, VALID, Event, make_event

pytestmark = pytest.mark.unit

_BROKEN = object()
"""Stands for an event that is not JSON."""
_FAULTS = [{"count": "many"}, {"at": None}, {"at": "today"}, {"id": ""}, {"id": [1]}, 3, None, "\u2028", [{}], _BROKEN]
_TYPES = {"json": "application/json", "ndjson": "application/x-ndjson"}
_COMPRESS: dict[str | None, Callable[[bytes], bytes]] = {
    None: bytes,
    "gzip": partial(gzip.compress, mtime=0),
    "zstd": lambda body: pa.Codec("zstd").compress(body, asbytes=True),
}
_WRITES = {("none", False): 4, ("queue", False): 2, ("queue", True): 3}
"""The least number of writes of an attempt, by buffer and whether the queue's consumer makes it."""


@dataclass(frozen=True)
class Batch:
    """Events in one body."""

    events: Sequence[Event]
    format: str
    """`json` or `ndjson`."""
    body: bytes

    @property
    def batch_id(self) -> str:
        """The id of the body, however it is compressed."""
        return hashlib.sha256(self.format.encode() + b"\n" + self.body).hexdigest()[:32]


@dataclass(frozen=True)
class Definition:
    """What may change in the definition of the source."""

    limited: bool
    buffer: str
    utc_offset: float = 0
    """Hours by which the source's timezone is ahead of UTC."""

    def source(self, event_id: str | None) -> Source:
        return _source(self, event_id)


@cache
def _source(definition: Definition, event_id: str | None) -> Source:
    timestamp = {"field": "at", "timezone": _ZONES[definition.utc_offset], **(LIMITS if definition.limited else {})}
    return a_source(
        event_id=event_id, timestamp=timestamp, push={"buffer": definition.buffer}, pull=None, counts={"window": "5m"}
    )


@dataclass(frozen=True)
class Step:
    """One attempt, of a partner or of the queue."""

    number: int
    """Index of the batch."""
    hours: float
    """Time that passes before the attempt."""
    consumed: bool
    """Whether the queue's consumer makes the attempt, and has the fault."""
    fault: WriteFault | None
    other: int
    """Index of the batch of a process that overtakes this one."""
    encoding: str | None = None
    deploys: str = ""
    """Whether the next definition is deployed `before` the attempt, or `meanwhile`: before its write with the fault."""


@dataclass(frozen=True)
class Plan:
    """The batches, the definitions of the source, and the attempts."""

    event_id: str | None
    definitions: Sequence[Definition]
    """In the order in which they are deployed."""
    batches: Sequence[Batch]
    steps: Sequence[Step]
    is_upgraded: bool = False
    """Whether the first definition is deployed in the version before names of objects had rows."""


_ZONES = {0: "UTC", 5.5: "Asia/Kolkata", -11: "Pacific/Pago_Pago"}

_extra_fields = st.fixed_dictionaries(
    {}, optional={"size": st.floats(-1, 1), "new \u00e9": st.text(max_size=3), "day": st.none()}
)


@st.composite
def events(draw: st.DrawFn, number: int) -> Event:
    name, at = draw(st.sampled_from("abc")), draw(st.sampled_from(EVENT_TIMES))
    offset, extra_fields = draw(st.sampled_from([0, 5.5, -11, None, None])), draw(_extra_fields)
    fault = draw(st.sampled_from([VALID] * 2 * len(_FAULTS) + _FAULTS))
    return make_event(number, name, at, offset=offset, fault=fault, **extra_fields)


def make_batch(events: Sequence[Event], *, format: str = "ndjson", ascii: bool = True) -> Batch:  # noqa: A002
    dumps = partial(json.dumps, ensure_ascii=ascii)
    if format == "json":
        body = dumps([None if event.value is _BROKEN else event.value for event in events])
    else:
        body = "\n".join('{"id": ' if event.value is _BROKEN else dumps(event.value) for event in events)
    return Batch(events, format, body.encode())


@st.composite
def batches(draw: st.DrawFn, events: Sequence[Event]) -> Batch:
    is_json = draw(st.booleans()) or all(event.value is _BROKEN for event in events)
    return make_batch(events, format="json" if is_json else "ndjson", ascii=draw(st.booleans()))


@st.composite
def plans(draw: st.DrawFn, buffer: str) -> Plan:
    """Return batches that share events only if the events have ids; without ids, only the body identifies a batch."""
    event_id = draw(st.sampled_from([None, "id"]))
    definition = st.builds(Definition, st.booleans(), st.just(buffer), st.sampled_from([*_ZONES]))
    definitions = draw(st.lists(definition, min_size=1, max_size=3))
    if buffer == "queue" and draw(st.booleans()):  # the source begins to use the queue
        definitions.insert(0, draw(st.builds(Definition, st.booleans(), st.just("none"), st.sampled_from([*_ZONES]))))
    pool = [draw(events(number)) for number in range(draw(st.integers(1, 8)))]
    numbers = st.integers(0, len(pool) - 1)
    if event_id:
        cuts = draw(st.lists(st.lists(numbers, min_size=1, max_size=6), min_size=1, max_size=4))
    else:
        bounds = sorted({0, len(pool), *draw(st.lists(numbers, max_size=2))})
        cuts = [list(range(start, end)) for start, end in pairwise(bounds)]
    plan_batches = [draw(batches([pool[number] for number in cut])) for cut in cuts]
    index = st.integers(0, len(plan_batches) - 1)
    hours = st.sampled_from([0, 0.02, 11, 80])  # some attempts cross midnight, some the age limit of an event
    consumed = st.booleans() if buffer == "queue" else st.just(False)
    fault = st.builds(WriteFault, st.sampled_from([1, 1, 2, 2, 3, 4, 6]), st.sampled_from(FAULT_TYPES))
    deploys = st.sampled_from(["", "before", "meanwhile"])
    step = st.builds(
        Step, index, hours, consumed, fault | fault | st.none(), index, st.sampled_from([*_COMPRESS]), deploys
    )
    steps = [draw(step) for _ in range(draw(st.integers(0, 6)))]
    return Plan(event_id, definitions, plan_batches, steps, is_upgraded=draw(st.booleans()))


class Queue:
    """Delivers messages, repeatedly if needed, until their batches are stored."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.waiting: set[int] = set()

    def send(self, message: str, *, delay: int) -> None:
        self.waiting.add(len(self.sent))
        self.sent.append(message)


class World:
    """The stores that several processes of the receiver share, and their clock."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.deployed = plan, 0
        self.tried = defaultdict[str, list[tuple[datetime, Definition]]](list)
        self.answered = set[str]()
        self.is_fault_reached = False
        """Whether a step has come to the write with its fault."""
        self.store, self.queue, self.clock, self.state = MemoryStore(), Queue(), Clock(), MemoryState()
        self.counted = Counter[Metric]()
        """The sums of the metrics of all processes."""

    @property
    def definition(self) -> Definition:
        return self.plan.definitions[self.deployed]

    @property
    def source(self) -> Source:
        return self.definition.source(self.plan.event_id)

    def deploy(self) -> None:
        self.deployed = min(self.deployed + 1, len(self.plan.definitions) - 1)

    def receiver(self, process: Process) -> Receiver:
        store = process.using(self.store)
        is_before = self.plan.is_upgraded and not self.deployed
        receiver = ReceiverBefore if is_before else Receiver
        put_rejected = process.using(self.state).put_rejected
        return receiver(raw_writer=RawWriter(store=store, raw_bucket="raw"), now=self.clock, put_rejected=put_rejected)

    def counting(self, process: Process) -> Receiver:
        """The receiver of the API, which puts metrics."""

        def put_metric(metric: Metric, value: float, **_: object) -> None:
            if not process.has_ended:
                self.counted[metric] += int(value)

        return replace(self.receiver(process), put_metric=put_metric)

    def send(self, batch: Batch, process: Process, encoding: str | None = None) -> None:
        """Send the batch once; after an answer its events are durable."""
        receiver, queue = self.counting(process), process.using(self.queue)
        self.tried[batch.batch_id].append((self.clock(), self.definition))
        body, content_type = _COMPRESS[encoding](batch.body), _TYPES[batch.format]
        try:
            pushed = pushed_body(body, content_type, encoding)
            result = receive(pushed, self.source, receiver=receiver, queue=queue, correlation_id="c")
        except Crash:
            return
        except DataError:
            # The version before cannot read a receipt of this version, and the partner sends the batch again.
            assert self.plan.is_upgraded
            return
        self.answered.add(batch.batch_id)
        assert result.accepted + result.duplicates + len(result.rejected) == len(batch.events)
        if all(definition.buffer == "none" for _, definition in self.tried[batch.batch_id]):
            assert self.expected([batch]).keys() <= self.read().keys()

    def consume(self, numbers: Sequence[int], process: Process) -> None:
        """Deliver messages; those that are not stored stay in the queue."""
        messages = {str(number): self.queue.sent[number] for number in numbers}
        results = store_messages(messages, source=lambda name: self.source, receiver=self.receiver(process))
        for message_id, _, failure in results:
            if failure is None:
                self.queue.waiting.discard(int(message_id))

    def run_step(self, step: Step) -> None:
        self.clock.pass_by(hours=step.hours)
        if step.deploys == "before":
            self.deploy()

        def deploy() -> None:
            if step.deploys == "meanwhile":
                self.deploy()

        batch, other = self.plan.batches[step.number], self.plan.batches[step.other]
        if not step.consumed:
            process = Process(step.fault, meanwhile=lambda: (deploy(), self.send(other, Process())))
            self.send(batch, process, step.encoding)
        else:
            self.send(batch, Process())
            waiting = sorted(self.queue.waiting)
            process = Process(step.fault, meanwhile=lambda: (deploy(), self.consume(waiting[step.other :], Process())))
            self.consume(waiting, process)
        self.is_fault_reached |= process.is_fault_reached

    def finish(self) -> None:
        """Send the batches without an answer again, and deliver the messages in the queue."""
        self.clock.pass_by(hours=80)
        for batch in self.plan.batches:
            if batch.batch_id not in self.answered:
                self.send(batch, Process())
        self.consume(sorted(self.queue.waiting), Process())
        assert not self.queue.waiting

    def repeat(self) -> None:
        """Send everything again, without effect, and deliver all messages again, joined differently."""
        for batch in self.plan.batches:
            self.send(batch, Process())
        everything = range(len(self.queue.sent))
        self.consume(everything[::2], Process())
        self.consume(everything[::-1], Process())

    def check(self) -> None:
        """Every event is read once: from its partition, or among the rejected events."""
        read, expected = self.read(), self.expected(self.plan.batches)
        assert read.keys() == expected.keys()
        assert all(number in expected[key] for key, number in read.items())
        facts = Counter[str]()
        for (_, _, batch), rejected in self.state.rejected.items():
            facts[batch] += total_of(rejected.bins) + rejected.unplaced
        assert facts == {batch: len(indexes) for batch, indexes in rejected_indexes(self.store).items() if indexes}
        self.check_counters()

    def check_counters(self) -> None:
        """Each event counts once; at most once if a process was killed, or the answer about a write was lost."""
        if self.plan.is_upgraded:
            return  # The version before has counted each time.
        batches = {batch.batch_id: batch for batch in self.plan.batches}.values()
        accepted = sum(len(self.expected([batch])) for batch in batches)
        expected = {
            Metric.EVENTS_ACCEPTED: accepted,
            Metric.EVENTS_REJECTED: sum(map(len, rejected_indexes(self.store).values())),
        }
        is_exact = all(step.fault is None or step.fault.type in {"fails", "is overtaken"} for step in self.plan.steps)
        for metric, count in expected.items():
            assert self.counted[metric] == count if is_exact else self.counted[metric] <= count, metric

    def read(self) -> dict[EventKey, int]:
        return read_once(self.store, self.source, key=self.plan.event_id or "count", value="count")

    def received(self, batch: Batch) -> tuple[datetime, Definition]:
        """Return the attempt by which the batch was received, as its receipt says; it must have been made."""
        receipt = Receipt.model_validate_json(self.store.get(receipt_uri("raw", "things", batch.batch_id)))
        for at, definition in self.tried[batch.batch_id]:
            if (at, definition.source(self.plan.event_id)) == (receipt.received_at, receipt.definition):
                return at, definition
        raise AssertionError(f"no attempt has this receipt: {receipt}")

    def expected(self, pushed_batches: Sequence[Batch]) -> dict[EventKey, set[int]]:
        expected, rejected = defaultdict[EventKey, set[int]](set), rejected_indexes(self.store)
        for batch in pushed_batches:
            at, definition = self.received(batch)
            for index, event in enumerate(batch.events):
                partition = event.partition(
                    at, limited=definition.limited, utc_offset=timedelta(hours=definition.utc_offset)
                )
                assert (index in rejected[batch.batch_id]) == (partition is None)
                if partition:
                    expected[partition, event.name if self.plan.event_id else event.number].add(event.number)
        return expected


@pytest.mark.parametrize("fault_type", FAULT_TYPES)
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("event_id", [None, "id"])
def test_a_fault_at_any_write_loses_and_duplicates_no_event(fault_type, limited, event_id):
    """One of two batches has the fault, and either may overtake it; they share events if the events have ids."""
    times = [RECEIVED - timedelta(hours=2), RECEIVED - timedelta(hours=3), RECEIVED - AGE + SOON]
    valid = [make_event(n, "abcabd"[n], at) for n, at in enumerate([*times, *times])]
    future = make_event(6, "a", RECEIVED + FUTURE + SOON)
    invalid = make_event(7, "a", RECEIVED, fault={"count": "many"})
    pushed_batches = [
        make_batch([*valid[:3], invalid, future]),
        make_batch([*(valid[1:3] if event_id else []), *valid[3:]]),
    ]
    for buffer, consumed in (("none", False), ("queue", False), ("queue", True)):
        for other in (0, 1) if fault_type == "is overtaken" else (0,):
            for write in range(1, 20):
                step = Step(
                    number=int(not limited),
                    hours=0,
                    consumed=consumed,
                    fault=WriteFault(write, fault_type),
                    other=other,
                )
                if not run(Plan(event_id, [Definition(limited, buffer)], pushed_batches, [step])).is_fault_reached:
                    break
            assert write > _WRITES[buffer, consumed]


@pytest.mark.parametrize("fault_type", FAULT_TYPES)
@pytest.mark.parametrize("event_id", [None, "id"])
@pytest.mark.parametrize("buffers", [("none", "none"), ("queue", "queue"), ("none", "queue")])
@pytest.mark.parametrize("is_upgraded", [False, True])
def test_a_batch_is_stored_once_if_its_definition_is_corrected_after_any_write_of_the_first_attempt(
    fault_type, event_id, buffers, is_upgraded
):
    """The corrected timezone moves accepted events to other hours, accepts a rejected event and rejects another."""
    times = [RECEIVED, RECEIVED - timedelta(hours=2), RECEIVED - AGE + SOON, RECEIVED + FUTURE + SOON]
    local = [make_event(n, "abcd"[n], at, offset=None) for n, at in enumerate(times)]
    batch = make_batch([*local, make_event(5, "e", RECEIVED), make_event(6, "f", RECEIVED, fault={"count": "many"})])
    definitions = [Definition(True, buffer, offset) for buffer, offset in zip(buffers, (0, 5.5), strict=True)]
    for consumed in {False, buffers[0] == "queue"}:
        for write in range(1, 20):
            fault = WriteFault(write, fault_type)
            first = Step(number=0, hours=0, consumed=consumed, fault=fault, other=0, deploys="meanwhile")
            again = Step(number=0, hours=1, consumed=False, fault=None, other=0, deploys="before")
            world = run(Plan(event_id, definitions, [batch], [first, again], is_upgraded=is_upgraded))
            world.repeat()
            world.check()
            if not world.is_fault_reached:
                break
        assert write > _WRITES[buffers[0], consumed]


@pytest.mark.parametrize("buffer", ["none", "queue"])
@given(data=st.data())
def test_every_pushed_event_is_read_once(buffer, data):
    world = run(data.draw(plans(buffer)))
    world.repeat()
    world.check()


def run(plan: Plan) -> World:
    world = World(plan)
    for step in plan.steps:
        world.run_step(step)
    world.finish()
    world.check()
    return world
