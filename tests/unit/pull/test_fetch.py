"""The fetch of a file: what is stored, the result, and the state after a failure."""

from __future__ import annotations

import codecs
import errno
import gzip
import hashlib
import io
import threading
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from examples.nyc_flights import feed
from slackwater.errors import CloudError, DataError, FileTooLarge, PartnerError, Throttled
from slackwater.receiver.pull.fetch import LEASE
from slackwater.receiver.pull.file_cache import EntryChanged, FileState
from slackwater.receiver.pull.plan import FileDecision
from slackwater.sources.definition import Source
from tests.fakes_receiver import RECEIVED, Crash, a_source, listed
from tests.pulling import FIRST, HEADER, SECOND, THIRD, Setup, csv_of, row
from tests.reading import read_parquet

pytestmark = pytest.mark.unit


class TestFetch:
    def test_a_file_with_a_new_modified_time_and_the_same_content_is_fetched_once(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        times = {"modified": datetime(2013, 3, 10, tzinfo=UTC)}
        without_etag = listed(FIRST, setup.partner.files[FIRST]).model_copy(update={"etag": None})
        setup.partner.list = lambda *_: [without_etag.model_copy(update=times)]
        setup.pull()
        assert setup.plan().unchanged == 1
        times["modified"] += timedelta(seconds=1)
        assert [item.decision for item in setup.plan().items] == [FileDecision.CHANGED]
        assert setup.pull() == {FIRST: "unchanged"}
        assert setup.plan().unchanged == 1

    def test_columns_that_the_definition_does_not_list_are_named(self):
        header, values = HEADER.strip(), row("a").strip()
        long = "x" * 100
        setup = Setup({FIRST: f"{header},gate,{long},more,fourth\n{values},,,,\n{values},7,8,9,10\n".encode()})
        assert setup.fetch(setup.plan().items[0]).new_columns == ("gate", long[:40], "more")
        ignoring = a_source(unknown_fields="ignore")
        assert setup.fetch(setup.plan(source=ignoring).items[0], source=ignoring).new_columns == ()

    NOTED = a_source(
        pull={
            "url": "http://127.0.0.1:1/things",
            "files": "things-{date}.csv",
            "lookback_days": 3,
            "format": {"type": "csv", "encoding": "cp1252"},
        }
    )

    def note(self, content: bytes) -> str:
        setup = Setup({FIRST: content}, self.NOTED)
        return setup.fetch(setup.plan().items[0]).note

    def test_columns_that_a_file_lacks_are_named(self):
        definition = "of sources/things.yaml: its"
        at = "2013-03-11T12:00:00Z"
        assert self.note(csv_of(row("a"))) == ""
        few = f"id,count,good,at\na,1,true,{at}\nb,x,true,{at}\n".encode()
        assert self.note(few) == f"{FIRST} lacks the columns 'size', 'day' {definition} 2 rows have no value there"
        one = f"id,count,good,day,at\na,1,true,,{at}\n".encode()
        assert self.note(one) == f"{FIRST} lacks the column 'size' {definition} 1 row has no value there"

    def test_a_few_old_events_are_noted(self):
        note = self.note(csv_of(row("a"), row("b"), row("c", at="1970-01-21T00:00:00Z")))
        assert note.startswith(f"{FIRST}: 1 event is of 1970-01-21: more than 20 years old.")

    def test_a_file_with_a_mark_of_utf_8_is_read_as_utf_8(self):
        setup = Setup({FIRST: codecs.BOM_UTF8 + csv_of(row("ä"))}, self.NOTED)
        result = setup.fetch(setup.plan().items[0])
        assert (result.rows, result.new_columns) == (1, ())
        assert result.note == f"{FIRST} begins with the byte order mark of UTF-8: it was read as UTF-8, not cp1252"

    @pytest.mark.parametrize(
        ("file_format", "content"),
        [
            ("csv", b""),
            ("csv", gzip.compress(b"", mtime=0)),
            ("json", b""),
            ("ndjson", b""),
            ("parquet", b""),
            ("xlsx", b""),
        ],
    )
    def test_a_file_without_a_byte_is_stored_if_the_source_ignores_it(self, file_format, content):
        def setup(**empty):
            pull = {"url": "http://127.0.0.1:1/things", "files": "things-{date}.csv", "format": file_format, **empty}
            return Setup({FIRST: content}, a_source(pull=pull))

        ignoring = setup(empty_files="ignore")
        assert ignoring.fetch(ignoring.plan().items[0]).model_dump(include={"state", "rows", "rejected"}) == {
            "state": "stored",
            "rows": 0,
            "rejected": 0,
        }
        assert ignoring.plan().unchanged == 1
        failing = setup(empty_files="fail")
        with pytest.raises(DataError):
            failing.fetch(failing.plan().items[0])
        if file_format != "ndjson":  # lines, of which there may be none
            by_default = setup()
            with pytest.raises(
                DataError, match=r"\(to accept empty files: `empty_files: ignore` in sources/things.yaml"
            ):
                by_default.fetch(by_default.plan().items[0])

    def test_a_file_with_only_a_header_fails_only_if_the_source_says_so(self):
        pull = {"url": "http://127.0.0.1:1/things", "files": "things-{date}.csv", "lookback_days": 3}
        for empty, state in ((None, "stored"), ("ignore", "stored"), ("fail", "failed")):
            setup = Setup({FIRST: csv_of()}, a_source(pull={**pull, "empty_files": empty}))
            assert setup.pull() == {FIRST: state}
        assert setup.entry(FIRST).reason == f"{FIRST}: no row (sources/things.yaml has `empty_files: fail`)"

    def test_a_file_is_stored(self):
        content = csv_of(row("a"), row("b", "2013-03-11T13:00:00Z"), "c,x,,,,2013-03-11T12:00:00Z\n", "d,1\n")
        setup = Setup({SECOND: content})
        sha256 = hashlib.sha256(content).hexdigest()
        (item,) = setup.plan().items
        assert setup.fetch(item).model_dump() == {
            "path": SECOND,
            "state": "stored",
            "rows": 2,
            "rejected": 2,
            "bytes": len(content),
            "reason": "",
            "new_columns": (),
            "note": "",
            "partitions": (("2013-03-11", "12"), ("2013-03-11", "13")),
            "counts": {"files": 1, "rows": 2, "rejected": 2},
        }
        assert setup.ids() == ["a", "b"]
        assert setup.store.get(f"s3://raw/landing/source=things/{sha256}/{SECOND}") == content
        entry = setup.entry(SECOND)
        assert (entry.state, entry.rows, entry.rejected, entry.stored_at, entry.lease) == (
            FileState.STORED,
            2,
            2,
            RECEIVED,
            None,
        )
        (content,) = setup.cache.contents("things", [entry.content])
        names = [uri.rpartition("/")[2] for uri in setup.store.uris("/raw/source=")]
        assert names == [f"{content.id}-{content.committed.attempt}-1.parquet"] * 2
        table = pq.read_table(io.BytesIO(setup.store.get(setup.store.uris("hour=12")[0])))
        assert set(table["_batch_id"].to_pylist()) == {sha256[:32]}
        assert set(table["_received_at"].to_pylist()) == {RECEIVED}
        assert setup.reject_records() == [
            {
                "index": 2,
                "line": 4,
                "reason": "count: 'x' is not a whole number",
                "rule": "wrong_type",
                "batch_id": sha256[:32],
                "origin": f"pull:{SECOND}",
                "text": "c,x,,,,2013-03-11T12:00:00Z",
            },
            {
                "index": 3,
                "line": 5,
                "reason": "the row has 2 columns, but the header has 6",
                "rule": "wrong_width",
                "batch_id": sha256[:32],
                "origin": f"pull:{SECOND}",
                "text": "d,1",
            },
        ]

    def test_a_second_pull_changes_nothing(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.pull()
        before = (dict(setup.store.objects), dict(setup.cache.saved_entries))
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
        assert [item.decision for item in setup.plan().items] == [FileDecision.CHANGED]
        assert setup.pull() == {FIRST: "stored"}
        assert setup.ids() == ["a", "c"]
        assert len(setup.store.uris("/landing/")) == 2
        entry = setup.entry(FIRST)
        assert (entry.changed, entry.lease) == ((), None)

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
            "reason": "",
            "new_columns": (),
            "note": "",
            "partitions": (),
            "counts": {"files": 0, "rows": 0, "rejected": 0},
        }
        assert setup.ids() == ["a"]
        assert setup.entry(SECOND).duplicate_of == FIRST
        assert setup.plan().unchanged == 2

    @pytest.mark.parametrize("changed", [FIRST, SECOND])
    def test_either_of_two_files_with_the_same_content_may_change(self, changed):
        setup = Setup({FIRST: csv_of(row("a")), SECOND: csv_of(row("a"))})
        assert setup.pull() == {FIRST: "stored", SECOND: "duplicate"}
        setup.partner.files[changed] = csv_of(row("b"))
        assert setup.pull() == {changed: "stored"}
        assert setup.ids() == ["a", "b"]
        setup.partner.files[{FIRST: SECOND, SECOND: FIRST}[changed]] = csv_of(row("c"))
        setup.pull()
        assert setup.ids() == ["b", "c"]
        setup.partner.files[THIRD] = csv_of(row("a"))
        assert setup.pull() == {THIRD: "stored"}
        assert setup.ids() == ["a", "b", "c"]

    def test_a_file_that_vanishes_is_reported_and_does_not_stop_the_others(self):
        setup = Setup({FIRST: csv_of(row("a")), SECOND: csv_of(row("b")), THIRD: csv_of(row("c"))})
        items = setup.plan().items
        gone = setup.partner.files.pop(SECOND)
        assert [setup.fetch(item).state for item in items] == ["stored", "vanished", "stored"]
        assert setup.ids() == ["a", "c"]
        assert "gone" in (setup.entry(SECOND).reason or "")
        assert setup.pull() == {}
        setup.partner.files[SECOND] = gone
        assert setup.pull() == {SECOND: "stored"}
        assert setup.ids() == ["a", "b", "c"]

    def test_a_stored_file_that_changes_and_vanishes_keeps_its_rows(self):
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
        assert setup.pull() == {FIRST: "failed", SECOND: "stored"}
        assert (setup.entry(FIRST).state, setup.entry(FIRST).reason) == (FileState.FAILED, f"{FIRST}: answered 500")
        setup.partner.broken = set()
        assert setup.pull() == {FIRST: "stored"}
        assert setup.entry(FIRST).reason is None

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "empty: a header"),
            (b"id,\xe9,at\n", "header is not readable"),
        ],
    )
    def test_files_that_do_not_fit_the_source_are_errors(self, content, message):
        setup = Setup({FIRST: content, SECOND: csv_of(row("b"))})
        with pytest.raises(DataError, match=f"^{FIRST}: .*{message}"):
            setup.fetch(setup.plan().items[0])
        assert setup.entry(FIRST).lease is None
        assert setup.pull() == {FIRST: "failed", SECOND: "stored"}
        assert setup.ids() == ["b"]

    def test_a_header_alone_is_a_file_without_rows(self):
        setup = Setup({FIRST: csv_of()})
        assert setup.pull() == {FIRST: "stored"}
        assert (setup.store.uris("/raw/source="), setup.entry(FIRST).rows) == ([], 0)
        assert setup.plan().unchanged == 1

    def test_a_leased_file_is_busy_until_its_lease_expires(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        (item,) = setup.plan().items
        setup.fuse.left = 1  # only the lease is written
        with pytest.raises(Crash):
            setup.fetch(item)
        setup.fuse.left = None
        assert (list(setup.plan().items), setup.plan().busy) == ([], 1)
        assert setup.fetch(item).state == "busy"
        setup.clock.pass_by(seconds=LEASE.total_seconds())
        assert [item.decision for item in setup.plan().items] == [FileDecision.REPAIR]
        assert setup.pull() == {FIRST: "stored"}

    def test_a_pull_that_loses_the_lease_commits_nothing(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        (item,) = setup.plan().items
        fetch = setup.partner.fetch

        def slow(name, into):
            setup.partner.fetch = fetch
            setup.clock.pass_by(seconds=LEASE.total_seconds())
            assert setup.pull() == {FIRST: "stored"}
            return fetch(name, into)

        setup.partner.fetch = slow
        with pytest.raises(EntryChanged):
            setup.fetch(item)
        assert setup.ids() == ["a"]
        assert setup.entry(FIRST).state is FileState.STORED

    def test_one_of_several_concurrent_pulls_stores_the_file(self):
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
        assert Counter(states)["stored"] == 1
        assert set(states) <= {"stored", "busy", "unchanged"}
        assert setup.ids() == ["a", "b"]

    def test_a_file_with_rows_of_too_many_hours_is_refused(self, monkeypatch):
        monkeypatch.setattr("slackwater.receiver.writing.partition_writer.MAX_PARTITIONS", 1)
        setup = Setup({FIRST: csv_of(row("a"), row("b", "2013-03-11T13:00:00Z"))})
        with pytest.raises(DataError, match="from more than 1 hours"):
            setup.fetch(setup.plan().items[0])


class TestEventIds:
    def test_the_first_of_several_rows_with_one_id_in_an_hour_is_stored(self):
        source = a_source(event_id="id")
        setup = Setup({FIRST: csv_of(row("a"), row("b"), row("a"), row("a", "2013-03-11T13:00:00Z"))}, source)
        assert setup.pull() == {FIRST: "stored"}
        assert (setup.ids(), setup.entry(FIRST).rows) == (["a", "a", "b"], 3)
        rows = [setup.store.metadata(uri)["rows"] for uri in setup.store.uris("/raw/source=")]
        assert sorted(rows) == ["1", "2"]

    def test_generated_ids_contain_the_index_of_the_row_in_the_file(self):
        source = a_source(push={"buffer": "queue"})
        content = csv_of(row("a"), "bad\n", row("b", "2013-03-11T13:00:00Z"), row("c"))
        setup = Setup({FIRST: content}, source)
        setup.pull()
        ids = {
            event["id"]: event["_event_id"]
            for uri in setup.store.uris("/raw/source=")
            for event in pq.read_table(io.BytesIO(setup.store.get(uri))).to_pylist()
        }
        batch = hashlib.sha256(content).hexdigest()[:32]
        assert ids == {"a": f"{batch}-0", "b": f"{batch}-2", "c": f"{batch}-3"}


class TestFirstReceipt:
    """A row's age is measured when its content was received first, in any file and by any pull."""

    LIMITED = a_source(timestamp={"field": "at", "max_age_days": 2})
    CONTENT = csv_of(row("young", "2013-03-11T12:00:00Z"), row("old", "2013-03-09T12:00:00Z"))

    def ids_and_rejections(self, setup: Setup) -> tuple[list[str], list[tuple[str, str]]]:
        return setup.ids(), [(record["rule"], record["origin"]) for record in setup.reject_records()]

    def test_a_repair_after_days_uses_the_first_receipt(self):
        for writes in range(4, 8):
            setup = Setup({FIRST: self.CONTENT}, self.LIMITED)
            setup.fuse.left = writes
            assert setup.pull() == {FIRST: "failed"}
            setup.fuse.left = None
            setup.clock.pass_by(days=3)
            assert setup.pull() == {FIRST: "stored"}
            assert self.ids_and_rejections(setup) == (["young"], [("too_old", f"pull:{FIRST}")])
            assert len(setup.store.uris("/sideline/")) == 1

    def test_another_file_with_the_same_content_uses_the_first_receipt(self):
        setup = Setup({FIRST: self.CONTENT}, self.LIMITED)
        setup.pull()
        before = setup.store.uris("")
        setup.partner.files[SECOND] = self.CONTENT
        setup.clock.pass_by(days=3)
        assert setup.pull() == {SECOND: "duplicate"}
        assert self.ids_and_rejections(setup) == (["young"], [("too_old", f"pull:{FIRST}")])
        assert setup.entry(SECOND).content == setup.entry(FIRST).content
        assert [uri for uri in setup.store.uris("") if uri not in before] == [setup.entry(SECOND).landing_uri]

    def test_a_content_that_returns_uses_the_first_receipt(self):
        setup = Setup({FIRST: self.CONTENT}, self.LIMITED)
        setup.pull()
        setup.partner.files[FIRST] = csv_of()
        setup.pull()
        setup.partner.files[FIRST] = self.CONTENT
        setup.clock.pass_by(days=3)
        setup.pull()
        assert setup.ids() == ["young"]


class TestAgeInChangedFiles:
    """The largest age of a row is measured when the file was received first, so that accepted rows stay."""

    LIMITED = a_source(timestamp={"field": "at", "max_age_days": 7, "max_future_hours": 1})
    # Seven days before RECEIVED, which is 2013-03-12 at 09:30.
    OLD, TOO_OLD = row("old", "2013-03-05T09:31:00Z"), row("too-old", "2013-03-05T09:29:00Z")
    NEW = row("new", "2013-03-14T09:00:00Z")

    def stored(self, path: str = FIRST) -> Setup:
        """Return a setup with a stored file, three days later."""
        setup = Setup({path: csv_of(self.OLD)}, self.LIMITED)
        setup.pull()
        setup.clock.pass_by(days=3)
        return setup

    def test_an_appended_row_does_not_reject_the_earlier_ones(self):
        setup = self.stored()
        in_the_future = row("soon", "2013-03-15T10:31:00Z")
        setup.partner.files[FIRST] = csv_of(self.OLD, self.TOO_OLD, self.NEW, in_the_future)
        assert setup.pull() == {FIRST: "stored"}
        assert setup.ids() == ["new", "old"]
        assert [record["reason"] for record in setup.reject_records()] == [
            "at: 2013-03-05T09:29:00Z is more than 7 days before its file was first received",
            "at: 2013-03-15T10:31:00Z is more than 1 hour after it was received",
        ]
        assert "date=2013-03-15" in setup.store.uris("/sideline/")[0]
        tables = [read_parquet(setup.store.get(uri)) for uri in setup.committed()]
        assert {at for table in tables for at in table["_received_at"].to_pylist()} == {setup.clock()}

    def test_a_file_that_had_no_rows_for_a_time_keeps_its_first_receipt(self):
        setup = self.stored()
        for content in (csv_of(), csv_of(self.OLD, self.NEW)):
            setup.partner.files[FIRST] = content
            setup.pull()
            setup.clock.pass_by(days=3)
        assert setup.ids() == ["new", "old"]

    def test_a_file_that_an_older_version_has_stored_counts_from_its_present_content(self):
        setup = self.stored()
        setup.cache.save(setup.entry(FIRST).model_copy(update={"first_received_at": None}))
        setup.partner.files[FIRST] = csv_of(self.OLD, self.NEW)
        setup.pull()
        assert setup.ids() == ["new", "old"]

    def test_a_header_that_another_file_had_long_ago_does_not_make_a_file_older(self):
        setup = Setup({SECOND: csv_of()}, self.LIMITED)
        setup.pull()
        setup.clock.pass_by(days=3)
        for content in (csv_of(), csv_of(self.OLD, self.NEW)):
            setup.partner.files[FIRST] = content
            setup.pull()
        assert setup.ids() == ["new"]

    @pytest.mark.parametrize("first", [FIRST, SECOND])
    def test_files_with_one_content_have_the_rows_of_the_one_that_was_received_first(self, first):
        setup = self.stored()
        setup.partner.files |= dict.fromkeys([FIRST, SECOND], csv_of(self.OLD, self.NEW))
        for item in sorted(setup.plan().items, key=lambda item: item.path != first):
            setup.fetch(item)
        assert setup.ids() == ["new", "old"]
        # The rows of the copy stay, too, when it changes.
        setup.clock.pass_by(days=1)
        setup.partner.files = {SECOND: csv_of(self.OLD, self.NEW, row("newer", "2013-03-15T09:00:00Z"))}
        setup.pull()
        assert sorted(set(setup.ids())) == ["new", "newer", "old"]

    def test_a_concurrent_pull_of_a_younger_file_does_not_reject_rows(self):
        setup = self.stored()
        setup.partner.files |= dict.fromkeys([FIRST, SECOND], csv_of(self.OLD, self.NEW))
        older, younger = setup.plan().items
        states = []

        def meanwhile():
            setup.before_commit = lambda: None
            states.append(setup.fetch(older).state)

        setup.before_commit = meanwhile
        assert (setup.fetch(younger).state, states) == ("busy", ["stored"])
        assert setup.pull() == {SECOND: "duplicate"}
        assert (setup.ids(), list(setup.plan().items)) == (["new", "old"], [])


HOURS = (("2013-03-11", "12"), ("2013-03-11", "13"))


def changed_in_another_hour() -> Setup:
    """Return a setup with a stored file that has a row in another hour since."""
    setup = Setup({FIRST: csv_of(row("a"))})
    setup.pull()
    setup.partner.files[FIRST] = csv_of(row("b", "2013-03-11T13:00:00Z"))
    return setup


class TestFailures:
    @pytest.mark.parametrize("write", range(1, 5))
    def test_a_write_whose_response_is_lost_does_not_make_a_file_busy(self, write):
        """The client of DynamoDB repeats a request by itself, and then conflicts with its own write."""
        setup = Setup({FIRST: csv_of(row("a"))})
        save, remaining = setup.cache.save, [write]

        def twice(*records):
            save(*records)
            remaining[0] -= 1
            if remaining[0] == 0:
                save(*records)

        setup.cache.save = twice
        assert setup.pull() == {FIRST: "stored"}
        assert setup.entry(FIRST).lease is None
        assert setup.ids() == ["a"]

    def test_a_failed_file_that_the_partner_removes_stays_a_failed_one(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.partner.broken = {FIRST}
        setup.pull()
        setup.partner.files = {}
        for _ in range(3):
            setup.clock.pass_by(days=2)
            assert setup.pull() == {FIRST: "failed" if setup.partner.broken else "vanished"}
            setup.partner.broken = set()
        entry = setup.entry(FIRST)
        assert (entry.state, entry.not_taken_since) == (FileState.FAILED, RECEIVED)
        assert entry.reason == f"the partner has removed the file; before: {FIRST}: answered 500"

    def test_a_changed_file_that_failed_and_is_removed_is_not_taken(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.pull()
        setup.partner.files, setup.partner.broken = {FIRST: csv_of(row("b"))}, {FIRST}
        setup.pull()
        setup.partner.files, setup.partner.broken = {}, set()
        setup.clock.pass_by(days=2)
        assert setup.pull() == {FIRST: "vanished"}
        assert (setup.entry(FIRST).is_taken, setup.ids()) == (False, ["a"])

    def test_an_unexpected_failure_releases_the_file(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.partner.fetch = lambda name, into: 1 / 0
        with pytest.raises(ZeroDivisionError):
            setup.fetch(setup.plan().items[0])
        entry = setup.entry(FIRST)
        assert (entry.state, entry.lease, entry.reason) == (FileState.FAILED, None, "division by zero")

    def test_a_long_reason_is_cut_since_no_record_could_hold_it(self):
        setup = Setup({FIRST: csv_of(row("a"))})

        def refuse(name, into):
            raise PartnerError("x" * 500_000)

        setup.partner.fetch = refuse
        for _ in range(2):  # the second attempt finds the object
            with pytest.raises(PartnerError):
                setup.fetch(setup.plan().items[0])
            setup.clock.pass_by(days=1)
            [uri] = setup.store.uris("/failures/")
            assert setup.entry(FIRST).reason == "x" * 4000 + f"... (500,000 characters; all: {uri})"
            assert setup.store.get(uri) == b"x" * 500_000

    def test_a_file_that_fills_the_disk_is_too_large(self):
        setup = Setup({FIRST: csv_of(row("a"))})

        def full(name, into):
            raise OSError(errno.ENOSPC, "No space left on device")

        setup.partner.fetch = full
        with pytest.raises(FileTooLarge, match=f"^{FIRST}: the local disk has no room"):
            setup.fetch(setup.plan().items[0])
        assert setup.entry(FIRST).lease is None

    def test_a_failure_after_the_commit_does_not_lose_the_result(self, caplog):
        setup = changed_in_another_hour()
        setup.fail_after_the_commit(Throttled("SlowDown"))
        fetched = setup.fetch(setup.plan().items[0])
        assert (fetched.state, fetched.rows, fetched.partitions) == ("stored", 1, HOURS)
        assert [record.getMessage() for record in caplog.records] == [
            f"things: {FIRST}: a later pull reports its partitions again: SlowDown"
        ]
        assert setup.pull() == {FIRST: "unchanged"}
        assert (setup.ids(), list(setup.plan().items)) == (["b"], [])

    def test_a_commit_whose_answer_is_lost_for_a_time_leaves_a_stored_file(self):
        """DynamoDB does not answer when the pull asks whether its commit was written, either."""
        setup = changed_in_another_hour()
        save, entries = setup.cache.save, setup.cache.entries

        def silent(*records):
            save(*records)
            if len(records) > 1:
                setup.cache.save, setup.cache.entries = save, unanswered
                raise CloudError("no answer")

        def unanswered(*_):
            setup.cache.entries = entries
            raise CloudError("no answer")

        setup.cache.save = silent
        assert setup.pull() == {FIRST: "failed"}
        entry = setup.entry(FIRST)
        assert (entry.state, entry.lease, entry.reason, entry.changed) == (FileState.STORED, None, None, HOURS)
        setup.partner.files = {}
        assert setup.fetch(setup.plan().items[0]).partitions == HOURS
        assert (setup.entry(FIRST).is_taken, setup.ids(), list(setup.plan().items)) == (True, ["b"], [])

    @pytest.mark.parametrize("then", ["is unchanged", "changes", "is removed"])
    def test_the_repair_of_a_pull_that_was_killed_after_the_commit_returns_the_partitions(self, then):
        setup = changed_in_another_hour()
        setup.fail_after_the_commit(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            setup.fetch(setup.plan().items[0])
        if then == "changes":
            setup.partner.files[FIRST] = csv_of(row("c", "2013-03-11T13:30:00Z"))
        elif then == "is removed":
            setup.partner.files = {}
        setup.clock.pass_by(days=1)
        assert setup.fetch(setup.plan().items[0]).partitions == HOURS

    def test_a_repair_that_failed_at_first_returns_the_partitions_too(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.fail_after_the_commit(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            setup.pull()
        setup.clock.pass_by(days=1)
        stored = setup.partner.files
        setup.partner.broken, setup.partner.files = {FIRST}, {FIRST: csv_of(row("b"))}
        assert setup.pull() == {FIRST: "failed"}
        setup.partner.broken, setup.partner.files = set(), stored
        fetched = setup.fetch(setup.plan().items[0])
        assert (fetched.state, fetched.partitions) == ("unchanged", HOURS[:1])


def test_a_day_of_real_flights_is_stored_unchanged(tmp_path):
    """DuckDB reads the same cells from the partner's files and from the stored Parquet files."""
    source = Source.model_validate(yaml.safe_load(Path("examples/nyc_flights/sources/flights.yaml").read_text()))
    files = feed.flights_files(date(2013, 3, 10))
    setup = Setup({name: content.encode() for name, content in files.items()}, source)
    assert setup.pull() == dict.fromkeys(files, "stored")
    assert sum(setup.entry(name).rows for name in files) == 908
    for name, content in files.items():
        (tmp_path / name).write_text(content)
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
    for left, right in (("sent", "stored"), ("stored", "sent")):
        assert base.execute(f"SELECT {columns} FROM {left} EXCEPT ALL SELECT {columns} FROM {right}").fetchall() == []


def test_event_times_of_pulled_files_are_utc_microseconds():
    setup = Setup({FIRST: csv_of(row("a"))})
    setup.pull()
    pulled = pq.read_schema(io.BytesIO(setup.store.get(setup.store.uris("/raw/source=")[0])))
    assert pulled.field("_event_time").type == pa.timestamp("us", tz="UTC")
