"""Exactly once, for pulled files: readers see the rows of exactly one content of each file at all times."""

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
from slackwater.receiver.connectors.connector import Download
from slackwater.receiver.pull.fetch import FileFetcher
from slackwater.receiver.pull.file_cache import NO_COUNTS, Content, FileCounts, FileEntry, FileState
from slackwater.receiver.pull.plan import plan_pull
from slackwater.receiver.pull.stale_objects import StaleObjects
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.sources.partitions import version_of
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_receiver import (
    RECEIVED,
    Clock,
    MemoryConnector,
    MemoryFileCache,
    MemoryStore,
    a_source,
)
from tests.fakes_state import MemoryState
from tests.reading import EventKey, read_once, rejected_indexes
from tests.sending import AGE, EVENT_TIMES, LIMITS, SOON, VALID, Event, expected_events, make_event

pytestmark = pytest.mark.unit

TODAY = date(2013, 3, 12)
PATHS = ("things-2013-03-11.csv", "things-2013-03-12.csv")
_WIDE = "a cell too many"
_FAULTS = [{"count": "many"}, {"at": ""}, {"at": "today"}, {"id": ""}, _WIDE]


@dataclass(frozen=True)
class FileContent:
    """A possible content of a file."""

    number: int
    events: Sequence[Event]

    @property
    def body(self) -> bytes:
        """The content as CSV, with a column that is not in the definition.

        All contents differ in size: a listing cannot show that a file changed to another content of the same size
        after it was listed, and then back.
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
    """One pull of the files in their current state."""

    files: Mapping[str, int]
    """Index of the content of each file, by path."""
    hours: float
    """Time that passes before the pull."""
    fault: WriteFault | None
    then: Mapping[str, int]
    """The files when another pull overtakes this one."""


@dataclass(frozen=True)
class Plan:
    """The contents of a partner's files, the options of the source, and the pulls."""

    event_id: str | None
    limited: bool
    contents: Sequence[FileContent]
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
        contents.append(FileContent(number, [draw(events(count + row)) for row in range(rows)]))
        count += rows
    files = st.dictionaries(st.sampled_from(PATHS), st.integers(0, len(contents) - 1), min_size=1)
    fault = st.builds(WriteFault, st.integers(1, 9), st.sampled_from(FAULT_TYPES))
    step = st.builds(Step, files, st.sampled_from([0, 0.02, 11, 80, 24 * 800]), fault | fault | st.none(), files)
    steps = [draw(step) for _ in range(draw(st.integers(1, 5)))]
    return Plan(draw(st.sampled_from([None, "id"])), draw(st.booleans()), contents, steps)


