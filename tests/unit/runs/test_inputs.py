"""The files in a listing of inputs: which file an object belongs to, and changes of files during the listing."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from slackwater.receiver.pull.file_cache import FileEntry, FileState, FileVersion, Lease
from slackwater.runs.day import day_of
from slackwater.runs.difference import Change, difference
from slackwater.sources.partitions import Partition
from tests.fakes_check import NOW, PIPELINE, World

pytestmark = pytest.mark.unit

DAY = day_of(datetime(2013, 3, 10).date(), "America/New_York")
NOON = Partition("2013-03-10", "16")
LAST_YEAR = Partition("2012-03-10", "16")


@pytest.fixture
def world():
    return World()


def content(name, *partitions):
    return FileVersion(content_sha256=name, partitions=partitions or (NOON,))


def entry(path, version=None, **more):
    return FileEntry(source="flights", path=path, version=version, **more)


def put_object(world, version, first, rows=10):
    """Write the content's object of the day, as the pull of its first file does."""
    (uri,) = version.object_uris("raw", "flights")
    world.store.put_new(uri, b"x" * rows, metadata={"rows": str(rows), "file": first})
    return uri


def list_inputs(world, known=()):
    return world.inputs.manifest(PIPELINE, DAY, known=known)


def file_names(world, known=()):
    return [item.file for item in list_inputs(world, known).objects]


def test_an_object_belongs_to_the_file_it_was_written_for_while_that_file_has_its_content(world):
    a, b = content("a"), content("b", LAST_YEAR)
    put_object(world, a, "x%20y.csv")
    world.files.listed = [entry("w.csv", a), entry("x y.csv", a)]
    assert file_names(world) == ["x y.csv"]
    world.files.listed = [entry("z.csv", a), entry("w.csv", a), entry("x y.csv", b)]
    assert file_names(world) == ["w.csv"]


def test_an_object_without_an_entry_belongs_to_the_file_in_its_metadata(world):
    put_object(world, content("a"), "x.csv")
    assert file_names(world) == ["x.csv"]


def test_pushed_events_have_no_file(world):
    world.add("weather", "2013-03-10", "16")
    assert file_names(world) == [None]


def test_the_file_of_a_known_object_is_looked_up_again(world):
    a, b = content("a"), content("b", LAST_YEAR)
    put_object(world, a, "x.csv")
    world.files.listed = [entry("x.csv", a), entry("y.csv", a)]
    before = list_inputs(world)
    world.files.listed = [entry("x.csv", b), entry("y.csv", a)]
    world.store.asked_metadata.clear()
    assert file_names(world, before.objects) == ["y.csv"]
    assert world.store.asked_metadata == []
    assert list_inputs(world, before.objects).digest == before.digest


def test_a_changed_file_that_shared_its_content_with_another_has_not_vanished(world):
    """x.csv and y.csv were equal; x.csv was corrected and the day run again; now y.csv is corrected."""
    equal, new_x, new_y = content("equal"), content("new-x"), content("new-y")
    gone = put_object(world, equal, "x.csv")
    world.files.listed = [entry("x.csv", equal), entry("y.csv", equal, state=FileState.DUPLICATE)]
    first = list_inputs(world)
    put_object(world, new_x, "x.csv")
    world.files.listed = [entry("x.csv", new_x), entry("y.csv", equal)]
    second = list_inputs(world, first.objects)
    put_object(world, new_y, "y.csv")
    world.store.delete([gone])
    world.files.listed = [entry("x.csv", new_x), entry("y.csv", new_y)]
    third = list_inputs(world, second.objects)

    assert changes(first, second) == [("x.csv", Change.ADDED)]
    assert changes(second, third) == [("y.csv", Change.CHANGED)]
    assert changes(first, third) == [("x.csv", Change.CHANGED), ("y.csv", Change.ADDED)]


def changes(before, now):
    (flights,) = difference(before, now, sources=["flights"])
    return [(item.file, item.change) for item in flights.changes]


def list_files(world, *lists):
    """Let the file cache return these entries, one list per call; the last one for all further calls."""
    listings = [*lists]
    world.files.entries = lambda source: listings.pop(0) if len(listings) > 1 else listings[0]


@pytest.mark.parametrize(
    "other",
    [
        {"lease": Lease(owner="pull", until=NOW)},
        {"revision": 7, "stored_at": NOW, "modified": NOW, "etag": "e", "reason": "none"},
        {"state": FileState.FAILED, "reason": "no"},
    ],
)
def test_a_change_without_new_content_does_not_repeat_the_listing(world, other):
    counted, listing = [], world.store.list
    world.store.list = lambda prefix: counted.append(prefix) or listing(prefix)
    a = content("a")
    list_files(world, [entry("x.csv", a)], [entry("x.csv", a, **other), entry("new.csv", **other)])
    list_inputs(world)
    assert len([prefix for prefix in counted if "source=flights" in prefix]) == len(
        {date for date, _ in DAY.partitions()}
    )


def test_leases_that_change_during_a_listing_do_not_prevent_it(world):
    seconds = iter(range(1000))

    def entries(source):
        lease = Lease(owner="pull", until=NOW + timedelta(seconds=next(seconds)))
        return [entry("2012.csv", content("a", LAST_YEAR), lease=lease)]

    world.files.entries = entries
    assert file_names(world) == []


@pytest.mark.parametrize(
    "other", [{"version": content("b")}, {"writing": content("b")}, {"superseded": (content("b"),)}]
)
def test_an_added_or_removed_content_repeats_the_listing(world, other):
    counted, listing = [], world.store.list
    world.store.list = lambda prefix: counted.append(prefix) or listing(prefix)
    list_files(world, [entry("x.csv", content("a"))], [entry("x.csv", **{"version": content("a"), **other})])
    list_inputs(world)
    assert len([prefix for prefix in counted if "source=flights" in prefix]) == 2 * len(
        {date for date, _ in DAY.partitions()}
    )
