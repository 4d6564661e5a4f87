"""The function that evaluates what runs wait for, its requests, and the answers to Step Functions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import botocore.session
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from lambdas import await_inputs, check_arrivals, record_run
from slackwater.aws.executions.task_tokens import TaskTokens
from slackwater.aws.wake_requests import WakeRequests
from slackwater.errors import AccessDenied, Throttled
from slackwater.late.arrival_messages import read_message
from slackwater.late.check.arrival_checks import ArrivalChecks
from slackwater.pipeline.live import Live
from slackwater.project.project import Project
from slackwater.runs.attempt_files import publication_uri
from slackwater.runs.outcome import EndedInFailure, RunRecorder
from slackwater.state.conditions import Evaluation, Outcome
from slackwater.state.facts import HOUR
from slackwater.state.verdicts import Subject
from slackwater.state.waits import DayKey, WaitingRun, Waits
from tests.fakes_check import PIPELINE, PUBLICATION
from tests.fakes_functions import resources_of, use_resources
from tests.fakes_waits import MemoryWaits, Tasks
from tests.unit.runs.test_source_counts import DATE, START, counted_world
from tests.unit.runs.test_waits import waiting

pytestmark = pytest.mark.unit

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = DayKey("weekly", "2026-01-01")
WAIT = {
    "event": "wait",
    "pipeline": KEY.pipeline,
    "date": KEY.date,
    "execution": "e",
    "token": "e-1",
    "since": "2026-01-02T03:00:00.123Z",
    "correlation_id": "c",
}


class Lambda:
    """A client of Lambda that records requests."""

    def __init__(self, error: Exception | None = None) -> None:
        self.requests: list[dict[str, Any]] = []
        self.error = error

    def __call__(self, _service: str) -> Lambda:
        return self

    def invoke(self, **request: str) -> None:
        if self.error:
            raise self.error
        assert (request["FunctionName"], request["InvocationType"]) == ("slackwater-await-inputs", "Event")
        self.requests.append(json.loads(request["Payload"]))


class Woken:
    """The days of which each source and each day is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def of_source(self, source, hours):
        self.asked.append((source, hours))
        return [KEY]

    def of_day(self, pipeline, date):
        self.asked.append((pipeline, date))
        return [KEY]

    def of_verdict(self, subject, periods):
        self.asked.append((subject, periods))
        return [KEY]


@pytest.fixture
def called(monkeypatch):
    """Call the function; return its response, the runs that wait, and what is asked for days."""
    table, tasks, days = MemoryWaits(), Tasks(), Woken()
    outcomes = [Outcome.WAIT]
    waits = Waits(table=table, tasks=tasks, days=days, evaluate=lambda _: Evaluation(outcomes[-1]))
    use_resources(monkeypatch, await_inputs, waits=waits, project=Project(sources={}, pipelines={}), arrivals=list)
    tasks.start("e")

    def call(event, outcome=Outcome.WAIT):
        outcomes.append(outcome)
        return await_inputs.handler(event, None)

    return call, table, tasks, days


def test_a_run_that_has_to_wait_is_stored_with_its_token(called):
    call, table, tasks, _ = called
    assert call(WAIT) == {"missing": ()}
    since = datetime(2026, 1, 2, 3, 0, 0, 123_000, tzinfo=UTC)
    assert table.waits(KEY) == [WaitingRun(*KEY, execution="e", token="e-1", since=since)]
    assert tasks.succeeded == {}


def requests():
    """Return what is requested for wake-ups."""
    function = Lambda()
    wakes = WakeRequests(function, "slackwater-await-inputs")
    wakes.wake_source("clicks", [NOON, NOON, NOON - HOUR])
    wakes.wake_source("clicks")
    wakes.wake_day("daily", "2026-01-01")
    wakes.wake_verdict(Subject("source", "clicks"), ["2026-01-01T12"], NOON)
    return function.requests


