"""Contents that several files share: received for the first time once, deleted when no file needs them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.receiver.pull.fetch import SharedContents
from slackwater.receiver.pull.file_cache import EntryChanged, FileEntry, FileVersion, Lease
from slackwater.sources.partitions import Partition
from tests.fakes_receiver import RECEIVED, Clock, MemoryFileCache, MemoryStore

pytestmark = pytest.mark.unit

VERSION = FileVersion(content_sha256="x", partitions=(Partition("2013-03-11", "12"), Partition("2013-03-11", "13")))
UNTIL = RECEIVED + timedelta(minutes=1)


class World:
    def __init__(self) -> None:
        self.store, self.cache, self.clock = MemoryStore(), MemoryFileCache(), Clock()
        self.contents = SharedContents(source="s", cache=self.cache, store=self.store, raw_bucket="raw", now=self.clock)
        for uri in VERSION.object_uris("raw", "s"):
            self.store.put(uri, b"")

    def need(self, path: str, **versions: FileVersion) -> None:
        self.cache.save(FileEntry(source="s", path=path, **versions))

    def deletions(self) -> tuple[Lease, ...]:
        content = self.cache.content("s", "x")
        return content.deletions if content else ()

    def mark(self, path: str, until=UNTIL) -> None:
        self.contents.first_received_at("x", path)
        content = self.cache.content("s", "x")
        deletions = (*content.deletions, Lease(owner=path, until=until))
        self.cache.save_content(content.model_copy(update={"deletions": deletions}))


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_receipt_of_a_content_never_changes(world):
    assert world.contents.first_received_at("x", "a") == RECEIVED
    world.clock.pass_by(days=400)
    assert [world.contents.first_received_at("x", path) for path in ("b", "a")] == [RECEIVED, RECEIVED]
    assert world.contents.first_received_at("y", "a") == RECEIVED + timedelta(days=400)


def test_the_earlier_of_two_concurrent_receipts_is_used(world):
    load = world.cache.content

    def slow(source, sha256):
        world.cache.content = load
        world.clock.pass_by(hours=-1)
        world.contents.first_received_at("x", "b")
        world.clock.pass_by(hours=1)

    world.cache.content = slow
    assert world.contents.first_received_at("x", "a") == RECEIVED - timedelta(hours=1)


def test_the_first_file_that_needs_a_content_is_the_original(world):
    world.contents.first_received_at("x", "a")
    world.need("a", writing=VERSION)
    world.need("b", writing=VERSION)
    assert [world.contents.original_path("x", path) for path in ("a", "b")] == [None, "a"]
    world.cache.save(world.cache.get("s", "a").model_copy(update={"writing": None}))
    assert [world.contents.original_path("x", path) for path in ("b", "a")] == [None, "b"]


@pytest.mark.parametrize("need", ["version", "writing"])
@pytest.mark.parametrize("path", ["a", "b"])
def test_a_content_that_a_file_needs_is_not_deleted(world, path, need):
    world.need(path, **{need: VERSION})
    world.contents.collect_garbage(VERSION, "a", until=UNTIL)
    assert set(world.store.objects) == set(VERSION.object_uris("raw", "s"))
    assert world.deletions() == ()


def test_a_content_that_no_file_needs_is_marked_and_deleted(world):
    world.need("b", superseded=(VERSION,))
    marks = []
    world.store.delete = lambda uris: marks.append((world.deletions(), sorted(uris)))
    world.contents.collect_garbage(VERSION, "a", until=UNTIL)
    assert marks == [((Lease(owner="a", until=UNTIL),), sorted(VERSION.object_uris("raw", "s")))]
    assert world.deletions() == ()


def test_nothing_is_deleted_after_the_lease_expired(world):
    with pytest.raises(EntryChanged, match="the lease has expired"):
        world.contents.collect_garbage(VERSION, "a", until=RECEIVED)
    assert set(world.store.objects) == set(VERSION.object_uris("raw", "s"))


def test_a_content_is_being_deleted_while_another_file_s_mark_is_valid(world):
    assert not world.contents.is_being_deleted("x", "a")
    world.mark("a")
    assert (world.contents.is_being_deleted("x", "a"), world.contents.is_being_deleted("x", "b")) == (False, True)
    world.clock.pass_by(minutes=1)
    assert not world.contents.is_being_deleted("x", "b")


def test_marks_of_other_files_stay_until_they_expire(world):
    world.mark("b")
    world.mark("c", RECEIVED)
    world.contents.collect_garbage(VERSION, "a", until=UNTIL)
    assert world.deletions() == (Lease(owner="b", until=UNTIL),)
