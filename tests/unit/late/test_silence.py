"""The usual silence of a source at an hour of the week."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from slackwater.late.check.silences import usual_silence
from slackwater.runs.pipeline_records import ArrivalHistory

pytestmark = pytest.mark.unit

HOUR = timedelta(hours=1)
NEW_YORK = ZoneInfo("America/New_York")
MONDAY = datetime(2026, 6, 29, 7, 30, tzinfo=UTC)


def history(arrivals, now=MONDAY):
    return ArrivalHistory(pipeline="p").with_arrivals({"s": list(arrivals)}, now=now)


def usual(arrivals, now=MONDAY, timezone="UTC"):
    return usual_silence(history(arrivals, now).hours("s"), now=now, timezone=timezone)


def every_day(hour, *, weekdays=range(7), until=MONDAY, days=28, timezone=UTC):
    local = until.astimezone(timezone).replace(hour=hour, minute=0)
    times = [local - timedelta(days=back) for back in range(days + 1)]
    return [at.astimezone(UTC) for at in times if at.weekday() in weekdays and at <= until]


def test_a_source_without_arrivals_has_no_usual_silence():
    assert usual([]) is None
    assert ArrivalHistory(pipeline="p").hours("unknown") == []


def test_a_new_source_has_none_until_it_has_two_weeks_of_samples():
    assert usual(every_day(3, days=13)) is None
    assert usual(every_day(3, days=15)) == pytest.approx(5.5)


def test_the_silence_of_a_daily_delivery_depends_on_the_hour():
    # Delivered at 3:00; at 7:30, the hours 6:30, 7:30 and 8:30 count.
    assert usual(every_day(3)) == pytest.approx(5.5)
    # Just before the delivery, it has been silent for almost a day.
    assert usual(every_day(3), now=MONDAY.replace(hour=1, minute=0)) == pytest.approx(23)


def test_a_source_that_delivers_on_weekdays_is_silent_on_a_monday_since_friday():
    assert usual(every_day(18, weekdays=range(5))) == pytest.approx(2 * 24 + 14.5)
    tuesday = MONDAY + timedelta(days=1)
    assert usual(every_day(18, weekdays=range(5), until=tuesday), now=tuesday) == pytest.approx(14.5)


def test_a_source_that_delivers_all_the_time_is_unusual_only_after_more_than_two_hours():
    assert usual([MONDAY - HOUR * back for back in range(28 * 24)]) == 2.0


@pytest.mark.parametrize("now", [datetime(2026, 3, 16, 9, tzinfo=NEW_YORK), datetime(2026, 11, 9, 9, tzinfo=NEW_YORK)])
def test_the_hours_are_local_when_the_clocks_change(now):
    # A week before, the clocks were changed. In UTC, the delivery and the check are at other hours since then.
    arrivals = every_day(6, until=now, timezone=NEW_YORK)
    assert usual(arrivals, now=now, timezone="America/New_York") == pytest.approx(4)


@pytest.mark.parametrize("week", [1, 2, 3, 4])
def test_an_outage_in_one_week_does_not_count_as_usual(week):
    end = MONDAY - timedelta(weeks=week)
    outage = [at for at in every_day(3, days=35) if not end - timedelta(hours=30) < at < end + timedelta(hours=1)]
    assert usual(outage) == pytest.approx(5.5)


def test_it_is_the_median_of_the_longest_silences_of_the_weeks():
    # At 8:30, 7.5, 5.5 and 8.5 hours have passed since the delivery; of the week before, none is known any more.
    delivered = {1: 1, 2: 3, 3: 0}
    arrivals = [MONDAY.replace(hour=hour, minute=0) - timedelta(weeks=week) for week, hour in delivered.items()]
    assert usual(arrivals) == pytest.approx(7.5)


def test_checks_add_to_the_history_and_forget_what_is_older_than_28_days():
    first = history([MONDAY - HOUR, MONDAY - timedelta(days=27)])
    later = MONDAY + timedelta(days=2)
    second = first.with_arrivals({"s": [later]}, now=later)
    hour = int(later.timestamp() // 3600)
    assert list(second.hours("s")) == [hour, hour - 49]
    assert ArrivalHistory.model_validate_json(second.model_dump_json()) == second


def test_a_check_that_is_written_late_loses_nothing():
    later = history([MONDAY], now=MONDAY + HOUR)
    assert later.with_arrivals({"s": [MONDAY - HOUR]}, now=MONDAY - HOUR).hours("s") == [
        *later.hours("s"),
        *history([MONDAY - HOUR]).hours("s"),
    ]


def test_an_arrival_in_the_future_and_a_source_of_no_interest_are_left_out():
    assert history([MONDAY + 5 * HOUR]).hours("s") == []
    assert history([MONDAY]).with_arrivals({"other": []}, now=MONDAY).sources == {"other": "0"}


def test_a_history_of_all_hours_is_small():
    full = history([MONDAY - HOUR * back for back in range(2000)])
    assert len(full.hours("s")) == 28 * 24
    assert len(full.model_dump_json()) < 250
