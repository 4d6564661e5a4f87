"""Stopping a run: its execution, its Spark jobs, its record, and what the command prints."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from slackwater.aws.executions.job_logs import JobLogs
from slackwater.aws.executions.state_machines import StateMachines
from slackwater.client.client import Client
from slackwater.client.days import stop
from slackwater.errors import DayChanged, InputError
from slackwater.runs.record import RunState
from slackwater.state.waits import DayKey, WaitingRun
from tests.example_project import PROJECT, example_project
from tests.fakes_check import PIPELINE, World
from tests.fakes_cli import a_client, use_client
from tests.fakes_waits import MemoryWaits

pytestmark = pytest.mark.unit

DATE = "2013-03-10"
STOPPED = "Stopped: it was stopped with slackwater stop"


class Cloud:
    """Step Functions and EMR Serverless with one execution, and jobs that it cancels after so many listings."""

    def __init__(self, world, *states, cancels_after=1):
        self.stopped, self.cancelled, self.listed, self.cancels_after = [], [], 0, cancels_after
        self.jobs = [
            {"id": str(number), "name": f"{PIPELINE} {DATE} stage{number}", "state": state, "createdAt": world.now()}
            for number, state in enumerate(states)
        ]

    def stop_execution(self, *, executionArn, error, cause):  # noqa: N803
        self.stopped.append((executionArn, error, cause))

    def describe_execution(self, *, executionArn):  # noqa: N803
        is_over = executionArn == "over" or executionArn in {execution for execution, _, _ in self.stopped}
        return {"status": "ABORTED" if is_over else "RUNNING"}

    def get_paginator(self, _):
        return self

    def paginate(self, **_):
        self.listed += 1
        if self.listed > self.cancels_after:
            self._cancel(lambda job: job["state"] == "RUNNING")
        return [{"jobRuns": [dict(job) for job in self.jobs]}]

    def cancel_job_run(self, *, jobRunId, **_):  # noqa: N803
        self.cancelled.append(jobRunId)
        if self.jobs[int(jobRunId)]["state"] == "SUCCESS":
            raise ClientError({"Error": {"Code": "ValidationException", "Message": "ended"}}, "CancelJobRun")
        self._cancel(lambda job: job["id"] == jobRunId)

    def _cancel(self, chosen):
        for job in filter(chosen, self.jobs):
            job["state"] = "CANCELLED"


@pytest.fixture
def world(monkeypatch):
    world = World()
    monkeypatch.setattr("slackwater.client.day_client.utc_now", world.now)
    monkeypatch.setattr(stop.time, "sleep", lambda _: None)
    for hour in ("12", "13"):
        world.add("flights", DATE, hour)
    return world


def client_of(world, cloud, waits=None, **resources):
    logs = JobLogs(emr=cloud, store=world.store, application="a", prefix="s3://logs/")
    return a_client(
        world.project,
        run_table=world.table,
        store=world.store,
        state_machines=StateMachines(cloud),
        logs=logs,
        wait_table=waits or MemoryWaits(),
        **{"settings": SimpleNamespace(lineage_function=""), **resources},
    )


def waiting(world, *executions):
    """Return the table of waiting runs with these executions of the day."""
    waits = MemoryWaits()
    for execution in executions:
        waits.put_wait(WaitingRun(PIPELINE, DATE, execution, f"token-{execution}", world.now()))
    return waits


def test_a_run_is_stopped_with_its_jobs_and_the_day_runs_again(world):
    world.publish(DATE)
    run = world.freeze(DATE, force=True)
    cloud = Cloud(world, "SUCCESS", "RUNNING")
    stopped = client_of(world, cloud).stop(run.run_id[:12])
    assert cloud.stopped == [("run", "Stopped", "it was stopped with slackwater stop")]
    assert ([job.id for job in stopped.cancelled], cloud.cancelled) == (["1"], [])
    assert (stopped.run, stopped.state, stopped.error) == (run, RunState.FAILED, STOPPED)
    assert (stopped.published_attempt, stopped.may_have_published) == (1, True)  # its only stage is the last one
    day, record = world.table.day(PIPELINE, DATE), world.table.run(PIPELINE, DATE, 2)
    assert (day.active, day.published.run.attempt, day.hold) == (None, 1, None)
    assert (record.state, record.error, record.ended_at) == (RunState.FAILED, STOPPED, world.now())
    assert world.publish(DATE).attempt == 3


def test_output_is_json_also_if_the_caller_may_not_have_lineage_sent(world, monkeypatch, printed_by, caplog):
    def refuse(**_):
        raise EndpointConnectionError(endpoint_url="https://lambda.example")

    run = world.freeze(DATE)
    resources = {
        "settings": SimpleNamespace(lineage_function="f"),
        "clients": {"lambda": SimpleNamespace(invoke=refuse)},
    }
    use_client(monkeypatch, client_of(world, Cloud(world), **resources))
    shown = printed_by("stop", run.run_id, "--json", *PROJECT)
    assert json.loads(shown.out)["state"] == "failed"
    assert "no lineage of the run is sent: " in caplog.text


def test_jobs_that_step_functions_does_not_cancel_are_cancelled(world):
    world.freeze(DATE)
    cloud = Cloud(world, "RUNNING", "CANCELLING", "QUEUED", cancels_after=10**6)
    stopped = client_of(world, cloud).stop(PIPELINE, date=DATE)
    assert (cloud.cancelled, [job.id for job in stopped.cancelled]) == (["0", "2"], ["0", "1", "2"])
    assert stopped.published_attempt == 0


def test_a_run_that_publishes_before_it_is_stopped_stays_published(world, monkeypatch, printed_by):
    run = world.freeze(DATE)
    cloud = Cloud(world)
    monkeypatch.setattr(cloud, "stop_execution", lambda **_: world.publish(DATE))  # its function still works
    use_client(monkeypatch, client_of(world, cloud))
    shown = printed_by("stop", run.run_id, *PROJECT, code=1)
    assert shown.err.endswith(f"{PIPELINE} {DATE}, attempt 1: it was published before it was stopped\n")
    assert world.table.day(PIPELINE, DATE).published.run == run


def test_a_run_whose_function_writes_at_the_same_time_is_recorded_once(world, monkeypatch):
    world.freeze(DATE)
    save, refused = world.table.save, iter([True, True, False])

    def conflicting(*records):
        if next(refused):
            raise DayChanged("another write")
        save(*records)

    monkeypatch.setattr(world.table, "save", conflicting)
    assert client_of(world, Cloud(world)).stop(PIPELINE, date=DATE).error == STOPPED
    monkeypatch.setattr(world.table, "save", save)
    world.freeze(DATE)
    monkeypatch.setattr(world.table, "save", lambda *_: (_ for _ in ()).throw(DayChanged("another write")))
    with pytest.raises(DayChanged, match="kept changing while its run was stopped: stop it again"):
        client_of(world, Cloud(world)).stop(PIPELINE, date=DATE)


def test_a_run_whose_execution_was_lost_is_recorded_as_stopped(world):
    world.freeze(DATE)

    def ended(**_):
        raise ClientError({"Error": {"Code": "ExecutionDoesNotExist", "Message": "?"}}, "StopExecution")

    cloud = Cloud(world)
    cloud.stop_execution = ended
    assert client_of(world, cloud).stop(PIPELINE, date=DATE).error == STOPPED
    assert world.table.day(PIPELINE, DATE).active is None


def test_a_run_that_has_ended_is_an_error_and_stops_nothing(world):
    run = world.publish(DATE)
    cloud = Cloud(world)
    with pytest.raises(InputError, match=f"attempt 1 of {PIPELINE} for {DATE} has ended: published$"):
        client_of(world, cloud).stop(run.run_id)
    world.fail(world.freeze(DATE, force=True))
    with pytest.raises(InputError, match=r"attempt 2 .* has ended: failed \(E: no cause was given\)"):
        client_of(world, cloud).stop(PIPELINE, date=DATE)
    assert (cloud.stopped, cloud.listed) == ([], 0)


def test_the_command_says_what_stays_and_how_to_run_the_day_again(world, monkeypatch, printed_by, document_of):
    world.publish(DATE)
    run = world.freeze(DATE, force=True)
    use_client(monkeypatch, client_of(world, Cloud(world, "RUNNING")))
    shown = printed_by("stop", run.run_id[:12], *PROJECT)
    assert shown.out.splitlines() == [
        f"{PIPELINE} {DATE}, attempt 2: stopped, 1 Spark job cancelled",
        "  version 1 of the day stays published, unless the stopped job has already written the day's rows: the next "
        "run replaces them",
        f"  to run the day again: slackwater run {PIPELINE} --date {DATE}",
    ]
    world.freeze(DATE, force=True)
    use_client(monkeypatch, client_of(world, Cloud(world)))
    document = document_of("stop", PIPELINE, "--date", DATE, *PROJECT)
    assert document == {
        "pipeline": PIPELINE,
        "date": DATE,
        "attempt": 3,
        "run_id": run.run_id,
        "state": "failed",
        "error": STOPPED,
        "cancelled_jobs": [],
        "published_attempt": 1,
        "may_have_published": True,
    }


@pytest.mark.parametrize("may_have_published", [True, False])
def test_of_a_day_that_was_never_published_no_version_is_said_to_stay(printed_by, monkeypatch, may_have_published):
    run = SimpleNamespace(pipeline=PIPELINE, date=DATE, attempt=1, run_id="r")
    stopped = stop.StoppedRun(
        run=run,
        state=RunState.FAILED,
        error=STOPPED,
        cancelled=(),
        published_attempt=0,
        may_have_published=may_have_published,
    )
    monkeypatch.setattr(Client, "stop", lambda *_, **__: stopped)
    use_client(monkeypatch, a_client(example_project()))
    unless = ", unless the stopped job has already written the day's rows: the next run replaces them"
    line = printed_by("stop", PIPELINE, "--date", DATE, *PROJECT).out.splitlines()[1]
    assert line == f"  the day has no published version{unless if may_have_published else ''}"


def test_a_name_is_checked_before_the_cloud_is_asked(printed_by):
    assert "no pipeline 'nothing'" in printed_by("stop", "nothing", *PROJECT, code=2).err
    assert "date: missing" in printed_by("stop", PIPELINE, *PROJECT, code=2).err


def test_a_run_that_waits_for_its_inputs_is_stopped_and_has_no_attempt(world, monkeypatch, printed_by, document_of):
    world.publish(DATE)
    waits, cloud = waiting(world, "over", "waits"), Cloud(world)
    use_client(monkeypatch, client_of(world, cloud, waits))
    shown = printed_by("stop", PIPELINE, "--date", DATE, *PROJECT)
    assert shown.out.splitlines() == [
        f"{PIPELINE} {DATE}: the run that waited for its inputs is stopped",
        "  version 1 of the day stays published",
        f"  to run the day again: slackwater run {PIPELINE} --date {DATE}",
    ]
    assert cloud.stopped == [("waits", "Stopped", "it was stopped with slackwater stop")]
    assert [run.execution for run in waits.waits(DayKey(PIPELINE, DATE))] == ["over"]
    assert [record.state for record in world.table.runs(PIPELINE, DATE)] == [RunState.PUBLISHED]
    use_client(monkeypatch, client_of(world, Cloud(world), waiting(world, "first", "second")))
    assert document_of("stop", PIPELINE, "--date", DATE, *PROJECT) == {
        "pipeline": PIPELINE,
        "date": DATE,
        "attempt": None,
        "run_id": None,
        "state": "stopped",
        "error": STOPPED,
        "cancelled_jobs": [],
        "published_attempt": 1,
        "may_have_published": False,
    }


def test_a_waiting_run_of_a_day_without_attempts_is_stopped(world):
    cloud = Cloud(world)
    stopped = client_of(world, cloud, waiting(world, "waits")).stop(PIPELINE, date=DATE)
    assert (stopped.executions, stopped.published_attempt) == (("waits",), 0)


def test_a_run_that_goes_on_while_it_is_stopped_is_recorded_as_stopped(world, monkeypatch):
    waits, cloud, stop_execution = waiting(world, "run"), Cloud(world), Cloud.stop_execution

    def goes_on(self, **arguments):
        if not world.table.runs(PIPELINE, DATE):
            world.freeze(DATE)
        stop_execution(self, **arguments)

    monkeypatch.setattr(Cloud, "stop_execution", goes_on)
    stopped = client_of(world, cloud, waits).stop(PIPELINE, date=DATE)
    assert (stopped.run.attempt, stopped.error) == (1, STOPPED)
    assert world.table.day(PIPELINE, DATE).active is None


def test_the_running_attempt_is_stopped_before_a_run_that_waits(world):
    world.freeze(DATE)
    cloud, waits = Cloud(world), waiting(world, "waits")
    client = client_of(world, cloud, waits)
    assert client.stop(PIPELINE, date=DATE).run.attempt == 1
    assert client.stop(PIPELINE, date=DATE).executions == ("waits",)
    with pytest.raises(InputError, match=f"attempt 1 of {PIPELINE} for {DATE} has ended"):
        client.stop(PIPELINE, date=DATE)
