"""What a schedule starts: expressions of EventBridge Scheduler, dates, names, and a start that is delivered twice."""

from __future__ import annotations

import ast
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from botocore.exceptions import ClientError
from pydantic import ValidationError

from lambdas import start_scheduled
from slackwater.aws.executions.state_machines import StateMachines
from slackwater.errors import CloudError
from slackwater.project.cron import eventbridge_expressions, next_time
from slackwater.project.schedule import ScheduledTask, ScheduledWork
from slackwater.project.scheduled_starts import ScheduledStart, scheduled_date, task_name
from tests.fakes_functions import use_resources

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "arn:aws:states:us-east-1:000000000000:stateMachine:slackwater-"


def a_task(**fields):
    values = {
        "work": ScheduledWork.PROCESS,
        "subject": "delays",
        "description": "Runs a day.",
        "state_machine": "pipeline-delays",
        "cron": "0 3 * * *",
        "timezone": "America/New_York",
        "input": {},
        "date_key": "date",
        "buffer_hours": 2,
        "days_before": 1,
    }
    return ScheduledTask.model_validate({**values, **fields})


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("0 6 * * *", "2026-03-07T10:59", "2026-03-07T11:00"),
        ("0 6 * * *", "2026-03-07T11:00", "2026-03-08T10:00"),  # the next one is in summer time
        ("30 2,3 * * *", "2026-03-07T23:00", "2026-03-08T07:30"),  # the clocks skip 02:30
        ("0 3 * * MON", "2026-03-08T12:00", "2026-03-09T07:00"),
        ("0 3 29 2 *", "2026-03-08T12:00", "2028-02-29T08:00"),
        ("0 3 31 2 *", "2026-03-08T12:00", None),
    ],
)
def test_the_next_time_of_an_expression_is_in_its_timezone(cron, after, expected):
    at = next_time(cron, "America/New_York", after=datetime.fromisoformat(f"{after}+00:00"))
    assert at == (expected and datetime.fromisoformat(f"{expected}+00:00"))


@pytest.mark.parametrize(
    ("cron", "expressions"),
    [
        ("0 3 * * *", ["cron(0 3 * * ? *)"]),
        ("*/15 * * * *", ["cron(0,15,30,45 * * * ? *)"]),
        ("0-59/1 0-23 1-31 1-12 0-6", ["cron(* * * * ? *)"]),
        ("5/20 8-10,12 * * *", ["cron(5,25,45 8-10,12 * * ? *)"]),
        # EventBridge counts days of the week from 1 for Sunday.
        ("0 4 * * MON", ["cron(0 4 ? * MON *)"]),
        ("0 4 * * 1", ["cron(0 4 ? * MON *)"]),
        ("0 4 * * 0", ["cron(0 4 ? * SUN *)"]),
        ("0 4 * * 7", ["cron(0 4 ? * SUN *)"]),
        ("0 4 * * 1-5", ["cron(0 4 ? * MON-FRI *)"]),
        ("0 4 * * mon-fri", ["cron(0 4 ? * MON-FRI *)"]),
        ("0 4 * * 5-7", ["cron(0 4 ? * SUN,FRI,SAT *)"]),
        ("0 4 * * */2", ["cron(0 4 ? * SUN,TUE,THU,SAT *)"]),
        ("0 4 * * 7/2", ["cron(0 4 ? * SUN *)"]),
        ("0 4 * * 0-7", ["cron(0 4 * * ? *)"]),
        ("0 4 1 JAN-MAR,12 *", ["cron(0 4 1 1-3,12 ? *)"]),
        # One or the other, as in cron.
        ("0 4 13 * FRI", ["cron(0 4 13 * ? *)", "cron(0 4 ? * FRI *)"]),
    ],
)
def test_a_cron_expression_is_written_for_eventbridge(cron, expressions):
    assert list(eventbridge_expressions(cron)) == expressions


