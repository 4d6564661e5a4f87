"""Files that are rejected as a whole: all rows break one rule, or so many at the start that the rest is not read."""

from __future__ import annotations

import csv
import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.receiver.formats import blocks, csv_records, parquet_file
from slackwater.receiver.pull import rejected_rows
from slackwater.receiver.pull.file_cache import ContentVersion, FileEntry, FileState
from slackwater.receiver.pull.recorded_files import recorded_files
from slackwater.receiver.pull.rejects_reader import RejectsReader
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_receiver import RECEIVED, a_source
from tests.pulling import FIRST, SECOND, TODAY, Setup, csv_of, row

pytestmark = pytest.mark.unit

NO_OFFSET = "2013-03-11T12:00:00"
WITHOUT, UTC = a_source(), a_source(timestamp={"field": "at", "timezone": "UTC"})
"""Definitions that reject timestamps without an offset, and that accept them."""
REASON = f"at: '{NO_OFFSET}' has no offset, and the source has no `timestamp.timezone` for it"


def bad_rows(number: int) -> list[str]:
    return [row(f"bad-{index}", NO_OFFSET) for index in range(number)]


def pulled(content: bytes, source=WITHOUT) -> Setup:
    setup = Setup({FIRST: content}, source)
    assert setup.pull() == {FIRST: "stored"}
    return setup


def shown(setup: Setup, path: str = FIRST) -> FileEntry:
    """Return the file as `slackwater files` shows it."""
    files = recorded_files(
        setup.source, cache=setup.cache, state=None, as_of=TODAY, now=setup.clock(), limit=10
    ).entries
    return next(entry for entry in files if entry.path == path)


def counted_rows(setup: Setup) -> int:
    """Return what `slackwater sideline list` counts."""
    reader = RejectsReader(store=setup.store, files=setup.cache, raw_bucket="raw")
    return sum(day.events for day in reader.days("things", [RECEIVED.date().isoformat()]))


@pytest.fixture
def ten_rows(monkeypatch):
    """A file is rejected as a whole after ten rows, and has three examples."""
    monkeypatch.setattr(rejected_rows, "WHOLE_FILE_ROWS", 10)
    monkeypatch.setattr(rejected_rows, "EXAMPLES", 3)


class TestAllRows:
    def test_a_file_has_a_hundred_examples_and_its_exact_count(self):
        setup = Setup({FIRST: csv_of(*bad_rows(250))})
        fetched = setup.fetch(setup.plan().items[0])
        assert (fetched.state, fetched.rows, fetched.rejected, fetched.partitions) == ("stored", 0, 250, ())
        assert fetched.reason == REASON
        records = setup.reject_records()
        assert [record["index"] for record in records] == list(range(100))
        assert [record["line"] for record in records] == list(range(2, 102))
        assert {record["reason"] for record in records} == {REASON}
        assert [record.get("rows") for record in records] == [*[None] * 99, 151]
        assert counted_rows(setup) == 250
        entry = shown(setup)
        assert (entry.state, entry.rows, entry.rejected) == (FileState.STORED, 0, 250)
        all_rows = "rejected as a whole: all 250 rows break the rule wrong_type; the first row: "
        assert entry.reason == all_rows + REASON
        assert setup.store.get(entry.landing_uri) == setup.partner.files[FIRST]
        assert setup.pull() == {}

    @pytest.mark.parametrize("number", [1, 2, 99, 100, 101])
    def test_no_row_is_lost_around_the_number_of_examples(self, number):
        setup = pulled(csv_of(*bad_rows(number)))
        assert (shown(setup).rejected, counted_rows(setup)) == (number, number)
        assert len(setup.reject_records()) == min(number, 100)

    def test_the_only_row(self):
        entry = shown(pulled(csv_of(*bad_rows(1))))
        assert entry.reason == f"rejected as a whole: its only row breaks the rule wrong_type; the first row: {REASON}"

    @pytest.mark.parametrize(
        "rows",
        [
            [],
            [*bad_rows(250), row("a")],
            [row("a"), *bad_rows(250)],
            [*bad_rows(249), "too,few\n"],
            ["too,few\n", *bad_rows(249)],
        ],
        ids=["none", "the last is valid", "the first is valid", "the last breaks another", "the first breaks another"],
    )
    def test_other_files_are_stored_row_by_row(self, rows):
        setup = pulled(csv_of(*rows))
        assert shown(setup).reason is None
        assert len(setup.reject_records()) == counted_rows(setup) == (250 if rows else 0)


