"""The local cloud fires schedules as EventBridge Scheduler documents it, with the permissions of their roles."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from ministack import app
from ministack.services import iam, lambda_svc, scheduler, sqs
from ministack.services.cloudformation import provisioners

from slackwater.local.services import schedules
from slackwater.local.services.schedules import Schedules, due_times
from slackwater.project.cron import eventbridge_expressions

pytestmark = pytest.mark.unit

FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function:start"
ROLE = "arn:aws:iam::000000000000:role/schedules"
QUEUE = "arn:aws:sqs:us-east-1:000000000000:dead"
GROUP = "arn:aws:scheduler:us-east-1:000000000000:schedule-group/default"
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
# Where clocks change by an hour, by half an hour (Lord Howe), at midnight (Santiago), in the south, and never.
ZONES = ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata", "UTC")
CRONS = (
    *("0 3 * * *", "30 2 * * *", "30 1 * * *", "0 0 * * *", "45 1 * * *", "59 23 * * *", "15 * * * *"),
    *("*/15 * * * *", "5/20 0-3 * * *", "0 */2 * * *", "0 2 * * SUN", "0 2 * * 7", "0 2 * * 0", "30 1 * * 5-7"),
    *("0 4 * * MON", "0 12 1,15,29 * *", "10 2 29 3 *", "0 1 8 * SUN", "*/10 1,2 */2 NOV,MAR *", "0 0 1-7 * 1-5"),
)


# An independent reading of cron, which asks for each local time of the calendar whether it exists.


def numbers(field, low, high, names=""):
    found = set()
    for item in field.split(","):
        for number, name in enumerate(names.split()):
            item = item.upper().replace(name, str(number + low))  # noqa: PLW2901
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            first, last = str(low), str(high)
        elif not last:
            last = str(high) if step else first
        found |= set(range(int(first), int(last) + 1)[:: int(step or 1)])
    return found


def expected_times(cron, zone, first, last):
    """The instants of a cron expression on the days from `first` to `last`, with the rules for clock changes."""
    minute, hour, day, month, weekday = cron.split()
    days, weekdays = numbers(day, 1, 31), {n % 7 for n in numbers(weekday, 0, 6, "SUN MON TUE WED THU FRI SAT")}
    months = numbers(month, 1, 12, "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")
    times, current = [], first
    while current <= last:
        on_day, on_weekday = current.day in days, current.isoweekday() % 7 in weekdays
        either = "*" not in (day, weekday)
        if current.month in months and ((on_day or on_weekday) if either else (on_day and on_weekday)):
            for h in sorted(numbers(hour, 0, 23)):
                for m in sorted(numbers(minute, 0, 59)):
                    local = datetime(current.year, current.month, current.day, h, m, tzinfo=ZoneInfo(zone))
                    instant = local.astimezone(UTC)
                    if instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == local.replace(tzinfo=None):
                        times.append(instant)
        current += timedelta(days=1)
    return sorted(times)


def schedule(**members):
    return {
        "Name": "s",
        "Arn": "arn:aws:scheduler:us-east-1:000000000000:schedule/default/s",
        "State": "ENABLED",
        "CreationDate": CREATED.timestamp(),
        "LastModificationDate": CREATED.timestamp(),
        **members,
    }


def fired(of, start, end, *, step=timedelta(minutes=5)):
    times, since = [], start
    while since < end:
        times += due_times(of, since=since, until=since + step)
        since += step
    return times


def change_days(zone):
    """The days around the changes of the clocks in 2026."""
    offsets = [datetime(2026, 1, 1, 12, tzinfo=ZoneInfo(zone)) + timedelta(days=n) for n in range(365)]
    found = [b.date() for a, b in pairwise(offsets) if a.utcoffset() != b.utcoffset()]
    return found or [date(2026, 3, 29), date(2026, 11, 1)]


@pytest.mark.parametrize("zone", ZONES)
def test_schedules_fire_at_the_times_of_cron_over_both_clock_changes(zone):
    """From unix cron over our expressions to the times of the local cloud, against an independent computation."""
    changes = change_days(zone)
    assert len(changes) == 2
    for cron in CRONS:
        expressions = eventbridge_expressions(cron)
        for change in changes:
            first, last = change - timedelta(days=1), change + timedelta(days=1)
            start = datetime(first.year, first.month, first.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
            end = datetime(last.year, last.month, last.day, 23, 59, tzinfo=ZoneInfo(zone)).astimezone(UTC)
            start -= timedelta(minutes=1)
            times = {
                time
                for expression in expressions
                for time in fired(schedule(ScheduleExpression=expression, ScheduleExpressionTimezone=zone), start, end)
                if time <= end
            }
            assert sorted(times) == expected_times(cron, zone, first, last), (cron, expressions, change)


def test_a_skipped_local_time_does_not_fire_and_a_repeated_one_fires_once():
    of = schedule(ScheduleExpression="cron(30 2 * * ? *)", ScheduleExpressionTimezone="America/New_York")
    spring = fired(of, datetime(2026, 3, 8, tzinfo=UTC), datetime(2026, 3, 9, tzinfo=UTC))
    assert spring == []
    of = schedule(ScheduleExpression="cron(30 1 * * ? *)", ScheduleExpressionTimezone="America/New_York")
    autumn = fired(of, datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))
    assert autumn == [datetime(2026, 11, 1, 5, 30, tzinfo=UTC)]


def test_each_time_fires_once_however_long_the_steps_are():
    of = schedule(ScheduleExpression="cron(* * * * ? *)")
    start, end = datetime(2026, 5, 1, 10, 0, 30, tzinfo=UTC), datetime(2026, 5, 1, 10, 10, 30, tzinfo=UTC)
    minutes = [start.replace(second=0) + timedelta(minutes=n) for n in range(1, 11)]
    for step in (10, 59, 60, 61, 150, 300):
        times = fired(of, start, end, step=timedelta(seconds=step))
        assert [time for time in times if time <= end] == minutes, step


@pytest.mark.parametrize(
    ("members", "minutes"),
    [
        ({"State": "DISABLED"}, []),
        ({"LastModificationDate": datetime(2026, 5, 1, 10, 2, 10, tzinfo=UTC).timestamp()}, [3, 4]),
        ({"ScheduleExpression": "at(2026-05-01T12:03:00)", "ScheduleExpressionTimezone": "Europe/Berlin"}, [3]),
    ],
)
def test_states_and_one_time_schedules(members, minutes):
    start = datetime(2026, 5, 1, 10, tzinfo=UTC)
    of = schedule(**{"ScheduleExpression": "cron(* * * * ? *)", **members})
    times = fired(of, start, start + timedelta(minutes=4), step=timedelta(minutes=1))
    assert [time.minute for time in times] == minutes


class Clock:
    def __init__(self):
        self.now = datetime(2026, 5, 1, 10, tzinfo=UTC)

    def __call__(self):
        return self.now


@pytest.fixture
def invoked(monkeypatch):
    """The events that the function `start` gets. The emulator has the adapter, a role and a dead-letter queue."""
    events = []
    monkeypatch.setattr(lambda_svc, "_get_func_record_for_ref", lambda arn: ({"of": arn}, {"of": arn}, arn))
    monkeypatch.setattr(lambda_svc, "invoke_async_with_retry", lambda _, event: events.append(event))
    monkeypatch.setattr(scheduler, "_tick_schedules", scheduler._tick_schedules)
    monkeypatch.setitem(app.SERVICE_HANDLERS, "scheduler", app.SERVICE_HANDLERS["scheduler"])
    handlers = dict(provisioners._RESOURCE_HANDLERS["AWS::Scheduler::Schedule"])
    monkeypatch.setitem(provisioners._RESOURCE_HANDLERS, "AWS::Scheduler::Schedule", handlers)
    trust = {
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "sts:AssumeRole",
                "Principal": {"Service": "scheduler.amazonaws.com"},
                "Condition": {"ArnEquals": {"aws:SourceArn": GROUP}},
            }
        ]
    }
    iam._roles["schedules"] = {"RoleName": "schedules", "Arn": ROLE, "AssumeRolePolicyDocument": json.dumps(trust)}
    sqs._act_create_queue({"QueueName": "dead"}, "")
    yield events
    iam._roles.pop("schedules")
    sqs.reset()
    scheduler.reset()


def allowed(monkeypatch, *actions):
    """Let the role call these actions: the emulator's policies are covered by the tests of permissions."""

    def require(_, action, resource, conditions=None):
        if action not in actions:
            raise schedules.AccessDenied(f"not authorized to perform: {action} on {resource}")

    monkeypatch.setattr("slackwater.local.services.permissions.Principal.require", require)


