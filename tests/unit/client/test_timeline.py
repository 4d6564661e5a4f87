"""Timelines of runs that have published, failed, kept stages, or still run."""

from __future__ import annotations

from datetime import timedelta

import pytest
from botocore.exceptions import ClientError

from slackwater.arrow.reference import ArrowReference, StepRecord
from slackwater.aws.executions.job_logs import JobLogs
from slackwater.aws.executions.state_machines import StateMachines
from slackwater.client.days.attempts import Attempt
from slackwater.client.days.runs import RunSeconds
from slackwater.client.days.timeline import SlowestStep, StageTime, StepTime, read_timeline, rows_read, slowest_step
from slackwater.runs.attempt_files import loads_uri
from slackwater.runs.record import Loads, Publication, RunRecord, RunState, StageRecord
from tests.fakes_cli import BEGIN, FakeEmr, FakeStates
from tests.fakes_runs import DictStore, store_stage
from tests.unit.client.test_runs import RUN

pytestmark = pytest.mark.unit

STATES = ["Freeze inputs", "Run joined", "Run counted", "Record the publication"]
"""Each takes nine seconds, and begins ten seconds after the one before."""
SERVICES = {"Run joined": "emr-serverless", "Run counted": "emr-serverless"}
PUBLICATION = Publication(table="t", snapshot_id="1", rows=16, replaced=0, seconds=2.0)


def step(name, rows_in, rows_out, *, of="sql", seconds=None):
    return StepRecord(name=name, step=of, parameters={}, rows_in=rows_in, rows_out=rows_out, seconds=seconds)


JOINED = [step("checked", {"flights": 900}, 899), step("joined", {"checked": 899, "weather": 50}, 899, of="join")]
COUNTED = [step("counted", {"joined": 899}, 16, seconds=1.25)]
REPORT = step("report", {"counted": 16}, 16, of="write_csv", seconds=0.5)


def job(stage, created, started=None, ended=None, state="SUCCESS"):
    times = {"createdAt": created, "startedAt": started, "endedAt": ended}
    present = {name: BEGIN + timedelta(seconds=second) for name, second in times.items() if second is not None}
    return {"id": stage, "name": f"daily_delays 2013-03-10 {stage}", "state": state, "stateDetails": "", **present}


@pytest.fixture
def store():
    """The store of a run that has stored the names of its stages."""
    store = DictStore()
    store.put(f"{RUN.prefix}stages.json", b'{"joined": "1", "counted": "2"}')
    return store


def timeline(store, state=RunState.PUBLISHED, *, jobs, states=STATES, ended=39, denied=(), **changes):
    """Read a timeline. `denied` are the calls that the caller may not make."""
    record = RunRecord(
        run=RUN,
        state=state,
        execution="arn:e",
        started_at=BEGIN + timedelta(seconds=1),
        ended_at=BEGIN + timedelta(seconds=ended) if ended else None,
        publication=PUBLICATION if state is RunState.PUBLISHED else None,
        **changes,
    )
    status = "RUNNING" if state is RunState.RUNNING else "SUCCEEDED"
    executions, emr = FakeStates({"arn:e": [(status, states)]}, services=SERVICES), FakeEmr(jobs)
    for call in denied:
        client = executions if hasattr(executions, call) else emr
        setattr(client, call, refuse)
    logs = JobLogs(emr=emr, store=store, application="app", prefix="s3://logs")
    return read_timeline(Attempt(record=record), state_machines=StateMachines(executions), jobs=logs, store=store)


def refuse(**_):
    raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "any")


def stored(store, run=RUN):
    store_stage(store, run, "joined", rows=899, files=1, steps=JOINED)
    store_stage(store, run, "counted", rows=16, files=1, steps=COUNTED)
    store.put(loads_uri(run.prefix), Loads(steps=(REPORT,)).model_dump_json().encode())


JOBS = [job("joined", 11, 13, 18.5), job("counted", 21, 22, 29)]


