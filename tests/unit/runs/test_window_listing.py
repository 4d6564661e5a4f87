"""The objects of several days in one listing: which they are, and how many requests they need."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice
from threading import Barrier
from zoneinfo import ZoneInfo

import pytest

from slackwater.errors import Throttled
from slackwater.runs.inputs import partition_objects
from slackwater.runs.inputs.listing import DayListing
from slackwater.runs.inputs.partition_objects import list_partitions, objects_of_partitions
from slackwater.runs.period import day_of
from slackwater.sources.partitions import partition_value
from tests.fakes_check import PIPELINE, World
from tests.fakes_receiver import store_file
from tests.fakes_runs import DictStore

pytestmark = pytest.mark.unit

TIMEZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe")
DATES = {
    "23 hours in New York": date(2013, 3, 10),
    "25 hours in New York": date(2013, 11, 3),
    "plain": date(2013, 7, 1),
}
PREFIX = "s3://raw/raw/source=flights/"


class PagedStore(DictStore):
    """Counts the requests of a listing, which returns `page` objects at a time, and no more than are read."""

    def __init__(self, page: int = 1000) -> None:
        super().__init__()
        self.page, self.requests = page, 0

    def list(self, prefix, *, start_after=""):
        self.requests += 1
        for number, item in enumerate(super().list(prefix, start_after=start_after)):
            self.requests += number > 0 and number % self.page == 0
            yield item


def filled(first: date, days: int, *, page: int = 1000, name: str = "a", prefix: str = PREFIX) -> PagedStore:
    """Return a store with one object in each UTC hour of the dates."""
    store = PagedStore(page)
    hour = datetime(first.year, first.month, first.day, tzinfo=UTC)
    for number in range(24 * days):
        each = hour + timedelta(hours=number)
        store.put(f"{prefix}date={each:%Y-%m-%d}/hour={each:%H}/{name}.parquet", b"x", metadata={"rows": "1"})
    return store


def window(dates: list[date], timezone: str, store: DictStore) -> list[DayListing]:
    world = world_in(timezone, store, sources=("flights",))
    listings = world.inputs.list_days(PIPELINE, [day_of(each, timezone) for each in dates])
    objects = {item.uri: item for listing in listings for item in listing.sources["flights"].objects}
    assert list(objects) == sorted(objects)
    return listings


def hours_of(local: date, timezone: str) -> list[str]:
    """Return the UTC hours in which a minute has the local date, computed from the minutes of three dates."""
    start = datetime(local.year, local.month, local.day, tzinfo=UTC) - timedelta(days=1)
    minutes = (start + timedelta(minutes=number) for number in range(3 * 24 * 60))
    hours = (f"{each:%Y-%m-%d %H}" for each in minutes if each.astimezone(ZoneInfo(timezone)).date() == local)
    return list(dict.fromkeys(hours))


@pytest.mark.parametrize("timezone", TIMEZONES)
@pytest.mark.parametrize("middle", DATES.values(), ids=DATES)
def test_each_day_has_the_objects_of_exactly_its_hours_and_one_request_lists_all_days(middle, timezone):
    store = filled(middle - timedelta(days=4), 9)
    dates = [middle + timedelta(days=number) for number in range(-2, 3)]
    listings = window(dates, timezone, store)
    assert store.requests == 1
    for each, listing in zip(dates, listings, strict=True):
        objects = listing.sources["flights"].objects
        found = [f"{partition_value(item.uri, 'date')} {partition_value(item.uri, 'hour')}" for item in objects]
        assert found == hours_of(each, timezone)


@pytest.mark.parametrize("timezone", TIMEZONES)
def test_the_requests_are_bounded_by_the_objects_of_the_days_and_not_by_the_age_of_the_source(timezone):
    dates = [date(2013, 7, 1) + timedelta(days=number) for number in range(8)]
    requests = []
    for days in (0, 365):
        store = filled(date(2013, 6, 29) - timedelta(days=days), 12 + days, page=50)
        window(dates, timezone, store)
        requests.append(store.requests)
    # 192 objects, or 193 where an hour belongs to two days.
    assert requests == [4, 4]


def test_days_that_do_not_follow_each_other_are_listed_without_those_between():
    store = filled(date(2013, 7, 1), 31, page=24)
    dates = [date(2013, 7, 2), date(2013, 7, 3), date(2013, 7, 30)]
    listings = window(dates, "UTC", store)
    assert [len(listing.sources["flights"].objects) for listing in listings] == [24, 24, 24]
    # Two days and a part of the next page; one day and a part of the next page.
    assert store.requests == 3 + 2


@pytest.mark.parametrize("page", [1, 2, 3, 7, 24, 100])
@pytest.mark.parametrize("counts", [{0: 5}, {5: 9, 6: 1, 23: 1}, {0: 1, 23: 30}, dict.fromkeys(range(24), 3)])
def test_hours_of_many_objects_are_listed_in_few_parts_without_a_gap_or_an_object_twice(monkeypatch, page, counts):
    monkeypatch.setattr(partition_objects, "_FEW", page)
    monkeypatch.setattr(partition_objects, "_PARTS", 4)
    store, expected = PagedStore(page), []
    for day in (1, 2, 3):
        for hour, count in counts.items():
            for number in range(count):
                uri = f"{PREFIX}date=2013-07-0{day}/hour={hour:02}/{number:03}.parquet"
                store.put(uri, b"x", metadata={"rows": "1"})
                expected += [uri] if day == 2 else []
    (listing,) = window([date(2013, 7, 2)], "UTC", store)
    assert [item.uri for item in listing.sources["flights"].objects] == expected
    # Each part may begin and end within a page.
    assert store.requests <= -(-len(expected) // page) + 1 + 2 * 4


def test_the_parts_of_a_listing_are_read_at_the_same_time(monkeypatch):
    monkeypatch.setattr(partition_objects, "_FEW", 1)
    store, together = filled(date(2013, 7, 1), 1, page=1), Barrier(3, timeout=60)
    list_objects = store.list

    def wait_and_list(prefix, *, start_after=""):
        if start_after[-2:] in {"07", "10", "13"}:
            together.wait()
        return list_objects(prefix, start_after=start_after)

    store.list = wait_and_list
    (listing,) = window([date(2013, 7, 1)], "UTC", store)
    assert len(listing.sources["flights"].objects) == 24


def test_an_error_in_a_part_is_that_of_the_listing(monkeypatch):
    monkeypatch.setattr(partition_objects, "_FEW", 1)
    store = filled(date(2013, 7, 1), 1, page=1)
    list_objects = store.list

    def fail_later(prefix, *, start_after=""):
        if start_after.endswith("13"):
            raise Throttled("SlowDown")
        return list_objects(prefix, start_after=start_after)

    store.list = fail_later
    with pytest.raises(Throttled, match="SlowDown"):
        list(
            objects_of_partitions(
                "flights", [*day_of(date(2013, 7, 1), "UTC").partitions()], store=store, raw_bucket="raw"
            )
        )


def test_a_caller_that_needs_only_the_first_objects_lists_no_others():
    store = filled(date(2013, 7, 1), 1, page=2)
    hours = [*day_of(date(2013, 7, 1), "UTC").partitions()]
    assert len([*islice(list_partitions("flights", hours, store=store, raw_bucket="raw"), 4)]) == 4
    assert store.requests == 2


def test_no_days_need_no_request():
    store = filled(date(2013, 7, 1), 1)
    assert list(objects_of_partitions("flights", [], store=store, raw_bucket="raw")) == []
    assert store.requests == 0


@pytest.mark.parametrize(
    "key",
    [
        "date=2013-07-01/hour=5/a.parquet",
        "date=2013-07-01/hour=24/a.parquet",
        "date=2013-07-01/hour=120/a.parquet",
        "date=2013-07-01/hour=12/a.csv",
        "date=2013-07-01x/hour=12/a.parquet",
        "date=2013-07-01/a.parquet",
    ],
)
def test_other_keys_of_the_source_are_no_objects_of_a_partition(key):
    store = filled(date(2013, 7, 1), 1)
    store.put(f"{PREFIX}{key}", b"x")
    store.put("s3://raw/raw/source=flights_old/date=2013-07-01/hour=12/a.parquet", b"x")
    (listing,) = window([date(2013, 7, 1)], "UTC", store)
    assert len(listing.sources["flights"].objects) == 24


def world_in(timezone: str, store: DictStore, *, sources: tuple[str, ...] = ("flights", "weather")) -> World:
    world = World()
    definition = world.project.pipelines[PIPELINE].model_copy(update={"timezone": timezone, "sources": sources})
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: definition}})
    world.store = store
    return world


@pytest.mark.parametrize("timezone", TIMEZONES)
def test_a_run_makes_one_request_for_each_source_in_any_timezone(timezone):
    store = filled(date(2013, 3, 1), 12)
    world_in(timezone, store).freeze("2013-03-10")
    assert store.requests == 2


@pytest.mark.parametrize("timezone", TIMEZONES)
@pytest.mark.parametrize("days", [12, 70])
def test_a_check_makes_one_request_for_each_source_in_any_timezone_however_old_the_source_is(timezone, days):
    world = world_in(timezone, filled(date(2013, 3, 13) - timedelta(days=days), days))
    for date_ in ("2013-03-08", "2013-03-10"):
        world.publish(date_)
    world.store.requests = 0
    world.check()
    assert world.store.requests == 2


def test_a_pulled_file_costs_a_second_request_and_a_changing_one_a_listing_of_each_day():
    world = world_in("America/New_York", PagedStore())
    days = [day_of(date(2013, 3, number), "America/New_York") for number in (9, 10)]
    (uri,) = store_file(world.files, "flights", "f.csv", "a", [next(days[1].partitions())])
    world.store.put(uri, b"x", metadata={"rows": "1"})
    earlier, later = world.inputs.list_days(PIPELINE, days)
    # The second listing of flights shows that its file has not changed during the first one; weather is pushed.
    assert world.store.requests == 3
    assert [item.uri for item in later.sources["flights"].objects] == [uri]
    assert earlier.sources["flights"].objects == []

    contents = iter("bababababa")
    list_objects = world.store.list

    def change_and_list(prefix, **options):
        if "source=flights" in prefix:
            store_file(world.files, "flights", "f.csv", next(contents), [next(days[1].partitions())])
        return list_objects(prefix, **options)

    world.store.list = change_and_list
    assert [set(listing.sources) for listing in world.inputs.list_days(PIPELINE, days)] == [{"weather"}] * 2