class Partner(MemoryConnector):
    """A partner that records when each content was fetched."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.tried = clock, defaultdict[str, list[datetime]](list)

    def fetch(self, name: str, into: BinaryIO) -> Download:
        download = super().fetch(name, into)
        self.tried[download.sha256].append(self.clock())
        return download


class CommitCounter(MemoryFileCache):
    """A file cache that counts what its transactions commit."""

    def __init__(self) -> None:
        super().__init__()
        self.committed = NO_COUNTS

    def save(self, *records: FileEntry | Content) -> None:
        super().save(*records)
        (entry, *contents) = records
        # No other transaction writes an entry and contents: this source's removals are not recorded.
        if contents and isinstance(entry, FileEntry) and entry.state is FileState.STORED:
            self.committed = self.committed.plus(FileCounts(files=1, rows=entry.rows, rejected=entry.rejected))


class World:
    """The stores that several pulls share, and their clock."""

    def __init__(self, plan: Plan) -> None:
        timestamp = {"field": "at", **(LIMITS if plan.limited else {})}
        self.source = a_source(event_id=plan.event_id, timestamp=timestamp, push=None)
        self.plan, self.pulls = plan, 0
        self.is_fault_reached = False
        """Whether a pull has come to the write with its fault."""
        self.clock = Clock()
        self.store = MemoryStore(clock=self.clock)
        self.cache, self.counted = CommitCounter(), NO_COUNTS
        self.partner = Partner(self.clock)

    def run_step(self, step: Step) -> None:
        self.clock.pass_by(hours=step.hours)
        self.set_files(step.files)
        process = Process(step.fault, meanwhile=lambda: self.overtake(step))
        self.pull(process)
        self.is_fault_reached |= process.is_fault_reached
        self.check()

    def set_files(self, files: Mapping[str, int]) -> None:
        self.partner.files = {path: self.plan.contents[number].body for path, number in files.items()}

    def overtake(self, step: Step) -> None:
        self.check()
        self.set_files(step.then)
        self.pull(Process())

    def pull(self, process: Process) -> int:
        """Pull like the state machine: a failed file does not stop the others. Return the number of planned files."""
        self.pulls += 1
        store = process.using(self.store)
        fetcher = FileFetcher(
            source=self.source,
            partner=self.partner,
            cache=process.using(self.cache),
            raw_writer=RawWriter(store=store, raw_bucket="raw"),
            now=self.clock,
            owner=f"pull-{self.pulls}",
            put_rejected=MemoryState().put_rejected,
        )
        items = plan_pull(self.source, as_of=TODAY, partner=self.partner, cache=self.cache, now=self.clock()).items
        for item in items:
            with suppress(SlackwaterError):
                fetched = fetcher.fetch(item)
                self.counted = self.counted.plus(fetched.counts)
        return len(items)

    def check(self) -> None:
        """Each content in the file cache is read completely and once, and nothing else is read."""
        current_contents = {entry.content for entry in self.cache.all("things")}
        expected = defaultdict[EventKey, set[int]](set)
        # A pull that ended early may have left those of another reading of a content, by the time of its first receipt.
        rejected = rejected_indexes(self.store, names=self.committed_rejects())
        all_times = {at for times in self.partner.tried.values() for at in times}
        for content in self.plan.contents:
            if content.sha256[:32] in current_contents:
                indexes = rejected[content.sha256[:32]]
                tried = [(at, first) for at in self.partner.tried[content.sha256] for first in all_times if first <= at]
                by_id, limited = self.plan.event_id is not None, self.plan.limited
                for key, numbers in expected_events(
                    content.events, limited=limited, received_at_candidates=tried, rejected=indexes, by_id=by_id
                ).items():
                    expected[key] |= numbers
        key = self.plan.event_id or "count"
        read = read_once(self.store, self.source, key=key, value="count", files=self.cache)
        assert read.keys() == expected.keys()
        assert all(number in expected[key] for key, number in read.items())

    def committed_rejects(self) -> set[str]:
        """Names of the objects with the rejected rows of what readers see."""
        contents = [content for content in self.cache.saved_contents.values() if content.committed]
        return {f"{content.id}-{content.committed.digest}.jsonl" for content in contents}

    def finish(self) -> None:
        """Pull until no work is left: then exactly the contents of the files are stored."""
        self.clock.pass_by(hours=80)
        item_counts = [self.pull(Process()) for _ in range(4)]
        assert item_counts[-1] == 0
        assert self.counted == self.cache.committed
        self.check()
        entries = self.cache.all("things")
        expected = {path: hashlib.sha256(body).hexdigest()[:32] for path, body in self.partner.files.items()}
        assert {entry.path: entry.content for entry in entries if entry.path in expected} == expected
        self.clock.pass_by(hours=80)
        objects = StaleObjects(
            store=self.store,
            cache=self.cache,
            raw_bucket="raw",
            exchange_bucket="x",
            update_table=lambda *_: None,
            now=self.clock,
        )
        objects.remove(["things"], limit=timedelta(minutes=13))
        self.check()
        contents = [content for content in self.cache.saved_contents.values() if content.committed]
        committed = {(content.id, content.committed.object_id) for content in contents}
        assert {version_of(uri) for uri in self.store.uris("/raw/source=")} <= committed


def run(plan: Plan) -> World:
    world = World(plan)
    for step in plan.steps:
        world.run_step(step)
    world.finish()
    return world


@pytest.mark.parametrize("fault_type", FAULT_TYPES)
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("event_id", [None, "id"])
def test_a_fault_at_any_write_of_a_correction_loses_and_duplicates_no_row(fault_type, again, event_id):
    """The correction removes one hour, adds another and keeps half of the ids; retries cross an age limit.

    A pull that overtakes it reads the earlier content from another file. The next pull reads the same correction, or a
    second one.
    """
    times = [RECEIVED - timedelta(hours=2), RECEIVED - timedelta(hours=3), RECEIVED - AGE + SOON]
    valid = [make_event(n, "abcabc"[n], times[n % 3]) for n in range(6)]
    invalid = [make_event(n, "w", RECEIVED, fault={"count": "many"}) for n in (8, 9)]
    contents = [
        FileContent(0, [*valid[:2], invalid[0]]),
        FileContent(1, [*valid[4:], invalid[1]]),
        FileContent(2, valid[2:4]),
    ]
    before, after, then = {PATHS[0]: 0}, {PATHS[0]: 1}, {PATHS[0]: 1, PATHS[1]: 0}
    for write in range(1, 30):
        steps = [Step(before, 0, None, before), Step(after, 0.1, WriteFault(write, fault_type), then)]
        more_steps = [Step({PATHS[0]: 2}, 11, None, {})] if again else []
        if not run(Plan(event_id, True, contents, [*steps, *more_steps])).is_fault_reached:
            break
    assert write > 8


@settings(deadline=None, max_examples=60)
@given(plan=plans())
def test_every_pulled_row_is_read_once(plan):
    run(plan)
