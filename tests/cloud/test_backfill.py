"""Backfills on the local cloud: how many days run at the same time, and what is left by a stop or a killed client."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.executions.state_machines import StateMachines
from slackwater.aws.objects import S3ObjectStore
from slackwater.client.days.backfill import Backfiller
from slackwater.client.days.executions import Executions
from slackwater.pipeline.retries import with_retries
from slackwater.project.project import load_definitions
from tests.cloud.roles import create_role
from tests.conftest import ROOT
from tests.fakes_runs import DictRunTable

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(600)]

PIPELINE = "daily_delays"
DAYS = ("2013-06-01", "2013-06-02")
"""Days without data, which no other test runs."""
BROKEN = "2013-01-02"
FOUR_DAYS = ("2013-01-01", BROKEN, "2013-01-03", "2013-01-04")
RUNS = {
    "QueryLanguage": "JSONata",
    "StartAt": "Wait",
    "States": {
        "Wait": {"Type": "Wait", "Seconds": 1, "Next": "Which"},
        "Which": {
            "Type": "Choice",
            "Choices": [
                {"Condition": f"{{% $states.input.date = '{BROKEN}' %}}", "Next": "Broken"},
                # The days around it run too, so it may run with another timezone.
                {"Condition": "{% $states.input.moves_hours %}", "Next": "Published"},
            ],
            "Default": "Broken",
        },
        "Broken": {"Type": "Fail", "Error": "RunFailed", "Cause": 'CloudError: "it" broke'},
        "Published": {"Type": "Pass", "Output": {"outcome": "published"}, "End": True},
    },
}


@pytest.fixture(scope="module")
def backfiller(cloud):
    """Runs backfills with the real state machine, whose pipeline is a stub without Spark."""
    states, role = cloud.client("stepfunctions"), create_role(cloud.client("iam"), "backfills", "states")

    def create(name, definition):
        return states.create_state_machine(name=name, definition=definition, roleArn=role)["stateMachineArn"]

    prefix = create(f"stub-backfilled-{PIPELINE}", json.dumps(RUNS)).removesuffix(PIPELINE)
    machine = with_retries(json.loads((ROOT / "step_functions" / "backfill.asl.json").read_text()))
    arn = create("stub-backfill", json.dumps(machine).replace("${PipelineMachinePrefix}", prefix))
    return Backfiller(
        project=load_definitions(Path(ROOT, "examples", "nyc_flights")),
        table=DictRunTable(),
        store=S3ObjectStore(cloud.client("s3")),
        executions=Executions(state_machines=StateMachines(states), correlation_id="c"),
        deployment=SimpleNamespace(
            backfill_machine_arn=arn,
            project_uri=cloud.outputs()["ProjectUri"],
            pipeline_machine_prefix=prefix,
            concurrent_runs=int(cloud.outputs()["ConcurrentRuns"]),
        ),
        decide=lambda *_: (),
    )


@pytest.mark.parametrize("parallel", [1, 2])
def test_no_more_days_run_at_the_same_time_than_asked_for_and_a_failed_day_stops_no_other(backfiller, parallel):
    plan = backfiller.plan(PIPELINE, FOUR_DAYS[0], FOUR_DAYS[-1], parallel=parallel, stale=False)
    seen = {}
    result = backfiller.run(plan, on_day=seen.__setitem__)
    outcomes = [(day.date, day.outcome, day.reason) for day in result.days]
    assert outcomes == [
        (date, "failed", 'CloudError: "it" broke') if date == BROKEN else (date, "published", "") for date in FOUR_DAYS
    ]
    assert result.failure == f"1 of 4 days of {PIPELINE} failed: {BROKEN}"
    views = [seen[date] for date in FOUR_DAYS]
    # Days that start together may do so in any order.
    assert all(earlier.started <= later.started for earlier, later in zip(views, views[parallel:], strict=False))
    # At the start of each day: how many days run. A day that ends at this instant does not.
    running = [sum(view.started <= start < view.ended for view in views) for start in (view.started for view in views)]
    assert max(running) == parallel
    failed = backfiller.executions.state_machines.failure_input(result.execution)["days"]
    assert failed[1] == {
        "date": BROKEN,
        "outcome": "failed",
        "error": "States.TaskFailed",
        "reason": 'CloudError: "it" broke',
    }


@pytest.fixture(scope="module")
def table(cloud):
    return DynamoRunTable(cloud.client("dynamodb"), cloud.outputs()["RunTable"])


@pytest.fixture(scope="module")
def continued(cloud, table):
    """A backfill that was stopped, then continued by a client that was killed, then continued to its end.

    The error output of the stopped client, the executions after the stop, and the document of the last command.
    """
    command = ("run", PIPELINE, "--from", DAYS[0], "--to", DAYS[-1])
    earlier = len(backfills(cloud))
    stopped = cloud.process(*command)
    wait_for(lambda: job_states(cloud) == ["RUNNING"])
    stopped.send_signal(signal.SIGINT)
    _, errors = stopped.communicate(timeout=120)
    assert stopped.returncode == 130, errors
    after = SimpleNamespace(errors=errors, backfills=backfills(cloud, earlier), days=runs_of_days(cloud))
    wait_for(lambda: job_states(cloud) == ["CANCELLED"])
    killed = cloud.process(*command)
    wait_for(lambda: (day := table.day(PIPELINE, DAYS[0])).active and day.attempts == 2)
    killed.kill()
    killed.communicate(timeout=60)
    return SimpleNamespace(stopped=after, last=cloud.json(*command), earlier=earlier)


def test_an_interrupted_backfill_stops_its_running_day_starts_no_other_and_prints_how_to_continue(cloud, continued):
    assert continued.stopped.backfills == ["ABORTED"]
    assert continued.stopped.days == [(DAYS[0], "ABORTED")]
    command = f"slackwater run {PIPELINE} --from {DAYS[0]} --to {DAYS[-1]} --project {cloud.project}"
    assert f"To continue:\n  {command}\n" in continued.stopped.errors
    assert "Traceback" not in continued.stopped.errors


def test_a_killed_client_leaves_its_backfill_running_and_the_next_one_runs_no_day_twice(cloud, table, continued):
    days = {day["date"]: (day["kind"], day["outcome"]) for day in continued.last["days"]}
    assert days[DAYS[0]] == ("claimed", "claimed")
    # The backfill of the killed client may come to the last day first.
    assert days[DAYS[1]] in {("missing", "published"), ("missing", "unchanged")}
    wait_for(lambda: Counter(backfills(cloud, continued.earlier)) == {"ABORTED": 1, "SUCCEEDED": 2})
    states = {date: [run.state.value for run in table.runs(PIPELINE, date)] for date in DAYS}
    assert states == {DAYS[0]: ["failed", "published"], DAYS[1]: ["published"]}
    assert Counter(job_states(cloud)) == {"CANCELLED": 1, "SUCCESS": 2}


def test_a_stale_day_is_published_again_with_the_identity_of_what_is_deployed(cloud, table, continued):
    wait_for(lambda: all(table.day(PIPELINE, date).published for date in DAYS))
    day, jobs = table.day(PIPELINE, DAYS[1]), len(cloud.jobs())
    older = day.published.run.model_copy(update={"run_id": "0" * 32})
    table.save(day.model_copy(update={"published": day.published.model_copy(update={"run": older})}))
    command = ("run", PIPELINE, "--from", DAYS[0], "--to", DAYS[-1])
    untouched = cloud.json(*command)
    assert (untouched["days"], untouched["execution"], len(cloud.jobs())) == ([], None, jobs)
    again = cloud.json(*command, "--stale")
    assert [(item["date"], item["kind"], item["outcome"]) for item in again["days"]] == [
        (DAYS[1], "stale", "published")
    ]
    assert (again["estimate"]["runs"] >= 2, again["estimate"]["seconds"] > 0, len(cloud.jobs())) == (
        True,
        True,
        jobs + 1,
    )
    assert table.day(PIPELINE, DAYS[1]).published.run.run_id == day.published.run.run_id


def executions(cloud, machine):
    """The name and the status of each execution of a machine, the latest one first."""
    pages = cloud.client("stepfunctions").get_paginator("list_executions").paginate(stateMachineArn=machine)
    return [(item["name"], item["status"]) for page in pages for item in page["executions"]]


def backfills(cloud, earlier=0):
    """The statuses of the executions of backfills, without those of other tests, which came `earlier`."""
    statuses = [status for _, status in executions(cloud, cloud.outputs()["BackfillMachineArn"])]
    return statuses[: len(statuses) - earlier]


def runs_of_days(cloud):
    """The days that executions of the pipeline were started for, with their statuses."""
    runs = executions(cloud, f"{cloud.outputs()['PipelineMachinePrefix']}{PIPELINE}")
    return [(name[:10], status) for name, status in runs if name.startswith(DAYS)]


def job_states(cloud):
    """The states of the jobs of these days."""
    return [
        job["state"] for job in cloud.jobs() if job["name"].startswith(tuple(f"{PIPELINE} {date}" for date in DAYS))
    ]


def wait_for(condition):
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
