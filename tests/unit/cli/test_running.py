"""Following executions, reading their results, and the logs of their Spark jobs."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta

import pytest

from slackwater.arrow.reference import ArrowReference
from slackwater.aws.job_logs import JobLogs
from slackwater.aws.machines import Machines
from slackwater.cli.progress import ProgressBoard
from slackwater.cli.running import Runner, RunSeconds, show_states, start_pull
from slackwater.errors import CloudError, RunFailed
from slackwater.runs.record import Publication, Run, RunRecord, RunState, StageRecord
from tests.fakes_cli import BEGIN, FakeEmr, FakeObjects, FakeStates, Pages

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

    def run(self, pipeline, date, attempt):
        assert (pipeline, date, attempt) == ("daily_delays", "2013-03-10", 2)
        reference = ArrowReference(manifest="s3://x/p/joined/manifest.json", rows=9, bytes=9, files=1, seconds=3.0)
        stages = (StageRecord(stage="joined", reference=reference),)
        return RunRecord(run=RUN, state=RunState.PUBLISHED, execution="arn:e", started_at=BEGIN, stages=stages)


def output(outcome):
    return {"outcome": outcome, "run": RUN.model_dump(), "publication": PUBLICATION.model_dump()}


def runner(states):
    return Runner(machines=Machines(states), table=Table(), prefix="arn:machine:slackwater-pipeline-")


def followed(states):
    waits = []
    views = list(Machines(states).follow(["arn:e"], sleep=waits.append))
    return views, waits


def test_every_run_has_a_name_of_its_own():
    states = FakeStates()
    first, second = (runner(states).start("daily_delays", "2013-03-10", force=force) for force in (False, True))
    call, forced = states.started
    payload = json.loads(call["input"])
    assert call["stateMachineArn"] == "arn:machine:slackwater-pipeline-daily_delays"
    assert call["name"] == f"2013-03-10-{payload.pop('correlation_id')}"
    assert payload == {"date": "2013-03-10", "force": False, "allow_fewer": False}
    assert json.loads(forced["input"])["force"] is True
    assert first != second


def test_a_pull_is_started_with_its_date():
    states = FakeStates()
    start_pull(Machines(states), "arn:pull", source="flights", as_of=None)
    start_pull(Machines(states), "arn:pull", source="flights", as_of="2013-03-12")
    assert [json.loads(call["input"])["as_of"] for call in states.started] == [None, "2013-03-12"]


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
    views = list(Machines(FakeStates(scripts)).follow(["arn:a", "arn:b"], sleep=lambda _: None))
    assert [(view.arn, view.over) for view in views] == [
        ("arn:a", False), ("arn:b", True), ("arn:a", False), ("arn:a", True),
    ]  # fmt: skip


def test_the_seconds_of_a_published_run_are_broken_down():
    states = FakeStates({"arn:e": [("SUCCEEDED", STATES)]}, services=SERVICES, output=output("published"))
    result = runner(states).result(followed(states)[0][-1])
    assert (result.outcome, result.run, result.publication) == ("published", RUN, PUBLICATION)
    assert result.seconds == RunSeconds(total=60.0, spark_start=13.0, spark_work=5.0, orchestration=42.0)


def test_the_seconds_of_an_unchanged_run_are_a_total():
    states = FakeStates({"arn:e": [("SUCCEEDED", STATES[:2])]}, output=output("unchanged"))
    result = runner(states).result(followed(states)[0][-1])
    assert result.outcome == "unchanged"
    assert result.seconds == RunSeconds(total=20.0)


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
        runner(states).result(followed(states)[0][-1])


def test_completed_states_and_the_failed_state_are_shown(capsys):
    failed = [*STATES[:2], "Run joined!", "Record the failure", "Fail the run…"]
    states = FakeStates({"arn:e": [("RUNNING", ["Freeze inputs…"]), ("FAILED", failed)]}, types=TYPES)
    with ProgressBoard() as progress:
        for view in Machines(states).follow(["arn:e"], sleep=lambda _: None):
            show_states(progress, view)
    assert capsys.readouterr().err.splitlines() == [
        "Freeze inputs: running",
        "Freeze inputs: done 9.0 s",
        "Run joined: failed 9.0 s",
        "Record the failure: done 9.0 s",
    ]


def test_states_that_only_choose_or_end_are_not_shown(capsys):
    names = ["Freeze inputs", "Decide what to do", "Wait for the other execution", "Finish"]
    states = FakeStates({"arn:e": [("SUCCEEDED", names)]}, types={**TYPES, "Finish": "Succeed"})
    with ProgressBoard() as progress:
        show_states(progress, followed(states)[0][-1])
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "Freeze inputs",
        "Wait for the other execution",
    ]


def test_the_input_of_the_state_that_failed_the_execution_is_read():
    entered = {"type": "FailStateEntered", "stateEnteredEventDetails": {"name": "Fail", "input": '{"days": [1]}'}}
    task = {"type": "TaskStateEntered", "stateEnteredEventDetails": {"name": "Task", "input": '{"a": 1}'}}
    states = FakeStates()
    states.get_paginator = lambda _: Pages([{"events": [{"type": "ExecutionFailed"}, entered]}, {"events": [task]}])
    assert Machines(states).failure_input("arn:e") == {"days": [1]}
    states.get_paginator = lambda _: Pages([{"events": [{"type": "ExecutionAborted"}, task]}])
    assert Machines(states).failure_input("arn:e") == {}


def test_a_state_entered_again_is_shown_again(capsys):
    waited = ["Freeze inputs", "Wait for the other execution", "Freeze inputs"]
    states = FakeStates({"arn:e": [("SUCCEEDED", waited)]})
    with ProgressBoard() as progress:
        show_states(progress, followed(states)[0][-1])
    assert "Freeze inputs (2): done 9.0 s" in capsys.readouterr().err


def job(number, name, state="SUCCESS"):
    created = BEGIN + timedelta(minutes=number)
    return {"id": f"job{number}", "name": name, "state": state, "createdAt": created, "stateDetails": "why"}


JOBS = [
    job(3, "daily_delays 2013-03-10 publish", "FAILED"),
    job(1, "daily_delays 2013-03-10 joined"),
    job(2, "daily_delays 2013-03-1 joined"),
    job(4, "daily_delays_more 2013-03-10 joined"),
]
LOG = "s3://exchange/logs/applications/app/jobs/job3/SPARK_DRIVER/stderr.gz"


def logs(objects):
    return JobLogs(emr=FakeEmr(JOBS), store=FakeObjects(objects), application="app", prefix="s3://exchange/logs/")


def test_the_jobs_of_a_day_are_selected_by_name_and_listed_oldest_first():
    jobs = logs({}).jobs("daily_delays", "2013-03-10")
    assert [(item.id, item.failed) for item in jobs] == [("job1", False), ("job3", True)]


def test_the_drivers_log_is_read():
    log = logs({LOG: gzip.compress("Exception: wörter\n".encode())})
    assert log.driver_log(log.jobs("daily_delays", "2013-03-10")[-1]) == "Exception: wörter\n"


def test_a_missing_log_is_named():
    log = logs({})
    with pytest.raises(CloudError, match=r"job3 \(daily_delays 2013-03-10 publish, failed\) has no log at s3://"):
        log.driver_log(log.jobs("daily_delays", "2013-03-10")[-1])
