"""Runs: starting, waiting, their results and tables; following executions; the logs of Spark jobs."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pytest

from slackwater import Client
from slackwater.arrow.reference import ArrowReference
from slackwater.aws.executions.job_logs import JobLogs
from slackwater.aws.executions.state_machines import StateMachines, StateView
from slackwater.client.days import runs
from slackwater.client.days.runs import RunSeconds, run_result
from slackwater.errors import CloudError, InputError, PullFailed, RunFailed, StillRunning, UnknownName
from slackwater.runs.inputs.input_definition import InputDefinition
from slackwater.runs.record import DayRecord, Hold, Publication, Resolution, Run, RunRecord, RunState, StageRecord
from tests.example_project import example_project
from tests.fakes_cli import BEGIN, FakeEmr, FakeObjects, FakeStates, Pages, a_client

pytestmark = pytest.mark.unit

RUN = Run(
    pipeline="daily_delays", date="2013-03-10", run_id="ab" * 16, attempt=2, correlation_id="c", manifest="s3://x/m",
    prefix="s3://x/p/", files=3, rows=900, bytes=5000,
)  # fmt: skip
PUBLICATION = Publication(table="warehouse.db.daily_delays", snapshot_id="1", rows=29, replaced=0, seconds=2.0)
STATES = ["Freeze inputs", "Decide what to do", "Run joined", "Record joined", "Run last", "Record the publication"]
TYPES = {"Decide what to do": "Choice", "Wait for the other execution": "Wait", "Fail the run": "Fail"}
SERVICES = {"Run joined": "emr-serverless", "Run last": "emr-serverless"}


class Table:
    """A run table with one run, whose only stage took three seconds."""

    def __init__(self, run=RUN, hold=None, resolution=None):
        self._run, self._hold, self._resolution = run, hold, resolution

    def day(self, pipeline, date):
        return DayRecord(pipeline=pipeline, date=date, hold=self._hold, resolution=self._resolution)

    def run(self, pipeline, date, attempt):
        assert (pipeline, date, attempt) == ("daily_delays", "2013-03-10", 2)
        reference = ArrowReference(manifest="s3://x/p/joined/manifest.json", rows=9, bytes=9, files=1, seconds=3.0)
        stages = (StageRecord(stage="joined", reference=reference),)
        reads = InputDefinition(timezone="America/New_York", sources=("flights", "weather"), tables=())
        return RunRecord(
            run=self._run, state=RunState.PUBLISHED, execution="arn:e", started_at=BEGIN, stages=stages, reads=reads
        )


def output(outcome, run=RUN):
    return {"outcome": outcome, "run": run.model_dump(mode="json"), "publication": PUBLICATION.model_dump(mode="json")}


def client(states, correlation_id="c"):
    """A client of the example's project, over these executions."""
    deployment = SimpleNamespace(
        pipeline_machine_prefix="arn:machine:slackwater-pipeline-", pull_machine_arn="arn:pull", compare_machine_arn="x"
    )
    warehouse = SimpleNamespace(version=lambda pipeline, **version: (pipeline, version))
    return a_client(
        example_project(),
        deployment=deployment,
        clients={"stepfunctions": states},
        run_table=Table(),
        warehouse=warehouse,
    )


def followed(states):
    waits = []
    views = list(StateMachines(states).follow(["arn:e"], sleep=waits.append))
    return views, waits


def test_every_run_has_a_name_of_its_own_and_the_correlation_id_of_the_client():
    states = FakeStates()
    first, second, _ = (
        client(states).run("daily_delays", day, **options)
        for day, options in (
            ("2013-03-10", {}),
            (date(2013, 3, 10), {"force": True}),
            ("2013-03-10", {"profile": True}),
        )
    )
    call, forced, profiled = states.started
    assert call["stateMachineArn"] == "arn:machine:slackwater-pipeline-daily_delays"
    assert call["name"].startswith("2013-03-10-c-")
    payload = {"date": "2013-03-10", "force": False, "correlation_id": "c"}
    assert json.loads(call["input"]) == payload
    assert json.loads(forced["input"]) == payload | {"force": True}
    assert json.loads(profiled["input"]) == payload | {"profile": True}
    assert first.execution != second.execution


def test_a_run_waits_for_its_inputs_if_a_person_asks_for_it():
    states = FakeStates()
    client(states).run("weekly_delays", "2013-03-10")
    client(states).run("weekly_delays", "2013-03-10", wait_for_inputs=True)
    assert [json.loads(call["input"]).get("wait") for call in states.started] == [None, True]


