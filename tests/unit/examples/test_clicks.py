"""The example of hours and the running day: its generated clicks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from examples.clicks.events import CLICKS, PAGES, clicks, clicks_at
from examples.clicks.scenario import DATE, HOURS, LATE, LATE_HOUR, ZONE

pytestmark = pytest.mark.unit

HOUR = datetime(2024, 3, 31, tzinfo=UTC)


def test_each_number_has_the_same_click_of_its_hour_every_time():
    sent = list(clicks(HOUR))
    assert len({click["id"] for click in sent}) == CLICKS
    assert {click["page"] for click in sent} == set(PAGES)
    assert all(HOUR <= datetime.fromisoformat(str(click["at"])) < HOUR + timedelta(hours=1) for click in sent)
    late = list(clicks(HOUR, first=50, count=10 + LATE))
    assert [click for click in late if click in sent] == sent[50:]
    assert len(late) - len(sent[50:]) == LATE


def test_clicks_of_an_instant_have_its_time():
    sent = list(clicks_at(HOUR, first=100, count=3))
    assert [(click["id"], click["at"]) for click in sent] == [
        (f"2024-03-31T00-{number}", HOUR.isoformat()) for number in (100, 101, 102)
    ]


def test_three_of_the_hours_are_of_the_day_in_berlin():
    days = [datetime.fromisoformat(f"{hour}:00+00:00").astimezone(ZONE).date().isoformat() for hour in HOURS]
    assert (days.count(DATE), days[:3], LATE_HOUR in HOURS) == (3, [DATE] * 3, True)
