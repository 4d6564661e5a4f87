"""Pulls that fail at any of their writes, or run concurrently with each other, one call at a time.

The objects of each file's version exist at all times. After a last pull without failures, each file's current content
is in the partitions exactly once, and nothing else is.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slackwater.receiver.pull.fetch import LEASE
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_interleaving import take_turns
from tests.pulling import FIRST, SECOND, THIRD, Setup, csv_of, row

pytestmark = pytest.mark.unit

OLD = csv_of(row("a"), row("b", "2013-03-11T13:00:00Z"))
NEW = csv_of(row("a"), row("c", "2013-03-11T14:00:00Z"), "bad\n")
OTHER = csv_of(row("d", "2013-03-11T13:00:00Z"))
IDS = {OLD: ["a", "b"], NEW: ["a", "c"], OTHER: ["d"], csv_of(): []}
"""Contents, and the ids of the rows that are to be stored of them."""

Files = Mapping[str, bytes]
_FILES = st.dictionaries(st.sampled_from([FIRST, SECOND, THIRD]), st.sampled_from(list(IDS)))
_TROUBLE = st.builds(WriteFault, st.integers(1, 14), st.sampled_from(FAULT_TYPES))
_ORDER = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), max_size=16)
"""Which process makes its next calls, and how many."""


def pull(setup: Setup, files: Files, trouble: WriteFault | None = None) -> None:
    setup.partner.files = dict(files)
    process = Process(trouble, meanwhile=setup.pull)
    setup.pull(using=process.using)
    is_whole(setup)


def is_whole(setup: Setup) -> None:
    """All objects of each file's version are there."""
    for entry in setup.cache.entries("things"):
        if entry.version:
            assert set(entry.version.object_uris("raw", "things")) <= setup.store.objects.keys(), entry.path


def settles(setup: Setup, *, at_once: bool = False) -> None:
    """An undisturbed pull leaves each file's content once, and nothing else; then nothing is left to do.

    At once, no lease ends before: one file's pull may then wait for another's to clean up.
    """
    if not at_once:
        setup.clock.pass_by(seconds=LEASE.total_seconds())
    for _ in range(1 + at_once):
        setup.pull()
    entries = setup.cache.entries("things")
    there = {path: hashlib.sha256(content).hexdigest() for path, content in setup.partner.files.items()}
    assert {entry.path: entry.version.content_sha256 for entry in entries if entry.path in there} == there
    held = {entry.version.content_sha256: entry for entry in entries if entry.version}
    # The rows of files that are gone stay: their contents are those that they were taken with.
    contents = [setup.store.get(entry.landing_uri) for entry in held.values()]
    assert Counter(stored_ids(setup)) == Counter(name for content in contents for name in IDS[content])
    objects = {uri for entry in held.values() for uri in entry.version.object_uris("raw", "things")}
    assert set(setup.store.uris("/raw/source=")) == objects
    assert all((entry.writing, entry.superseded, entry.lease) == (None, (), None) for entry in entries)
    assert list(setup.plan().items) == []


def stored_ids(setup: Setup) -> list[str]:
    bodies = [setup.store.get(uri) for uri in setup.store.uris("/raw/source=")]
    return [name for body in bodies for name in pq.ParquetFile(io.BytesIO(body)).read(["id"])["id"].to_pylist()]


SCENARIOS = {
    "comes": ({}, {FIRST: NEW}),
    "changes": ({FIRST: OLD}, {FIRST: NEW}),
    "is renamed": ({FIRST: OLD}, {FIRST: NEW, SECOND: OLD}),
    "stops to be like another": ({FIRST: OLD, SECOND: OLD}, {FIRST: NEW, SECOND: OLD}),
    "changes as its like does": ({FIRST: OLD, SECOND: OLD}, {FIRST: NEW, SECOND: NEW}),
}


@pytest.mark.parametrize("kind", FAULT_TYPES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_trouble_at_any_write_while_a_file(scenario, kind):
    before, after = SCENARIOS[scenario]
    for write in range(1, 30):
        setup = Setup()
        pull(setup, before)
        process = Process(WriteFault(write, kind), meanwhile=setup.pull)
        setup.partner.files = dict(after)
        setup.pull(using=process.using)
        is_whole(setup)
        settles(setup, at_once=not kind.startswith("ends"))
        if not process.is_fault_reached:
            break
    assert write > 9


@settings(deadline=None, max_examples=60)
@given(days=st.lists(st.tuples(_FILES, _TROUBLE | st.none(), st.booleans()), min_size=1, max_size=5))
@example(
    days=[({FIRST: OLD}, None, True), ({FIRST: NEW}, WriteFault(7, "ends after"), True), ({FIRST: OLD}, None, True)]
)
@example(days=[({FIRST: OLD}, WriteFault(6, "ends after"), True), ({}, None, True)])
def test_whatever_happens_the_last_pull_leaves_each_content_once(days):
    setup = Setup()
    for files, trouble, leases_end in days:
        pull(setup, files, trouble)
        if leases_end:
            setup.clock.pass_by(seconds=LEASE.total_seconds())
    settles(setup)


def turns(order: Sequence[tuple[int, int]]) -> list[int]:
    return [process for process, calls in order for _ in range(calls)]


@settings(deadline=None, max_examples=60)
@given(before=_FILES, after=_FILES, order=_ORDER)
@example(before={FIRST: OLD}, after={FIRST: NEW, SECOND: OLD}, order=[(0, 1), (1, 1)] * 60)
@example(before={FIRST: OLD, SECOND: OLD}, after={FIRST: NEW, SECOND: NEW}, order=[(0, 1), (1, 1)] * 60)
def test_two_pulls_at_once_take_turns_in_any_order(before, after, order):
    setup = Setup()
    pull(setup, before)
    setup.partner.files = dict(after)
    works = [lambda using: setup.pull(using=using)] * 2
    take_turns(works, turns(order), after_each=lambda: is_whole(setup))
    settles(setup)


@settings(deadline=None, max_examples=60)
@given(before=_FILES.filter(bool), after=_FILES.filter(bool), order=_ORDER)
@example(  # Two of them sweep the content that the third one counts on.
    before={FIRST: OLD, SECOND: OLD},
    after={FIRST: NEW, SECOND: OTHER, THIRD: OLD},
    order=[
        (1, 10),
        (0, 9),
        (1, 2),
        (2, 4),
        (1, 5),
        (0, 9),
        (1, 10),
        (2, 6),
        (1, 2),
        (2, 2),
        (2, 6),
        (1, 8),
        (1, 7),
        (2, 9),
    ],
)
def test_files_of_one_pull_are_stored_at_once_in_any_order(before, after, order):
    """As the state machine does: one function a file, some of them at the same time."""
    setup = Setup()
    pull(setup, before)
    setup.partner.files = dict(after)
    works = [lambda using, item=item: setup.fetch(item, using) for item in setup.plan().items]
    take_turns(works, turns(order), after_each=lambda: is_whole(setup))
    settles(setup)