def create(**members):
    target = {
        "Arn": FUNCTION,
        "RoleArn": ROLE,
        "Input": json.dumps({"at": "<aws.scheduler.scheduled-time>", "other": "<aws.scheduler.other>"}),
        "DeadLetterConfig": {"Arn": QUEUE},
    }
    props = {
        "Name": "s",
        "ScheduleExpression": "cron(0 6 * * ? *)",
        "ScheduleExpressionTimezone": "America/New_York",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": target,
        **members,
    }
    provisioners._RESOURCE_HANDLERS["AWS::Scheduler::Schedule"]["create"]("S", props, "stack")
    scheduler._schedules["default/s"].update(CreationDate=0, LastModificationDate=0)
    return props


def test_a_schedule_of_a_template_invokes_its_function_in_its_time_zone(invoked, monkeypatch):
    allowed(monkeypatch, "lambda:InvokeFunction")
    clock = Clock()
    Schedules(now=clock).register()
    create()
    clock.now = datetime(2026, 5, 2, 9, 59, 55, tzinfo=UTC)
    scheduler._tick_schedules()
    clock.now = datetime(2026, 5, 2, 10, 0, 5, tzinfo=UTC)
    scheduler._tick_schedules()
    scheduler._tick_schedules()
    # 06:00 in New York
    assert invoked == [{"at": "2026-05-02T10:00:00Z", "other": "<aws.scheduler.other>"}]


