"""EventBridge Scheduler as on AWS: schedules fire at their local times, with the permissions of their roles.

The emulator's own loop knows UTC only, ignores roles, retries and context attributes, and accepts any request. This
replaces the loop's step and checks requests; see `emulator`.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import uuid4
from zoneinfo import ZoneInfo

from slackwater.errors import AccessDenied
from slackwater.local.emulator import module, replaces, request_scope, resource_handlers
from slackwater.local.service_model import EmrValidationError, check, input_shape
from slackwater.local.services.permissions import assume_role
from slackwater.model import known_timezones

_LOG = logging.getLogger("slackwater.local")
_MINUTE = timedelta(minutes=1)
# Times that passed while the computer slept are not made up for, as after a restart: AWS never sleeps.
_LONGEST_PAUSE = timedelta(minutes=5)
_EXPRESSION = re.compile(r"(cron|at)\((.+)\)")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# Names, lowest and highest value, names of the values.
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minutes", 0, 59, ()),
    ("hours", 0, 23, ()),
    ("day-of-month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day-of-week", 1, 7, _WEEKDAYS),
    ("year", 1970, 2199, ()),
)
_ITEM = re.compile(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d+))?")


class Schedules:
    """Fires schedules. Times before the first step, or before a change of a schedule, are not made up for."""

    def __init__(self, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """`now` returns the current instant; tests move it."""
        self._now = now
        self._checked = now()

    def register(self) -> None:
        """Replace the emulator's step, which its own thread calls every ten seconds, and check requests."""
        # The state is loaded before the first step: missed times of a restored schedule lie before `_checked`.
        module("services.scheduler")._tick_schedules = self.step
        _check_requests()
        _provision_whole_schedules()

    def step(self) -> None:
        """Fire every schedule that was due since the last step, each of its times once."""
        now = self._now()
        since, self._checked = max(self._checked, now - _LONGEST_PAUSE), now
        schedules = module("services.scheduler")._schedules
        for (account, region, _), schedule in schedules.all_items():
            with module("core.responses").request_scope(account, region):
                try:
                    for scheduled_at in due_times(schedule, since=since, until=now):
                        _fire(schedule, scheduled_at)
                except Exception:  # noqa: BLE001 - one schedule must not stop the others
                    _LOG.exception("the schedule %s could not be delivered", schedule["Name"])


