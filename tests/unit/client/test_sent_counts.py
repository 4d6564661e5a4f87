"""What a client reports about the events that it has sent, against plain counting."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.client.sent_counts import SentCounts, window_counts
from slackwater.sources.counts import ALL
from tests.fakes_receiver import a_source

pytestmark = pytest.mark.unit

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW = START + timedelta(hours=5)
MINUTES = {"5m": 5, "10m": 10, "1h": 60}


def an_event(seconds: float, name: str = "a", **more: object) -> bytes:
    return json.dumps({"id": name, "at": (START + timedelta(seconds=seconds)).isoformat(), **more}).encode()


@given(
    st.lists(st.tuples(st.integers(-7200, 7200), st.sampled_from("abc"), st.booleans()), max_size=20),
    st.sampled_from([*MINUTES]),
    st.booleans(),
)
def test_events_are_counted_in_their_windows(events, window, has_ids):
    source = a_source(counts={"window": window}, event_id="id" if has_ids else None)
    sent = [an_event(seconds, name, **({} if valid else {"count": "many"})) for seconds, name, valid in events]
    expected, seen = Counter[datetime](), dict[object, int]()
    for number, (seconds, name, valid) in enumerate(events):
        hour = seconds // 3600
        key = (hour, name) if has_ids and valid else number
        seen[key] = min(seen.get(key, seconds), seconds)
    for seconds in seen.values():
        minute = seconds // 60
        expected[START + timedelta(minutes=minute - minute % MINUTES[window])] += 1
    assert window_counts(source, sent, now=NOW) == {start: {ALL: number} for start, number in expected.items()}


def test_pushes_add_up_and_a_repeated_push_counts_once():
    source, sent = a_source(counts={"window": "5m"}), SentCounts()
    first, second = [an_event(0), an_event(1)], [an_event(2), an_event(400)]
    assert sent.add(source, first, now=NOW).counts == {START: {ALL: 2}}
    report = sent.add(source, second, now=NOW)
    assert report.counts == {START: {ALL: 3}, START + timedelta(minutes=5): {ALL: 1}}
    assert report.through == START + timedelta(minutes=10)
    assert sent.add(source, first, now=NOW).counts == {START: {ALL: 3}}


def test_no_window_counts_as_sent_before_it_has_ended():
    source, sent = a_source(counts={"window": "1h"}), SentCounts()
    report = sent.add(source, [an_event(0)], now=START + timedelta(minutes=30))
    assert (report.through, report.counts) == (START, {START: {ALL: 1}})


def test_windows_that_no_report_takes_are_left_out():
    source, sent = a_source(counts={"window": "1h"}), SentCounts()
    old, ahead = (START + timedelta(days=days) for days in (-400, 3))
    far = [an_event(-400 * 86_400), an_event(3 * 86_400)]
    report = sent.add(source, [an_event(0), *far], now=NOW)
    assert (report.counts, report.left_out) == ({START: {ALL: 1}}, {old: 1, ahead: 1})
    assert report.through == START + timedelta(hours=1)
    assert sent.add(source, far, now=NOW).counts == {}


def test_events_without_a_timestamp_are_in_no_window():
    source, sent = a_source(counts={"window": "1h"}), SentCounts()
    assert sent.add(source, [b"no JSON", b'{"id": "a"}'], now=NOW) is None


def test_events_are_reported_by_value():
    counts = {"window": "5m", "by": "region", "values": ["EU", "US"]}
    fields = {"id": "string", "region": "string", "count": "int64", "at": "timestamp"}
    source, sent = a_source(counts=counts, fields=fields, event_id="id", pull=None), SentCounts()
    events = [an_event(0, "a", region="EU"), an_event(1, "a", region="EU"), an_event(2, "b", region="Mars")]
    events += [an_event(3, "c"), an_event(4, "d", region="EU", count="many"), an_event(5, "e", region=["EU"])]
    assert sent.add(source, events, now=NOW).counts == {START: {"region=EU": 2, "region=US": 0, "region=": 2}}