ASKED = [
    ("clicks", (NOON - HOUR, NOON)), ("clicks", None), ("daily", "2026-01-01"),
    (("source", "clicks"), ("2026-01-01T12",)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "asked"),
    list(zip(requests(), ASKED, strict=True)),
)
def test_a_request_wakes_the_runs_of_the_days_that_read_it(called, request_, asked):
    call, table, tasks, days = called
    call(WAIT)
    call(request_, Outcome.READY)
    assert (days.asked, tasks.succeeded, table.runs) == ([asked], {"e": 1}, {})


def test_windows_that_are_full_start_runs_of_open_periods(monkeypatch):
    world, function, live = counted_world(), Lambda(), Mock()
    live.source_counted.return_value = live.run_ended.return_value = None
    use_resources(monkeypatch, await_inputs, live_windows=live, waits=Mock())
    definition = world.project.pipelines[PIPELINE]
    windows = definition.model_copy(update={"live": Live(windows="1h")})
    for pipeline in (definition, windows):
        project = world.project.model_copy(update={"pipelines": {PIPELINE: pipeline}})
        resources = resources_of(
            {"raw_bucket": "raw", "exchange_bucket": "exchange"}, project=project, period_table=None, file_cache=None,
            store=None, clients=Mock(), wake_requests=WakeRequests(function, "slackwater-await-inputs"),
        )  # fmt: skip
        resources.period_folder.on_full("flights", [START])
    [request] = function.requests
    await_inputs.handler(request, None)
    assert live.source_counted.call_args.args == ("flights", (START,))


@pytest.mark.parametrize(("through", "retry", "is_requested"), [(NOON, False, 1), (NOON, True, 0), (None, False, 0)])
def test_the_end_of_a_provisional_run_has_its_period_looked_at(monkeypatch, through, retry, is_requested):
    function, live = Lambda(), Mock()
    run = counted_world().freeze(DATE).model_copy(update={"through": through})
    wakes = WakeRequests(function, "slackwater-await-inputs")
    recorder = Mock(end_failed=lambda *_, **__: EndedInFailure("reason", retry))
    use_resources(monkeypatch, record_run, recorder=recorder, wake_requests=wakes)
    event = {"event": "failed", "run": run.model_dump(), "error": "E", "cause": "", "retried": False}
    record_run.handler(event, None)
    assert len(function.requests) == is_requested
    live.run_ended.return_value = None
    use_resources(monkeypatch, await_inputs, live_windows=live, waits=Mock())
    for request in function.requests:
        await_inputs.handler(request, None)
        assert live.run_ended.call_args.args == (PIPELINE, DATE)


def test_nothing_is_requested_if_no_pipeline_waits():
    function = Lambda()
    WakeRequests(function, "").wake_day("daily", "2026-01-01")
    assert function.requests == []


def test_a_request_that_fails_is_only_logged_except_by_a_command(caplog):
    error = ClientError({"Error": {"Code": "TooManyRequestsException", "Message": "later"}}, "Invoke")
    WakeRequests(Lambda(error), "f").wake_day("daily", "2026-01-01")
    assert caplog.messages == ["runs that wait are evaluated in 15 minutes"]
    with pytest.raises(Throttled, match="could not evaluate waiting runs"):
        WakeRequests(Lambda(error), "f", raises=True).wake_day("daily", "2026-01-01")


@pytest.mark.parametrize("code", ["TaskTimedOut", "TaskDoesNotExist", "InvalidToken"])
def test_an_answer_to_a_state_that_has_ended_is_no_error(code):
    client = botocore.session.get_session().create_client("stepfunctions", region_name="us-east-1")
    tokens = TaskTokens(client)
    with Stubber(client) as stub:
        stub.add_response("send_task_success", {}, {"taskToken": "t", "output": '{"missing": ""}'})
        assert tokens.succeed("t", {"missing": ""})
        stub.add_client_error("send_task_success", code)
        assert not tokens.succeed("t", {"missing": ""})
        stub.add_client_error("send_task_failure", code)
        assert not tokens.fail("t", error="InputsMissing", cause="no clicks")
        stub.add_client_error("send_task_failure", "AccessDeniedException")
        with pytest.raises(AccessDenied):
            tokens.fail("t", error="InputsMissing", cause="no clicks")


