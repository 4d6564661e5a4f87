"""Stale objects: which objects of pulled files are deleted, and how a function with limited time gets to all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lambdas import remove_stale as function
from slackwater.errors import DataError
from slackwater.project.project import Project
from slackwater.receiver.pull import stale_objects
from slackwater.receiver.pull.stale_objects import StaleObjects
from slackwater.sources.partitions import Partition
from tests.fakes_crashes import Process, WriteFault
from tests.fakes_functions import use_resources
from tests.fakes_receiver import Clock, Fuse, MemoryFileCache, MemoryStore, committed_uris, content_id, store_file
from tests.pulling import FIRST, SECOND, Setup, csv_of, row

pytestmark = pytest.mark.unit

HOUR = Partition("2013-03-11", "12")


def interrupted() -> Setup:
    """Return a setup whose only pull has ended after it had written its objects."""
    setup = Setup({FIRST: csv_of(row("a"), row("b", "2013-03-11T13:00:00Z"))})
    setup.pull(using=Process(WriteFault(6, "ends after")).using)
    assert len(setup.store.uris("/raw/source=")) == 2
    return setup


def replaced() -> Setup:
    """Return a setup with the object of a content that was replaced ten days after it had been stored."""
    setup = Setup({FIRST: csv_of(row("a"))})
    setup.pull()
    setup.clock.pass_by(days=10)
    setup.partner.files = {FIRST: csv_of(row("b"))}
    setup.pull()
    return setup


@pytest.mark.parametrize(("leave", "stale"), [(interrupted, 2), (replaced, 1)])
def test_objects_are_deleted_three_days_after_they_were_written_or_replaced(leave, stale):
    """A run that has frozen its inputs may read the replaced ones for some hours."""
    setup = leave()
    before = setup.store.uris("/raw/source=")
    for _ in range(3):
        assert setup.remove_stale() == (0, 0)
        setup.clock.pass_by(days=1)
    assert setup.store.uris("/raw/source=") == before
    setup.clock.pass_by(seconds=1)
    assert setup.remove_stale() == (stale, 0)
    assert setup.store.uris("/raw/source=") == setup.committed()


def test_objects_that_are_seen_pushed_or_rejected_are_kept_at_any_age():
    setup = Setup({FIRST: csv_of(row("a"), "bad\n"), SECOND: csv_of(row("c"))})
    setup.pull()
    setup.partner.files[FIRST] = csv_of(row("b"), "bad\n")
    setup.pull()
    pushed = f"s3://raw/raw/source=things/date=2013-03-11/hour=12/{'a' * 32}-5.parquet"
    setup.store.put(pushed, b"x")
    kept = {*setup.committed(), *setup.store.uris("/sideline/"), *setup.store.uris("/landing/")}
    assert len(setup.store.uris("/sideline/")) == 2
    setup.clock.pass_by(days=1000)
    assert setup.remove_stale() == (1, 0)
    assert {uri for uri in setup.store.objects if uri.startswith("s3://raw/")} == kept
    assert pushed in kept


def test_objects_of_files_that_the_partner_has_removed_are_kept():
    """`on_removed` decides whether they count."""
    setup = Setup({FIRST: csv_of(row("a"))})
    setup.pull()
    (content,) = setup.cache.saved_contents.values()
    setup.cache.save(content.with_removed(1))
    setup.clock.pass_by(days=1000)
    assert (setup.remove_stale(), setup.ids()) == ((0, 0), ["a"])


def test_objects_without_a_record_are_counted_and_kept():
    setup = replaced()
    setup.cache.saved_contents.clear()
    setup.clock.pass_by(days=1000)
    before = set(setup.store.objects)
    assert setup.remove_stale() == (0, 2)
    assert before <= set(setup.store.objects)


class Sources:
    """Three sources with a stale and a current object for each of some files."""

    def __init__(self, files: int) -> None:
        self.clock, self.cache, self.asked = Clock(), MemoryFileCache(), list[int]()
        self.store = MemoryStore(clock=self.clock)
        contents = self.cache.contents

        def counted(source, ids):
            self.asked.append(len(ids))
            return contents(source, ids)

        self.updated = list[tuple[str, set[Partition], set[str]]]()
        """The updates of tables, each with the objects that there were before it."""
        self.kept = set[str]()
        for source in ("a", "a_b", "c"):
            for number in range(files):
                for content in ("old", "new"):
                    for uri in store_file(self.cache, source, f"{number}.csv", f"{content} {number}", [HOUR]):
                        self.store.put(uri, b"x")
            self.kept |= {
                uri
                for number in range(files)
                for content in contents(source, [content_id(f"new {number}")])
                for uri in committed_uris(content)
            }
        self.cache.contents = counted
        self.clock.pass_by(days=4)

    def remove(self, *, limit: timedelta = timedelta(minutes=13), seconds: float = 0):
        """Remove stale objects. A page takes so many seconds."""

        def now():
            self.clock.pass_by(seconds=seconds)
            return self.clock()

        objects = StaleObjects(
            store=self.store,
            cache=self.cache,
            raw_bucket="raw",
            exchange_bucket="exchange",
            now=now,
            update_table=lambda source, partitions: self.updated.append((source, partitions, self.objects)),
        )
        return objects.remove(["c", "a_b", "a"], limit=limit)

    @property
    def objects(self) -> set[str]:
        return {uri for uri in self.store.objects if uri.startswith("s3://raw/")}


def test_a_call_whose_time_is_over_is_continued_by_the_next_one(monkeypatch):
    """A page is held in memory at a time."""
    monkeypatch.setattr(stale_objects, "_PAGE", 4)
    sources, calls, deleted = Sources(files=9), 0, 0
    while True:
        before = len(sources.asked)
        removal = sources.remove(limit=timedelta(seconds=60), seconds=20)
        calls, deleted = calls + 1, deleted + removal.deleted
        assert 0 < len(sources.asked) - before <= 2
        if not removal.last:
            break
    assert (deleted, sources.objects) == (27, sources.kept)
    assert (calls, len(sources.asked)) == (8, 3 * 5), "each object is looked at once"
    assert max(sources.asked) <= 4
    sources.asked.clear()
    assert not sources.remove().last
    assert len(sources.asked) == 3 * 3, "the next call begins again"


def test_a_call_after_a_failure_deletes_the_rest():
    sources = Sources(files=3)
    sources.store.fuse = Fuse(4)
    with pytest.raises(Exception, match="delete"):
        sources.remove()
    sources.store.fuse = Fuse()
    assert sources.remove().deleted == 9 - 4
    assert sources.objects == sources.kept


def test_tables_are_updated_before_objects_are_deleted():
    sources = Sources(files=1)
    before = sources.objects
    assert sources.remove().deleted == 3
    assert [(source, partitions) for source, partitions, _ in sources.updated] == [
        (name, {HOUR}) for name in ("a", "a_b", "c")
    ]
    assert sources.updated[0][2] == before
    sources.remove()
    assert len(sources.updated) == 3


class TestFunction:
    @pytest.fixture
    def setup(self, monkeypatch):
        setup = replaced()
        objects = StaleObjects(
            store=setup.store,
            cache=setup.cache,
            raw_bucket="raw",
            exchange_bucket="x",
            update_table=lambda *_: None,
            now=lambda: datetime.now(UTC),
        )
        project = Project(sources={"things": setup.source}, pipelines={})
        use_resources(monkeypatch, function, project=project, stale_objects=objects)
        return setup

    def test_it_returns_what_it_has_done(self, setup):
        """All objects are older than three days: they were stored in 2013."""
        assert function.handler({}, None) == {"deleted": 1, "unrecorded": 0, "example": "", "last": ""}
        assert setup.ids() == ["b"]

    def test_it_fails_if_objects_have_no_record_after_it_has_deleted_the_others(self, setup):
        uri = f"s3://raw/raw/source=things/date=2013-03-11/hour=12/{'a' * 32}-{'b' * 12}-5.parquet"
        setup.store.put(uri, b"x")
        with pytest.raises(DataError, match=f"^1 objects of pulled files have no record .* such as {uri}: nobody"):
            function.handler({}, None)
        assert {*setup.store.uris("/raw/source=")} == {uri, *setup.committed()}