def due_times(schedule: Mapping[str, Any], *, since: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the times of a schedule after `since` and not after `until`, in UTC.

    A local time that does not exist is skipped, and one that occurs twice fires the first time only ("Schedule types"
    in the user guide of EventBridge Scheduler).
    """
    if schedule.get("State") == "DISABLED":
        return
    since = max(since, _instant(schedule["LastModificationDate"]))
    timezone = ZoneInfo(schedule.get("ScheduleExpressionTimezone") or "UTC")
    kind, content = parse_expression(schedule["ScheduleExpression"])
    for time in _times(kind, content, timezone, until=until):
        if since < time <= until:
            yield time


def parse_expression(expression: str) -> tuple[str, str]:
    """Return the kind of an expression and its content.

    Raises `ValueError` for one that AWS refuses, and for `rate`, which AWS understands.
    """
    match = _EXPRESSION.fullmatch(expression)
    if match is None:
        raise ValueError(f"Invalid Schedule Expression {expression}.")
    kind, content = match.groups()
    if kind == "cron":
        parse_cron(content)
    else:
        datetime.strptime(content, "%Y-%m-%dT%H:%M:%S")  # noqa: DTZ007 - it is in the schedule's timezone
    return kind, content


def _times(kind: str, content: str, timezone: ZoneInfo, *, until: datetime) -> Iterator[datetime]:
    """Yield the times of an expression in the minutes before `until`."""
    if kind == "at":
        yield datetime.fromisoformat(content).replace(tzinfo=timezone).astimezone(UTC)
        return
    cron, minute = parse_cron(content), until.replace(second=0, microsecond=0)
    for back in range(int(_LONGEST_PAUSE / _MINUTE), -1, -1):
        time = minute - back * _MINUTE
        local = time.astimezone(timezone)
        if local.fold == 0 and cron.matches(local):
            yield time


def _instant(timestamp: float | str) -> datetime:
    if isinstance(timestamp, str):
        return datetime.fromisoformat(timestamp).astimezone(UTC)
    return datetime.fromtimestamp(timestamp, UTC)


def _fire(schedule: Mapping[str, Any], scheduled_at: datetime) -> None:
    """Invoke the target with the role of the schedule. What the role may not do goes to the dead-letter queue.

    AWS repeats a refused call first, for hours.
    """
    target, scope, session = schedule["Target"], request_scope(), None
    payload = _with_attributes(target.get("Input") or "{}", schedule["Arn"], scheduled_at)
    group = f"arn:aws:scheduler:{scope.region}:{scope.account}:schedule-group/{schedule['GroupName']}"
    try:
        session = assume_role(
            target["RoleArn"], service="scheduler.amazonaws.com", source=group, session=schedule["Name"]
        )
        session.require("lambda:InvokeFunction", target["Arn"])
        functions = module("services.lambda_svc")
        function, configuration, _ = functions._get_func_record_for_ref(target["Arn"])
        if not function or not configuration:
            raise AccessDenied(f"there is no function {target['Arn']}")
        functions.invoke_async_with_retry(
            functions._execution_record_for_config(function, configuration), json.loads(payload)
        )
    except AccessDenied as error:
        _LOG.warning("the schedule %s was not delivered: %s", schedule["Name"], error)
        queue = target.get("DeadLetterConfig", {}).get("Arn")
        queues = module("services.sqs")
        if queue and session and queues._queue_by_arn(queue):
            session.require("sqs:SendMessage", queue)
            url = queues._queue_url(queue.rpartition(":")[2])
            queues._act_send_message({"QueueUrl": url, "MessageBody": payload}, url)


def _with_attributes(payload: str, schedule: str, scheduled_at: datetime) -> str:
    """Replace the context attributes of the user guide ("Adding context attributes")."""
    attributes = {
        "schedule-arn": schedule,
        "scheduled-time": f"{scheduled_at:%Y-%m-%dT%H:%M:%SZ}",
        "execution-id": uuid4().hex,
        "attempt-number": "1",
    }
    return re.sub(r"<aws\.scheduler\.([\w-]+)>", lambda match: attributes.get(match[1], match[0]), payload)


def check_schedule(parameters: Mapping[str, Any]) -> None:
    """Raise `ValueError` when the parameters of CreateSchedule break botocore's model or the rules of AWS."""
    shape = input_shape("CreateSchedule", service="scheduler")  # those of UpdateSchedule are the same
    known = shape.members
    try:
        check(shape, {name: value for name, value in parameters.items() if name in known})
    except EmrValidationError as error:
        raise ValueError(str(error)) from error
    if unknown := set(parameters) - set(known):
        raise ValueError(f"unknown members: {', '.join(sorted(unknown))}")
    if {"StartDate", "EndDate"} & set(parameters):
        raise ValueError("StartDate, EndDate: the local cloud does not know them")
    parse_expression(parameters["ScheduleExpression"])
    timezone = parameters.get("ScheduleExpressionTimezone", "UTC")
    if timezone not in known_timezones():
        raise ValueError(f"Provided ScheduleExpressionTimezone {timezone!r} is invalid.")
    target = parameters["Target"]["Arn"]
    if ":lambda:" not in target:
        raise ValueError(f"Target.Arn: the local cloud fires schedules of functions only, not of {target}")


def _check_requests() -> None:
    @replaces(module("app").SERVICE_HANDLERS, "scheduler")
    async def handle_request(handle: Any, method: str, path: str, headers: Any, body: bytes, *query: Any) -> Any:
        if method in {"POST", "PUT"} and path.startswith("/schedules/"):
            try:
                check_schedule({**json.loads(body), "Name": path.rpartition("/")[2]})
            except ValueError as error:  # also a body that is no JSON
                return module("services.scheduler")._error(400, "ValidationException", str(error))
        return await handle(method, path, headers, body, *query)


def _provision_whole_schedules() -> None:
    # The emulator drops the timezone of a template's schedule.
    scheduler, handlers = module("services.scheduler"), resource_handlers("AWS::Scheduler::Schedule")

    def complete(answer: Any, props: Mapping[str, Any]) -> Any:
        schedule = scheduler._schedules[f"{props.get('GroupName', 'default')}/{answer[0]}"]
        schedule["ScheduleExpressionTimezone"] = props.get("ScheduleExpressionTimezone", "UTC")
        schedule["LastModificationDate"] = scheduler._now()
        return answer

    @replaces(handlers, "create")
    def create_schedule(create: Any, logical_id: str, props: Any, stack: str) -> Any:
        check_schedule({"Name": logical_id, **props})
        return complete(create(logical_id, props, stack), props)

    @replaces(handlers, "update")
    def update_schedule(update: Any, physical_id: str, old: Any, new: Any, stack: str) -> Any:
        check_schedule({"Name": physical_id, **new})
        return complete(update(physical_id, old, new, stack), new)


class AwsCron(NamedTuple):
    """The values of each field. None stands for `?`."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    """1 is Sunday."""
    years: frozenset[int]

    def matches(self, local: datetime) -> bool:
        """Return whether a local time is one of the expression's, to the minute."""
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and (self.days is None or local.day in self.days)
            and local.month in self.months
            and (self.weekdays is None or local.isoweekday() % 7 + 1 in self.weekdays)
            and local.year in self.years
        )


@functools.cache
def parse_cron(fields: str) -> AwsCron:
    """Return the expression between the brackets of `cron(...)`.

    Raises `ValueError` for what AWS refuses, and for `L`, `W` and `#`, which AWS understands.
    """
    texts = fields.split()
    if len(texts) != len(_FIELDS):
        raise ValueError(f"cron({fields}) has {len(texts)} fields instead of {len(_FIELDS)}")
    if [texts[2], texts[4]].count("?") != 1:
        raise ValueError(f"cron({fields}): exactly one of day-of-month and day-of-week must be ?")
    minutes, hours, days, months, weekdays, years = (
        None if text == "?" and name.startswith("day-") else _values(text, name, low, high, names)
        for text, (name, low, high, names) in zip(texts, _FIELDS, strict=True)
    )
    if minutes is None or hours is None or months is None or years is None:
        raise ValueError(f"cron({fields}): only day-of-month and day-of-week can be ?")
    return AwsCron(minutes, hours, days, months, weekdays, years)


def _values(text: str, field: str, low: int, high: int, names: tuple[str, ...]) -> frozenset[int]:
    numbers = {name: number for number, name in enumerate(names, start=low)}
    values: set[int] = set()
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise ValueError(f"{item!r} is not a valid {field}, or the local cloud does not know it")
        star, first, last, step = match.group(1) == "*", match.group(2), match.group(3), match.group(4)
        bounds = [numbers.get(name.upper(), int(name) if name.isdecimal() else -1) for name in (first, last) if name]
        if star:
            bounds = [low, high]
        elif len(bounds) == 1:
            bounds.append(high if step else bounds[0])
        if not low <= bounds[0] <= bounds[1] <= high or step == "0":
            raise ValueError(f"{item!r} is not a valid {field} ({low}-{high}), or the local cloud does not know it")
        values.update(range(bounds[0], bounds[1] + 1, int(step or 1)))
    return frozenset(values)
