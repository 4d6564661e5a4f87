"""What `slackwater doctor` says of sources with many small objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from slackwater.deploy.check_objects import MANY_OBJECTS, check_objects
from slackwater.project.project import Project
from tests.fakes_receiver import MemoryStore, a_source

pytestmark = pytest.mark.unit

NOW = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)


class CountingStore(MemoryStore):
    """Counts the objects that are listed."""

    listed = 0

    def list(self, prefix, *, start_after=""):
        for item in super().list(prefix, start_after=start_after):
            self.listed += 1
            yield item


def stored(store, source, hour, number, size=10):
    for index in range(number):
        uri = f"s3://raw/raw/source={source}/date={hour:%Y-%m-%d}/hour={hour:%H}/{index:032x}-1.parquet"
        store.put(uri, b"x" * size)


def checked(store, *sources):
    project = Project(sources={source.source: source for source in sources}, pipelines={})
    return check_objects(project, store, raw_bucket="raw", now=NOW)


def test_nothing_is_said_without_objects_or_up_to_the_limit():
    store = CountingStore()
    assert checked(store).found == f"no hour of 0 sources has more than {MANY_OBJECTS} small ones"
    for hours in range(24):
        stored(store, "things", NOW - timedelta(hours=hours), MANY_OBJECTS)
    assert checked(store, a_source()).status == "ok"


@pytest.mark.parametrize(
    ("push", "remedy"),
    [
        ({}, "sources/things.yaml: set push.buffer to queue"),
        ({"buffer": "queue"}, "sources/things.yaml: raise push.buffer_seconds from 5 to up to 60"),
        (
            {"buffer": "queue", "buffer_seconds": 60},
            "sources/things.yaml: pack the objects of finished hours (`pack: {max_objects: 100}`)",
        ),
    ],
)
def test_the_first_hour_with_one_more_is_named_with_what_makes_fewer(push, remedy):
    store = CountingStore()
    stored(store, "things", NOW - timedelta(hours=2), MANY_OBJECTS + 1)
    finding = checked(store, a_source(push=push))
    assert finding.status == "warning"
    assert "an hour: things in 2026-03-28T22; " in finding.found
    assert finding.remedy == remedy


def test_pulled_files_are_to_be_packed():
    store, pull = CountingStore(), {"url": "https://a.example", "files": "{date}.csv", "format": "csv"}
    stored(store, "things", NOW, MANY_OBJECTS + 1)
    source = a_source(push=None, pull=pull)
    assert (
        checked(store, source).remedy
        == "sources/things.yaml: pack the objects of finished hours (`pack: {max_objects: 100}`)"
    )


def test_large_objects_and_those_of_older_hours_do_not_count():
    store = CountingStore()
    stored(store, "things", NOW, 2 * MANY_OBJECTS, size=2**20)
    stored(store, "things", NOW - timedelta(hours=24), 2 * MANY_OBJECTS)
    assert checked(store, a_source()).status == "ok"


def test_the_listing_ends_in_the_first_such_hour():
    store = CountingStore()
    for hours in range(3):
        stored(store, "things", NOW - timedelta(hours=hours), 2_000)
    assert checked(store, a_source()).status == "warning"
    assert store.listed == MANY_OBJECTS + 1


def test_at_most_five_sources_are_named():
    store, names = CountingStore(), [f"s{number}" for number in range(7)]
    for name in names:
        stored(store, name, NOW, MANY_OBJECTS + 1)
    finding = checked(store, *(a_source(source=name) for name in names))
    assert "s4 in 2026-03-29T00, and 2 more sources; " in finding.found
    assert finding.remedy.count("sources/") == 5