class Wakes:
    """Wake-ups that were requested."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def wake_source(self, source, hours=None):
        self.asked.append((source, hours and list(hours)))

    def wake_day(self, pipeline, date):
        self.asked.append((pipeline, date))


def test_a_run_that_has_published_wakes_the_runs_that_wait_for_its_day():
    world, wakes = counted_world(), Wakes()
    run = world.freeze(DATE)
    world.store.put(publication_uri(run.prefix), PUBLICATION.model_dump_json().encode())
    assert (
        record_run.recorder(
            resources_of({"intermediate_days": "1"}, store=world.store, run_table=world.table, wake_requests=wakes)
        ).wake_day
        == wakes.wake_day
    )

    def wake(pipeline, date):
        # The publication is stored before.
        assert world.table.day(pipeline, date).published is not None
        wakes.wake_day(pipeline, date)

    RunRecorder(store=world.store, table=world.table, now=world.now, wake_day=wake).record_published(run)
    assert wakes.asked == [(PIPELINE, DATE)]


def test_a_changed_hour_wakes_the_runs_that_wait_for_its_source():
    world, wakes = counted_world(), Wakes()
    for project in (world.project, waiting(world, inputs={"flights": "complete"}).project):
        resources = resources_of(
            {"raw_bucket": "raw", "exchange_bucket": "exchange"}, project=project, wake_requests=wakes,
            period_table=None, file_cache=None, store=None, clients=Mock(),
        )  # fmt: skip
        resources.period_folder.on_changed("flights", [START])
    assert wakes.asked == [("flights", [START])]


def test_objects_that_arrive_wake_the_runs_that_wait_for_their_hours():
    world, wakes = waiting(counted_world(), inputs={"flights": "complete"}), Wakes()
    resources = resources_of(
        {"monitor_machine": "m"}, project=world.project, run_table=world.table, state_machines=world.executions,
        wake_requests=wakes,
    )  # fmt: skip
    vars(world.executions)["start_once"] = lambda *_, **__: True
    checks = check_arrivals.arrival_checks(resources)
    assert isinstance(checks, ArrivalChecks)
    key = f"raw/source=flights/date={DATE}/hour=06/a.parquet"
    other = f"raw/source=weather/date={DATE}/hour=06/a.parquet"
    checks.start_checks({name: json.dumps({"id": name, "key": value}) for name, value in (("1", key), ("2", other))})
    assert wakes.asked == [("flights", [START + HOUR])]


def test_days_of_the_window_that_may_have_read_an_hour_with_a_verdict_are_checked(monkeypatch):
    world, sent = counted_world(), []
    resources = resources_of({}, project=world.project, arrivals=sent.extend, waits=Mock())
    monkeypatch.setattr("slackwater.aws.function_resources.utc_now", lambda: START + 48 * HOUR)
    monkeypatch.setattr(await_inputs, "function_resources", lambda: resources)
    given = START + 47 * HOUR
    event = requests()[-1] | {"periods": ["2013-03-08T06", "2013-02-01T06"], "name": "flights", "at": given.isoformat()}
    await_inputs.handler(event, None)
    await_inputs.handler(event, None)
    first, second = sent  # the days before the window wait for a person
    assert first == second
    body, seconds = first
    message = read_message(body)
    assert (message.pipeline, message.date, message.not_before, seconds) == (PIPELINE, DATE, given, 0)


def test_they_are_checked_now_although_the_clock_of_the_command_is_ahead(monkeypatch):
    world, sent, now = counted_world(), [], START + 48 * HOUR
    resources = resources_of({}, project=world.project, arrivals=sent.extend, waits=Mock())
    monkeypatch.setattr("slackwater.aws.function_resources.utc_now", lambda: now)
    resources.check_readers(Subject("source", "flights"), ["2013-03-08T06"], now + timedelta(minutes=4))
    [(body, _)] = sent
    assert read_message(body).not_before == now
