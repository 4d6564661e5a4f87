"""Exactly once, for pulled files: at any moment the rows of each file's one content are read, and no others."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.errors import SlackwaterError
from slackwater.receiver.partners.partner import Download
from slackwater.receiver.pull.fetch import FileFetcher
from slackwater.receiver.pull.file_cache import uncommitted_objects
from slackwater.receiver.pull.plan import plan_pull
from slackwater.receiver.writing.raw_writer import RawWriter
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_receiver import (
    RECEIVED,
    Clock,
    MemoryFileCache,
    MemoryPartitions,
    MemoryPartner,
    MemoryStore,
    a_source,
)
from tests.reading import EventKey, read_once, rejected_indexes
from tests.sending import AGE, EVENT_TIMES, LIMITS, SOON, VALID, Event, expected_events, make_event

pytestmark = pytest.mark.unit

TODAY = date(2013, 3, 12)
PATHS = ("things-2013-03-11.csv", "things-2013-03-12.csv")
_WIDE = "a cell too many"
_FAULTS = [{"count": "many"}, {"at": ""}, {"at": "today"}, {"id": ""}, _WIDE]


@dataclass(frozen=True)
class Content:
    """What a file may hold."""

    number: int
    events: Sequence[Event]

    @property
    def body(self) -> bytes:
        """As CSV, with a column that no definition names.

        No two have the same size: of a file that becomes another one of its size after it was listed, and then itself
        again, no listing tells.
        """
        head = f"id,count,size,good,day,at,{'m' * (1 + 1000 * self.number)}\n"
        return "".join([head, *map(_row, self.events)]).encode()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


def _row(event: Event) -> str:
    if event.value == _WIDE:
        return f"{event.name},{event.number},,,,,,{_WIDE}\n"
    return f"{event.value['id']},{event.value['count']},,,,{event.value['at']},\n"


@dataclass(frozen=True)
class Step:
    """One pull of the files as they are then."""

    files: Mapping[str, int]
    """Contents, by path."""
    hours: float
    """Before it."""
    trouble: WriteFault | None
    then: Mapping[str, int]
    """What the files hold when another pull overtakes it."""


@dataclass(frozen=True)
class Plan:
    """What a partner has, and what happens to the pulls."""

    event_id: str | None
    limited: bool
    contents: Sequence[Content]
    steps: Sequence[Step]


@st.composite
def events(draw: st.DrawFn, number: int) -> Event:
    fault = draw(st.sampled_from([VALID] * 2 * len(_FAULTS) + _FAULTS))
    return make_event(number, draw(st.sampled_from("abc")), draw(st.sampled_from(EVENT_TIMES)), fault=fault)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    contents, count = [], 0
    for number in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(0, 4))
        contents.append(Content(number, [draw(events(count + row)) for row in range(rows)]))
        count += rows
    files = st.dictionaries(st.sampled_from(PATHS), st.integers(0, len(contents) - 1), min_size=1)
    trouble = st.builds(WriteFault, st.integers(1, 9), st.sampled_from(FAULT_TYPES))
    step = st.builds(Step, files, st.sampled_from([0, 0.02, 11, 80]), trouble | trouble | st.none(), files)
    steps = [draw(step) for _ in range(draw(st.integers(1, 5)))]
    return Plan(draw(st.sampled_from([None, "id"])), draw(st.booleans()), contents, steps)


class Partner(MemoryPartner):
    """Keeps when which content was fetched."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.tried = clock, defaultdict[str, list[datetime]](list)

    def fetch(self, name: str, into: BinaryIO) -> Download:
        download = super().fetch(name, into)
        self.tried[download.sha256].append(self.clock())
        return download


