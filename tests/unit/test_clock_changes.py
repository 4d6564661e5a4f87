"""Starts at local times that a timezone skips: no day is lost because of a clock change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from slackwater.local.services.schedules import parse_cron
from slackwater.project.clock_changes import skipped_time
from slackwater.project.cron import cron_matches, eventbridge_expressions, skipped_expression
from slackwater.project.schedule import ScheduledTask, ScheduledWork
from slackwater.project.scheduled_starts import ScheduledStart

pytestmark = pytest.mark.unit

# The day of the change, and two days around it.
CHANGES = {
    "America/New_York": "2026-03-08",
    "Europe/London": "2027-03-28",
    "America/Santiago": "2026-09-06",  # at midnight
    "Australia/Lord_Howe": "2026-10-04",  # 30 minutes
    "Antarctica/Troll": "2026-03-29",  # two hours
    "Africa/Cairo": "2026-04-24",  # at midnight, on a Friday
    "Asia/Kolkata": "2026-03-08",  # none
}
CRONS = ["30 2 * * *", "0 1 * * *", "15 0 * * *", "*/20 * * * *", "10,50 1-3 * * *", "45 2 * * SUN", "20 1 8 * FRI"]


def a_task(cron, timezone):
    return ScheduledTask(
        work=ScheduledWork.PROCESS,
        subject="delays",
        description="Runs a day.",
        state_machine="pipeline-delays",
        cron=cron,
        timezone=timezone,
        input={},
        date_key="date",
        days_before=1,
    )


def parsed_expressions(cron):
    return [parse_cron(expression[5:-1]) for expression in eventbridge_expressions(cron)]


def expected_times(cron, timezone, day):
    """Return the local times of a cron expression in three days: by its plain reading, skipped ones an hour later."""
    zone, times = ZoneInfo(timezone), set()
    start = datetime.fromisoformat(day) - timedelta(days=1)
    expressions = parsed_expressions(cron)
    for minute in range(3 * 24 * 60):
        local = start + timedelta(minutes=minute)
        if any(expression.matches(local) for expression in expressions):
            # A skipped time has the offset of before, so it becomes a later local time.
            times.add(local.replace(tzinfo=zone).astimezone(UTC))
    return times


@pytest.mark.parametrize("timezone", CHANGES)
@pytest.mark.parametrize("cron", CRONS)
def test_a_skipped_time_starts_the_task_later_and_no_other_time_is_added(cron, timezone):
    zone, task, started = ZoneInfo(timezone), a_task(cron, timezone), set()
    start = (datetime.fromisoformat(CHANGES[timezone]) - timedelta(days=1)).replace(tzinfo=zone).astimezone(UTC)
    end = (datetime.fromisoformat(CHANGES[timezone]) + timedelta(days=2)).replace(tzinfo=zone).astimezone(UTC)
    expressions, extra = parsed_expressions(cron), skipped_expression(cron, timezone)
    while start < end:
        local = start.astimezone(zone).replace(tzinfo=None)
        if any(expression.matches(local) for expression in expressions):
            started.add(start)
        if extra and parse_cron(extra[5:-1]).matches(local):
            due = ScheduledStart(task=task, scheduled_at=start, for_skipped_time=True).due
            started |= {start} if due else set()
        start += timedelta(minutes=1)
    assert started == expected_times(cron, timezone, CHANGES[timezone])


@pytest.mark.parametrize(
    ("cron", "timezone", "expression"),
    [
        ("30 2 * * *", "America/New_York", "cron(30 3 ? 3 SUN *)"),
        ("0 0 * * *", "America/Santiago", "cron(0 1 ? 9 SUN *)"),
        ("15 2 * * *", "Australia/Lord_Howe", "cron(45 2 ? 10 SUN *)"),
        ("0 3 * * *", "America/New_York", None),  # it exists on every day
        ("15 * * * *", "America/New_York", None),  # the next hour starts it
        ("5 1 * * MON", "Europe/London", None),  # clocks change on Sundays
        ("30 2 * * *", "UTC", None),
    ],
)
def test_only_a_task_with_skipped_times_has_another_schedule(cron, timezone, expression):
    assert skipped_expression(cron, timezone) == expression


def test_the_skipped_day_is_run_once():
    """The clocks go from 02:00 to 03:00 (07:00 UTC). At 03:30, the day before is due as at 02:30."""
    task = a_task("30 2 * * *", "America/New_York")
    start = ScheduledStart(task=task, scheduled_at="2026-03-08T07:30:00Z", for_skipped_time=True)
    assert (start.due, start.input["date"], start.name) == (True, "2026-03-07", "process-delays-20260308T073000Z")
    for other in ("2026-03-15T07:30:00Z", "2026-03-08T07:31:00Z", "2026-03-08T08:30:00Z", "2026-03-08T06:30:00Z"):
        assert not ScheduledStart(task=task, scheduled_at=other, for_skipped_time=True).due
        assert ScheduledStart(task=task, scheduled_at=other).due


def test_a_time_that_occurs_twice_is_not_skipped():
    for instant in ("2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-01T07:30:00Z"):
        assert skipped_time(datetime.fromisoformat(instant), "America/New_York") is None


def test_a_cron_expression_with_both_days_means_either():
    friday, thirteenth, other = datetime(2026, 5, 15, 4), datetime(2026, 5, 13, 4), datetime(2026, 5, 14, 4)
    assert [cron_matches("0 4 13 * FRI", day) for day in (friday, thirteenth, other)] == [True, True, False]
    assert [cron_matches("0 4 * * FRI", day) for day in (friday, thirteenth)] == [True, False]
    assert [cron_matches("0 4 13 * *", day) for day in (friday, thirteenth)] == [False, True]
    assert cron_matches("0 4 * * 7", datetime(2026, 5, 17, 4))
