"""Contents: shared by files, read with several definitions of the source, deleted when no file needs them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.receiver.pull.fetch import LEASE
from slackwater.receiver.pull.file_cache import Content, ContentVersion, FileDecision, version_name, version_of
from slackwater.receiver.pull.stage_file import stage_file
from slackwater.runs.inputs.consistent_listing import consistent_listing
from slackwater.sources.partitions import Partition
from tests.fakes_receiver import RECEIVED, Crash, a_source
from tests.pulling import FIRST, SECOND, THIRD, Setup, csv_of, row
from tests.reading import stored_events

pytestmark = pytest.mark.unit

NOON, ONE = Partition("2013-03-11", "12"), Partition("2013-03-11", "13")
V1, V2 = (ContentVersion(definition=letter * 12, partitions=(NOON, ONE), rows=2) for letter in "12")
NEW = Content(source="things", id="c" * 32, received_at=RECEIVED)
UTC, TOKYO = (a_source(timestamp={"field": "at", "timezone": name}) for name in ("UTC", "Asia/Tokyo"))
BODY = csv_of(row("a", "2013-03-11T12:00:00"), row("b", "2013-03-11T13:00:00"), "bad\n")


def stored(path: str, version: ContentVersion, content: Content = NEW) -> Content:
    return content.with_writer(path, version).with_file(path, version, is_new=True)


def hours(setup: Setup) -> list[tuple[str, str]]:
    """Ids of the events that readers see, with the hours of their partitions."""
    events = stored_events(setup.store, setup.source, files=setup.cache)
    return sorted((event["id"], event["_object"].split("/")[6]) for event in events)


AS_UTC = [("a", "hour=12"), ("b", "hour=13")]
AS_TOKYO = [("a", "hour=03"), ("b", "hour=04")]


class TestVersions:
    def test_a_version_is_committed_when_a_file_has_it(self):
        assert NEW.with_writer("a", V1).committed is None
        assert stored("a", V1).committed == V1
        assert stored("a", V1).without_file("a").committed is None

    def test_a_content_has_one_committed_version_whatever_files_have_it(self):
        both = stored("b", V2, stored("a", V1))
        assert (both.committed, both.files, both.paths) == (V2, 2, ("a", "b"))
        assert both.garbage == (V1,)

    def test_a_version_is_needed_while_a_file_has_it_or_writes_it(self):
        written = stored("a", V1).with_writer("b", V2)
        assert written.garbage == ()
        assert written.without_file("a").garbage == (V1,)
        assert written.without_writer("b").garbage == (V2,)

    def test_a_release_that_reads_a_content_differently_writes_another_version(self):
        other = V1.model_copy(update={"partitions": (ONE,)})
        both = stored("b", other, stored("a", V1))
        assert (both.committed, both.garbage) == (other, (V1,))

    def test_a_file_writes_one_version_at_a_time(self):
        assert NEW.with_writer("a", V1).with_writer("a", V2).garbage == (V1,)

    def test_the_number_of_files_is_exact_and_their_paths_are_limited(self):
        content = NEW
        for number in range(50):
            content = stored(f"{number:02}", V1, content)
        assert (content.files, len(content.paths)) == (50, 20)
        assert content.without_file("00").without_file("40").files == 48

    def test_the_objects_of_versions_have_different_names(self):
        content = stored("a", V1)
        first, second = ({*content.object_uris(version, "raw")} for version in (V1, V2))
        assert first.isdisjoint(second)
        assert {version_of(uri) for uri in first} == {(content.id, V1.id)}

    @pytest.mark.parametrize("name", ["a" * 32, "a" * 64, version_name("A" * 32, V1), "x" + version_name("a", V1)])
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
        assert len(setup.store.uris("/raw/source=")) == 2

    def test_attempts_that_fail_under_many_definitions_do_not_make_the_record_grow(self):
        setup = Setup({FIRST: BODY}, UTC)
        register = setup.partitions.register
        setup.partitions.register = lambda *_: (_ for _ in ()).throw(Crash("the catalog refuses"))
        for number in range(10):
            setup.source = a_source(timestamp=setup.source.timestamp, null_values=["", str(number)])
            setup.source = setup.source.model_copy(update={"timestamp": UTC.timestamp})
            assert setup.pull() == {FIRST: "failed"}
            setup.clock.pass_by(days=2)
        (content,) = setup.cache.saved_contents.values()
        assert len(content.versions) <= 2
        setup.partitions.register, setup.source = register, UTC
        assert setup.pull() == {FIRST: "stored"}
        assert hours(setup) == AS_UTC
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


class TestDeletion:
    def test_a_content_that_a_file_needs_is_not_deleted(self):
        setup = Setup({FIRST: BODY, SECOND: BODY}, UTC)
        setup.pull()
        setup.partner.files[FIRST] = csv_of()
        setup.pull()
        assert hours(setup) == AS_UTC

    def test_nothing_is_deleted_after_the_lease_expired(self):
        setup = Setup({FIRST: BODY}, UTC)
        setup.pull()
        setup.partner.files[FIRST] = csv_of()
        (item,) = setup.plan().items
        save, objects = setup.cache.save, set(setup.store.uris("/raw/source="))

        def slow(*records):
            save(*records)
            if any(isinstance(record, Content) and record.deleting for record in records):
                setup.clock.pass_by(seconds=LEASE.total_seconds())

        setup.cache.save = slow
        assert setup.fetch(item).state == "stored"
        assert set(setup.store.uris("/raw/source=")) == objects
        setup.cache.save = save
        setup.pull()
        assert setup.store.uris("/raw/source=") == []

    def test_a_write_that_keeps_failing_does_not_make_the_records_grow(self):
        """Superseded contents are deleted before the next one is announced, so an item stays below 400 kB."""
        setup, register = Setup({}, UTC), None
        for number in range(30):
            setup.partner.files = {
                FIRST: csv_of(*(row(f"{number}-{hour}", f"2013-03-11T{hour:02}:00:00") for hour in range(24)))
            }
            register = register or setup.partitions.register
            setup.partitions.register = lambda *_: (_ for _ in ()).throw(Crash("the catalog refuses"))
            assert setup.pull() == {FIRST: "failed"}
            setup.clock.pass_by(days=2)
        assert len(setup.entry(FIRST).model_dump_json()) < 2_000
        assert sum(len(content.versions) for content in setup.cache.saved_contents.values()) == 1
        assert len(setup.store.uris("/raw/source=")) == 24
        setup.partitions.register = register
        assert setup.pull() == {FIRST: "stored"}
        assert len(hours(setup)) == 24


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