class World:
    """What several pulls share, and a clock."""

    def __init__(self, plan: Plan) -> None:
        timestamp = {"field": "at", **(LIMITS if plan.limited else {})}
        self.source = a_source(event_id=plan.event_id, timestamp=timestamp, push=None)
        self.plan, self.pulls = plan, 0
        self.store, self.partitions, self.cache = MemoryStore(), MemoryPartitions(), MemoryFileCache()
        self.clock = Clock()
        self.partner = Partner(self.clock)

    def take(self, step: Step) -> None:
        self.clock.pass_by(hours=step.hours)
        self.hold(step.files)
        self.pull(Process(step.trouble, meanwhile=lambda: self.overtake(step)))
        self.check()

    def hold(self, files: Mapping[str, int]) -> None:
        self.partner.files = {path: self.plan.contents[number].body for path, number in files.items()}

    def overtake(self, step: Step) -> None:
        self.check()
        self.hold(step.then)
        self.pull(Process())

    def pull(self, process: Process) -> int:
        """Pull as the state machine does, where a file's failure stops no other; return how many files it looked at."""
        self.pulls += 1
        store, partitions = process.using(self.store), process.using(self.partitions)
        fetcher = FileFetcher(
            source=self.source,
            partner=self.partner,
            cache=process.using(self.cache),
            raw_writer=RawWriter(store=store, partitions=partitions, raw_bucket="raw"),
            now=self.clock,
            owner=f"pull-{self.pulls}",
        )
        items = plan_pull(self.source, as_of=TODAY, partner=self.partner, cache=self.cache, now=self.clock()).items
        for item in items:
            with suppress(SlackwaterError):
                fetcher.fetch(item)
        return len(items)

    def check(self) -> None:
        """What is read are the contents that the file cache says, each once and as a whole."""
        entries = self.cache.entries("things")
        held = {entry.version.content_sha256 for entry in entries if entry.version}
        expected, rejected = defaultdict[EventKey, set[int]](set), rejected_indexes(self.store)
        for content in self.plan.contents:
            if content.sha256 in held:
                tried, indexes = self.partner.tried[content.sha256], rejected[content.sha256[:32]]
                by_id, limited = self.plan.event_id is not None, self.plan.limited
                for key, numbers in expected_events(
                    content.events, limited=limited, tried=tried, rejected=indexes, by_id=by_id
                ).items():
                    expected[key] |= numbers
        key = self.plan.event_id or "count"
        read = read_once(self.store, self.source, key=key, value="count", entries=entries)
        assert read.keys() == expected.keys()
        assert all(number in expected[key] for key, number in read.items())
        registered = {f"date={hour.date}/hour={hour.hour}" for _, hour in self.partitions.known}
        assert registered >= {partition for partition, _ in expected}

    def finish(self) -> None:
        """Pull until nothing is left to do: the files' contents are stored then, and no object beside them."""
        self.clock.pass_by(hours=80)
        looked_at = [self.pull(Process()) for _ in range(4)]
        assert looked_at[-1] == 0
        self.check()
        entries = self.cache.entries("things")
        there = {path: hashlib.sha256(body).hexdigest() for path, body in self.partner.files.items()}
        assert {entry.path: entry.version.content_sha256 for entry in entries if entry.path in there} == there
        assert not uncommitted_objects(entries, bucket="raw")
        settled = {uri for entry in entries if entry.version for uri in entry.version.object_uris("raw", "things")}
        assert set(self.store.uris("/raw/source=")) == settled


def run(plan: Plan) -> None:
    world = World(plan)
    for step in plan.steps:
        world.take(step)
    world.finish()


@pytest.mark.parametrize("fault_type", FAULT_TYPES)
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("event_id", [None, "id"])
def test_trouble_at_any_write_of_a_correction_loses_nothing_and_doubles_nothing(fault_type, again, event_id):
    """The correction has an hour less and an hour more, and half of the ids; retries cross a limit.

    Where another pull overtakes it, that one finds the earlier content in another file. What comes then is the same
    correction, or a second one.
    """
    times = [RECEIVED - timedelta(hours=2), RECEIVED - timedelta(hours=3), RECEIVED - AGE + SOON]
    right = [make_event(n, "abcabc"[n], times[n % 3]) for n in range(6)]
    wrong = [make_event(n, "w", RECEIVED, fault={"count": "many"}) for n in (8, 9)]
    contents = [Content(0, [*right[:2], wrong[0]]), Content(1, [*right[4:], wrong[1]]), Content(2, right[2:4])]
    before, after, then = {PATHS[0]: 0}, {PATHS[0]: 1}, {PATHS[0]: 1, PATHS[1]: 0}
    for write in range(1, 16):
        steps = [Step(before, 0, None, before), Step(after, 0.1, WriteFault(write, fault_type), then)]
        run(Plan(event_id, True, contents, [*steps, *([Step({PATHS[0]: 2}, 11, None, {})] if again else [])]))


@settings(deadline=None, max_examples=60)
@given(plan=plans())
def test_what_is_pulled_is_read_once(plan):
    run(plan)
