"""Pulls that fail at any of their writes, or run concurrently with each other, one call at a time.

The definition of the source may change between any two of them, and two concurrent ones may have different definitions.
The objects of each file's version exist at all times. After a last pull without failures, readers see each file's
current content exactly once, as the last definition reads it. Some days later nothing else is stored.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slackwater.receiver.pull.fetch import LEASE
from slackwater.receiver.pull.file_cache import Content
from slackwater.sources.partitions import Partition, named_rows
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_interleaving import take_turns
from tests.fakes_receiver import a_source
from tests.pulling import FIRST, SECOND, THIRD, Setup, csv_of, row
from tests.reading import read_parquet

pytestmark = pytest.mark.unit

# Timestamps without an offset, so each definition reads them into other partitions.
DEFINITIONS = [a_source(timestamp={"field": "at", "timezone": name}) for name in ("UTC", "Asia/Tokyo")]
OLD = csv_of(row("a", "2013-03-11T12:00:00"), row("b", "2013-03-11T13:00:00"))
NEW = csv_of(row("a", "2013-03-11T12:00:00"), row("c", "2013-03-11T14:00:00"), "bad\n")
OTHER = csv_of(row("d", "2013-03-11T13:00:00"))
IDS = {OLD: ["a", "b"], NEW: ["a", "c"], OTHER: ["d"], csv_of(): []}
"""Contents, and the ids of their valid rows."""

Files = Mapping[str, bytes]
_FILES = st.dictionaries(st.sampled_from([FIRST, SECOND, THIRD]), st.sampled_from(list(IDS)))
_DEFINITION = st.sampled_from(range(len(DEFINITIONS)))
_FAULT = st.builds(WriteFault, st.integers(1, 14), st.sampled_from(FAULT_TYPES))
_ORDER = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), max_size=16)
"""The processes that make the next calls, and the number of calls."""


def pull(setup: Setup, files: Files, fault: WriteFault | None = None) -> None:
    setup.partner.files = dict(files)
    process = Process(fault, meanwhile=setup.pull)
    setup.pull(using=process.using)
    assert_versions_are_complete(setup)


def assert_versions_are_complete(setup: Setup) -> None:
    """All objects of each committed version exist, and the number of files of each content is right."""
    files = Counter(entry.content for entry in setup.cache.all("things") if entry.content)
    for content in setup.cache.saved_contents.values():
        assert content.files == files[content.id]
        if version := content.committed:
            uris = committed_uris(setup, content)
            assert [Partition(*(uri.split("/")[n][5:] for n in (5, 6))) for uri in uris] == list(version.partitions)
            rows = json.dumps([named_rows(uri) for uri in uris])
            assert hashlib.sha256(rows.encode()).hexdigest()[:12] == version.rows_digest, content.paths


def committed_uris(setup: Setup, content: Content) -> Sequence[str]:
    """Return the URIs of the objects of a content's committed version, in order of their partitions."""
    version = content.committed
    return setup.store.uris(f"/{content.id}-{version.object_id}-") if version else []


def assert_last_pull_finishes(setup: Setup, *, without_waiting: bool = False) -> None:
    """A pull without faults leaves each file's content once, and some days later nothing else; no work is left.

    Without waiting, leases and the delays before retries have not ended, and a second pull may be needed after the
    pull of another file.
    """
    if not without_waiting:
        setup.clock.pass_by(days=2)
    for _ in range(1 + without_waiting):
        setup.pull()
    assert list(setup.plan().items) == []
    stored = stored_ids(setup, setup.committed())
    setup.clock.pass_by(days=4)
    setup.remove_stale()
    entries = setup.cache.all("things")
    digests = {path: hashlib.sha256(content).hexdigest()[:32] for path, content in setup.partner.files.items()}
    expected = {path: (digest, setup.source.reading_digest) for path, digest in digests.items()}
    contents = setup.cache.saved_contents
    read = {
        entry.path: (entry.content, contents["things", entry.content].committed.definition)
        for entry in entries
        if entry.content
    }
    assert {path: read[path] for path in expected} == expected
    current_entries = {entry.content: entry for entry in entries if entry.content}
    # The rows of removed files stay, with the content that was stored last.
    bodies = [setup.store.get(entry.landing_uri) for entry in current_entries.values()]
    assert Counter(stored) == Counter(name for body in bodies for name in IDS[body])
    assert Counter(stored_ids(setup, setup.store.uris("/raw/source="))) == Counter(stored)
    assert_versions_are_complete(setup)
    contents = contents.values()
    committed = {uri for content in contents for uri in committed_uris(setup, content)}
    assert set(setup.store.uris("/raw/source=")) == committed
    assert all((entry.changed, entry.lease) == ((), None) for entry in entries)


def stored_ids(setup: Setup, uris: Sequence[str]) -> list[str]:
    bodies = [setup.store.get(uri) for uri in uris]
    return [name for body in bodies for name in read_parquet(body, ["id"])["id"].to_pylist()]


SCENARIOS = {
    "comes": ({}, {FIRST: NEW}),
    "changes": ({FIRST: OLD}, {FIRST: NEW}),
    "is renamed": ({FIRST: OLD}, {FIRST: NEW, SECOND: OLD}),
    "differs from its duplicate": ({FIRST: OLD, SECOND: OLD}, {FIRST: NEW, SECOND: OLD}),
    "is read with a corrected definition": ({FIRST: OLD, SECOND: OLD}, {FIRST: OLD, SECOND: OLD}),
    "changes together with its duplicate": ({FIRST: OLD, SECOND: OLD}, {FIRST: NEW, SECOND: NEW}),
}