def test_the_longest_expression_fits():
    """`ScheduleExpression` has at most 256 characters."""
    odd = ",".join(str(n) for n in range(60) if n % 3)
    cron = (
        f"{odd} {odd[: odd.index(',25')]} 1,2,4,5,7,8,10,11,13,14,16,17,19,20,22,23,25,26,28,29,31 1,2,4,5,7,8,10,11 *"
    )
    [expression] = eventbridge_expressions(cron)
    assert len(expression) <= 256


@pytest.mark.parametrize(
    ("scheduled_at", "date"),
    [
        ("2026-05-02T07:00:00Z", "2026-05-01"),  # 03:00; two hours before, it is 01:00 of the same day
        ("2026-05-02T05:30:00Z", "2026-04-30"),  # 01:30; two hours before, it is the day before
        ("2026-03-08T07:00:00Z", "2026-03-07"),  # 03:00 after a skipped hour; two hours before, it is 00:00
        ("2026-03-09T06:00:00Z", "2026-03-08"),  # the day of 23 hours has ended two hours before
        ("2026-11-01T06:00:00Z", "2026-10-31"),  # 01:00 for the second time; two hours before, it is 00:00
        ("2026-11-01T05:59:00Z", "2026-10-30"),
        ("2026-01-01T08:00:00Z", "2025-12-31"),
    ],
)
def test_a_run_is_for_the_latest_day_that_ended_before_the_buffer(scheduled_at, date):
    assert scheduled_date(a_task(), datetime.fromisoformat(scheduled_at)) == date


def test_airflow_computes_the_same_dates():
    """The DAG file has a template of its own. It is Python, and needs no Airflow to be evaluated."""
    tree = ast.parse((ROOT / "mwaa_dags" / "schedule.py").read_text(encoding="utf-8"))
    named = [node for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id in {"INSTANT", "DATE"}]
    names: dict[str, str] = {}
    exec(compile(ast.Module(named, []), "schedule.py", "exec"), names)  # noqa: S102
    expression = names["DATE"].removeprefix("{{ ").removesuffix(" }}")
    instant, compared = datetime(2026, 3, 6, tzinfo=UTC), 0
    while instant < datetime(2026, 11, 4, tzinfo=UTC):
        for task in (a_task(), a_task(buffer_hours=30), a_task(days_before=0, buffer_hours=0, timezone="Asia/Kolkata")):
            values = {
                "dag_run": SimpleNamespace(logical_date=instant),
                "buffer": timedelta(hours=task.buffer_hours),
                "timezone": ZoneInfo(task.timezone),
                "days_before": timedelta(days=task.days_before),
            }
            assert str(eval(expression, values)) == scheduled_date(task, instant)  # noqa: S307
            compared += 1
        instant += timedelta(minutes=97)
    assert compared > 10_000


def test_a_start_has_the_input_and_the_name_of_its_scheduled_time():
    start = ScheduledStart(task=a_task(input={"a": "b"}), scheduled_at="2026-05-02T09:00:00+02:00")
    assert start.name == "process-delays-20260502T070000Z"
    assert start.input == {"a": "b", "date": "2026-05-01", "correlation_id": start.name}


def test_long_names_stay_different_and_fit():
    """80 characters for an execution, 64 for a schedule, of which there may be two."""
    longest = [f"{'x' * 62}{end}" for end in "ab"]
    names = {task_name(a_task(subject=subject)) for subject in longest}
    assert len(names) == 2
    assert {len(name) for name in names} == {60}
    assert all(len(f"{name}-2") <= 64 for name in names)
    assert len(ScheduledStart(task=a_task(subject=longest[0]), scheduled_at=datetime.now(UTC)).name) <= 80
    shortest = a_task(subject="x" * 52)
    assert task_name(shortest) == f"process-{'x' * 52}"


