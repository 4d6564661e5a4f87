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
"""Contents, and the ids of their valid rows."""

Files = Mapping[str, bytes]
_FILES = st.dictionaries(st.sampled_from([FIRST, SECOND, THIRD]), st.sampled_from(list(IDS)))
_FAULT = st.builds(WriteFault, st.integers(1, 14), st.sampled_from(FAULT_TYPES))
_ORDER = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), max_size=16)
"""The processes that make the next calls, and the number of calls."""


def pull(setup: Setup, files: Files, fault: WriteFault | None = None) -> None:
    setup.partner.files = dict(files)
    process = Process(fault, meanwhile=setup.pull)
    setup.pull(using=process.using)
    assert_versions_are_complete(setup)


def assert_versions_are_complete(setup: Setup) -> None:
    """All objects of each file's version exist."""
    for entry in setup.cache.entries("things"):
        if entry.version:
            assert set(entry.version.object_uris("raw", "things")) <= setup.store.objects.keys(), entry.path


def assert_last_pull_finishes(setup: Setup, *, without_waiting: bool = False) -> None:
    """A pull without faults leaves each file's content once, and nothing else; then no work is left.

    Without waiting, leases have not expired, and a second pull may be needed after another file's cleanup.
    """
    if not without_waiting:
        setup.clock.pass_by(seconds=LEASE.total_seconds())
    for _ in range(1 + without_waiting):
        setup.pull()
    entries = setup.cache.entries("things")
    expected = {path: hashlib.sha256(content).hexdigest() for path, content in setup.partner.files.items()}
    assert {entry.path: entry.version.content_sha256 for entry in entries if entry.path in expected} == expected
    current_entries = {entry.version.content_sha256: entry for entry in entries if entry.version}
    # The rows of removed files stay, with the content that was stored last.
    contents = [setup.store.get(entry.landing_uri) for entry in current_entries.values()]
    assert Counter(stored_ids(setup)) == Counter(name for content in contents for name in IDS[content])
    objects = {uri for entry in current_entries.values() for uri in entry.version.object_uris("raw", "things")}
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
    "differs from its duplicate": ({FIRST: OLD, SECOND: OLD}, {FIRST: NEW, SECOND: OLD}),
    "changes together with its duplicate": ({FIRST: OLD, SECOND: OLD}, {FIRST: NEW, SECOND: NEW}),
}


@pytest.mark.parametrize("fault_type", FAULT_TYPES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_fault_at_any_write_is_repaired_while_a_file(scenario, fault_type):
    before, after = SCENARIOS[scenario]
    for write in range(1, 30):
        setup = Setup()
        pull(setup, before)
        process = Process(WriteFault(write, fault_type), meanwhile=setup.pull)
        setup.partner.files = dict(after)
        setup.pull(using=process.using)
        assert_versions_are_complete(setup)
        assert_last_pull_finishes(setup, without_waiting=not fault_type.startswith("ends"))
        if not process.is_fault_reached:
            break
    assert write > 9


@settings(deadline=None, max_examples=60)
@given(days=st.lists(st.tuples(_FILES, _FAULT | st.none(), st.booleans()), min_size=1, max_size=5))
@example(
    days=[({FIRST: OLD}, None, True), ({FIRST: NEW}, WriteFault(7, "ends after"), True), ({FIRST: OLD}, None, True)]
)
@example(days=[({FIRST: OLD}, WriteFault(6, "ends after"), True), ({}, None, True)])
def test_the_last_pull_leaves_each_content_once_after_any_faults(days):
    setup = Setup()
    for files, fault, leases_end in days:
        pull(setup, files, fault)
        if leases_end:
            setup.clock.pass_by(seconds=LEASE.total_seconds())
    assert_last_pull_finishes(setup)


def turns(order: Sequence[tuple[int, int]]) -> list[int]:
    return [process for process, calls in order for _ in range(calls)]


@settings(deadline=None, max_examples=60)
@given(before=_FILES, after=_FILES, order=_ORDER)
@example(before={FIRST: OLD}, after={FIRST: NEW, SECOND: OLD}, order=[(0, 1), (1, 1)] * 60)
@example(before={FIRST: OLD, SECOND: OLD}, after={FIRST: NEW, SECOND: NEW}, order=[(0, 1), (1, 1)] * 60)
def test_two_concurrent_pulls_may_interleave_in_any_order(before, after, order):
    setup = Setup()
    pull(setup, before)
    setup.partner.files = dict(after)
    works = [lambda using: setup.pull(using=using)] * 2
    take_turns(works, turns(order), after_each=lambda: assert_versions_are_complete(setup))
    assert_last_pull_finishes(setup)


@settings(deadline=None, max_examples=60)
@given(before=_FILES.filter(bool), after=_FILES.filter(bool), order=_ORDER)
@example(  # Two of them delete the content that the third one needs.
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
def test_files_of_one_pull_may_be_stored_concurrently_in_any_order(before, after, order):
    """The state machine runs one function per file, several of them at the same time."""
    setup = Setup()
    pull(setup, before)
    setup.partner.files = dict(after)
    works = [lambda using, item=item: setup.fetch(item, using) for item in setup.plan().items]
    take_turns(works, turns(order), after_each=lambda: assert_versions_are_complete(setup))
    assert_last_pull_finishes(setup)
