"""The files in a listing of inputs: which file an object belongs to, and changes of files during the listing."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

import pytest

from slackwater.receiver.pull.file_cache import FileState, Lease
from slackwater.runs.inputs.difference import Change, difference
from slackwater.runs.period import day_of
from slackwater.sources.partitions import Partition
from tests.fakes_check import NOW, PIPELINE, World
from tests.fakes_receiver import DEFINITION, MemoryFileCache, begin_file, store_file

pytestmark = pytest.mark.unit

DAY = day_of(datetime(2013, 3, 10).date(), "America/New_York")
NOON, ONE = Partition("2013-03-10", "16"), Partition("2013-03-10", "17")
LAST_YEAR = Partition("2012-03-10", "16")


@pytest.fixture
def world():
    return World()


def store(world, path, content, *partitions):
    """Store a file of flights; without `partitions`, its rows are from noon of the day."""
    return store_file(world.files, "flights", path, content, partitions or [NOON])


def put_object(world, path, content):
    """Store a file of flights whose rows are from noon, and write its object unless another file has written it."""
    (uri,) = store(world, path, content)
    world.store.put_new(uri, b"x" * 10, metadata={"rows": "10", "file": quote(path)})
    return uri


def list_inputs(world, known=None):
    return world.inputs.manifest(PIPELINE, DAY, known=known)


def file_names(world, known=None):
    return [item.file for item in list_inputs(world, known).objects]


def uris(world, known=None):
    return [item.uri for item in list_inputs(world, known).objects]


def test_an_object_belongs_to_the_file_it_was_written_for_while_that_file_has_its_content(world):
    store(world, "w.csv", "a")
    put_object(world, "x y.csv", "a")
    (before,) = world.store.objects.values()
    assert before[1]["file"] == "x%20y.csv"
    assert file_names(world) == ["x y.csv"]
    store(world, "z.csv", "a")
    store(world, "x y.csv", "b", LAST_YEAR)
    assert file_names(world) == ["w.csv"]


def test_an_object_of_a_content_that_is_not_recorded_is_not_read(world):
    (uri,) = store_file(MemoryFileCache(), "flights", "x.csv", "a", [NOON])
    world.store.put(uri, b"x" * 10, metadata={"rows": "10", "file": "x.csv"})
    assert uris(world) == []


def test_pushed_events_have_no_file(world):
    world.add("weather", "2013-03-10", "16")
    assert file_names(world) == [None]


def test_the_file_of_a_known_object_is_looked_up_again(world):
    put_object(world, "x.csv", "a")
    store(world, "y.csv", "a")
    before = list_inputs(world)
    store(world, "x.csv", "b", LAST_YEAR)
    world.store.asked_metadata.clear()
    assert file_names(world, before) == ["y.csv"]
    assert world.store.asked_metadata == []
    assert list_inputs(world, before).digest == before.digest


def test_a_changed_file_that_shared_its_content_with_another_has_not_vanished(world):
    """x.csv and y.csv were equal; x.csv was corrected and the day run again; now y.csv is corrected."""
    gone = put_object(world, "x.csv", "equal")
    store(world, "y.csv", "equal")
    first = list_inputs(world)
    put_object(world, "x.csv", "new-x")
    second = list_inputs(world, first)
    put_object(world, "y.csv", "new-y")
    world.store.delete([gone])
    third = list_inputs(world, second)

    assert changes(first, second) == [("x.csv", Change.ADDED)]
    assert changes(second, third) == [("y.csv", Change.CHANGED)]
    assert changes(first, third) == [("x.csv", Change.CHANGED), ("y.csv", Change.ADDED)]


def changes(before, now):
    (flights,) = difference(before, now, sources=["flights"])
    return [(item.file, item.change) for item in flights.changes]


def test_files_of_one_content_under_two_definitions_are_read_once(world):
    """The timezone of the source is corrected after x.csv was stored, and the same bytes come again as y.csv."""
    (old,) = put_in_hours(world, "x.csv", "a", [NOON], definition="1" * 12)
    new = put_in_hours(world, "y.csv", "a", [NOON, ONE], definition="2" * 12)
    assert uris(world) == new
    world.store.delete([old])
    assert uris(world) == new


def test_a_version_is_not_read_before_its_commit_and_a_replaced_one_not_after_it(world):
    before = put_in_hours(world, "x.csv", "a", [NOON])
    begun = begin_file(world.files, "flights", "x.csv", "b", [NOON, ONE])
    for uri in begun:
        world.store.put(uri, b"x", metadata={"rows": "1"})
    assert uris(world) == before
    store(world, "x.csv", "b", NOON, ONE)
    assert uris(world) == begun


def put_in_hours(world, path, content, partitions, *, definition=DEFINITION):
    """Store a file of flights, and write an object for each partition; return their URIs."""
    written = store_file(world.files, "flights", path, content, partitions, definition=definition)
    for uri in written:
        world.store.put_new(uri, b"x", metadata={"rows": "1", "file": path})
    return written


def save_file(world, **changes):
    (entry,) = world.files.entries("flights", ["x.csv"])
    world.files.save(entry.model_copy(update=changes))


CHANGES = {
    "a pull of another day": (lambda world: begin_file(world.files, "flights", "2012.csv", "b", [LAST_YEAR]), False),
    "a file of another day": (lambda world: store(world, "2012.csv", "b", LAST_YEAR), False),
    "a file of another day is replaced": (
        lambda world: [store(world, "2012.csv", content, LAST_YEAR) for content in "bc"], False
    ),
    "a lease": (lambda world: save_file(world, lease=Lease(owner="pull", until=NOW)), False),
    "a failure": (lambda world: save_file(world, state=FileState.FAILED, reason="no"), False),
    "a pull of an equal file": (lambda world: begin_file(world.files, "flights", "y.csv", "a", [NOON]), False),
    "an equal file": (lambda world: store(world, "y.csv", "a"), False),
    "an equal file that is read with another definition": (
        lambda world: store_file(world.files, "flights", "y.csv", "a", [NOON], definition="2" * 12), True
    ),
    "a content that changes and changes back": (
        lambda world: [store(world, "x.csv", content) for content in "ba"], True
    ),
}  # fmt: skip
"""What happens during a listing, and whether it is repeated."""


class TestListings:
    """How often the objects of flights are listed, and what repeats a listing."""

    @pytest.fixture
    def world(self):
        world = World()
        put_object(world, "x.csv", "a")
        return world

    @staticmethod
    def count(world, *during, known=None):
        """List the inputs. Call one of `during` in each listing of flights, after its objects were read."""
        calls, listing, pending = [], world.store.list, list(during)

        def listed(prefix, **options):
            found = list(listing(prefix, **options))
            if "source=flights" in prefix:
                calls.append(prefix)
                if pending:
                    pending.pop(0)()
            return found

        world.store.list = listed
        try:
            list_inputs(world, known)
        finally:
            world.store.list = listing
        return len(calls)

    def test_a_new_day_is_listed_twice(self, world):
        assert self.count(world) == 2

    def test_an_unchanged_day_is_listed_once(self, world):
        known = list_inputs(world)
        assert self.count(world, known=known) == 1

    @pytest.mark.parametrize(("change", "is_repeated"), CHANGES.values(), ids=CHANGES)
    def test_only_another_content_of_the_day_repeats_the_listing(self, world, change, is_repeated):
        known = list_inputs(world)
        assert (self.count(world, lambda: change(world), known=known) > 1) is is_repeated

    def test_a_replaced_file_repeats_the_listing(self, world):
        known = list_inputs(world)
        assert self.count(world, lambda: put_object(world, "x.csv", "b"), known=known) > 1
        assert len(uris(world)) == 1

    def test_an_object_that_is_removed_during_a_listing_is_not_read(self, world):
        known = list_inputs(world)
        (old,) = (item.uri for item in known.objects)

        def replace():
            put_object(world, "x.csv", "b")
            world.store.delete([old])

        assert self.count(world, replace, known=known) > 1
        assert old not in uris(world, known)