class FakeStates:
    """Step Functions: an execution's name is used once, and a running one is found by its name and input."""

    def __init__(self):
        self.executions = {}
        self.running = True

    def start_execution(self, *, stateMachineArn, name, input):  # noqa: A002, N803
        before = self.executions.get((stateMachineArn, name))
        if stateMachineArn.endswith("missing"):
            raise self.error("StateMachineDoesNotExist")
        if before and not (self.running and before == input):
            raise self.error("ExecutionAlreadyExists")
        self.executions[stateMachineArn, name] = input
        return {"executionArn": f"{stateMachineArn}:{name}"}

    def error(self, code):
        return ClientError({"Error": {"Code": code, "Message": code}}, "StartExecution")


@pytest.fixture
def states(monkeypatch):
    states = FakeStates()
    settings = {"state_machine_prefix": PREFIX}
    use_resources(monkeypatch, start_scheduled, settings, state_machines=StateMachines(states))
    return states


def event(**fields):
    return {"task": a_task(**fields).model_dump(mode="json"), "scheduled_at": "2026-05-02T07:00:00Z"}


def test_a_start_that_is_delivered_again_starts_nothing(states):
    first = start_scheduled.handler(event(), None)
    assert first == {"execution": "process-delays-20260502T070000Z", "started": True}
    start_scheduled.handler(event(), None)
    states.running = False
    assert start_scheduled.handler(event(), None) == {**first, "started": False}
    [((machine, _), payload)] = states.executions.items()
    assert machine == f"{PREFIX}pipeline-delays"
    assert json.loads(payload) == {"date": "2026-05-01", "correlation_id": first["execution"]}


def test_the_next_time_starts_another_execution(states):
    start_scheduled.handler(event(), None)
    start_scheduled.handler({**event(), "scheduled_at": "2026-05-03T07:00:00Z"}, None)
    assert len(states.executions) == 2


def test_a_start_for_a_skipped_time_starts_nothing_on_other_days(states):
    skipped = {**event(cron="30 2 * * *"), "for_skipped_time": True}
    other = start_scheduled.handler({**skipped, "scheduled_at": "2026-03-15T07:30:00Z"}, None)
    assert (other["started"], states.executions) == (False, {})
    assert start_scheduled.handler({**skipped, "scheduled_at": "2026-03-08T07:30:00Z"}, None)["started"]
    assert len(states.executions) == 1


def test_a_start_that_fails_raises_so_that_lambda_repeats_it(states):
    with pytest.raises(CloudError, match="pipeline-missing"):
        start_scheduled.handler(event(state_machine="pipeline-missing"), None)


@pytest.mark.parametrize("scheduled_at", ["<aws.scheduler.scheduled-time>", "2026-05-02T07:00:00", ""])
def test_a_start_without_an_instant_is_refused(states, scheduled_at):
    with pytest.raises(ValidationError):
        start_scheduled.handler({**event(), "scheduled_at": scheduled_at}, None)
    assert states.executions == {}


@pytest.mark.parametrize(
    ("scheduled_at", "buffer_hours", "expected"),
    [
        ("2026-03-08T08:10", 0, "2026-03-08T07"),
        ("2026-03-08T08:00", 0, "2026-03-08T07"),
        ("2026-03-08T07:59", 0, "2026-03-08T06"),
        ("2026-03-08T00:10", 2, "2026-03-07T21"),
        ("2026-03-08T00:10", 0.25, "2026-03-07T22"),
        ("2026-03-08T00:15", 0.25, "2026-03-07T23"),
    ],
)
def test_an_hour_is_the_latest_one_that_has_ended_before_the_buffer(scheduled_at, buffer_hours, expected):
    hourly = {"cron": "10 * * * *", "timezone": "UTC", "period": "hour", "hours_before": 1, "days_before": 0}
    task = a_task(**hourly, buffer_hours=int(buffer_hours), buffer_minutes=int(buffer_hours % 1 * 60))
    start = ScheduledStart(task=task, scheduled_at=datetime.fromisoformat(f"{scheduled_at}+00:00"))
    assert start.input["date"] == expected
