"""A person lists the files of a source, and gives up those that cannot be fetched."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.errors import InputError
from slackwater.receiver.pull.file_cache import EntryChanged, FileEntry, FileState, Lease
from slackwater.receiver.pull.give_up import give_up
from slackwater.receiver.pull.recorded_files import recorded_files
from slackwater.sources.partitions import Partition
from tests.fakes_dynamodb import LocalDynamoDB
from tests.fakes_receiver import FILE_TABLE, RECEIVED, Crash, MemoryFileCache
from tests.pulling import FIRST, SECOND, THIRD, Setup, csv_of, row

pytestmark = pytest.mark.unit

NAME = Setup().source.source


@pytest.fixture
def setup():
    """Pulled files: one is stored, two are broken at the partner."""
    setup = Setup({FIRST: csv_of(row("a")), SECOND: csv_of(row("b")), THIRD: csv_of(row("c"))})
    setup.partner.broken = {SECOND, THIRD}
    setup.pull()
    return setup


def give_up_files(setup, *paths, reason=None):
    return give_up(NAME, paths, reason=reason, cache=setup.cache, now=setup.clock())


def listed(setup, state=None, limit=100, **options):
    options = {"as_of": None, "now": setup.clock(), **options}
    files = recorded_files(
        setup.source, cache=setup.cache, state=FileState(state) if state else None, limit=limit, **options
    )
    return [entry.path for entry in files.entries], files.more


def test_a_file_that_was_given_up_is_not_fetched_again_at_any_age(setup):
    give_up_files(setup, SECOND, reason="the partner lost it")
    entry = setup.entry(SECOND)
    assert (entry.state, entry.reason, entry.is_unfinished) == (FileState.GIVEN_UP, "the partner lost it", False)
    for _ in range(3):
        setup.clock.pass_by(days=2)
        setup.pull()
    assert setup.partner.fetched.count(SECOND) == 1
    assert setup.partner.fetched.count(THIRD) > 1


def test_a_file_that_was_given_up_counts_as_taken(setup):
    assert setup.plan().oldest_not_taken == RECEIVED
    give_up_files(setup, SECOND, THIRD)
    assert setup.plan().oldest_not_taken is None
    assert listed(setup, "failed") == ([], False)


def test_without_a_reason_the_reason_of_the_last_failure_stays(setup):
    assert give_up_files(setup, SECOND)[0].reason == f"{SECOND}: answered 500"


def test_a_file_that_the_partner_changes_after_it_was_given_up_is_fetched(setup):
    give_up_files(setup, SECOND)
    setup.partner.broken.clear()
    setup.partner.files[SECOND] = csv_of(row("repaired"))
    assert setup.pull()[SECOND] == "stored"
    assert setup.ids() == ["a", "c", "repaired"]


def test_giving_up_a_changed_file_keeps_the_rows_of_its_stored_content(setup):
    setup.partner.files[FIRST] = csv_of(row("changed"))
    setup.partner.broken.add(FIRST)
    setup.pull()
    give_up_files(setup, FIRST)
    assert setup.entry(FIRST).content
    assert setup.ids() == ["a"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no-such-file.csv", f"no pull has seen a file 'no-such-file.csv' .*slackwater files {NAME}"),
        (FIRST, f"{FIRST}: there is nothing to give up: its rows are stored"),
    ],
)
def test_no_file_is_given_up_when_one_of_them_cannot_be(setup, path, message):
    with pytest.raises(InputError, match=message):
        give_up_files(setup, SECOND, path)
    assert setup.entry(SECOND).state is FileState.FAILED


def test_a_file_that_is_being_fetched_is_not_given_up(setup):
    entry = setup.entry(SECOND)
    lease = Lease(owner="another pull", until=setup.clock() + timedelta(minutes=16))
    setup.cache.save(entry.model_copy(update={"lease": lease}))
    with pytest.raises(InputError, match=r"a pull is fetching it: wait until .* at the latest at 09:46 UTC"):
        give_up_files(setup, SECOND)
    setup.clock.pass_by(minutes=17)
    assert give_up_files(setup, SECOND)[0].lease is None


def test_a_file_is_not_given_up_twice(setup):
    give_up_files(setup, SECOND)
    with pytest.raises(InputError, match="it was given up before"):
        give_up_files(setup, SECOND)


def test_a_pull_that_changes_a_file_meanwhile_wins_and_no_file_is_given_up(setup):
    class Late(MemoryFileCache):
        def save(self, *records):
            entry = setup.entry(THIRD)
            setup.cache.save(entry.model_copy(update={"size": 7}))
            setup.cache.save(*records)

    late = Late()
    late.saved_entries = setup.cache.saved_entries
    with pytest.raises(EntryChanged, match="none was given up: run the command again"):
        give_up(NAME, [SECOND, THIRD], reason=None, cache=late, now=setup.clock())
    assert {setup.entry(path).state for path in (SECOND, THIRD)} == {FileState.FAILED}


def test_more_files_than_one_transaction_has_are_refused(setup):
    with pytest.raises(InputError, match="101 files: give up at most 100 at a time"):
        give_up_files(setup, *map(str, range(101)))


def interrupted(setup, path):
    """Interrupt the fetch of a file when it writes its first object; then the file breaks at the partner."""
    setup.partner.broken.discard(path)
    setup.clock.pass_by(days=1)
    [item] = [item for item in setup.plan().items if item.path == path]
    put_new = setup.store.put_new_file

    def crash(uri, *arguments, **more):
        written = put_new(uri, *arguments, **more)
        if "/raw/source=" in uri:
            raise Crash(uri)
        return written

    setup.store.put_new_file = crash
    with pytest.raises(Crash):
        setup.fetch(item)
    setup.store.put_new_file = put_new
    setup.partner.broken.add(path)


def test_what_an_interrupted_attempt_of_a_given_up_file_left_is_deleted_later_and_the_file_is_not_fetched(setup):
    interrupted(setup, SECOND)
    assert len(setup.store.uris("/raw/source=")) == 2
    give_up_files(setup, SECOND, THIRD)
    fetched = len(setup.partner.fetched)
    setup.pull()
    entry = setup.entry(SECOND)
    assert (entry.state, entry.is_unfinished, len(setup.partner.fetched)) == (FileState.GIVEN_UP, False, fetched)
    assert setup.ids() == ["a"]
    setup.clock.pass_by(days=4)
    assert setup.remove_stale() == (1, 0)
    assert setup.store.uris("/raw/source=") == setup.committed()
    assert setup.ids() == ["a"]


def test_what_the_commit_of_a_given_up_file_has_changed_is_reported_by_the_next_pull_without_a_fetch(setup):
    """The pull was killed after its commit, and the repair has failed because the partner has changed the file."""
    setup.partner.broken.discard(SECOND)
    setup.clock.pass_by(days=1)
    setup.fail_after_the_commit(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        setup.fetch(next(item for item in setup.plan().items if item.path == SECOND))
    setup.partner.broken.add(SECOND)
    setup.partner.files[SECOND] = csv_of(row("changed"))
    setup.clock.pass_by(days=1)
    setup.pull()
    [entry] = give_up_files(setup, SECOND)
    assert entry.due == setup.clock()
    fetched = setup.partner.fetched.count(SECOND)
    [item] = [item for item in setup.plan().items if item.path == SECOND]
    assert setup.fetch(item).partitions == (("2013-03-11", "12"),)
    entry = setup.entry(SECOND)
    assert (entry.state, entry.is_unfinished) == (FileState.GIVEN_UP, False)
    assert setup.partner.fetched.count(SECOND) == fetched
    assert setup.ids() == ["a", "b"]


def test_files_that_are_not_taken_are_listed_at_any_age_the_oldest_first(setup):
    setup.partner.files["things-2013-05-01.csv"] = csv_of(row("d"))
    setup.partner.broken.add("things-2013-05-01.csv")
    setup.clock.pass_by(days=50)
    setup.pull(as_of=None)
    assert listed(setup, "failed") == ([SECOND, THIRD, "things-2013-05-01.csv"], False)
    assert listed(setup, "failed", limit=2) == ([SECOND, THIRD], True)
    assert listed(setup, "stored") == ([], False)


def test_all_files_of_the_window_are_listed_after_those_that_are_not_taken(setup):
    assert listed(setup) == ([SECOND, THIRD, FIRST], False)
    assert listed(setup, limit=1) == ([SECOND], True)
    assert listed(setup, "stored") == ([FIRST], False)


def test_a_file_whose_first_attempt_was_interrupted_is_listed_as_failed(setup):
    lease = Lease(owner="a pull", until=setup.clock() + timedelta(minutes=16))
    setup.cache.save(
        FileEntry(
            source=NAME,
            path="killed.csv",
            state=FileState.LEASED,
            lease=lease,
            due=lease.until,
            not_taken_since=setup.clock(),
        )
    )
    assert listed(setup, "leased") == (["killed.csv"], False)
    setup.clock.pass_by(minutes=17)
    assert listed(setup, "leased") == ([], False)
    assert "killed.csv" in listed(setup, "failed")[0]


def test_files_of_interrupted_pulls_are_listed_although_their_date_is_not_in_the_window(setup):
    changed = (Partition("2013-03-11", "12"),)
    setup.cache.save(setup.entry(FIRST).model_copy(update={"changed": changed, "due": setup.clock()}))
    setup.clock.pass_by(days=500)
    assert listed(setup) == ([SECOND, THIRD, FIRST], False)


def test_dynamodb_reads_files_that_are_not_taken_in_order_and_page_by_page():
    local = LocalDynamoDB()
    with local.table("not-taken-files", **FILE_TABLE) as table:
        cache = DynamoFileCache(local.client, table)
        for number in range(5):
            since, state = RECEIVED - timedelta(days=number), FileState.FAILED if number else FileState.GIVEN_UP
            cache.save(
                FileEntry(
                    source=NAME,
                    path=f"{number}.csv",
                    state=state,
                    due=since,
                    not_taken_since=since,
                    reason="?" * 300_000,
                )
            )
        assert [entry.path for entry in cache.not_taken(NAME)] == ["4.csv", "3.csv", "2.csv", "1.csv"]
        assert cache.longest_not_taken(NAME) == next(cache.not_taken(NAME))
