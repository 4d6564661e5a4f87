from __future__ import annotations

import hashlib
import io
import json
import threading
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.nyc_flights import feed
from slackwater.errors import DataError, DefinitionError, InputError, PartnerError
from slackwater.receiver.csv_file import original_rows, read_csv
from slackwater.receiver.deliver import Delivery
from slackwater.receiver.fetch import LEASE, Fetched, Fetcher
from slackwater.receiver.file_cache import Decision, EntryChanged, FileEntry, FileState
from slackwater.receiver.pull import plan_pull, pull_of, read_item, window, work_address, write_plan
from slackwater.receiver.source import Source
from tests.fakes_receiver import (
    RECEIVED,
    Clock,
    Crash,
    Fuse,
    MemoryFileCache,
    MemoryPartitions,
    MemoryPartner,
    MemoryStore,
    a_source,
    listed,
)

pytestmark = pytest.mark.unit

SOURCE = a_source()
HEADER = "id,count,size,good,day,at\n"
TODAY = date(2013, 3, 12)
FIRST, SECOND, THIRD = (f"things-2013-03-{day}.csv" for day in (10, 11, 12))


def row(name: str, at: str = "2013-03-11T12:00:00Z") -> str:
    return f"{name},1,2.5,true,2013-03-11,{at}\n"


def csv_of(*rows: str) -> bytes:
    return (HEADER + "".join(rows)).encode()


class Setup:
    """A pull over fakes."""

    def __init__(self, files: dict[str, bytes] | None = None, source: Source = SOURCE) -> None:
        self.source = source
        self.fuse = Fuse()
        self.store = MemoryStore(self.fuse)
        self.partitions = MemoryPartitions(self.fuse)
        self.cache = MemoryFileCache(self.fuse)
        self.partner = MemoryPartner(files)
        self.clock = Clock()
        self.delivery = Delivery(store=self.store, partitions=self.partitions, raw_bucket="raw")
        self.pulls = 0

    def plan(self, as_of: date | None = TODAY):
        return plan_pull(self.source, as_of=as_of, partner=self.partner, cache=self.cache, now=self.clock())

    def fetch(self, item) -> Fetched:
        self.pulls += 1
        return Fetcher(
            source=self.source,
            partner=self.partner,
            cache=self.cache,
            delivery=self.delivery,
            now=self.clock,
            owner=f"pull-{self.pulls}",
        ).fetch(item)

    def pull(self, as_of: date | None = TODAY) -> dict[str, str]:
        """Pull as the state machine does: a file's failure stops no other."""
        states = {}
        for item in self.plan(as_of).items:
            try:
                states[item.path] = self.fetch(item).state
            except (DataError, PartnerError):
                states[item.path] = "failed"
        return states

    def ids(self) -> list[str]:
        tables = [pq.read_table(io.BytesIO(self.store.get(uri))) for uri in self.store.uris("/raw/source=")]
        return sorted(name for table in tables for name in table["id"].to_pylist())

    def entry(self, path: str) -> FileEntry:
        found = self.cache.get(self.source.source, path)
        assert found is not None
        return found

    def sidelined(self) -> list[dict[str, object]]:
        bodies = [self.store.get(uri).decode() for uri in self.store.uris("/sideline/")]
        return [json.loads(line) for body in bodies for line in body.split("\n") if line]


class TestWindow:
    def test_the_window_ends_with_the_date_it_is_asked_for(self):
        pull = pull_of(SOURCE)
        assert [day.day for day in window(pull, TODAY, RECEIVED)] == [10, 11, 12]

    def test_today_is_of_the_source_s_calendar(self):
        now = datetime(2013, 3, 12, 3, 59, tzinfo=UTC)
        pulls = {
            zone: a_source(pull={"url": "http://x/y", "files": "{date}", "timezone": zone, "lookback_days": 1})
            for zone in ("UTC", "America/New_York")
        }
        assert [list(window(pull_of(source), None, now)) for source in pulls.values()] == [
            [date(2013, 3, 12)],
            [date(2013, 3, 11)],
        ]

    def test_a_pushed_source_has_none(self):
        with pytest.raises(DefinitionError, match="its data is pushed"):
            pull_of(a_source(pull=None))