def test_times_that_passed_while_the_cloud_was_stopped_or_asleep_are_not_made_up_for(invoked, monkeypatch):
    allowed(monkeypatch, "lambda:InvokeFunction")
    clock = Clock()
    Schedules(now=clock).register()
    create(ScheduleExpression="cron(* * * * ? *)")
    state = json.loads(json.dumps(dict(scheduler._schedules["default/s"])))
    clock.now += timedelta(hours=8)  # asleep
    scheduler._tick_schedules()
    assert 1 <= len(invoked) <= 5
    invoked.clear()
    clock.now += timedelta(hours=8)
    Schedules(now=clock).register()  # started again, with the saved state
    scheduler._schedules["default/s"] = state
    scheduler._tick_schedules()
    assert invoked == []
    clock.now += timedelta(minutes=1)
    scheduler._tick_schedules()
    assert [event["at"] for event in invoked] == ["2026-05-02T02:01:00Z"]


def test_without_permission_a_start_goes_to_the_dead_letter_queue(invoked, monkeypatch):
    allowed(monkeypatch, "sqs:SendMessage")
    clock = Clock()
    Schedules(now=clock).register()
    create(ScheduleExpression="cron(1 10 * * ? *)", ScheduleExpressionTimezone="UTC")
    clock.now += timedelta(minutes=1)
    scheduler._tick_schedules()
    assert invoked == []
    [message] = sqs._queues[sqs._queue_url("dead")]["messages"]
    assert json.loads(message["body"])["at"] == "2026-05-01T10:01:00Z"


def test_a_role_that_trusts_another_group_cannot_be_used(invoked, monkeypatch, caplog):
    allowed(monkeypatch, "lambda:InvokeFunction", "sqs:SendMessage")
    clock = Clock()
    Schedules(now=clock).register()
    scheduler._create_schedule_group("g", {})
    props = create()
    handlers = provisioners._RESOURCE_HANDLERS["AWS::Scheduler::Schedule"]
    handlers["create"]("T", {**props, "Name": "t", "GroupName": "g", "ScheduleExpression": "cron(* * * * ? *)"}, "s")
    scheduler._schedules["g/t"].update(CreationDate=0, LastModificationDate=0)
    clock.now += timedelta(minutes=1)
    scheduler._tick_schedules()
    assert invoked == []
    assert "scheduler.amazonaws.com is not authorized to perform: sts:AssumeRole" in caplog.text


