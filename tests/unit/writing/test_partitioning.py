"""Splitting events by hour, and merging the splits of several batches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.receiver.writing.partitioning import HourSplit, drop_duplicates, event_hours, merge, split_by_hour
from slackwater.sources.event_schema import EVENT_TIME, TIMESTAMP

pytestmark = pytest.mark.unit

START = datetime(2013, 3, 8, 22, tzinfo=UTC)
# Minutes since `START` and id of each event.
_batches = st.lists(
    st.lists(st.tuples(st.integers(-200, 300), st.sampled_from("abcd")), max_size=12), min_size=1, max_size=4
)


def table(events: list[tuple[int, str]]) -> pa.Table:
    times = pa.array([START + timedelta(minutes=minutes) for minutes, _ in events], TIMESTAMP)
    return pa.table({EVENT_TIME: times, "id": pa.array([name for _, name in events], pa.string())})


def assert_equal(split: HourSplit, expected: HourSplit) -> None:
    assert split.table.equals(expected.table)
    assert split.hours.equals(expected.hours)
    assert list(split.runs()) == list(expected.runs())


@given(_batches)
def test_the_merge_of_splits_equals_the_split_of_all_events(batches):
    tables = [table(events) for events in batches]
    assert_equal(merge([split_by_hour(part) for part in tables]), split_by_hour(pa.concat_tables(tables)))


@given(_batches)
def test_duplicates_may_be_dropped_before_splits_are_merged_too(batches):
    tables = [table(events) for events in batches]
    merged = merge([drop_duplicates(split_by_hour(part), "id") for part in tables])
    expected = split_by_hour(pa.concat_tables(tables))
    assert_equal(drop_duplicates(merged, "id"), drop_duplicates(expected, "id"))


@given(_batches)
def test_a_run_has_the_events_of_its_hour_in_their_order(batches):
    (events, *_) = batches
    hours: dict[str, list[tuple[int, str]]] = {}
    for minutes, name in events:
        hours.setdefault(f"{START + timedelta(minutes=minutes):%Y-%m-%d/%H}", []).append((minutes, name))
    runs = {"/".join(partition): part for partition, part in split_by_hour(table(events)).runs()}
    assert list(runs) == sorted(hours)
    assert all(runs[hour].equals(table(hours[hour])) for hour in hours)


def test_hours_that_the_caller_has_are_not_computed_again(monkeypatch):
    events = table([(70, "a"), (0, "b"), (10, "c")])
    hours, expected = event_hours(events), split_by_hour(events)
    monkeypatch.setattr(pc, "floor_temporal", None)
    split = split_by_hour(events, hours)
    assert_equal(split, expected)
    assert_equal(merge([split]), expected)
    assert_equal(drop_duplicates(split, "id"), expected)