@pytest.fixture(params=[None, 64], ids=["one block", "blocks of 64 bytes"])
def block_bytes(request, monkeypatch):
    """All rows are in one block, or each block has one or two of them."""
    if request.param:
        monkeypatch.setattr(blocks, "BLOCK_BYTES", request.param)
        monkeypatch.setattr(csv_records, "BLOCK_BYTES", request.param)


@pytest.mark.usefixtures("ten_rows", "block_bytes")
class TestFirstRows:
    def test_the_rest_of_the_file_is_counted_but_not_read(self):
        setup = pulled(csv_of(*bad_rows(10), row("valid"), "too,few\n", *bad_rows(8)))
        entry = shown(setup)
        assert (entry.rows, entry.rejected, counted_rows(setup), setup.ids()) == (0, 20, 20, [])
        start = "rejected as a whole: the first 10 of 20 rows break the rule wrong_type; the first row: "
        assert entry.reason == start + REASON
        assert [record.get("rows") for record in setup.reject_records()] == [None, None, 18]

    def test_one_row_less_is_not_enough(self):
        setup = pulled(csv_of(*bad_rows(9), row("valid"), *bad_rows(20)))
        assert (setup.ids(), shown(setup).rejected, len(setup.reject_records())) == (["valid"], 29, 29)

    @pytest.mark.parametrize("at", ["2013-01-01T00:00:00Z", "2014-01-01T00:00:00Z"], ids=["too old", "in the future"])
    def test_rows_outside_the_age_limits_do_not_reject_the_valid_rows_after_them(self, at):
        limited = a_source(timestamp={"field": "at", "max_age_days": 7, "max_future_hours": 1})
        setup = pulled(csv_of(*(row(f"outside-{index}", at) for index in range(10)), row("valid")), limited)
        entry = shown(setup)
        assert (setup.ids(), entry.rows, entry.rejected, entry.reason) == (["valid"], 1, 10, None)
        assert len(setup.reject_records()) == counted_rows(setup) == 10

    def test_a_long_history_of_old_rows_is_counted_and_not_copied(self, monkeypatch):
        """The texts of its rows would fill the disk of the function: they are many times larger than the file."""
        monkeypatch.setattr(blocks, "BLOCK_BYTES", 256)  # about six rows
        limited = a_source(timestamp={"field": "at", "max_age_days": 7, "max_future_hours": 1})
        old, new = "2013-01-01T00:00:00Z", "2014-01-01T00:00:00Z"
        rows = [row(f"{index}", old if index % 3 else new) for index in range(60)]
        setup = pulled(csv_of(*rows, row("valid"), *bad_rows(3), *rows), limited)
        assert (setup.ids(), shown(setup).rejected, counted_rows(setup)) == (["valid"], 123, 123)
        records = setup.reject_records()
        assert len(records) == 10 + 10 + 3 + 2
        assert {record["rule"]: record["rows"] for record in records if "rows" in record} == {
            "too_old": 70,
            "in_the_future": 30,
        }

    def test_rows_are_counted_as_csv_reads_them(self):
        """Cells with line breaks and quotes, blank lines, and all three line ends, in any of the blocks."""
        cells = ['"a\nb"', '"say ""x"""', "", "ä\u2028ö", '"\r\n\r\n"'] * 7
        for end in ("\n", "\r\n", "\r"):
            rows = [
                f"{cell},1,2.5,true,2013-03-11,{NO_OFFSET}{end * (1 + number % 2)}" for number, cell in enumerate(cells)
            ]
            content = "".join(["id,count,size,good,day,at", end, *bad_rows(12), *rows])
            expected = sum(1 for cells in csv.reader(io.StringIO(content, newline="")) if cells) - 1
            assert shown(pulled(content.encode())).rejected == expected == 12 + 35

    def test_a_file_that_ends_in_broken_data_fails_instead(self):
        content = gzip.compress(csv_of(*bad_rows(5000)))[:-20]
        setup = Setup({FIRST: content})
        assert setup.pull() == {FIRST: "failed"}
        assert (setup.entry(FIRST).state, setup.store.uris("/sideline/")) == (FileState.FAILED, [])

    def test_a_corrected_definition_reads_all_rows(self):
        setup = pulled(csv_of(*bad_rows(20)))
        setup.source = UTC
        assert setup.pull() == {FIRST: "stored"}
        assert (len(setup.ids()), setup.reject_records(), counted_rows(setup)) == (20, [], 0)
        entry = shown(setup)
        assert (entry.rows, entry.rejected, entry.reason) == (20, 0, None)