def test_a_published_run_has_the_times_and_rows_of_all_stages(store):
    stored(store)
    shown = timeline(store, jobs=JOBS)
    joined, counted = shown.stages
    assert joined == StageTime(
        stage="joined", state="done", start=11.0, waiting=2.0, starting=4.3, working=1.2, seconds=7.5, rows_in=950,
        rows_out=899, steps=(StepTime(name="checked", step="sql", rows_in=900, rows_out=899),
                             StepTime(name="joined", step="join", rows_in=949, rows_out=899)),
    )  # fmt: skip
    # The last job also publishes and loads: 1.25 + 2 + 0.5 s.
    assert (counted.start, counted.waiting, counted.starting, counted.working) == (21.0, 1.0, 3.2, 3.8)
    assert [(item.name, item.seconds) for item in counted.steps] == [
        ("counted", 1.25),
        ("publish", 2.0),
        ("report", 0.5),
    ]
    # 40 s in all, two states of 9 s ran jobs, which worked 1.2 and 3.8 s.
    assert shown.seconds == RunSeconds(total=40.0, spark_start=13.0, spark_work=5.0, orchestration=22.0)
    assert (shown.slowest, shown.missing) == (SlowestStep("publish", 2.0, 1), ())


def test_a_profiled_stage_has_the_seconds_of_its_steps_and_the_slowest_is_one_of_them(store):
    stored(store)
    checked, joined = JOINED
    measured = [checked.model_copy(update={"seconds": 0.25}), joined.model_copy(update={"seconds": 3.5})]
    store_stage(store, RUN, "joined", rows=899, files=1, steps=measured)
    shown = timeline(store, jobs=JOBS)
    assert [(item.name, item.seconds) for item in shown.stages[0].steps] == [("checked", 0.25), ("joined", 3.5)]
    assert (shown.stages[0].working, shown.slowest) == (1.2, SlowestStep("joined", 3.5, 1))


def test_seconds_of_a_stage_that_an_earlier_version_has_stored_for_each_step_are_left_out(store):
    stored(store)
    repeated = [item.model_copy(update={"seconds": 1.25}) for item in JOINED]
    store_stage(store, RUN, "joined", rows=899, files=1, steps=repeated)
    shown = timeline(store, jobs=JOBS)
    assert [item.seconds for item in shown.stages[0].steps] == [None, None]


def test_a_kept_stage_names_the_attempt_that_has_computed_it(store):
    first = RUN.model_copy(update={"attempt": 1, "prefix": "s3://x/runs/1/"})
    stored(store)
    store_stage(store, first, "joined", rows=899, files=1, steps=JOINED)
    kept = ArrowReference(manifest="s3://x/runs/1/joined/manifest.json", rows=899, bytes=4, files=1, seconds=99.0)
    store.put(f"{RUN.prefix}joined/reference.json", kept.model_dump_json().encode())
    joined, _ = (shown := timeline(store, jobs=JOBS[1:])).stages
    assert (joined.state, joined.kept_from, joined.start, joined.working) == ("kept", 1, None, None)
    assert (joined.rows_in, joined.rows_out, len(joined.steps)) == (950, 899, 2)
    assert shown.slowest == SlowestStep("publish", 2.0, 1)


def test_a_failed_run_shows_what_is_known(store):
    store_stage(store, RUN, "joined", rows=899, files=1, steps=JOINED)
    shown = timeline(store, RunState.FAILED, jobs=[JOBS[0], job("counted", 21, 22, 29, "FAILED")])
    joined, counted = shown.stages
    assert (joined.state, counted.state) == ("done", "failed")
    assert (counted.waiting, counted.starting, counted.working, counted.seconds) == (1.0, None, None, 8.0)
    assert (counted.rows_in, counted.rows_out, counted.steps) == (None, None, ())
    assert shown.seconds == RunSeconds(total=40.0, orchestration=22.0)
    assert shown.slowest == SlowestStep("joined", 1.2, 2)


def test_a_stage_that_was_computed_but_not_published_has_failed(store):
    stored(store)
    shown = timeline(store, RunState.FAILED, jobs=[JOBS[0], job("counted", 21, 22, 29, "FAILED")])
    assert [stage.state for stage in shown.stages] == ["done", "failed"]


