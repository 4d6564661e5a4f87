"""Contents: shared by files, read with several definitions of the source, each with one version that readers see."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.receiver.pull.fetch import LEASE
from slackwater.receiver.pull.file_cache import Content, ContentVersion, EntryChanged
from slackwater.receiver.pull.plan import FileDecision
from slackwater.receiver.pull.stage_file import stage_file
from slackwater.runs.inputs.consistent_listing import consistent_listing
from slackwater.sources.partitions import Partition, version_of
from tests.fakes_receiver import RECEIVED, a_source
from tests.pulling import FIRST, SECOND, THIRD, Setup, crash, csv_of, row
from tests.reading import stored_events

pytestmark = pytest.mark.unit

NOON, ONE = Partition("2013-03-11", "12"), Partition("2013-03-11", "13")
V1, V2 = (
    ContentVersion(definition=letter * 12, partitions=(NOON, ONE), rows=2, attempt=letter * 12) for letter in "12"
)
NEW = Content(source="things", id="c" * 32, received_at=RECEIVED)
UTC, TOKYO = (a_source(timestamp={"field": "at", "timezone": name}) for name in ("UTC", "Asia/Tokyo"))
BODY = csv_of(row("a", "2013-03-11T12:00:00"), row("b", "2013-03-11T13:00:00"), "bad\n")


def stored(path: str, version: ContentVersion, content: Content = NEW) -> Content:
    return content.with_file(path, version, is_new=True, at=RECEIVED)


def hours(setup: Setup) -> list[tuple[str, str]]:
    """Ids of the events that readers see, with the hours of their partitions."""
    events = stored_events(setup.store, setup.source, files=setup.cache)
    return sorted((event["id"], event["_object"].split("/")[6]) for event in events)


def remove_stale_later(setup: Setup) -> None:
    setup.clock.pass_by(days=4)
    setup.remove_stale()


AS_UTC = [("a", "hour=12"), ("b", "hour=13")]
AS_TOKYO = [("a", "hour=03"), ("b", "hour=04")]


class TestVersions:
    def test_a_version_is_committed_while_a_file_has_the_content(self):
        assert NEW.committed is None
        assert stored("a", V1).committed == V1
        assert stored("a", V1).without_file("a", at=RECEIVED).committed is None

    def test_a_content_has_one_committed_version_whatever_files_have_it(self):
        both = stored("b", V2, stored("a", V1))
        assert (both.committed, both.files, both.paths) == (V2, 2, ("a", "b"))

    def test_the_time_of_the_latest_change_is_when_readers_got_to_see_other_objects_or_none(self):
        content = stored("a", V1)
        times = [content.changed_at]
        for number, change in enumerate(
            (
                lambda content, at: content.with_file("b", V1, is_new=True, at=at),
                lambda content, at: content.without_file("b", at=at),
                lambda content, at: content.with_file("a", V2, is_new=False, at=at),
                lambda content, at: content.without_file("a", at=at),
                lambda content, at: content.with_file("c", V2, is_new=True, at=at),
            ),
            start=1,
        ):
            content = change(content, RECEIVED + timedelta(days=number))
            times.append(content.changed_at)
        assert [(at - RECEIVED).days for at in times] == [0, 0, 0, 3, 4, 5]

    def test_a_release_that_reads_a_content_differently_reads_another_version(self):
        other = V1.model_copy(update={"partitions": (ONE,)})
        assert other.digest != V1.digest == V1.model_copy(update={"attempt": "3" * 12, "rejection": "x"}).digest

    def test_the_number_of_files_is_exact_and_their_paths_are_limited(self):
        content = NEW
        for number in range(50):
            content = stored(f"{number:02}", V1, content)
        assert (content.files, len(content.paths)) == (50, 20)
        assert content.without_file("00", at=RECEIVED).without_file("40", at=RECEIVED).files == 48

    def test_the_names_of_objects_have_content_attempt_and_rows(self):
        setup = Setup({FIRST: BODY}, UTC)
        setup.pull()
        (content,) = setup.cache.saved_contents.values()
        assert content.committed.attempt
        names = {(content.id, content.committed.attempt)}
        assert {version_of(uri) for uri in setup.store.uris("/raw/source=")} == names
        assert {version_of(uri.replace("-1.parquet", ".parquet")) for uri in setup.store.uris("/raw/source=")} == names

    @pytest.mark.parametrize("name", ["a" * 32, "a" * 64, f"{'A' * 32}-{'1' * 12}", f"x{'a' * 32}-{'1' * 12}-5"])
    def test_the_object_of_a_pushed_batch_has_no_version(self, name):
        assert version_of(f"s3://raw/raw/source=s/date=2013-03-11/hour=12/{name}.parquet") is None


class TestCorrectedDefinition:
    def test_the_files_of_the_window_are_read_again(self):
        setup = Setup({FIRST: BODY}, UTC)
        setup.pull()
        assert (hours(setup), setup.entry(FIRST).rejected) == (AS_UTC, 1)
        setup.source = TOKYO
        assert [item.decision for item in setup.plan().items] == [FileDecision.CHANGED]
        assert setup.pull() == {FIRST: "stored"}
        assert hours(setup) == AS_TOKYO
        assert [record["line"] for record in setup.reject_records()] == [4]
        remove_stale_later(setup)
        assert hours(setup) == AS_TOKYO
        assert len(setup.store.uris("/raw/source=")) == 2
        assert [record["line"] for record in setup.reject_records()] == [4]
        assert setup.pull() == {}

    @pytest.mark.parametrize("changes", [{"description": "x"}, {"silent_hours": 3}, {"late": {"percent": 5}}])
    def test_a_change_that_does_not_concern_reading_reads_no_file_again(self, changes):
        setup = Setup({FIRST: BODY}, a_source())
        setup.pull()
        setup.source = a_source(**changes)
        assert setup.pull() == {}

    def test_a_content_that_comes_again_under_a_second_name_is_counted_once(self):
        """Reproduced before: 14 of 10 events were counted."""
        setup = Setup({FIRST: BODY}, UTC)
        setup.pull()
        setup.source, setup.partner.files = TOKYO, {SECOND: BODY}
        assert setup.pull() == {SECOND: "duplicate"}
        assert hours(setup) == AS_TOKYO

    def test_no_row_stays_when_all_files_with_its_content_are_replaced(self):
        """Reproduced before: four rows of content that no file contained any more stayed readable."""
        setup = Setup({FIRST: BODY}, UTC)
        setup.pull()
        setup.source, setup.partner.files = TOKYO, {FIRST: BODY, SECOND: BODY}
        setup.pull()
        setup.partner.files = dict.fromkeys([FIRST, SECOND], csv_of(row("c", "2013-03-11T12:00:00")))
        setup.pull()
        assert hours(setup) == [("c", "hour=03")]
        remove_stale_later(setup)
        assert hours(setup) == [("c", "hour=03")]
        assert len(setup.store.uris("/raw/source=")) == 1

    @pytest.mark.parametrize("writes", range(1, 9))
    def test_a_pull_that_is_interrupted_before_a_deployment_doubles_nothing(self, writes):
        """Reproduced before: four events were doubled, and others were in the wrong hours."""
        setup = Setup({FIRST: BODY}, UTC)
        setup.fuse.left = writes
        setup.pull()
        setup.fuse.left, setup.source = None, TOKYO
        setup.clock.pass_by(seconds=LEASE.total_seconds())
        setup.pull()
        assert hours(setup) == AS_TOKYO
        remove_stale_later(setup)
        assert hours(setup) == AS_TOKYO
        assert len(setup.store.uris("/raw/source=")) == 2

    def test_attempts_that_fail_under_many_definitions_do_not_make_the_record_grow(self):
        setup = Setup({FIRST: BODY}, UTC)
        setup.before_commit = crash
        for number in range(10):
            setup.source = a_source(timestamp=setup.source.timestamp, null_values=["", str(number)])
            setup.source = setup.source.model_copy(update={"timestamp": UTC.timestamp})
            assert setup.pull() == {FIRST: "failed"}
            setup.clock.pass_by(days=2)
        (content,) = setup.cache.saved_contents.values()
        assert content.current is None
        setup.before_commit, setup.source = lambda: None, UTC
        assert setup.pull() == {FIRST: "stored"}
        assert hours(setup) == AS_UTC
        remove_stale_later(setup)
        assert len(setup.store.uris("/raw/source=")) == 2

    def test_a_release_that_moves_a_row_to_another_hour_after_a_crash_doubles_nothing(self, monkeypatch):
        body = csv_of(*(row(name, f"2013-03-11T{hour}:00:00") for name, hour in (("a", 12), ("b", 12), ("c", 13))))
        moved = csv_of(*(row(name, f"2013-03-11T{hour}:00:00") for name, hour in (("a", 12), ("b", 13), ("c", 13))))
        for writes in range(4, 9):
            setup = Setup({FIRST: body}, UTC)
            setup.fuse.left = writes
            setup.pull()
            setup.fuse.left = None
            setup.clock.pass_by(seconds=LEASE.total_seconds())

            def other_release(path, *arguments, **named):
                path.write_bytes(moved)
                return stage_file(path, *arguments, **named)

            with monkeypatch.context() as patch:
                patch.setattr("slackwater.receiver.pull.fetch.stage_file", other_release)
                setup.pull()
            assert [name for name, _ in hours(setup)] == ["a", "b", "c"]

    def test_a_definition_that_changes_back_reads_shared_contents_again(self):
        setup = Setup({FIRST: BODY, SECOND: BODY}, UTC)
        setup.pull()
        setup.source, setup.partner.files = TOKYO, {FIRST: BODY}
        setup.pull()
        setup.source, setup.partner.files = UTC, {SECOND: BODY}
        setup.pull()
        assert hours(setup) == AS_UTC


class TestLeftovers:
    def test_a_content_that_a_file_needs_is_not_deleted(self):
        setup = Setup({FIRST: BODY, SECOND: BODY}, UTC)
        setup.pull()
        setup.partner.files[FIRST] = csv_of()
        setup.pull()
        assert hours(setup) == AS_UTC

    def test_a_pull_deletes_nothing(self, monkeypatch):
        """Its role may not."""
        setup = Setup({FIRST: BODY, SECOND: BODY}, UTC)
        monkeypatch.setattr(setup.store, "delete", lambda *_: pytest.fail("deleted"))
        for source, body in ((UTC, BODY), (TOKYO, BODY), (TOKYO, csv_of())):
            setup.source, setup.partner.files = source, {FIRST: body, SECOND: BODY}
            setup.pull()
        assert hours(setup) == AS_TOKYO

    def test_nothing_is_committed_after_the_lease_expired(self):
        """Its objects may be deleted some days after it expired."""
        setup = Setup({FIRST: BODY}, UTC)
        (item,) = setup.plan().items
        setup.before_commit = lambda: setup.clock.pass_by(seconds=LEASE.total_seconds())
        with pytest.raises(EntryChanged, match=f"{FIRST}: its lease has expired; the next pull repairs it"):
            setup.fetch(item)
        assert hours(setup) == []
        setup.before_commit = lambda: None
        assert setup.pull() == {FIRST: "stored"}
        assert hours(setup) == AS_UTC

    def test_a_write_that_keeps_failing_does_not_make_the_records_grow(self):
        setup = Setup({}, UTC)
        for number in range(30):
            setup.partner.files = {
                FIRST: csv_of(*(row(f"{number}-{hour}", f"2013-03-11T{hour:02}:00:00") for hour in range(24)))
            }
            setup.before_commit = crash
            assert setup.pull() == {FIRST: "failed"}
            setup.clock.pass_by(days=2)
            setup.remove_stale()
        assert len(setup.entry(FIRST).model_dump_json()) < 2_000
        assert not any(content.current for content in setup.cache.saved_contents.values())
        assert len(setup.store.uris("/raw/source=")) == 24
        setup.before_commit = lambda: None
        assert setup.pull() == {FIRST: "stored"}
        assert len(hours(setup)) == 24


class TestEqualFiles:
    """A file whose content is stored already, as the present definition reads it, writes no object."""

    def interrupted_by(self, setup: Setup, meanwhile) -> str:
        """Fetch the last file that is planned, and call `meanwhile` before its commit. Return its state."""
        item = setup.plan().items[-1]
        save, is_done = setup.cache.save, []

        def saved(*records):
            if len(records) > 1 and records[0].path == item.path and not is_done:
                is_done.append(True)
                meanwhile()
            save(*records)

        setup.cache.save = saved
        try:
            return setup.fetch(item).state
        finally:
            setup.cache.save = save

    def test_an_equal_file_does_not_switch_the_version_also_if_both_are_written_at_the_same_time(self):
        setup = Setup({FIRST: BODY, SECOND: BODY}, UTC)
        first, _ = setup.plan().items
        assert self.interrupted_by(setup, lambda: setup.fetch(first)) == "duplicate"
        (content,) = setup.cache.saved_contents.values()
        assert (content.files, len(setup.committed()), len(setup.store.uris("/raw/source="))) == (2, 2, 4)
        assert setup.entry(SECOND).duplicate_of == FIRST
        assert hours(setup) == AS_UTC
        remove_stale_later(setup)
        assert setup.store.uris("/raw/source=") == setup.committed()
        assert hours(setup) == AS_UTC

    @pytest.mark.parametrize("replaced_by", ["another content", "another definition"])
    def test_a_file_that_has_written_nothing_waits_when_the_objects_are_replaced_meanwhile(self, replaced_by):
        setup = Setup({FIRST: BODY}, UTC)
        setup.pull()
        setup.partner.files[SECOND] = BODY

        def replace():
            files, source = {FIRST: csv_of()} if replaced_by == "another content" else {FIRST: BODY}, UTC
            if replaced_by == "another definition":
                source = TOKYO
            other = setup.partner.files
            setup.partner.files = files
            setup.pull(source=source)
            setup.partner.files = other

        assert self.interrupted_by(setup, replace) == "busy"
        assert setup.entry(SECOND).is_unfinished  # so that it is fetched although it may leave the window
        assert setup.pull()[SECOND] in {"stored", "duplicate"}
        assert hours(setup) == AS_UTC
        remove_stale_later(setup)
        assert hours(setup) == AS_UTC

    def test_objects_that_no_file_needed_for_some_time_are_written_again(self):
        """They may be deleted at any time."""
        setup = Setup({FIRST: BODY}, UTC)
        setup.pull()
        setup.partner.files[FIRST] = csv_of()
        setup.pull()
        setup.clock.pass_by(days=4)
        setup.partner.files[SECOND] = BODY
        before = setup.store.uris("/raw/source=")
        assert setup.pull() == {SECOND: "stored"}
        assert set(setup.committed()).isdisjoint(before)
        setup.store.delete(before)
        assert hours(setup) == AS_UTC


def test_an_equal_file_does_not_disturb_a_listing():
    setup = Setup({FIRST: BODY}, UTC)
    setup.pull()
    listings = []

    def list_objects():
        setup.partner.files["things-2013-03-12.csv"] = BODY
        setup.pull()
        listings.append(list(setup.store.list("s3://raw/raw/source=things/")))
        return listings[-1]

    known = [item.uri for item in setup.store.list("s3://raw/raw/source=things/")]
    assert len(consistent_listing(UTC, list_objects, files=setup.cache, known=known).objects) == 2
    assert len(listings) == 1


def test_a_content_keeps_the_time_of_its_first_receipt():
    setup = Setup({FIRST: BODY}, UTC)
    setup.pull()
    setup.clock.pass_by(days=400)
    setup.partner.files = {FIRST: csv_of(), THIRD: BODY}
    setup.pull()
    received = {
        content.received_at for content in setup.cache.saved_contents.values() if content.committed and content.files
    }
    assert received == {RECEIVED, RECEIVED + timedelta(days=400)}