def test_waiting_for_inputs_is_no_work_of_a_run():
    begin, hour = BEGIN, timedelta(hours=1)
    states = [
        StateView(name="Wait for the inputs", entered=begin, service="lambda", exited=begin + hour),
        StateView(name="Run all", entered=begin + hour, service="emr-serverless", exited=begin + hour * 1.005),
    ]
    seconds = runs.run_seconds(3600 + 18 + 2, states, work=10)
    assert seconds == RunSeconds(total=3620, spark_start=8, spark_work=10, orchestration=2)


def test_a_pull_is_started_with_its_date():
    states = FakeStates()
    for as_of in (None, "2013-03-12", date(2013, 3, 12)):
        with pytest.raises(KeyError):  # this cloud does not know the execution
            client(states).pull("flights", as_of=as_of)
    assert [json.loads(call["input"])["as_of"] for call in states.started] == [None, "2013-03-12", "2013-03-12"]


def test_a_pull_that_fails_has_its_totals(monkeypatch):
    totals = {"source": "flights", "stored": 2, "failed": 1}
    for error, expected in (("FilesFailed", PullFailed), ("States.Timeout", RunFailed)):
        states = FakeStates({"arn:e": [("FAILED", ["List files"])]}, error=error, cause="1 of 3 files")
        monkeypatch.setattr(FakeStates, "start_execution", lambda *_, **__: {"executionArn": "arn:e"})
        monkeypatch.setattr(StateMachines, "failure_input", lambda *_: totals)
        with pytest.raises(expected, match="1 of 3 files") as raised:
            client(states).pull("flights")
        assert getattr(raised.value, "totals", None) == (totals if expected is PullFailed else None)


def test_the_reason_of_a_failed_pull_has_its_characters(monkeypatch):
    cause = json.dumps("no 'Ticket Nº' 🥐").strip('"') + r" cut \ud83e"
    states = FakeStates({"arn:e": [("FAILED", ["List files"])]}, error="FilesFailed", cause=cause)
    monkeypatch.setattr(FakeStates, "start_execution", lambda *_, **__: {"executionArn": "arn:e"})
    monkeypatch.setattr(StateMachines, "failure_input", lambda *_: {})
    with pytest.raises(PullFailed) as raised:
        client(states).pull("flights")
    assert str(raised.value) == r"no 'Ticket Nº' 🥐 cut \ud83e"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c: c.run("nothing", "2013-03-10"), UnknownName, "no pipeline 'nothing'"),
        (lambda c: c.run("daily_delays", "20130310"), InputError, "^date: '20130310' is not a date"),
        (lambda c: c.run("daily_delays", "2013-03-10", wait_for_inputs=True), InputError, "waits for nothing"),
        (lambda c: c.run("daily_delays", BEGIN), InputError, "^date: datetime.* is not a date"),
        (lambda c: c.pull("weather"), InputError, "'weather' is not pulled"),
        (lambda c: c.pull("flights", as_of="today"), InputError, "^as_of: 'today' is not a date"),
        (lambda c: c.files("weather"), InputError, "'weather' is not pulled"),
        (lambda c: c.files("flights", state="lost"), InputError, "^state: 'lost' is not one of listed, "),
        (lambda c: c.push("flights", []), InputError, "'flights' is not pushed"),
        (lambda c: c.push("weather", [{"at": object()}]), InputError, "event 0 cannot be sent as JSON"),
        (lambda c: c.refs("nothing", "2013-03-10"), UnknownName, "no pipeline 'nothing'"),
        (lambda c: c.monitor("nothing"), UnknownName, "no pipeline 'nothing'"),
        (lambda c: c.compare("daily_delays", ""), InputError, "^date: '' is not a date"),
        (lambda c: c.query("SELECT 1; SELECT 2"), InputError, "one statement"),
    ],
)
def test_a_wrong_argument_is_named_and_starts_nothing(call, error, message):
    states = FakeStates()
    calling = client(states)
    calling.connection.deployment.api_url, calling.tokens, calling.file_cache, calling.http = "http://x", 0, 0, 0
    with pytest.raises(error, match=message):
        call(calling)
    assert states.started == []


@pytest.mark.parametrize("correlation_id", ["", "a b", "a/b", "x" * 56, "a\n"])
def test_a_correlation_id_fits_into_names_headers_and_tags(correlation_id):
    with pytest.raises(InputError, match=r"^correlation_id: "):
        Client(correlation_id=correlation_id)


def started(*script, **end):
    """A run whose execution follows the script."""
    states = FakeStates(services=SERVICES, **end)
    handle = client(states).run("daily_delays", "2013-03-10")
    states.scripts[handle.execution] = list(script)
    return handle