@pytest.mark.parametrize(
    ("jobs", "states"),
    [
        ([], ["not started", "not started"]),
        ([job("joined", 11, state="QUEUED")], ["running", "not started"]),
        ([job("joined", 11, 12, state="RUNNING")], ["running", "not started"]),
    ],
)
def test_a_running_run_shows_the_stages_that_have_not_started(store, jobs, states):
    shown = timeline(store, RunState.RUNNING, jobs=jobs, states=["Freeze inputs", "Run joined…"], ended=None)
    assert [stage.state for stage in shown.stages] == states
    assert (shown.slowest, shown.seconds.spark_work) == (None, None)
    if jobs:
        started = "startedAt" in jobs[0]
        assert (shown.stages[0].waiting == 1.0) is started  # else it has waited since 2013
        assert shown.stages[0].seconds > shown.stages[0].waiting or not started


def test_a_run_that_ended_before_its_stages_has_none(store):
    shown = timeline(store, RunState.FAILED, jobs=[], states=["Freeze inputs"])
    assert [stage.state for stage in shown.stages] == ["not run", "not run"]
    assert timeline(DictStore(), RunState.FAILED, jobs=[]).stages == ()


@pytest.mark.parametrize(
    ("denied", "seconds", "start"),
    [
        ("describe_execution", RunSeconds(total=38.0), 10.0),
        ("get_job_run", RunSeconds(total=40.0, spark_start=13.0, spark_work=5.0, orchestration=22.0), None),
    ],
)
def test_what_the_caller_may_not_read_is_named_and_the_rest_shown(store, denied, seconds, start):
    stored(store)
    shown = timeline(store, jobs=JOBS, denied=[denied])
    assert (shown.seconds, shown.stages[0].start, shown.stages[0].working) == (seconds, start, 1.2)
    assert ["AccessDenied" in text for text in shown.missing] == [True]


def test_a_removed_manifest_is_named(store):
    stored(store)
    store.delete([f"{RUN.prefix}joined/manifest.json"])
    reference = ArrowReference(manifest=f"{RUN.prefix}joined/manifest.json", rows=899, bytes=4, files=1, seconds=1.25)
    shown = timeline(store, jobs=JOBS, stages=(StageRecord(stage="joined", reference=reference),))
    assert (shown.stages[0].rows_out, shown.stages[0].steps) == (899, ())
    assert shown.missing == (f"{RUN.prefix}joined/manifest.json does not exist any more: its steps are unknown",)


@pytest.mark.parametrize(
    ("steps", "rows"),
    [
        ([], None),
        ([step("a", {"x": 3}, 1)], 3),
        ([step("a", {"x": 3}, 1), step("b", {"x": 3, "a": 1}, 1)], 3),
        ([step("a", {"x": 3, "y": None}, 1)], None),
        ([step("a", {}, 7, of="read_csv"), step("b", {"a": 7, "x": 2}, 1)], 9),
        ([step("a", {"x": 0}, 0)], 0),
    ],
)
def test_a_stage_reads_each_input_once(steps, rows):
    assert rows_read(steps) == rows


def stage(name, working=None, kept_from=None, *seconds):
    steps = tuple(StepTime(name=f"{name}{value}", step="s", rows_in=1, rows_out=1, seconds=value) for value in seconds)
    return StageTime(stage=name, state="done", kept_from=kept_from, working=working, steps=steps)


@pytest.mark.parametrize(
    ("stages", "slowest"),
    [
        ([], None),
        ([stage("a")], None),
        ([stage("a", 3.0, None, None, None), stage("b", 2.0)], SlowestStep("a", 3.0, 2)),
        ([stage("a", 9.0, 1, None), stage("b", 2.0, None, None)], SlowestStep("b", 2.0, 1)),
        ([stage("a", 9.0, None, None, 5.0)], SlowestStep("a5.0", 5.0, 1)),
        ([stage("a", 9.0, 1, None, 4.0, 5.0)], SlowestStep("a5.0", 5.0, 1)),
    ],
)
def test_the_slowest_step_is_a_stage_computed_together_or_one_with_seconds_of_its_own(stages, slowest):
    assert slowest_step(stages) == slowest