def test_an_updated_schedule_keeps_its_time_zone_and_fires_from_then_on(invoked, monkeypatch):
    allowed(monkeypatch, "lambda:InvokeFunction")
    Schedules(now=Clock()).register()
    props = create()
    update = provisioners._RESOURCE_HANDLERS["AWS::Scheduler::Schedule"]["update"]
    update("s", props, {**props, "ScheduleExpressionTimezone": "Asia/Kolkata"}, "stack")
    assert scheduler._schedules["default/s"]["ScheduleExpressionTimezone"] == "Asia/Kolkata"
    assert scheduler._schedules["default/s"]["LastModificationDate"] > 0


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"ScheduleExpression": "cron(0 6 * * * *)"}, "exactly one of day-of-month and day-of-week must be ?"),
        ({"ScheduleExpression": "cron(0 6 ? * ? *)"}, "exactly one of day-of-month and day-of-week must be ?"),
        ({"ScheduleExpression": "cron(0 6 * * ?)"}, "has 5 fields instead of 6"),
        ({"ScheduleExpression": "cron(0 24 * * ? *)"}, "'24' is not a valid hours"),
        ({"ScheduleExpression": "cron(0 6 ? * 0 *)"}, "'0' is not a valid day-of-week"),
        ({"ScheduleExpression": "cron(0 6 L * ? *)"}, "the local cloud does not know it"),
        ({"ScheduleExpression": "0 6 * * *"}, "Invalid Schedule Expression"),
        ({"ScheduleExpression": "rate(2 minutes)"}, "Invalid Schedule Expression"),
        ({"EndDate": "2026-05-01T10:02:00+00:00"}, "the local cloud does not know them"),
        ({"ScheduleExpressionTimezone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"Name": "x" * 65}, "valid max value: 64"),
        ({"Name": "a b"}, "valid pattern"),
        ({"FlexibleTimeWindow": {"Mode": "MAYBE"}}, "must be one of: OFF, FLEXIBLE"),
        ({"State": "PAUSED"}, "must be one of: ENABLED, DISABLED"),
        ({"Timezone": "UTC"}, "unknown members: Timezone"),
        ({"Target": {"Arn": FUNCTION}}, "RoleArn"),
        ({"Target": {"Arn": QUEUE, "RoleArn": ROLE}}, "the local cloud fires schedules of functions only"),
    ],
)
def test_an_expression_that_aws_refuses_is_refused(invoked, members, message):
    Schedules().register()
    with pytest.raises(ValueError, match=re.escape(message)):
        create(**members)
    assert "default/s" not in scheduler._schedules
    assert invoked == []


async def answer(method, body):
    return await app.SERVICE_HANDLERS["scheduler"](method, "/schedules/s", {}, json.dumps(body).encode(), {})


def test_requests_to_the_api_are_checked_too(invoked):
    Schedules().register()
    body = {"ScheduleExpression": "cron(0 6 * * ? *)", "FlexibleTimeWindow": {"Mode": "OFF"}}
    status, _, refused = asyncio.run(answer("POST", body))
    assert (status, json.loads(refused)["__type"]) == (400, "ValidationException")
    assert asyncio.run(answer("POST", {**body, "Target": {"Arn": FUNCTION, "RoleArn": ROLE}}))[0] == 200
    assert asyncio.run(answer("GET", {}))[0] == 200
    assert invoked == []


def test_the_emulator_calls_this_step_with_its_own_thread():
    assert "_tick_schedules()" in inspect.getsource(scheduler._ticker_loop)
    assert list(inspect.signature(scheduler._error).parameters) == ["status", "code", "message"]
    assert list(inspect.signature(lambda_svc.invoke_async_with_retry).parameters) == ["func", "event"]