class TestPlan:
    def test_files_outside_the_window_and_others_are_let_be(self):
        setup = Setup({FIRST: csv_of(), "things-2013-03-09.csv": csv_of(), "readme.txt": b"", THIRD: csv_of(row("a"))})
        plan = setup.plan()
        assert [(item.path, item.decision) for item in plan.items] == [(FIRST, Decision.NEW), (THIRD, Decision.NEW)]
        assert (plan.listed, plan.unchanged, plan.busy, plan.removed) == (2, 0, 0, 0)

    def test_as_if_on_another_day(self):
        setup = Setup({FIRST: csv_of(row("a")), THIRD: csv_of(row("b"))})
        assert list(setup.pull(date(2013, 3, 10))) == [FIRST]
        assert list(setup.pull()) == [THIRD]

    def test_what_is_taken_is_unchanged_and_what_is_gone_is_removed(self):
        setup = Setup({FIRST: csv_of(row("a")), SECOND: csv_of(row("b"))})
        setup.pull()
        del setup.partner.files[FIRST]
        plan = setup.plan()
        assert (list(plan.items), plan.listed, plan.unchanged, plan.removed) == ([], 1, 1, 1)
        assert setup.ids() == ["a", "b"]

    def test_a_listing_without_tags_goes_by_size_and_time(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        times = {"modified": datetime(2013, 3, 10, tzinfo=UTC)}
        bare = listed(FIRST, setup.partner.files[FIRST]).model_copy(update={"etag": None})
        setup.partner.list = lambda: [bare.model_copy(update=times)]
        setup.pull()
        assert setup.plan().unchanged == 1
        times["modified"] += timedelta(seconds=1)
        assert [item.decision for item in setup.plan().items] == [Decision.CHANGED]
        assert setup.pull() == {FIRST: "unchanged"}
        assert setup.plan().unchanged == 1

    def test_quotes_and_weakness_of_tags_make_no_change(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.pull()
        plain = listed(FIRST, setup.partner.files[FIRST])
        for etag in (f'"{plain.etag}"', f'W/"{plain.etag}"'):
            setup.partner.list = lambda etag=etag: [plain.model_copy(update={"etag": etag})]
            assert setup.plan().unchanged == 1

    def test_the_work_list_stays_in_the_store(self):
        setup = Setup({FIRST: csv_of(), THIRD: csv_of(row("a"))})
        address = work_address("exchange", "things", "c-1")
        answer = write_plan(setup.plan(), store=setup.store, address=address)
        assert answer.model_dump() == {
            "files": 2,
            "listed": 2,
            "unchanged": 0,
            "busy": 0,
            "removed": 0,
            "work": "s3://exchange/pulls/things/c-1.json",
        }
        assert read_item(setup.store, address, 1) == setup.plan().items[1]
        with pytest.raises(InputError, match="no item 2"):
            read_item(setup.store, address, 2)


class TestFetch:
    def test_a_file_is_taken(self):
        content = csv_of(row("a"), row("b", "2013-03-11T13:00:00Z"), "c,x,,,,2013-03-11T12:00:00Z\n", "d,1\n")
        setup = Setup({SECOND: content})
        sha256 = hashlib.sha256(content).hexdigest()
        (item,) = setup.plan().items
        assert setup.fetch(item).model_dump() == {
            "path": SECOND,
            "state": "taken",
            "rows": 2,
            "rejected": 2,
            "bytes": len(content),
        }
        assert setup.ids() == ["a", "b"]
        assert setup.store.get(f"s3://raw/landing/source=things/{sha256}/{SECOND}") == content
        entry = setup.entry(SECOND)
        assert (entry.state, entry.rows, entry.rejected, entry.taken_at, entry.lease) == (
            FileState.TAKEN,
            2,
            2,
            RECEIVED,
            None,
        )
        assert entry.version is not None
        assert sorted(entry.version.objects("raw", "things")) == setup.store.uris("/raw/source=")
        assert setup.partitions.known == {("things", ("2013-03-11", "12")), ("things", ("2013-03-11", "13"))}
        table = pq.read_table(io.BytesIO(setup.store.get(setup.store.uris("hour=12")[0])))
        assert set(table["_batch_id"].to_pylist()) == {sha256[:32]}
        assert set(table["_received_at"].to_pylist()) == {RECEIVED}
        assert setup.sidelined() == [
            {
                "index": 2,
                "line": 4,
                "reason": "count: 'x' is not a whole number",
                "batch_id": sha256[:32],
                "origin": f"pull:{SECOND}",
                "text": "c,x,,,,2013-03-11T12:00:00Z",
            },
            {
                "index": 3,
                "line": 5,
                "reason": "2 columns, where the header has 6",
                "batch_id": sha256[:32],
                "origin": f"pull:{SECOND}",
                "text": "d,1",
            },
        ]

    def test_pulled_twice_changes_nothing(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.pull()
        before = (dict(setup.store.objects), dict(setup.cache.kept))
        assert setup.pull() == {}
        (item,) = Setup({FIRST: csv_of(row("a"))}).plan().items
        assert setup.fetch(item).state == "unchanged"
        assert setup.store.objects == before[0]
        assert setup.entry(FIRST).model_copy(update={"revision": 0}) == before[1]["things", FIRST].model_copy(
            update={"revision": 0}
        )

    def test_a_changed_file_replaces_its_rows(self):
        setup = Setup({FIRST: csv_of(row("a"), row("b", "2013-03-11T13:00:00Z"))})
        setup.pull()
        setup.partner.files[FIRST] = csv_of(row("a"), row("c"))
        assert [item.decision for item in setup.plan().items] == [Decision.CHANGED]
        assert setup.pull() == {FIRST: "taken"}
        assert setup.ids() == ["a", "c"]
        assert len(setup.store.uris("/landing/")) == 2
        entry = setup.entry(FIRST)
        assert (entry.superseded, entry.writing, entry.lease) == ((), None, None)

    def test_a_file_may_change_back(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        for name in ("a", "b", "a"):
            setup.partner.files[FIRST] = csv_of(row(name))
            setup.pull()
            assert setup.ids() == [name]

    def test_the_same_content_under_another_path_is_stored_once(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.pull()
        setup.partner.files[SECOND] = setup.partner.files[FIRST]
        (item,) = setup.plan().items
        assert setup.fetch(item).model_dump() == {
            "path": SECOND,
            "state": "duplicate",
            "rows": 0,
            "rejected": 0,
            "bytes": len(csv_of(row("a"))),
        }
        assert setup.ids() == ["a"]
        assert setup.entry(SECOND).duplicate_of == FIRST
        assert setup.plan().unchanged == 2

    @pytest.mark.parametrize("changed", [FIRST, SECOND])
    def test_either_of_two_like_files_may_change(self, changed):
        setup = Setup({FIRST: csv_of(row("a")), SECOND: csv_of(row("a"))})
        assert setup.pull() == {FIRST: "taken", SECOND: "duplicate"}
        setup.partner.files[changed] = csv_of(row("b"))
        assert setup.pull() == {changed: "taken"}
        assert setup.ids() == ["a", "b"]
        setup.partner.files[{FIRST: SECOND, SECOND: FIRST}[changed]] = csv_of(row("c"))
        setup.pull()
        assert setup.ids() == ["b", "c"]
        setup.partner.files[THIRD] = csv_of(row("a"))
        assert setup.pull() == {THIRD: "taken"}
        assert setup.ids() == ["a", "b", "c"]

    def test_a_file_that_vanishes_is_told_and_stops_no_other(self):
        setup = Setup({FIRST: csv_of(row("a")), SECOND: csv_of(row("b")), THIRD: csv_of(row("c"))})
        items = setup.plan().items
        gone = setup.partner.files.pop(SECOND)
        assert [setup.fetch(item).state for item in items] == ["taken", "vanished", "taken"]
        assert setup.ids() == ["a", "c"]
        assert "gone" in (setup.entry(SECOND).reason or "")
        assert setup.pull() == {}
        setup.partner.files[SECOND] = gone
        assert setup.pull() == {SECOND: "taken"}
        assert setup.ids() == ["a", "b", "c"]

    def test_a_taken_file_that_vanishes_while_it_changes_keeps_its_rows(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.pull()
        setup.partner.files[FIRST] = csv_of(row("b"))
        (item,) = setup.plan().items
        del setup.partner.files[FIRST]
        assert setup.fetch(item).state == "vanished"
        assert setup.ids() == ["a"]

    def test_a_file_that_fails_is_tried_again_by_the_next_pull(self):
        setup = Setup({FIRST: csv_of(row("a")), SECOND: csv_of(row("b"))})
        setup.partner.broken = {FIRST}
        assert setup.pull() == {FIRST: "failed", SECOND: "taken"}
        assert (setup.entry(FIRST).state, setup.entry(FIRST).reason) == (FileState.FAILED, f"{FIRST}: answered 500")
        setup.partner.broken = set()
        assert setup.pull() == {FIRST: "taken"}
        assert setup.entry(FIRST).reason is None

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"", "empty: a header"),
            (b"\n\n", "empty: a header"),
            (b"id,count\na,1\n", r"its header lacks at \(it has: id, count\)"),
            (b"at\n2013-03-11T12:00:00Z\n", "its header lacks id"),
            (b"id,at,id\n", "two columns of one name: id"),
            (b"id,\xe9,at\n", "header is not readable"),
        ],
    )
    def test_files_that_are_no_csv_of_this_source(self, content, says):
        setup = Setup({FIRST: content, SECOND: csv_of(row("b"))})
        with pytest.raises(DataError, match=f"^{FIRST}: .*{says}"):
            setup.fetch(setup.plan().items[0])
        assert setup.entry(FIRST).lease is None
        assert setup.pull() == {FIRST: "failed", SECOND: "taken"}
        assert setup.ids() == ["b"]

    def test_a_header_alone_is_a_file_without_rows(self):
        setup = Setup({FIRST: csv_of()})
        assert setup.pull() == {FIRST: "taken"}
        assert (setup.store.uris("/raw/source="), setup.entry(FIRST).rows) == ([], 0)
        assert setup.plan().unchanged == 1

    def test_a_leased_file_is_left_alone_until_its_lease_is_over(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        (item,) = setup.plan().items
        setup.fuse.left = 1  # the lease, and no more
        with pytest.raises(Crash):
            setup.fetch(item)
        setup.fuse.left = None
        assert (list(setup.plan().items), setup.plan().busy) == ([], 1)
        assert setup.fetch(item).state == "busy"
        setup.clock.pass_by(seconds=LEASE.total_seconds())
        assert [item.decision for item in setup.plan().items] == [Decision.REPAIR]
        assert setup.pull() == {FIRST: "taken"}

    def test_who_loses_the_lease_commits_nothing(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        (item,) = setup.plan().items
        fetch = setup.partner.fetch

        def slow(name, into):
            setup.partner.fetch = fetch
            setup.clock.pass_by(seconds=LEASE.total_seconds())
            assert setup.pull() == {FIRST: "taken"}
            return fetch(name, into)

        setup.partner.fetch = slow
        with pytest.raises(EntryChanged):
            setup.fetch(item)
        assert setup.ids() == ["a"]
        assert setup.entry(FIRST).state is FileState.TAKEN

    def test_of_two_pulls_at_once_one_takes_the_file(self):
        setup = Setup({FIRST: csv_of(row("a"), row("b"))})
        (item,) = setup.plan().items
        barrier, states = threading.Barrier(8), []

        def run():
            barrier.wait()
            states.append(setup.fetch(item).state)

        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(states)["taken"] == 1
        assert set(states) <= {"taken", "busy", "unchanged"}
        assert setup.ids() == ["a", "b"]

    def test_a_file_of_too_many_hours_is_refused(self, monkeypatch):
        monkeypatch.setattr("slackwater.receiver.fetch.MAX_PARTITIONS", 1)
        setup = Setup({FIRST: csv_of(row("a"), row("b", "2013-03-11T13:00:00Z"))})
        with pytest.raises(DataError, match="of 2 hours, at most 1"):
            setup.fetch(setup.plan().items[0])


OLD = csv_of(row("a"), row("b", "2013-03-11T13:00:00Z"))
NEW = csv_of(row("a"), row("c", "2013-03-11T14:00:00Z"), "bad\n")
OTHER = csv_of(row("d", "2013-03-11T15:00:00Z"))


class TestCrashes:
    """The process ends before each of its writes in turn; then another pull comes."""

    def crash(self, setup: Setup, writes: int) -> bool:
        """Pull with only so many writes; say whether it crashed."""
        setup.fuse.left = writes
        try:
            setup.pull()
        except Crash:
            return True
        finally:
            setup.fuse.left = None
            setup.clock.pass_by(seconds=LEASE.total_seconds())
        return False

    def settled(self, setup: Setup, ids: list[str]) -> None:
        assert setup.ids() == ids
        entry = setup.entry(FIRST)
        assert (entry.superseded, entry.writing, entry.lease) == ((), None, None)
        assert list(setup.plan().items) == []

    def test_of_a_new_file(self):
        for writes in range(100):
            setup = Setup({FIRST: NEW})
            crashed = self.crash(setup, writes)
            setup.pull()
            self.settled(setup, ["a", "c"])
            assert len(setup.sidelined()) == 1
            if not crashed:
                assert writes > 7
                return

    def test_of_a_changed_file(self):
        for writes in range(100):
            setup = Setup({FIRST: OLD})
            setup.pull()
            setup.partner.files[FIRST] = NEW
            crashed = self.crash(setup, writes)
            setup.pull()
            self.settled(setup, ["a", "c"])
            if not crashed:
                assert writes > 10
                return

    @pytest.mark.parametrize(("then", "ids"), [(OLD, ["a", "b"]), (OTHER, ["d"]), (None, None)])
    def test_of_a_file_that_changes_again_or_goes(self, then, ids):
        for writes in range(100):
            setup = Setup({FIRST: OLD})
            setup.pull()
            setup.partner.files[FIRST] = NEW
            crashed = self.crash(setup, writes)
            if then is None:
                del setup.partner.files[FIRST]
            else:
                setup.partner.files[FIRST] = then
            for _ in range(2):
                if self.crash(setup, 2):
                    setup.pull()
            setup.pull()
            # A file that goes keeps the content that it had when it was last committed, all of it and nothing else.
            self.settled(setup, ids or (["a", "c"] if "c" in setup.ids() else ["a", "b"]))
            if not crashed:
                return

    def test_of_a_file_with_a_like(self):
        for writes in range(100):
            setup = Setup({FIRST: OLD, SECOND: OLD})
            setup.pull()
            setup.partner.files[FIRST] = NEW
            crashed = self.crash(setup, writes)
            setup.pull()
            self.settled(setup, ["a", "a", "b", "c"])
            if not crashed:
                return


_contents = st.sampled_from([OLD, NEW, OTHER, csv_of(), None])


@settings(deadline=None, max_examples=60)
@given(
    days=st.lists(
        st.tuples(st.sampled_from([FIRST, SECOND]), _contents, st.one_of(st.none(), st.integers(0, 15))), max_size=6
    )
)
def test_whatever_happens_the_last_pull_leaves_each_file_s_content_once(days):
    setup = Setup()
    for path, content, crash in days:
        if content is None:
            setup.partner.files.pop(path, None)
        else:
            setup.partner.files[path] = content
        TestCrashes().crash(setup, 10**6 if crash is None else crash)
    for _ in range(2):
        setup.pull()
    # Rows of files that are gone may be there or not: compare the objects of those that are there.
    for path, content in setup.partner.files.items():
        entry = setup.entry(path)
        assert entry.version is not None
        assert entry.version.content_sha256 == hashlib.sha256(content).hexdigest()
    needed = {
        uri
        for entry in setup.cache.entries("things")
        if entry.version
        for uri in entry.version.objects("raw", "things")
    }
    assert set(setup.store.uris("/raw/source=")) == needed
    assert list(setup.plan().items) == []


class TestCsv:
    def read(self, tmp_path: Path, content: bytes, source: Source = SOURCE):
        path = tmp_path / "file"
        path.write_bytes(content)
        checked = read_csv(path, source, name="things.csv")
        rows = list(original_rows(path, [item.index for item in checked.rejected]))
        return checked, rows

    @pytest.mark.parametrize(
        "content",
        [
            HEADER.encode() + b"a,1,2.5,true,2013-03-11,2013-03-11T12:00:00Z",
            HEADER.replace("\n", "\r\n").encode() + b"a,1,2.5,true,2013-03-11,2013-03-11T12:00:00Z\r\n",
            b"\xef\xbb\xbf" + csv_of(row("a")),
            b"\n\n" + csv_of(row("a"), "\n"),
            b"at,day,good,size,count,id\n2013-03-11T12:00:00Z,2013-03-11,TRUE,2.5,1.0,a\n",
            b'"id","at",count,"size",good,day\n"a","2013-03-11T12:00:00Z","1","2.50","true","2013-03-11"\n',
        ],
    )
    def test_forms_of_one_row(self, tmp_path, content):
        checked, _ = self.read(tmp_path, content)
        assert checked.rejected == []
        moment = datetime(2013, 3, 11, 12, tzinfo=UTC)
        assert checked.table.to_pylist() == [
            {
                "id": "a",
                "count": 1,
                "size": 2.5,
                "good": True,
                "day": moment.date(),
                "at": moment,
                "_event_time": moment,
                "_extra": None,
            }
        ]

    def test_columns_may_be_missing_and_more_may_come(self, tmp_path):
        checked, _ = self.read(tmp_path, b"id,new,at,Old \xc3\xa9\na,1,2013-03-11T12:00:00Z,\n")
        (found,) = checked.table.to_pylist()
        assert found["count"] is None
        assert json.loads(found["_extra"]) == {"new": "1", "Old \u00e9": ""}

    def test_every_rejected_row_is_found_in_the_file(self, tmp_path):
        good = row("a")
        content = (
            csv_of(good, '"multi\nline ""x""",1,2,true,2013-03-11,2013-03-11T12:00:00Z\n', "\n", "short\n")
            + b"l\xe9on,1,2,true,,2013-03-11T12:00:00Z\n"
            + b"l\xe9on,1\n"
            + csv_of(
                '"x\ny",bad,2,true,,2013-03-11T12:00:00Z\n',
                good,
                "a,1,2,true,,\n",
                "a,1,2,true,,2013-03-11T12:00:00Z,more\n",
            ).removeprefix(HEADER.encode())
        )
        checked, rows = self.read(tmp_path, content)
        assert checked.table["id"].to_pylist() == ["a", 'multi\nline "x"', "a"]
        assert [(item.index, item.reason) for item in checked.rejected] == [
            (2, "1 columns, where the header has 6"),
            (3, "id: not UTF-8"),
            (4, "2 columns, where the header has 6"),
            (5, "count: 'bad' is not a whole number"),
            (7, "at: missing, and an event needs its timestamp"),
            (8, "7 columns, where the header has 6"),
        ]
        assert [(found.index, found.line, found.text) for found in rows] == [
            (2, 6, "short"),
            (3, 7, "l\\xe9on,1,2,true,,2013-03-11T12:00:00Z"),
            (4, 8, "l\\xe9on,1"),
            (5, 9, '"x\ny",bad,2,true,,2013-03-11T12:00:00Z'),
            (7, 12, "a,1,2,true,,"),
            (8, 13, "a,1,2,true,,2013-03-11T12:00:00Z,more"),
        ]

    def test_an_unclosed_quote_loses_nothing(self, tmp_path):
        content = csv_of(row("a"), '"open,1,2\n', *[row(str(n)) for n in range(5000)])
        checked, rows = self.read(tmp_path, content)
        assert checked.table["id"].to_pylist() == ["a"]
        assert (len(checked.rejected), len(rows)) == (1, 1)
        assert rows[0].text.startswith('"open,1,2\n0,1')
        assert rows[0].text.endswith(row("4999").rstrip("\n"))

    @settings(deadline=None, max_examples=150)
    @given(
        rows=st.lists(
            st.lists(st.text(st.sampled_from('ab,"\n\r \u00e9'), max_size=4), min_size=1, max_size=4).filter(
                lambda cells: cells != [""]
            ),
            max_size=8,
        ),
        ending=st.sampled_from(["\n", "\r\n"]),
    )
    def test_rows_are_numbered_as_they_are_read(self, tmp_path_factory, rows, ending):
        source = a_source(fields={"at": "timestamp", "x": "string", "y": "string"}, null_values=[])
        quoted = [",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in cells) for cells in rows]
        content = ending.join(["x,y,at", *quoted, "ok,,2013-03-11T12:00:00Z", ""])
        checked, found = self.read(tmp_path_factory.mktemp("csv"), content.encode(), source)
        assert checked.table.num_rows == 1
        assert [item.index for item in checked.rejected] == list(range(len(rows)))
        assert [(item.index, item.text) for item in found] == list(enumerate(text.rstrip("\r\n") for text in quoted))


def test_a_day_of_real_flights_is_stored_as_it_came(tmp_path):
    """DuckDB over the partner's file, and over the Parquet files as they lie there, agree in every cell."""
    source = Source.model_validate(yaml.safe_load(Path("examples/nyc_flights/sources/flights.yaml").read_text()))
    files = feed.flights_files(date(2013, 3, 10))
    setup = Setup({name: text.encode() for name, text in files.items()}, source)
    assert setup.pull() == dict.fromkeys(files, "taken")
    assert sum(setup.entry(name).rows for name in files) == 908
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for number, uri in enumerate(setup.store.uris("/raw/source=")):
        (tmp_path / f"{number}.parquet").write_bytes(setup.store.get(uri))
    base = duckdb.connect()
    base.execute("SET TimeZone='UTC'")
    fields = [name for name in source.fields if name != "time_hour"]
    sql = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE"}
    casts = ", ".join(f"nullif({name}, 'NA')::{sql[source.fields[name].type]} AS {name}" for name in fields)
    base.execute(
        f"CREATE VIEW sent AS SELECT {casts}, time_hour::TIMESTAMPTZ AS time_hour "
        f"FROM read_csv('{tmp_path}/flights-*.csv', all_varchar=true)"
    )
    base.execute(f"CREATE VIEW stored AS SELECT * FROM read_parquet('{tmp_path}/*.parquet')")
    columns = ", ".join([*fields, "time_hour"])
    assert base.execute("SELECT count(*), count(DISTINCT date_trunc('hour', _event_time)) FROM stored").fetchone() == (
        908,
        len(setup.store.uris("/raw/source=")),
    )
    for one, other in (("sent", "stored"), ("stored", "sent")):
        assert base.execute(f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}").fetchall() == []


def test_tables_of_both_ways_have_one_schema():
    setup = Setup({FIRST: csv_of(row("a"))})
    setup.pull()
    pulled = pq.read_schema(io.BytesIO(setup.store.get(setup.store.uris("/raw/source=")[0])))
    assert pulled.field("_event_time").type == pa.timestamp("us", tz="UTC")