@pytest.mark.usefixtures("ten_rows")
@pytest.mark.parametrize("last", ["too long", "unreadable"])
def test_the_rows_of_a_parquet_file_that_are_only_counted_need_not_be_readable(monkeypatch, last):
    monkeypatch.setattr(parquet_file, "MAX_RECORD_BYTES", 2_000)
    ids = [f"bad-{index}" for index in range(19)] + ["x" * 3_000 if last == "too long" else "bad-19"]
    created = io.BytesIO()
    pq.write_table(pa.table({"id": ids, "at": [NO_OFFSET] * 20}), created, row_group_size=10)
    content = bytearray(created.getvalue())
    if last == "unreadable":
        group = pq.read_metadata(created).row_group(1)
        start = group.column(0).dictionary_page_offset
        content[start : start + group.column(0).total_compressed_size] = b"\xff" * group.column(0).total_compressed_size
    source = a_source(pull={"url": "http://x/y", "files": "things-{date}.csv", "format": "parquet"})
    entry = shown(pulled(bytes(content), source))
    assert (entry.state, entry.rejected) == (FileState.STORED, 20)
    assert (
        entry.reason
        == f"rejected as a whole: the first 10 of 20 rows break the rule wrong_type; the first row: {REASON}"
    )


@pytest.mark.usefixtures("ten_rows")
class TestRecords:
    BAD, GOOD = csv_of(*bad_rows(20)), csv_of(row("a"), row("b"))
    SCENARIOS = {
        "comes": ({}, WITHOUT, {FIRST: BAD}, WITHOUT),
        "replaces rows": ({FIRST: GOOD}, WITHOUT, {FIRST: BAD}, WITHOUT),
        "is replaced": ({FIRST: BAD}, WITHOUT, {FIRST: GOOD}, WITHOUT),
        "is read with a corrected definition": ({FIRST: BAD, SECOND: BAD}, WITHOUT, {FIRST: BAD, SECOND: BAD}, UTC),
        "was read with another definition": ({FIRST: BAD, SECOND: BAD}, UTC, {FIRST: BAD, SECOND: BAD}, WITHOUT),
    }

    @pytest.mark.parametrize("fault_type", FAULT_TYPES)
    @pytest.mark.parametrize("scenario", SCENARIOS)
    def test_a_fault_at_any_write_is_repaired_while_such_a_file(self, scenario, fault_type):
        before, first, after, last = self.SCENARIOS[scenario]
        start = Setup(before, first)
        start.pull()
        for write in range(1, 30):
            setup = start.copy()
            setup.source, setup.partner.files = last, dict(after)
            process = Process(WriteFault(write, fault_type), meanwhile=setup.pull)
            setup.pull(using=process.using)
            for _ in range(2):
                setup.clock.pass_by(days=2)
                setup.pull()
            self.assert_stored(setup)
            if not process.is_fault_reached:
                break
        assert write > 5

    def assert_stored(self, setup: Setup) -> None:
        rejected = self.BAD in setup.partner.files.values() and setup.source == WITHOUT
        accepted = [f"bad-{index}" for index in range(20)] if setup.source == UTC else ["a", "b"]
        assert setup.ids() == ([] if rejected else sorted(accepted))
        assert len(setup.reject_records()) == (3 if rejected else 0)
        for path in setup.partner.files:
            entry = shown(setup, path)
            assert (entry.lease, entry.changed) == (None, ())
            assert (entry.rejected, bool(entry.reason)) == ((20, True) if rejected else (0, False))
        assert list(setup.plan().items) == []

    def test_the_reason_comes_back_after_a_failure(self):
        setup = pulled(self.BAD)
        reason = shown(setup).reason
        setup.partner.broken = {FIRST}
        listed = setup.partner.list
        setup.partner.list = lambda *arguments: [
            file.model_copy(update={"etag": "other"}) for file in listed(*arguments)
        ]
        assert setup.pull() == {FIRST: "failed"}
        assert shown(setup).reason == f"{FIRST}: answered 500"
        setup.partner.broken = set()
        assert setup.pull() == {FIRST: "unchanged"}
        assert shown(setup).reason == reason

    def test_a_copy_of_the_file_has_the_same_reason(self):
        setup = pulled(self.BAD)
        setup.partner.files[SECOND] = self.BAD
        fetched = setup.fetch(setup.plan().items[0])
        assert (fetched.state, fetched.rejected) == ("duplicate", 0)
        assert (shown(setup, SECOND).reason, shown(setup, SECOND).rejected) == (shown(setup).reason, 20)
        assert counted_rows(setup) == 20

    def test_versions_that_were_stored_before_there_was_a_reason_keep_their_objects(self):
        version = ContentVersion(
            definition="d", partitions=(("2013-03-11", "12"),), rows=3, rejected=1, rows_digest="e"
        )
        assert version.digest == version.model_copy(update={"rejection": "x"}).digest == "43a287d7435c"