@pytest.mark.parametrize("fault_type", FAULT_TYPES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_fault_at_any_write_is_repaired_while_a_file(scenario, fault_type):
    before, after = SCENARIOS[scenario]
    pulled = Setup(source=DEFINITIONS[0])
    pull(pulled, before)
    for write in range(1, 30):
        setup = pulled.copy()
        setup.source = DEFINITIONS[scenario == "is read with a corrected definition"]
        process = Process(WriteFault(write, fault_type), meanwhile=setup.pull)
        setup.partner.files = dict(after)
        setup.pull(using=process.using)
        assert_versions_are_complete(setup)
        assert_last_pull_finishes(setup, without_waiting=not fault_type.startswith("ends"))
        if not process.is_fault_reached:
            break
    assert write > 8


@settings(deadline=None, max_examples=60)
@given(days=st.lists(st.tuples(_FILES, _FAULT | st.none(), st.booleans(), _DEFINITION), min_size=1, max_size=5))
@example(
    days=[
        ({FIRST: OLD}, None, True, 0),
        ({FIRST: NEW}, WriteFault(7, "ends after"), True, 0),
        ({FIRST: OLD}, None, True, 0),
    ]
)
@example(days=[({FIRST: OLD}, WriteFault(6, "ends after"), True, 0), ({}, None, True, 0)])
@example(  # The second file is stored when its pull fails, and the partner has removed it before the next pull.
    days=[({FIRST: OLD}, None, False, 0), ({SECOND: OLD}, WriteFault(8, "fails"), False, 0), ({}, None, False, 0)]
)
def test_the_last_pull_leaves_each_content_once_after_any_faults(days):
    setup = Setup(source=DEFINITIONS[0])
    for files, fault, leases_end, definition in days:
        setup.source = DEFINITIONS[definition]
        pull(setup, files, fault)
        if leases_end:
            setup.clock.pass_by(seconds=LEASE.total_seconds())
    assert_last_pull_finishes(setup)


def turns(order: Sequence[tuple[int, int]]) -> list[int]:
    return [process for process, calls in order for _ in range(calls)]


@settings(deadline=None, max_examples=60)
@given(before=_FILES, after=_FILES, order=_ORDER, definitions=st.tuples(_DEFINITION, _DEFINITION, _DEFINITION))
@example({FIRST: OLD}, {FIRST: NEW, SECOND: OLD}, [(0, 1), (1, 1)] * 60, (0, 0, 0))
@example({FIRST: OLD, SECOND: OLD}, {FIRST: NEW, SECOND: NEW}, [(0, 1), (1, 1)] * 60, (0, 0, 0))
@example({FIRST: OLD, SECOND: OLD}, {FIRST: OLD, SECOND: OLD}, [(0, 1), (1, 1)] * 60, (0, 1, 0))
def test_two_concurrent_pulls_may_interleave_in_any_order(before, after, order, definitions):
    first, second, last = (DEFINITIONS[number] for number in definitions)
    setup = Setup(source=first)
    pull(setup, before)
    setup.partner.files = dict(after)
    works = [lambda using, source=source: setup.pull(using=using, source=source) for source in (first, second)]
    setup.source = last
    take_turns(works, turns(order), after_each=lambda: assert_versions_are_complete(setup))
    assert_last_pull_finishes(setup)


@settings(deadline=None, max_examples=60)
@given(days=st.tuples(_FILES, _FILES, _FILES), order=_ORDER, fault=_FAULT | st.none(), definition=_DEFINITION)
@example(({FIRST: OLD}, {FIRST: NEW}, {FIRST: OLD}), [(0, 1), (1, 1), (2, 1)] * 60, None, 0)
@example(({FIRST: OLD}, {FIRST: NEW}, {SECOND: OLD}), [(2, 3), (0, 30), (2, 20)], None, 0)
def test_stale_objects_are_deleted_between_any_calls_of_two_pulls(days, order, fault, definition):
    """What the first two pulls have left is old enough."""
    earlier, before, after = days
    setup = Setup(source=DEFINITIONS[0])
    pull(setup, earlier)
    pull(setup, before, fault)
    setup.clock.pass_by(days=4)
    setup.partner.files, setup.source = dict(after), DEFINITIONS[definition]
    works = [lambda using: setup.pull(using=using), lambda using: setup.pull(using=using), setup.remove_stale]
    take_turns(works, turns(order), after_each=lambda: assert_versions_are_complete(setup))
    assert_last_pull_finishes(setup)


@settings(deadline=None, max_examples=60)
@given(before=_FILES.filter(bool), after=_FILES.filter(bool), order=_ORDER)
@example(  # Two of them replace the content that the third one needs.
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
    setup = Setup(source=DEFINITIONS[0])
    pull(setup, before)
    setup.partner.files = dict(after)
    works = [lambda using, item=item: setup.fetch(item, using) for item in setup.plan().items]
    take_turns(works, turns(order), after_each=lambda: assert_versions_are_complete(setup))
    assert_last_pull_finishes(setup)
