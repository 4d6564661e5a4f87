"""Reports of how many events a partner has sent: what is read, and what is refused with field and remedy."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from slackwater.sources.counts import ALL
from slackwater.sources.definition import Source
from slackwater.state.reports import (
    MAX_BYTES,
    MAX_WINDOWS,
    ReportRefused,
    ReportTooLarge,
    by_value,
    read_report,
    report_document,
    window_at,
    window_before,
    window_end,
    window_key,
)
from tests.fakes_receiver import a_source

pytestmark = pytest.mark.unit

NOW = datetime(2026, 1, 1, 16, 6, tzinfo=UTC)
AS_OF, THROUGH = "2026-01-01T16:05:00Z", "2026-01-01T16:00:00Z"


def source_of(window: str = "5m", timezone: str | None = None) -> Source:
    return a_source(counts={"window": window}, timestamp={"field": "at", "timezone": timezone}, pull=None)


def read(counts: object, *, window: str = "5m", timezone: str | None = None, now: datetime = NOW, **fields: object):
    document = {"as_of": AS_OF, "through": THROUGH, "counts": counts, **fields}
    return read_report(json.dumps(document).encode(), source_of(window, timezone), principal="push:acme", now=now)


def test_windows_are_utc_instants_whatever_offset_they_are_written_with():
    report = read({"2026-01-01T15:00Z": 3, "2026-01-01T16:05+01:00": 4, "2026-01-01 20:40:00+0530": 0})
    hour = datetime(2026, 1, 1, 15, tzinfo=UTC)
    assert report.counts == {
        hour + timedelta(minutes=minute): {ALL: number} for minute, number in ((0, 3), (5, 4), (10, 0))
    }
    assert (report.covers_from, report.window, report.principal) == (hour, "5m", "push:acme")


def test_a_report_without_numbers_covers_its_last_window():
    assert read({}).covers_from == datetime(2026, 1, 1, 15, 55, tzinfo=UTC)
    assert read({}, window="day", through="2026-01-01T00:00Z").covers_from == datetime(2025, 12, 31, tzinfo=UTC)


def test_the_id_is_that_of_the_content():
    first = read({"2026-01-01T15:00Z": 3, "2026-01-01T15:05Z": 1})
    assert read({"2026-01-01T15:05Z": 1, "2026-01-01T16:00+01:00": 3}).id == first.id
    assert read({"2026-01-01T15:00Z": 3}).id != first.id
    assert read({"2026-01-01T15:00Z": 3, "2026-01-01T15:05Z": 1}, as_of="2026-01-01T16:04:00Z").id != first.id


def test_times_without_an_offset_are_in_the_timezone_of_the_source():
    berlin = {"timezone": "Europe/Berlin", "as_of": "2026-01-01T17:05", "through": "2026-01-01T17:00"}
    report = read({"2026-01-01T16:00": 3}, **berlin)
    assert [*report.counts] == [datetime(2026, 1, 1, 15, tzinfo=UTC)]
    assert report.through == datetime(2026, 1, 1, 16, tzinfo=UTC)


def test_days_are_those_of_the_source():
    report = read({"2025-12-31": 3}, window="day", timezone="America/New_York")
    assert [*report.counts] == [datetime(2025, 12, 31, 5, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("counts", "more", "reason"),
    [
        ({"2026-01-01T15:00": 1}, {}, 'counts: "2026-01-01T15:00" has no offset: add Z for UTC'),
        ({"2026-01-01T15:01Z": 1}, {}, "counts: 2026-01-01T15:01Z: windows of 5m begin with a multiple of 5 minutes"),
        ({"2026-01-01T15:30+05:30": 1, "2026-01-01T10:00Z": 1}, {}, "another key is the same window: remove one"),
        ({"2026-01-01T15:00Z": -1}, {}, "counts: 2026-01-01T15:00Z: -1 is not a number of events (0 or more)"),
        ({"2026-01-01T15:00Z": 1.5}, {}, "1.5 is not a number of events"),
        ({"2026-01-01T15:00Z": True}, {}, "true is not a number of events"),
        ({"2026-01-01T15:00Z": 10**16}, {}, "is not a number of events"),
        ({"3000-01-01T00:00Z": 1}, {}, "counts: 3000-01-01T00:00Z: 3000-01-01 00:00 UTC is too far in the future"),
        ({"1999-01-01T00:00Z": 1}, {}, "is more than 366 days ago: the time here is 2026-01-01 16:06 UTC"),
        ({"9999-12-31T23:55-23:00": 1}, {}, "is not a time such as 2026-01-01T15:00Z"),
        ({"yesterday": 1}, {}, 'counts: "yesterday" is not a time such as 2026-01-01T15:00Z'),
        ({}, {"through": "3000-01-01T00:00Z"}, "through: 3000-01-01 00:00 UTC is too far in the future"),
        ({}, {"as_of": "2026-01-01T16:30Z"}, "as_of: 2026-01-01 16:30 UTC is too far in the future"),
        ({}, {"as_of": 1_767_283_200}, "as_of: 1767283200 is not a time"),
        ({}, {"until": "now"}, "a report has the keys as_of, through and counts, and no others"),
        ([1], {}, "a report has the keys as_of, through and counts"),
        ({"2026-01-01T15:30Z": 1}, {"window": "1h"}, "windows of 1h begin with a UTC hour"),
        ({"2026-01-01T15:00Z": 1}, {"window": "day"}, "is not a date such as 2026-01-01, and the windows are days"),
    ],
)
def test_a_report_that_cannot_be_right_is_refused_with_the_field(counts, more, reason):
    with pytest.raises(ReportRefused) as refused:
        read(counts, **more)
    assert reason in str(refused.value)
    assert refused.value.status == 400


def test_local_times_at_a_change_of_the_clocks_need_an_offset():
    now = datetime(2026, 10, 25, 12, tzinfo=UTC)
    times = {"as_of": "2026-10-25T11:00Z", "through": "2026-10-25T11:00Z", "now": now, "timezone": "Europe/Berlin"}
    with pytest.raises(ReportRefused, match="the clocks change at this time in Europe/Berlin: add the offset"):
        read({"2026-10-25T02:30": 1}, **times)
    report = read({"2026-10-25T02:30+02:00": 1, "2026-10-25T02:30+01:00": 2}, **times)
    assert [*report.counts.values()] == [{ALL: 1}, {ALL: 2}]


def test_a_report_for_ten_million_windows_is_refused():
    with pytest.raises(ReportTooLarge, match=r"the report has .* bytes, the limit is 262,144: split it"):
        read_report(b" " * (MAX_BYTES + 1), source_of(), principal="p", now=NOW)
    start = datetime(2025, 12, 1, tzinfo=UTC)
    many = {f"{start + timedelta(minutes=5 * n):%Y-%m-%dT%H:%MZ}": 1 for n in range(MAX_WINDOWS + 1)}
    with pytest.raises(ReportTooLarge, match="3,001 windows, the limit is 3,000: split the report"):
        read(many)
    del many[max(many)]
    assert len(read(many).counts) == MAX_WINDOWS


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"\xff", b'{"as_of": 1, "as_of": 2}', b"NaN", b"3"])
def test_a_body_that_is_no_report_is_refused(body):
    with pytest.raises(ReportRefused, match=r"send \{"):
        read_report(body, source_of(), principal="p", now=NOW)


@pytest.mark.parametrize("window", ["5m", "10m", "1h", "day"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_windows_follow_each_other_and_their_keys_are_read(window, zone):
    source, start = source_of(window, zone), datetime(2026, 3, 8, 5 if zone != "UTC" else 0, tzinfo=UTC)
    now = datetime(2026, 3, 12, tzinfo=UTC)
    for _ in range(50):
        end = window_end(start, window, zone)
        assert window_at(start, source) == window_at(end - timedelta(seconds=1), source) == start
        assert window_before(end, source) == start
        if end > now:
            break
        body = report_document(as_of=now, through=end, counts={window_key(start, source): 1})
        assert [*read_report(body, source, principal="p", now=now).counts] == [start]
        start = end


REGIONS = {"window": "10m", "by": "id", "values": ["EU", "Süd"]}


def read_values(numbers: object, counts: dict[str, object] = REGIONS):
    document = {"as_of": AS_OF, "through": THROUGH, "counts": {"2026-01-01T15:00Z": numbers}}
    return read_report(json.dumps(document).encode(), a_source(counts=counts), principal="push:acme", now=NOW)


def test_numbers_are_by_value():
    report = read_values({"Süd": 4, "other": 1, "EU": 0})
    assert list(report.counts.values()) == [{"id=Süd": 4, "id=": 1, "id=EU": 0}]
    assert report.keys == ("id=EU", "id=Süd", "id=")
    assert read_values({"EU": 0, "Süd": 4, "other": 1}).id == report.id
    assert read_values({"EU": 0, "Süd": 4}).id != report.id
    assert by_value(report.counts[report.covers_from]) == {"Süd": 4, "other": 1, "EU": 0}
    assert by_value({ALL: 0}) == 0


@pytest.mark.parametrize(
    ("numbers", "counts", "reason"),
    [
        (3, REGIONS, 'counts: 2026-01-01T15:00Z: things counts by id: send the number of each value, {"EU": 0, "Süd":'),
        (None, REGIONS, "things counts by id: send the number of each value"),
        (
            {"EU": 1, "US": 2},
            REGIONS,
            "counts: 2026-01-01T15:00Z: 'US' is not a value of id that counts: send it as other, or add it to "
            "`counts.values` (EU, Süd, other)",
        ),
        ({"EU": True}, REGIONS, "counts: 2026-01-01T15:00Z: EU: true is not a number of events (0 or more)"),
        ({"EU": {"DE": 1}}, REGIONS, "is not a number of events"),
        ({"EU": 1}, {"window": "10m"}, "things counts without values: send one number, or add `by` to its `counts`"),
    ],
)
def test_numbers_that_do_not_fit_the_definition_are_refused_with_the_remedy(numbers, counts, reason):
    with pytest.raises(ReportRefused) as refused:
        read_values(numbers, counts)
    assert reason in str(refused.value)