def test_a_handle_shows_the_state_of_the_run_and_its_result_when_it_has_ended():
    handle = started(
        ("RUNNING", STATES[:1]), ("RUNNING", STATES[:2]), ("SUCCEEDED", STATES), output=output("published")
    )
    assert handle.state is RunState.RUNNING
    with pytest.raises(StillRunning, match=r"daily_delays for 2013-03-10 has not ended: call wait\(\)"):
        _ = handle.result
    # The script has ended: from here on, nothing asks for the execution again.
    assert handle.wait() is handle.result
    assert (handle.result.run, handle.state) == (RUN, RunState.PUBLISHED)
    assert handle.table().to_arrow() == ("daily_delays", {"date": "2013-03-10", "tag": RUN.tag})


def test_waiting_ends_after_its_timeout_and_the_run_goes_on():
    handle = started(*[("RUNNING", STATES[:1])] * 9, ("SUCCEEDED", STATES), output=output("unchanged"))
    for timeout in (0, 0.01):
        with pytest.raises(TimeoutError, match=f"has not ended after {timeout} s"):
            handle.wait(timeout)
    assert handle.state is RunState.RUNNING


def test_a_failed_run_raises_its_reason_every_time():
    handle = started(("FAILED", STATES[:3]), error="RunFailed", cause="no such column")
    for call in (handle.wait, handle.wait, lambda: handle.result, handle.table):
        with pytest.raises(RunFailed, match=r"^no such column$"):
            call()
    assert handle.state is RunState.FAILED


def test_several_runs_are_followed_together():
    states = FakeStates(output=output("published"))
    following = client(states)
    handles = [following.run("daily_delays", day) for day in ("2013-03-09", "2013-03-10")]
    states.scripts = {handle.execution: [("SUCCEEDED", STATES)] for handle in handles}
    assert [(handle.date, view.over) for handle, view in following.follow(handles)] == [
        ("2013-03-09", True), ("2013-03-10", True),
    ]  # fmt: skip


def test_an_execution_is_polled_until_it_has_ended_at_growing_intervals():
    script = [("RUNNING", ["Freeze inputs…"])] * 80 + [("SUCCEEDED", STATES)]
    views, waits = followed(FakeStates({"arn:e": script}, output=output("published")))
    assert [view.over for view in views] == [False] * 80 + [True]
    assert views[0].current.name == "Freeze inputs"
    assert views[-1].current is None
    assert [state.name for state in views[-1].states] == STATES
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.5, 3.0)


def test_several_executions_are_followed_together():
    scripts = {
        "arn:a": [("RUNNING", STATES[:1])] * 2 + [("SUCCEEDED", STATES)],
        "arn:b": [("SUCCEEDED", STATES)],
    }
    views = list(StateMachines(FakeStates(scripts)).follow(["arn:a", "arn:b"], sleep=lambda _: None))
    assert [(view.arn, view.over) for view in views] == [
        ("arn:a", False), ("arn:b", True), ("arn:a", False), ("arn:a", True),
    ]  # fmt: skip


def test_the_seconds_of_a_published_run_are_broken_down():
    states = FakeStates({"arn:e": [("SUCCEEDED", STATES)]}, services=SERVICES, output=output("published"))
    result = run_result(followed(states)[0][-1], Table())
    assert (result.outcome, result.run, result.publication) == ("published", RUN, PUBLICATION)
    assert result.seconds == RunSeconds(total=60.0, spark_start=13.0, spark_work=5.0, orchestration=42.0)


def test_the_seconds_of_an_unchanged_run_are_a_total():
    states = FakeStates({"arn:e": [("SUCCEEDED", STATES[:2])]}, output=output("unchanged"))
    result = run_result(followed(states)[0][-1], Table())
    assert result.outcome == "unchanged"
    assert result.seconds == RunSeconds(total=20.0)


def notes(run=RUN, **day):
    states = FakeStates({"arn:e": [("SUCCEEDED", STATES[:2])]}, output=output("unchanged", run))
    return run_result(followed(states)[0][-1], Table(run, **day)).notes


def test_a_run_of_a_day_that_has_not_ended_says_so(monkeypatch):
    text = (
        "2013-03-10 in America/New_York has not ended: its later events are late data, and a check runs the day again"
    )
    for now, expected in (("2013-03-11T03:59Z", (text,)), ("2013-03-11T04:00Z", ())):
        monkeypatch.setattr(runs, "utc_now", lambda now=now: datetime.fromisoformat(now))
        assert notes() == expected


def test_a_run_of_an_open_day_that_is_provisional_says_so():
    provisional = RUN.model_copy(update={"through": datetime(2013, 3, 10, 12, tzinfo=UTC)})
    assert notes(provisional) == (
        "2013-03-10 in America/New_York had not ended: the version is provisional, and is replaced when more events "
        "have come",
    )


def test_a_last_run_without_a_job_has_no_seconds_of_spark():
    states = FakeStates({"arn:e": [("SUCCEEDED", STATES[:2])]}, output=output("published"))
    assert run_result(followed(states)[0][-1], Table()).seconds == RunSeconds(total=20.0)


