"""Files that the partner removes after their rows were stored: recorded with caution, and undone when they return."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress
from functools import cache

import pytest

from slackwater.errors import SlackwaterError
from slackwater.receiver.pull.file_cache import Content, FileEntry, FileState, Lease
from slackwater.receiver.pull.plan import plan_pull
from slackwater.receiver.pull.removed_files import (
    MAX_RECORDED,
    read_doubtful,
    record_removed,
    save_doubtful,
)
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_interleaving import take_turns
from tests.fakes_receiver import RECEIVED, Crash, MemoryFileCache
from tests.pulling import FIRST, SECOND, THIRD, TODAY, Setup, csv_of, row

pytestmark = pytest.mark.unit

OTHER, ANOTHER = "things-2013-03-10-b.csv", "things-2013-03-10-c.csv"
FILES = {FIRST: csv_of(row("a")), SECOND: csv_of(row("b")), THIRD: csv_of(row("c"))}


def plan(setup: Setup, *, using=lambda port: port, partner=None):
    """Plan a pull that records removed files."""
    return plan_pull(
        setup.source, as_of=TODAY, partner=partner or setup.partner, cache=using(setup.cache), now=setup.clock(),
        records_removed=True,
    )  # fmt: skip


def removed(setup: Setup) -> set[str]:
    """Return the files whose removal is recorded; the numbers of the contents agree with the entries."""
    entries = setup.cache.all("things")
    files = Counter(entry.content for entry in entries if entry.content)
    gone = Counter(entry.content for entry in entries if entry.removed_since)
    for content in setup.cache.saved_contents.values():
        assert (content.files, content.removed) == (files[content.id], gone[content.id])
        assert content.is_removed == (0 < files[content.id] == gone[content.id])
    return {entry.path for entry in entries if entry.removed_since}


@cache
def pulled() -> Setup:
    setup = Setup(FILES)
    setup.pull()
    return setup


def stored(files: dict[str, bytes]) -> Setup:
    """A setup in which these files are stored: a day may have several."""
    source = Setup().source
    source = source.model_copy(update={"pull": source.pull.model_copy(update={"files": "things-{date}*.csv"})})
    setup = Setup(files, source)
    setup.pull()
    return setup


@pytest.fixture
def setup():
    """A setup in which all files are stored."""
    return pulled().copy()


def test_a_removed_file_is_recorded_once_and_nothing_is_deleted(setup):
    del setup.partner.files[FIRST]
    setup.clock.pass_by(hours=1)
    objects = dict(setup.store.objects)
    result = plan(setup)
    assert (result.items, result.removed, result.doubtful, removed(setup)) == ([], 1, [], {FIRST})
    assert (setup.entry(FIRST).removed_since, setup.entry(FIRST).state) == (setup.clock(), FileState.STORED)
    revision = setup.entry(FIRST).revision
    setup.clock.pass_by(hours=1)
    assert plan(setup).removed == 1
    assert (setup.entry(FIRST).revision, setup.store.objects) == (revision, objects)


def test_nothing_is_recorded_while_every_pipeline_keeps_the_rows(setup):
    del setup.partner.files[FIRST]
    assert (setup.plan().removed, removed(setup)) == (1, set())


def test_a_file_that_returns_counts_again(setup):
    del setup.partner.files[FIRST]
    plan(setup)
    setup.partner.files[FIRST] = FILES[FIRST]
    assert setup.copy().plan().returned == 1
    # Also after every pipeline has been changed to keep the rows.
    assert (setup.pull(), removed(setup)) == ({}, set())


def test_a_file_that_returns_with_another_content_is_fetched(setup):
    del setup.partner.files[FIRST]
    plan(setup)
    setup.partner.files[FIRST] = csv_of(row("d"), row("e"))
    assert (setup.pull(), removed(setup), setup.ids()) == ({FIRST: "stored"}, set(), ["b", "c", "d", "e"])


def test_a_removal_that_is_recorded_while_the_file_is_fetched_ends_with_its_new_content(setup):
    """The pull has listed the file after another pull had missed it."""
    setup.partner.files[FIRST] = csv_of(row("d"), row("e"))
    (item,) = setup.plan().items
    setup.partner.files = {SECOND: FILES[SECOND], THIRD: FILES[THIRD]}
    plan(setup)
    assert removed(setup) == {FIRST}
    setup.partner.files[FIRST] = csv_of(row("d"), row("e"))
    assert setup.fetch(item).state == "stored"
    assert removed(setup) == set()


@pytest.mark.parametrize(
    ("files", "doubtful", "recorded"),
    [([], 3, set()), ([THIRD], 2, set()), ([SECOND, THIRD], 0, {FIRST})],
)
def test_a_listing_that_lacks_most_files_removes_none(setup, files, doubtful, recorded):
    setup.partner.files = {name: FILES[name] for name in files}
    result = plan(setup)
    assert (result.removed, len(result.doubtful)) == (3 - len(files), doubtful)
    assert removed(setup) == recorded


def test_a_listing_that_lacks_exactly_half_of_the_files_removes_none():
    setup = stored({**FILES, OTHER: csv_of(row("d"))})
    setup.partner.files = {name: FILES[name] for name in (SECOND, THIRD)}
    assert (set(plan(setup).doubtful), removed(setup)) == ({FIRST, OTHER}, set())


def test_a_second_listing_that_lacks_as_many_files_as_it_has_removes_none(setup):
    result = plan(setup, partner=Flickering(setup, [SECOND, THIRD], [SECOND]))
    assert (result.doubtful, removed(setup)) == ([FIRST], set())


@pytest.mark.parametrize(("accepted", "recorded"), [(1, set()), (2, {FIRST, SECOND}), (3, {FIRST, SECOND})])
def test_a_person_accepts_a_large_removal_up_to_the_number_of_files_that_they_have_seen(setup, accepted, recorded):
    setup.partner.files = {THIRD: FILES[THIRD]}
    result = plan_pull(
        setup.source, as_of=TODAY, partner=setup.partner, cache=setup.cache, now=setup.clock(), records_removed=True,
        accept_removed=accepted,
    )  # fmt: skip
    assert (set(result.doubtful), removed(setup)) == ({FIRST, SECOND} - recorded, recorded)


def test_accepted_files_that_return_in_the_second_listing_are_not_removed(setup):
    result = plan_pull(
        setup.source, as_of=TODAY, partner=Flickering(setup, [], [FIRST, SECOND]), cache=setup.cache,
        now=setup.clock(), records_removed=True, accept_removed=3,
    )  # fmt: skip
    assert (result.doubtful, removed(setup)) == ([], {THIRD})


def test_the_doubtful_files_of_the_latest_pull_replace_those_before(setup):
    def saved(*paths):
        save_doubtful(paths, store=setup.store, exchange_bucket="exchange", source="things", at=RECEIVED)
        return read_doubtful(setup.store, exchange_bucket="exchange", source="things")

    assert read_doubtful(setup.store, exchange_bucket="exchange", source="things") is None
    stored = saved(*(f"{number}.csv" for number in range(700)))
    assert (stored.files, stored.examples[0], len(stored.examples), stored.at) == (700, "0.csv", 5, RECEIVED)
    assert saved() is None


def test_files_whose_removal_is_recorded_count_neither_as_present_nor_as_missing():
    """So a partner that removes one file after the other never looks like a broken listing."""
    setup = stored({**FILES, OTHER: csv_of(row("d"))})
    for path in (FIRST, OTHER):
        del setup.partner.files[path]
        assert plan(setup).doubtful == []
    assert removed(setup) == {FIRST, OTHER}
    del setup.partner.files[SECOND]
    assert (plan(setup).doubtful, removed(setup)) == ([SECOND], {FIRST, OTHER})


class Flickering:
    """A partner whose listings differ."""

    def __init__(self, setup: Setup, *listings: list[str]) -> None:
        self._setup, self._listings = setup, iter(listings)

    def list(self, pattern, days):
        names = next(self._listings)
        return [file for file in self._setup.partner.list(pattern, days) if file.name in names]


@pytest.mark.parametrize(
    ("second", "doubtful", "recorded"),
    [([FIRST, SECOND, THIRD], 0, set()), ([SECOND, THIRD], 0, {FIRST}), ([], 1, set()), ([FIRST], 0, set())],
)
def test_two_listings_must_lack_a_file(setup, second, doubtful, recorded):
    result = plan(setup, partner=Flickering(setup, [SECOND, THIRD], second))
    assert (len(result.doubtful), removed(setup)) == (doubtful, recorded)


def test_a_failed_listing_removes_nothing(setup):
    class Broken:
        def list(self, pattern, days):
            raise SlackwaterError("answered 500")

    with pytest.raises(SlackwaterError):
        plan(setup, partner=Broken())
    assert removed(setup) == set()


def test_a_file_that_another_pull_is_fetching_is_left_to_the_next_pull(setup):
    entry = setup.entry(FIRST)
    setup.cache.save(entry.model_copy(update={"lease": Lease(owner="o", until=RECEIVED.replace(hour=23))}))
    del setup.partner.files[FIRST]
    assert (plan(setup).doubtful, removed(setup)) == ([], set())


def test_a_content_is_removed_when_all_of_its_files_are():
    setup = stored({**FILES, SECOND: FILES[FIRST], OTHER: csv_of(row("d"))})
    del setup.partner.files[SECOND]
    plan(setup)
    contents = {content.id: content for content in setup.cache.saved_contents.values()}
    shared = contents[setup.entry(FIRST).content]
    assert (removed(setup), shared.files, shared.is_removed) == ({SECOND}, 2, False)
    del setup.partner.files[FIRST]
    plan(setup)
    (shared,) = setup.cache.contents("things", [shared.id])
    assert (removed(setup), shared.is_removed) == ({FIRST, SECOND}, True)


def test_files_outside_the_window_stay_as_they_are(setup):
    setup.partner.files = {THIRD: FILES[THIRD]}
    plan_pull(
        setup.source.model_copy(update={"pull": setup.source.pull.model_copy(update={"lookback_days": 1})}),
        as_of=TODAY, partner=setup.partner, cache=setup.cache, now=setup.clock(), records_removed=True,
    )  # fmt: skip
    assert removed(setup) == set()


def test_a_pull_records_a_limited_number():
    cache, names = MemoryFileCache(), [f"{number:04}" for number in range(2 * MAX_RECORDED + 3)]
    content = Content(source="things", id="c", received_at=RECEIVED, files=len(names))
    cache.save(content, *(FileEntry(source="things", path=name, state="stored", content="c") for name in names))
    present = set(names[MAX_RECORDED + 1 :])
    for recorded in (MAX_RECORDED, MAX_RECORDED + 1, MAX_RECORDED + 1):
        record_removed("things", names, present, list_again=lambda: present, cache=cache, now=RECEIVED)
        assert sum(bool(entry.removed_since) for entry in cache.entries("things", names)) == recorded


@pytest.mark.parametrize("fault", FAULT_TYPES)
@pytest.mark.parametrize("write", [1, 2])
def test_a_pull_that_breaks_off_while_it_records_leaves_whole_records(fault, write):
    """Both files have one content, so the second write changes the content that the first has changed."""
    setup = stored({**FILES, OTHER: FILES[FIRST], ANOTHER: csv_of(row("d"))})
    del setup.partner.files[FIRST], setup.partner.files[OTHER]
    process = Process(WriteFault(write, fault), meanwhile=lambda: plan(setup))
    with suppress(Crash):
        plan(setup, using=process.using)
    assert process.is_fault_reached
    assert removed(setup) <= {FIRST, OTHER}
    plan(setup)
    assert removed(setup) == {FIRST, OTHER}


@pytest.mark.parametrize("order", list(itertools.product((0, 1), repeat=7)))
def test_concurrent_pulls_that_see_different_listings_agree_after_the_next_pull(setup, order):
    """One has fetched a new content of the file, while the other has listed the folder without it."""
    new = csv_of(row("d"), row("e"))
    setup.partner.files[FIRST] = new
    (item,) = setup.plan().items

    def fetch(wrap):
        setup.fetch(item, using=lambda port: wrap(port) if port is setup.cache else port)

    def miss(wrap):
        plan(setup, using=wrap, partner=Flickering(setup, [SECOND, THIRD], [SECOND, THIRD]))

    take_turns([fetch, miss], order, after_each=lambda: removed(setup))
    setup.clock.pass_by(hours=1)
    setup.pull()
    assert (removed(setup), setup.ids()) == (set(), ["b", "c", "d", "e"])
