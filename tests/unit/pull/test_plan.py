"""The plan of a pull: its window of dates, and its decisions from the listing and the file cache."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest

from slackwater.errors import DefinitionError, InputError, PartnerError, Throttled, Unavailable
from slackwater.receiver.connectors.connector import ListedFile, bucket_folder, listed_file
from slackwater.receiver.pull.file_cache import (
    Content,
    ContentVersion,
    FileEntry,
    FileState,
    Lease,
    retry_delay,
)
from slackwater.receiver.pull.give_up import give_up
from slackwater.receiver.pull.plan import (
    MAX_ITEMS,
    MAX_RETRIES,
    FileDecision,
    lookback_dates,
    plan_pull,
    read_item,
    work_list_uri,
    write_plan,
)
from slackwater.sources.definition import EventTimestamp
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.partitions import Partition
from tests.fakes_receiver import RECEIVED, MemoryConnector, MemoryFileCache, MemoryStore, a_source
from tests.pulling import Setup, csv_of, row

pytestmark = pytest.mark.unit

SOURCE = a_source()
TODAY = date(2013, 3, 12)
BEFORE, FIRST, SECOND, THIRD = (f"things-2013-03-{day}.csv" for day in ("09", "10", "11", "12"))
CONTENT = "ab" * 16
CHANGED = (Partition("2013-03-11", "12"),)


def pulled_source(**changes: object):
    """Return a pulled source and its `pull`."""
    source = a_source(pull={"url": "https://x.example/y", "files": "things-{date}.csv", "lookback_days": 3, **changes})
    return source, source.require_pull()


def stored(path: str = FIRST, **changes: object) -> FileEntry:
    dated = path if "-0.csv" not in path else path[:17] + "-*.csv"
    entry = FileEntry(
        source="things", path=path, dated_pattern=dated, state=FileState.STORED, size=3, etag="e", content=CONTENT
    )
    entry = entry.model_copy(update=changes)
    return entry.model_copy(update={"due": entry.due or RECEIVED}) if entry.is_unfinished else entry


class Listing(MemoryConnector):
    """A partner that lists these files, and records the calls."""

    def __init__(self, *files: ListedFile | str) -> None:
        super().__init__()
        self.listing = [ListedFile(name=file, size=3, etag="e") if isinstance(file, str) else file for file in files]
        self.list_calls: list[tuple[str, list[date]]] = []

    def list(self, pattern, days):
        self.list_calls.append((pattern.pattern, list(days)))
        return self.listing


def plan(
    *listing: ListedFile | str, known: tuple[FileEntry, ...] = (), as_of: date = TODAY, source=SOURCE, definition=""
):
    cache = MemoryFileCache()
    version = ContentVersion(definition=definition or source.reading_digest, partitions=())
    content = Content(source="things", id=CONTENT, received_at=RECEIVED, files=1, current=version)
    cache.save(content, *known)
    return plan_pull(source, as_of=as_of, partner=Listing(*listing), cache=cache, now=RECEIVED)


class Folder(MemoryConnector):
    """A partner that filters its listing by the pattern."""

    def list(self, pattern, days):
        wanted = pattern.of_days(days)
        return [file for file in super().list(pattern, days) if wanted.fullmatch(file.name)]


def decisions(plan_result) -> dict[str, FileDecision]:
    return {item.path: item.decision for item in plan_result.items}


class TestWindow:
    def test_the_window_ends_with_the_requested_date(self):
        assert [day.day for day in lookback_dates(SOURCE, TODAY, RECEIVED)] == [10, 11, 12]

    @pytest.mark.parametrize(
        ("timezone", "now", "today"),
        [
            ("UTC", datetime(2013, 3, 12, 3, 59, tzinfo=UTC), date(2013, 3, 12)),
            ("America/New_York", datetime(2013, 3, 12, 3, 59, tzinfo=UTC), date(2013, 3, 11)),
            ("America/New_York", datetime(2013, 3, 12, 4, 0, tzinfo=UTC), date(2013, 3, 12)),
            ("Asia/Tokyo", datetime(2013, 3, 12, 15, 0, tzinfo=UTC), date(2013, 3, 13)),
            ("Pacific/Kiritimati", datetime(2013, 3, 12, 10, 0, tzinfo=UTC), date(2013, 3, 13)),
        ],
    )
    def test_the_window_ends_today_in_the_timezone_of_the_source(self, timezone, now, today):
        source, _ = pulled_source(timezone=timezone, lookback_days=1)
        assert list(lookback_dates(source, None, now)) == [today]
        # Without `pull.timezone`, it is that of the timestamps.
        following, _ = pulled_source(lookback_days=1)
        local = following.model_copy(update={"timestamp": EventTimestamp(field="at", timezone=timezone)})
        assert list(lookback_dates(local, None, now)) == [today]

    def test_days_are_consecutive_across_clock_changes(self):
        source, _ = pulled_source(timezone="America/New_York", lookback_days=366)
        days = list(lookback_dates(source, date(2012, 12, 31), RECEIVED))
        assert (days[0], days[-1]) == (date(2012, 1, 1), date(2012, 12, 31))
        assert {later - earlier for earlier, later in pairwise(days)} == {timedelta(days=1)}

    def test_a_pushed_source_has_no_window(self):
        with pytest.raises(DefinitionError, match="its data is pushed"):
            a_source(pull=None).require_pull()


class TestSelectedFiles:
    def test_files_outside_the_window_and_other_files_are_ignored(self):
        result = plan(BEFORE, FIRST, "readme.txt", THIRD, "old/" + SECOND)
        assert decisions(result) == {FIRST: FileDecision.NEW, THIRD: FileDecision.NEW}
        assert (result.listed, result.unchanged, result.busy, result.removed) == (2, 0, 0, 0)

    def test_the_window_follows_the_requested_date(self):
        assert list(decisions(plan(BEFORE, FIRST, SECOND, as_of=date(2013, 3, 10)))) == [BEFORE, FIRST]

    def test_files_are_ordered_by_day_and_then_by_name(self):
        source, _ = pulled_source(files="*-{date:%d.%m.%Y}.csv")
        names = ["b-01.03.2013.csv", "a-28.02.2013.csv", "a-01.03.2013.csv", "b-28.02.2013.csv"]
        result = plan(*names, source=source, as_of=date(2013, 3, 1))
        assert list(decisions(result)) == [names[1], names[3], names[2], names[0]]

    def test_patterns_may_contain_hours_and_folders(self):
        source, _ = pulled_source(files="{date:%Y/%m/%d}/{hour}.csv")
        hourly_files = [f"2013/03/12/{hour:02d}.csv" for hour in range(24)]
        assert (
            list(decisions(plan(*hourly_files, "2013/03/12/24.csv", "2013/03/09/00.csv", source=source)))
            == hourly_files
        )

    def test_a_file_that_matches_several_days_is_listed_once(self):
        source, _ = pulled_source(files="{date:%Y-%m}.csv")
        result = plan("2013-03.csv", source=source)
        assert (list(decisions(result)), result.listed) == (["2013-03.csv"], 1)

    def test_the_partner_receives_the_pattern_and_the_days(self):
        partner = Listing()
        plan_pull(SOURCE, as_of=TODAY, partner=partner, cache=MemoryFileCache(), now=RECEIVED)
        assert partner.list_calls == [("things-{date}.csv", [date(2013, 3, day) for day in (10, 11, 12)])]


class TestDecisions:
    def test_stored_files_are_unchanged_and_missing_files_are_removed(self):
        result = plan(SECOND, known=(stored(FIRST), stored(SECOND), stored(BEFORE)))
        assert (decisions(result), result.listed, result.unchanged, result.removed) == ({}, 1, 1, 1)

    def test_files_that_were_never_stored_are_not_removed(self):
        result = plan(known=(stored(FIRST, state=FileState.VANISHED, content=None),))
        assert (decisions(result), result.removed) == ({}, 0)

    def test_a_file_of_another_pull_is_busy_until_the_lease_expires(self):
        until = Lease(owner="o", until=RECEIVED + timedelta(seconds=1))
        result = plan(FIRST, known=(stored(lease=until),))
        assert (decisions(result), result.busy) == ({}, 1)
        assert decisions(plan(FIRST, known=(stored(lease=Lease(owner="o", until=RECEIVED)),))) == {
            FIRST: FileDecision.REPAIR
        }

    @pytest.mark.parametrize(
        "unfinished", [{"lease": Lease(owner="o", until=RECEIVED)}, {"changed": CHANGED}], ids=["killed", "unreported"]
    )
    def test_files_after_a_crash_are_repaired_even_outside_the_window_or_when_they_are_removed(self, unfinished):
        result = plan(known=(stored(BEFORE, **unfinished), stored(FIRST, **unfinished)))
        assert decisions(result) == {BEFORE: FileDecision.REPAIR, FIRST: FileDecision.REPAIR}
        assert [item.listed for item in result.items] == [None, None]

    def test_failed_and_vanished_files_are_tried_again(self):
        entries = (
            stored(FIRST, state=FileState.FAILED),
            stored(SECOND, state=FileState.FAILED, content=None),
            stored(THIRD, state=FileState.VANISHED, content=None),
        )
        assert decisions(plan(FIRST, SECOND, THIRD, known=entries)) == {
            FIRST: FileDecision.CHANGED,
            SECOND: FileDecision.NEW,
            THIRD: FileDecision.NEW,
        }


class TestMaxItems:
    DAY = tuple(f"things-2013-03-11-{number:04}.csv" for number in range(MAX_ITEMS))

    @pytest.mark.parametrize(
        ("extra_files", "left"),
        [((), 0), (("things-2013-03-12-0.csv",), 1), (("things-2013-03-12-0.csv", "old.csv"), 1)],
    )
    def test_files_above_the_limit_wait_for_the_next_pull(self, extra_files, left):
        source, _ = pulled_source(files="things-{date}-*.csv")
        result = plan(*reversed(extra_files), *reversed(self.DAY), source=source)
        assert [item.path for item in result.items] == list(self.DAY)
        assert (result.listed, result.left) == (MAX_ITEMS + left, left)

    def test_the_next_pull_gets_the_files_that_waited(self):
        source, _ = pulled_source(files="things-{date}-*.csv")
        known = tuple(stored(name) for name in self.DAY)
        result = plan(*self.DAY, "things-2013-03-12-0.csv", known=known, source=source)
        assert (list(decisions(result)), result.left) == (["things-2013-03-12-0.csv"], 0)

    def test_new_files_come_first_and_repairs_are_not_left(self):
        source, _ = pulled_source(files="things-{date}-*.csv")
        later, removed = "things-2013-03-12-0.csv", "things-2013-01-01-0.csv"
        known = (stored(later, changed=CHANGED), stored(removed, changed=CHANGED))
        result = plan(*self.DAY, later, known=known, source=source)
        assert [item.path for item in result.items] == [*self.DAY[:-2], later, removed]
        assert [item.decision for item in result.items[-3:]] == [
            FileDecision.NEW,
            FileDecision.REPAIR,
            FileDecision.REPAIR,
        ]
        assert result.left == 2

    def test_a_thousand_failing_files_do_not_keep_newer_files_waiting(self):
        source, _ = pulled_source(files="things-{date}-*.csv")
        failing = tuple(stored(name, state=FileState.FAILED, content=None) for name in self.DAY)
        newer = [f"things-2013-03-12-{number:04}.csv" for number in range(MAX_ITEMS)]
        result = plan(*self.DAY, *newer, known=failing, source=source)
        assert [item.path for item in result.items[:-MAX_RETRIES]] == newer[:-MAX_RETRIES]
        assert {item.path for item in result.items[-MAX_RETRIES:]} < set(self.DAY)
        assert len(result.items) == MAX_ITEMS

    def test_retries_take_the_room_that_new_files_leave(self):
        source, _ = pulled_source(files="things-{date}-*.csv")
        failing = tuple(stored(name, state=FileState.FAILED, content=None) for name in self.DAY)
        result = plan(*self.DAY, known=failing, source=source)
        assert (len(result.items), result.left) == (MAX_ITEMS, 0)


class TestRetries:
    """A file that could not be taken is planned again, with a growing delay, until it is taken or given up."""

    FAILED = stored(FIRST, state=FileState.FAILED, content=None, attempts=3, attempted=ListedFile(name=FIRST, size=3))
    LATER = RECEIVED + timedelta(hours=1)

    def test_delays_grow_up_to_a_day(self):
        minutes = [retry_delay(attempts) / timedelta(minutes=1) for attempts in (1, 2, 3, 4, 8, 9, 10, 10_000)]
        assert minutes == [0, 15, 30, 60, 960, 1440, 1440, 1440]

    def test_a_file_waits_until_its_next_attempt_is_due(self):
        waiting = self.FAILED.model_copy(update={"due": self.LATER})
        result = plan(ListedFile(name=FIRST, size=3), known=(waiting,))
        assert (decisions(result), result.waiting) == ({}, 1)
        assert decisions(plan(ListedFile(name=FIRST, size=3), known=(self.FAILED,))) == {FIRST: FileDecision.NEW}

    def test_a_file_that_the_partner_has_delivered_again_does_not_wait(self):
        waiting = self.FAILED.model_copy(update={"due": self.LATER})
        assert decisions(plan(ListedFile(name=FIRST, size=4), known=(waiting,))) == {FIRST: FileDecision.NEW}

    @pytest.mark.parametrize(
        ("definition", "expected"),
        [("an earlier one", {FIRST: FileDecision.NEW}), (SOURCE.reading_digest, {}), ("", {})],
    )
    def test_a_file_that_was_read_with_another_definition_does_not_wait(self, definition, expected):
        changes = {"due": self.LATER, "attempted_definition": definition}
        result = plan(ListedFile(name=FIRST, size=3), known=(self.FAILED.model_copy(update=changes),))
        assert decisions(result) == expected

    def test_an_attempt_records_the_definition_with_which_it_reads_the_file(self):
        setup = Setup({FIRST: csv_of(row("a"))})

        def fail(name, into):
            raise PartnerError("500")

        setup.partner.fetch = fail
        for _ in range(2):
            (item,) = setup.plan().items
            with pytest.raises(PartnerError):
                setup.fetch(item)
        assert setup.plan().waiting == 1
        setup.source = setup.source.model_copy(update={"timestamp": EventTimestamp(field="at", timezone="Asia/Tokyo")})
        assert setup.entry(FIRST).attempted_definition != setup.source.reading_digest
        assert decisions(setup.plan()) == {FIRST: FileDecision.NEW}

    def test_a_failed_file_is_planned_after_it_has_left_the_window_and_the_listing(self):
        entry = stored(BEFORE, state=FileState.FAILED, content=None)
        (item,) = plan(known=(entry,)).items
        assert (item.path, item.decision, item.listed) == (BEFORE, FileDecision.NEW, None)

    @pytest.mark.parametrize(
        ("error", "attempts"), [(PartnerError("500"), 3), (Throttled("slow"), 0), (Unavailable("x"), 0)]
    )
    def test_a_short_failure_of_aws_is_no_failed_attempt_of_the_file(self, error, attempts):
        setup = Setup({FIRST: csv_of(row("a"))})
        (item,) = setup.plan().items

        def fail(name, into):
            raise error

        setup.partner.fetch = fail
        for _ in range(3):
            with pytest.raises(type(error)):
                setup.fetch(item)
        assert setup.entry(FIRST).attempts == attempts

    def test_a_vanished_file_that_stays_listed_waits_too(self):
        entry = stored(FIRST, state=FileState.VANISHED, content=None, attempts=2, due=self.LATER)
        entry = entry.model_copy(update={"attempted": ListedFile(name=FIRST, size=3, etag="e")})
        assert plan(FIRST, known=(entry,)).waiting == 1

    def test_a_file_that_a_person_has_given_up_is_fetched_only_when_the_partner_changes_it(self):
        entry = stored(
            FIRST, state=FileState.GIVEN_UP, content=None, attempted=ListedFile(name=FIRST, size=3, etag="e")
        )
        assert decisions(plan(FIRST, known=(entry,))) == {}
        assert decisions(plan(ListedFile(name=FIRST, size=9), known=(entry,))) == {FIRST: FileDecision.NEW}

    def test_a_file_whose_function_was_killed_waits_longer_each_time(self):
        """The attempt is counted before it begins, because a killed process counts nothing."""
        setup = Setup({FIRST: csv_of(row("a"))})
        delays = []
        for _ in range(4):
            items = setup.plan().items
            while not items:
                setup.clock.pass_by(minutes=1)
                items = setup.plan().items
            started = setup.clock()
            with pytest.raises(SystemExit):
                setup.fetch(items[0], using=lambda port: KilledWriter() if isinstance(port, MemoryStore) else port)
            entry = setup.entry(FIRST)
            assert items[0].killed_attempts == len(delays)
            delays.append(entry.due - entry.lease.until)
            assert entry.not_taken_since == RECEIVED <= started
        assert delays == [retry_delay(attempts) for attempts in (1, 2, 3, 4)]

    def test_a_changed_file_whose_function_was_killed_is_not_taken(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.pull()
        setup.partner.files[FIRST] = csv_of(row("b"))
        with pytest.raises(SystemExit):
            setup.fetch(
                setup.plan().items[0], using=lambda port: KilledWriter() if isinstance(port, MemoryStore) else port
            )
        assert setup.plan().oldest_not_taken == RECEIVED
        assert [file.is_taken for file in setup.cache.files_of_date("things", FIRST)] == [False]

    def test_the_age_of_a_failure_does_not_count_from_before_the_file_vanished(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        (item,) = setup.plan().items
        setup.partner.files = {}
        assert setup.fetch(item).state == "vanished"
        setup.clock.pass_by(days=3)
        setup.partner.files, setup.partner.broken = {FIRST: csv_of(row("b"))}, {FIRST}
        assert setup.pull() == {FIRST: "failed"}
        assert setup.plan().oldest_not_taken == setup.clock()

    def test_the_oldest_file_that_is_not_taken_is_reported(self):
        assert plan(FIRST).oldest_not_taken is None
        entries = [
            stored(path, state=FileState.FAILED, content=None, not_taken_since=RECEIVED - timedelta(days=days))
            for path, days in ((BEFORE, 40), (FIRST, 2))
        ]
        assert plan(known=tuple(entries)).oldest_not_taken == RECEIVED - timedelta(days=40)


class TestNewFiles:
    """A file that a pull has listed once is never forgotten."""

    def test_files_that_were_left_are_planned_after_they_have_left_the_window(self):
        source, _ = pulled_source(files="things-{date}-*.csv", lookback_days=1)
        cache, names = MemoryFileCache(), [f"things-2013-03-12-{number:04}.csv" for number in range(MAX_ITEMS + 20)]
        first = plan_pull(source, as_of=TODAY, partner=Listing(*names), cache=cache, now=RECEIVED)
        assert (len(first.items), first.left) == (MAX_ITEMS, 20)
        next_day = RECEIVED + timedelta(days=1)
        second = plan_pull(source, as_of=date(2013, 3, 13), partner=Listing(), cache=cache, now=next_day)
        assert {item.path for item in second.items} <= set(names)
        assert len(second.items) == MAX_ITEMS
        assert second.oldest_not_taken == RECEIVED

    def test_a_file_without_any_attempt_is_not_taken(self):
        cache = MemoryFileCache()
        plan_pull(SOURCE, as_of=TODAY, partner=Listing(FIRST), cache=cache, now=RECEIVED)
        assert [(file.path, file.is_taken) for file in cache.files_of_date("things", FIRST)] == [(FIRST, False)]

    def test_two_plans_at_once_record_a_file_once(self):
        cache = MemoryFileCache()
        entries = cache.entries

        def other_plan_in_between(source, paths):
            known = entries(source, paths)
            cache.entries = entries
            plan_pull(SOURCE, as_of=TODAY, partner=Listing(FIRST), cache=cache, now=RECEIVED)
            return known

        cache.entries = other_plan_in_between
        plan_pull(SOURCE, as_of=TODAY, partner=Listing(FIRST, SECOND), cache=cache, now=RECEIVED)
        assert [entry.path for entry in cache.all("things")] == [FIRST, SECOND]

    def test_an_index_that_is_some_seconds_old_plans_no_stored_file(self):
        cache = MemoryFileCache()
        stale = stored(BEFORE, state=FileState.FAILED, attempts=1)
        cache.save(stale.model_copy(update={"state": FileState.STORED, "due": None}))
        cache.due = lambda source, *, now, limit: [stale]
        assert plan_pull(SOURCE, as_of=TODAY, partner=Listing(), cache=cache, now=RECEIVED).items == []

    def test_a_file_that_is_given_up_after_it_was_planned_stays_given_up(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.partner.broken = {FIRST}
        setup.pull()
        (item,) = setup.plan().items
        give_up("things", [FIRST], reason="lost", cache=setup.cache, now=setup.clock())
        assert setup.fetch(item).state == "busy"
        assert setup.entry(FIRST).state is FileState.GIVEN_UP


class KilledWriter:
    """A store whose process is killed at its first call."""

    def __getattr__(self, name: str):
        raise SystemExit(name)


class TestCorrectedDefinition:
    def test_files_that_were_read_with_another_definition_are_changed(self):
        result = plan(FIRST, known=(stored(FIRST),), definition="0" * 12)
        assert decisions(result) == {FIRST: FileDecision.CHANGED}

    def test_files_outside_the_window_stay_as_they_were_read(self):
        assert decisions(plan(BEFORE, known=(stored(BEFORE),), definition="0" * 12)) == {}


AT = datetime(2013, 3, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("entry", "listed", "same"),
    [
        ({"etag": "e"}, {"size": 3, "etag": "e"}, True),
        ({"etag": "e"}, {"size": 3, "etag": '"e"'}, True),
        ({"etag": "e"}, {"size": 3, "etag": 'W/"e"'}, True),
        ({"etag": "e"}, {"size": 3, "etag": "f"}, False),
        ({"etag": "e"}, {"size": 4, "etag": "e"}, False),
        ({"etag": "e", "modified": AT}, {"size": 3, "etag": "e", "modified": AT + timedelta(1)}, True),
        ({"etag": None, "modified": AT}, {"size": 3, "modified": AT}, True),
        ({"etag": None, "modified": AT}, {"size": 3, "modified": AT + timedelta(seconds=1)}, False),
        ({"etag": None, "modified": AT}, {"size": 4, "modified": AT}, False),
        ({"etag": "e", "modified": AT}, {"size": 3, "modified": AT}, True),
        ({"etag": None, "modified": AT}, {"size": 3, "etag": "e", "modified": AT}, True),
        ({"etag": "e"}, {"etag": "e"}, True),
        ({"etag": "e"}, {"etag": "f"}, False),
        ({"etag": "e", "modified": AT}, {"modified": AT}, True),
        ({"etag": "e", "modified": AT}, {"modified": AT + timedelta(minutes=1)}, False),
        ({"etag": "e", "modified": AT}, {}, False),
        ({"etag": "e"}, {}, True),
        ({"etag": None}, {"size": 3}, True),
        ({"etag": None}, {"size": 4}, False),
    ],
)
def test_a_file_has_changed_if_its_listing_differs(entry, listed, same):
    result = plan(ListedFile(name=FIRST, **listed), known=(stored(**entry),))
    assert decisions(result) == ({} if same else {FIRST: FileDecision.CHANGED})
    assert result.unchanged == int(same)


def test_files_with_another_end_match_no_pattern_of_the_folder():
    names = [
        FIRST,
        f"{SECOND[:-4]}-late.csv",
        f"{THIRD}.gz",
        f"{THIRD}.sha256",
        f"{BEFORE[:-4]}-late.csv",
        "README",
        "x-2013-03-12.csv",
    ]
    partner, cache = Folder(dict.fromkeys(names, b"")), MemoryFileCache()

    def found(*patterns):
        others = [FilePattern(pattern) for pattern in patterns]
        plan = plan_pull(SOURCE, as_of=TODAY, partner=partner, cache=cache, now=RECEIVED, patterns_of_folder=others)
        return plan.listed, plan.unmatched, plan.unmatched_files

    assert found() == (1, 2, (names[1], names[2]))
    assert found("things-{date}-late.csv") == (1, 1, (names[2],))


class TestWorkList:
    def test_the_work_list_is_stored_and_read_by_index(self):
        store, uri = MemoryStore(), work_list_uri("exchange", "things", "c-1")
        result = plan(FIRST, ListedFile(name=THIRD, size=5, modified=AT), known=(stored(SECOND, changed=CHANGED),))
        answer = write_plan(result, store=store, uri=uri)
        assert answer.model_dump() == {
            "reports": 0,
            "refused_reports": (),
            "files": 3,
            "listed": 2,
            "unchanged": 0,
            "busy": 0,
            "waiting": 0,
            "removed": 1,
            "doubtful": 0,
            "left": 0,
            "returned": 0,
            "unmatched": 0,
            "unmatched_files": (),
            "oldest_not_taken": None,
            "work": "s3://exchange/pulls/things/c-1.json",
        }
        assert [read_item(store, uri, index) for index in range(3)] == list(result.items)
        for index in (3, -1):
            with pytest.raises(InputError, match=f"has 3 items: there is no item {index}"):
                read_item(store, uri, index)


class TestListedNames:
    @pytest.mark.parametrize("name", ["a", "a/b.csv", "größe (1)/ü.csv", "...", "a.."])
    def test_valid_paths_are_accepted(self, name):
        assert listed_file("sftp://x", name, size=1).name == name

    @pytest.mark.parametrize(
        "name", ["", "/a", "a/", "a//b", ".", "a/../b", "..", "a\\b", "a\nb", "x" * 1025], ids=repr
    )
    def test_invalid_paths_are_refused(self, name):
        with pytest.raises(PartnerError, match=r"sftp://x: .* cannot be fetched: .*rename the file"):
            listed_file("sftp://x", name)

    @pytest.mark.parametrize(
        ("url", "bucket", "folder"),
        [("s3://b", "b", ""), ("s3://b/", "b", ""), ("s3://b/a", "b", "a/"), ("s3://b/a/c/", "b", "a/c/")],
    )
    def test_a_bucket_url_has_a_bucket_and_a_folder(self, url, bucket, folder):
        assert bucket_folder(url) == (bucket, folder)