def test_a_run_without_events_says_so_and_how_to_see_which_days_have_some():
    assert notes(RUN.model_copy(update={"rows": 0})) == (
        "the inputs have no event of 2013-03-10 in America/New_York. The days that they have (UTC):\n"
        '  slackwater query "SELECT date, count(*) FROM raw.flights GROUP BY date"\n'
        '  slackwater query "SELECT date, count(*) FROM raw.weather GROUP BY date"',
    )


def test_a_run_of_a_day_that_stays_on_hold_names_the_hold():
    assert notes(hold=Hold(rule="audit", reason="too few rows", since=BEGIN, inputs="", execution="e")) == (
        "the day is on hold (audit): too few rows\n"
        "  slackwater late release daily_delays --date 2013-03-10 --reason TEXT, or slackwater late keep",
    )


@pytest.mark.parametrize(
    ("action", "after", "is_named"), [("ended", 0, True), ("ended", -1, False), ("released", 0, False)]
)
def test_a_run_names_the_hold_that_it_has_ended(action, after, is_named):
    at = BEGIN + timedelta(seconds=after)
    resolution = Resolution(action=action, reason="the file is back", principal="", at=at)
    assert notes(resolution=resolution) == (("the day is no longer on hold: the file is back",) if is_named else ())


@pytest.mark.parametrize(
    ("status", "error", "cause", "expected"),
    [
        ("FAILED", "RunFailed", "AnalysisException: no_such_column", "^AnalysisException: no_such_column$"),
        ("FAILED", "InputError", '{"errorMessage": "date: no", "errorType": "InputError"}', "^InputError: date: no$"),
        ("FAILED", "States.Timeout", "", "^States.Timeout: no cause was given$"),
        ("ABORTED", "", "", "^its execution was stopped$"),
        ("TIMED_OUT", "", "", "^TIMED_OUT: no cause was given$"),
    ],
)
def test_the_error_of_a_failed_run_is_one_line(status, error, cause, expected):
    states = FakeStates({"arn:e": [(status, STATES[:3])]}, error=error, cause=cause)
    with pytest.raises(RunFailed, match=expected):
        run_result(followed(states)[0][-1], Table())


def test_the_input_of_the_state_that_failed_the_execution_is_read():
    entered = {"type": "FailStateEntered", "stateEnteredEventDetails": {"name": "Fail", "input": '{"days": [1]}'}}
    task = {"type": "TaskStateEntered", "stateEnteredEventDetails": {"name": "Task", "input": '{"a": 1}'}}
    states = FakeStates()
    states.get_paginator = lambda _: Pages([{"events": [{"type": "ExecutionFailed"}, entered]}, {"events": [task]}])
    assert StateMachines(states).failure_input("arn:e") == {"days": [1]}
    states.get_paginator = lambda _: Pages([{"events": [{"type": "ExecutionAborted"}, task]}])
    assert StateMachines(states).failure_input("arn:e") == {}


def job(number, name, state="SUCCESS"):
    created = BEGIN + timedelta(minutes=number)
    return {"id": f"job{number}", "name": name, "state": state, "createdAt": created, "stateDetails": "why"}


JOBS = [
    job(3, "daily_delays 2013-03-10 publish", "FAILED"),
    job(1, "daily_delays 2013-03-10 joined"),
    job(2, "daily_delays 2013-03-1 joined"),
    job(2, "daily_delays_more 2013-03-10 joined"),
    job(4, "daily_delays 2013-03-10 publish"),
    job(0, "daily_delays 2013-03-10 joined"),
]
LOG = "s3://exchange/logs/applications/app/jobs/job3/SPARK_DRIVER/stderr.gz"


DAY = {"since": BEGIN + timedelta(minutes=1), "until": BEGIN + timedelta(minutes=3)}


def logs(objects):
    return JobLogs(emr=FakeEmr(JOBS), store=FakeObjects(objects), application="app", prefix="s3://exchange/logs/")


def test_the_jobs_of_a_day_are_selected_by_name_and_listed_oldest_first():
    jobs = logs({}).jobs("daily_delays", "2013-03-10", **DAY)
    assert [(item.id, item.stage, item.failed) for item in jobs] == [
        ("job1", "joined", False),
        ("job3", "publish", True),
    ]


def test_the_drivers_log_is_read_and_a_missing_one_is_named():
    log = logs({LOG: gzip.compress("Exception: wörter\n".encode())})
    assert log.driver_log(log.jobs("daily_delays", "2013-03-10", **DAY)[-1]) == "Exception: wörter\n"
    log.store.clear()
    with pytest.raises(CloudError, match=r"job3 \(daily_delays 2013-03-10 publish, failed\) has no log at s3://"):
        log.driver_log(log.jobs("daily_delays", "2013-03-10", **DAY)[-1])
