"""Backfills: which days they run, what they are expected to take, how they are followed and stopped."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from slackwater.arrow.reference import ArrowReference
from slackwater.client.days.backfill_plan import (
    DayKind,
    days_of_range,
    estimate,
    kinds_of_days,
    published_runs,
)
from slackwater.costs.cost import RunCost
from slackwater.errors import AccessDenied, CloudError, InputError, NotDeployed, Throttled, Unavailable
from slackwater.project.project import CodeDigests, load_definitions
from slackwater.runs.record import (
    ActiveRun,
    DayRecord,
    Publication,
    PublishedRun,
    Run,
    RunRecord,
    RunState,
    StageRecord,
)
from slackwater.runs.run_identity import run_identity
from tests.fakes_cli import BEGIN, FakeObjects, Pages, a_client
from tests.fakes_runs import DictRunTable
from tests.pauses import record_pauses

pytestmark = pytest.mark.unit

PROJECT = load_definitions(Path("examples/nyc_flights"))
PIPELINE, NOW = "daily_delays", datetime(2013, 4, 1, 12, tzinfo=UTC)
DAILY = PROJECT.pipelines[PIPELINE]
HOURLY = DAILY.model_copy(update={"period": "hour", "timezone": "UTC"})
DEPLOYMENT = SimpleNamespace(
    backfill_machine_arn="arn:aws:states:r:0:stateMachine:slackwater-backfill",
    pipeline_machine_prefix="arn:aws:states:r:0:stateMachine:slackwater-pipeline-",
    project_uri="s3://assets/project.json",
    concurrent_runs=3,
)


def a_run(date, *, attempt=1, run_id=None):
    """A run of the project's definition, or with the given id."""
    inputs = "0" * 64
    digest = PROJECT.definition_digest(PIPELINE)
    return Run(
        pipeline=PIPELINE, date=date, attempt=attempt, correlation_id="c", files=1, rows=1, bytes=1,
        run_id=run_id or run_identity(pipeline=PIPELINE, date=date, manifest=inputs, definition=digest),
        manifest=f"s3://x/manifests/{PIPELINE}/{date}/{inputs}.json", prefix=f"s3://x/runs/{date}/{attempt}/",
    )  # fmt: skip


def publication():
    return Publication(table="t", snapshot_id="1", rows=1, replaced=0, seconds=1.0)


def a_day(date, **changes):
    """A day that is published, with these changes."""
    published = PublishedRun(run=a_run(date), publication=publication(), at=BEGIN)
    return DayRecord(**{"pipeline": PIPELINE, "date": date, "attempts": 1, "published": published, **changes})


def a_record(date, *, seconds=20.0, rows=1, usd=None):
    """A published run of one stage that took `seconds`, has read so many rows and has cost `usd`."""
    run = a_run(date).model_copy(update={"rows": rows})
    reference = ArrowReference(manifest=f"{run.prefix}s/m", rows=1, bytes=1, files=1, seconds=5)
    return RunRecord(
        run=run,
        state=RunState.PUBLISHED,
        execution="arn:e",
        started_at=BEGIN,
        ended_at=BEGIN + timedelta(seconds=seconds),
        publication=publication(),
        stages=(StageRecord(stage="s", reference=reference),),
        cost=None if usd is None else RunCost(usd=usd, complete=True),
    )


def active(date, execution="arn:aws:states:r:0:execution:slackwater-pipeline-daily_delays:other"):
    return ActiveRun(execution=execution, run=a_run(date, attempt=2), since=BEGIN)


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ("2013-03-02", "2013-03-01", "^--from: 2013-03-02 is after --to, 2013-03-01: exchange them$"),
        ("2012-01-01", "2013-01-01", "^--to: 2012-01-01 to 2013-01-01 are 367 days, and a backfill has at most 366$"),
        ("2013-03-31", "2013-04-02", "^--to: 2013-04-02 has not begun in America/New_York$"),
        ("9999-12-31", "9999-12-31", "^--to: 9999-12-31 has not begun"),
        (
            "2013-03-01T05",
            "2013-03-02",
            "^--from: 2013-03-01T05 is not a date such as .*: daily_delays has `period: day`$",
        ),
    ],
)
def test_a_wrong_range_is_refused(first, last, message):
    with pytest.raises(InputError, match=message):
        days_of_range(first, last, pipeline=DAILY, now=NOW, names=("--from", "--to"))


@pytest.mark.parametrize(
    ("first", "last", "count"),
    [("2013-04-01", "2013-04-01", 1), ("2012-02-28", "2012-03-01", 3), ("2012-01-01", "2012-12-31", 366)],
)
def test_a_range_has_both_of_its_ends_and_may_end_with_the_current_day(first, last, count):
    days = days_of_range(first, last, pipeline=DAILY, now=NOW)
    assert (days[0], days[-1], len(days), sorted(set(days))) == (first, last, count, list(days))


def test_a_range_of_hours_has_the_hours_of_utc():
    hours = days_of_range("2013-03-09T22", "2013-03-10T01", pipeline=HOURLY, now=NOW)
    assert hours == ("2013-03-09T22", "2013-03-09T23", "2013-03-10T00", "2013-03-10T01")


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ("2013-03-01", "2013-03-01T05", "^first: 2013-03-01 is not an hour of UTC such as .*`period: hour`$"),
        ("2013-03-01T05", "2013-03-01T04", "^first: 2013-03-01T05 is after last, 2013-03-01T04: exchange them$"),
        ("2013-03-01T00", "2013-03-16T06", "are 367 hours, and a backfill has at most 366$"),
        (f"{NOW:%Y-%m-%dT%H}", f"{NOW + timedelta(hours=1):%Y-%m-%dT%H}", "has not begun in UTC$"),
        ("9999-12-31T22", "9999-12-31T23", "has not begun"),
    ],
)
def test_a_wrong_range_of_hours_is_refused(first, last, message):
    with pytest.raises(InputError, match=message):
        days_of_range(first, last, pipeline=HOURLY, now=NOW)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        (None, DayKind.MISSING),
        ({}, DayKind.PUBLISHED),
        ({"published": None}, DayKind.FAILED),
        ({"outcome_unknown": True}, DayKind.FAILED),
        ({"active": "alive"}, DayKind.CLAIMED),
        ({"active": "alive", "published": None}, DayKind.CLAIMED),
        ({"active": "lost"}, DayKind.FAILED),
        ({"active": "lost", "published": None}, DayKind.FAILED),
        ({"published": "old"}, DayKind.STALE),
        ({"published": "old", "active": "alive"}, DayKind.CLAIMED),
        ({"published": "old", "outcome_unknown": True}, DayKind.FAILED),
        ({"published": None, "attempts": 0}, DayKind.MISSING),
    ],
)
def test_the_kind_of_a_day(changes, kind):
    day, records = "2013-03-08", []
    if changes is not None:
        changes = dict(changes)
        if "active" in changes:
            changes["active"] = active(day, changes["active"])
        if changes.get("published") == "old":
            changes["published"] = PublishedRun(run=a_run(day, run_id="old"), publication=publication(), at=BEGIN)
        records = [a_day(day, **changes)]
    kinds = kinds_of_days(
        [day],
        records,
        is_claimed=lambda active: active.execution == "alive",
        is_stale=lambda run: run.run_id == "old",
    )
    assert kinds == {day: kind}


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        (["2013-03-10"], ["03-10"]),
        (
            ["2013-02-01", "2013-03-09", "2013-03-12", "2013-03-13", "2013-05-01"],
            ["03-12", "03-13", "03-09", "02-01", "05-01"],
        ),
        ([f"2013-01-{n:02}" for n in range(1, 32)], [f"01-{n:02}" for n in range(31, 11, -1)]),
        ([f"2013-04-{n:02}" for n in range(1, 31)], [f"04-{n:02}" for n in range(1, 21)]),
        ([f"2013-03-{n:02}" for n in range(1, 32)], ["03-12", "03-11", "03-10"]),
    ],
)  # fmt: skip
def test_an_estimate_is_computed_from_the_published_runs_nearest_to_the_range(published, expected):
    table = DictRunTable()
    for date in published:
        table.save(a_day(date), a_record(date))
    if "2013-03-11" not in published:
        table.save(a_day("2013-03-11", published=None))
    dates = ("2013-03-10", "2013-03-11", "2013-03-12")
    runs = published_runs(table, PIPELINE, table.days(PIPELINE, dates[0], dates[-1]), dates)
    found = [record.run.date[5:] for record in runs]
    assert (found[: len(expected)], len(found)) == (expected, min(len(published), 20))


def test_an_estimate_is_the_median_of_the_runs_for_the_days_in_a_row_and_the_price_of_all_rows():
    runs = [
        a_record("2013-03-08", seconds=seconds, rows=rows, usd=usd)
        for seconds, rows, usd in ((10, 1000, 0.01), (30, 4000, 0.01), (90, 2000, None))
    ]
    result = estimate(runs, days=5, parallel=2)
    # Five days of the median of 2,000 rows, at the median of 10 and 2.5 USD for a million of them.
    assert (result.runs, result.seconds, result.usd) == (3, 90, pytest.approx(5 * 2000 * 6.25 / 1e6))
    assert estimate(runs[2:], days=1, parallel=1).usd is None
    assert estimate([], days=3, parallel=1) is None


class Days:
    """Step Functions whose backfill runs days by a timetable: for each the polls of its start and its end, and how.

    A poll is a description of the backfill itself, which ends with the last poll of all days.
    """

    def __init__(self, timetable, *, error="", interrupted=None, failing=KeyboardInterrupt):
        self.timetable, self.error, self.interrupted, self.failing = timetable, error, interrupted, failing
        self.poll, self.started, self.stopped = 0, [], []

    def start_execution(self, **call):
        self.started.append(call)
        return {"executionArn": "arn:" + call["name"]}

    def stop_execution(self, **call):
        self.stopped.append(call["executionArn"])

    def describe_execution(self, *, executionArn):  # noqa: N803
        machine, _, name = executionArn.removeprefix("arn:aws:states:r:0:execution:slackwater-").partition(":")
        description = {"startDate": BEGIN, "error": "", "cause": ""}
        if machine == "backfill":
            self.poll += 1
            if self.poll == self.interrupted:
                raise self.failing
            over = self.poll > max(end for _, end, _ in self.timetable.values())
            status = "RUNNING" if not over else "FAILED" if self.error else "SUCCEEDED"
            return description | {"status": status, "stopDate": BEGIN, **self._end(self.error, {"days": []})}
        start, end, error = self.timetable[name[:10]]
        if machine != "pipeline-daily_delays" or name[10:] != f"-{self.started[0]['name']}" or self.poll < start:
            raise ClientError({"Error": {"Code": "ExecutionDoesNotExist"}}, "DescribeExecution")
        status = "RUNNING" if self.poll < end else "FAILED" if error else "SUCCEEDED"
        seconds = timedelta(seconds=10)
        return description | {
            "status": status,
            "stopDate": BEGIN + seconds,
            **self._end(error, {"outcome": "published", "publication": {"rows": 29}}),
        }

    def _end(self, error, output):
        name = "DaysFailed" if error == self.error else "RunFailed"
        return {"error": name if error else "", "cause": error, "output": json.dumps(output)}

    def get_paginator(self, _):
        entered = {
            "type": "TaskStateEntered",
            "timestamp": BEGIN,
            "stateEnteredEventDetails": {"name": "Freeze inputs"},
        }
        return Pages([{"events": [{**entered, "id": 1}]}])


def a_backfill(states, table=None, project=PROJECT, deployed=PROJECT):
    objects = FakeObjects({"s3://assets/project.json": deployed.model_dump_json(by_alias=True)})
    return a_client(
        project,
        deployment=DEPLOYMENT,
        clients={"stepfunctions": states},
        run_table=table or DictRunTable(),
        store=objects,
    )


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    return record_pauses(monkeypatch, "slackwater.client.days.backfill")


def test_the_days_run_in_one_execution_and_each_is_followed_by_its_name(pauses):
    states = Days({"2013-03-08": (1, 2, ""), "2013-03-09": (2, 4, "no such column"), "2013-03-10": (3, 3, "")})
    plans, seen = [], []

    def on_day(date, view):
        seen.append((date[8:], view.current.name if view.current else view.status))

    states.error = "1 of 3 days of daily_delays failed: 2013-03-09"
    result = a_backfill(states).backfill(
        PIPELINE, "2013-03-08", "2013-03-10", parallel=2, on_plan=plans.append, on_day=on_day
    )
    (call,) = states.started
    dates = ["2013-03-08", "2013-03-09", "2013-03-10"]
    assert json.loads(call["input"]) == {"pipeline": PIPELINE, "dates": dates, "parallel": 2, "correlation_id": "c"}
    assert plans[0].estimate is None
    assert seen == [
        ("08", "Freeze inputs"), ("08", "SUCCEEDED"), ("09", "Freeze inputs"),
        ("09", "Freeze inputs"), ("10", "SUCCEEDED"), ("09", "FAILED"),
    ]  # fmt: skip
    assert [(day.outcome, day.rows, day.seconds, day.reason) for day in result.days] == [
        ("published", 29, 10.0, ""), ("failed", None, 10.0, "no such column"), ("published", 29, 10.0, ""),
    ]  # fmt: skip
    assert (result.failure, states.stopped) == (states.error, [])
    assert len(pauses) == states.poll - 1


def test_names_of_executions_have_at_most_80_characters_also_with_the_longest_correlation_id():
    states = Days({"2013-03-08": (1, 1, "")})
    client = a_backfill(states)
    client.correlation_id = "c" * 55
    assert client.backfill(PIPELINE, "2013-03-08", "2013-03-08").days[0].outcome == "published"
    assert len(states.started[0]["name"]) + len("2013-03-08-") == 80


def test_only_missing_and_failed_days_run_and_days_of_other_executions_are_counted():
    states, table = Days({f"2013-03-{n:02}": (1, 1, "") for n in (7, 8)}), DictRunTable()
    states.describe = states.describe_execution
    running = active("2013-03-10").execution
    states.describe_execution = lambda *, executionArn: (  # noqa: N803
        {"status": "RUNNING"} if executionArn == running else states.describe(executionArn=executionArn)
    )
    for day in (
        a_day("2013-03-08", published=None),
        a_day("2013-03-09"),
        a_day("2013-03-10", active=active("2013-03-10")),
    ):
        table.save(day)
    result = a_backfill(states, table).backfill(PIPELINE, "2013-03-07", "2013-03-10")
    assert json.loads(states.started[0]["input"])["dates"] == ["2013-03-07", "2013-03-08"]
    outcomes = [(day.date[8:], day.kind, day.outcome) for day in result.days]
    assert outcomes == [("07", "missing", "published"), ("08", "failed", "published"), ("10", "claimed", "claimed")]
    assert result.failure == ""


def test_published_hours_run_whose_inputs_have_changed():
    hourly = PROJECT.model_copy(update={"pipelines": {PIPELINE: HOURLY}})
    hours = [f"2013-03-08T{hour:02}" for hour in range(3)]
    states, table = Days({"2013-03-08": (1, 1, "")}), DictRunTable()
    for hour in hours[:2]:
        table.save(a_day(hour), a_record(hour))
    asked = []

    def decide(*, pipeline, dates):
        asked.extend(dates)
        changes = {hours[1]: (1,)}
        return [
            SimpleNamespace(date=date, rule="grown", decision="", sources=[SimpleNamespace(changes=changes.get(date))])
            for date in dates
        ]

    client = a_backfill(states, table, project=hourly)
    vars(client)["dry_checker"] = SimpleNamespace(decide=decide)
    plan = client.backfill(PIPELINE, hours[0], hours[2]).plan
    assert (asked, plan.to_run) == (hours[:2], tuple(hours[1:]))
    assert plan.days == dict(zip(hours, [DayKind.PUBLISHED, DayKind.CHANGED, DayKind.MISSING], strict=True))


@pytest.mark.parametrize(
    ("code", "stale", "dates"),
    [
        (CodeDigests(), True, []),
        (CodeDigests(job="newer"), False, []),
        (CodeDigests(job="newer"), True, ["2013-03-08", "2013-03-09"]),
    ],
)
def test_stale_days_are_those_of_the_code_that_is_deployed(code, stale, dates):
    states, table = Days(dict.fromkeys(dates, (1, 1, ""))), DictRunTable()
    for date in ("2013-03-08", "2013-03-09"):
        table.save(a_day(date), a_record(date))
    client = a_backfill(states, table, deployed=PROJECT.model_copy(update={"code": code}))
    result = client.backfill(PIPELINE, "2013-03-08", "2013-03-09", stale=stale)
    assert [date for call in states.started for date in json.loads(call["input"])["dates"]] == dates
    assert [(day.date, day.kind) for day in result.days] == [(date, "stale") for date in dates]
    assert (result.execution == "") is not bool(dates)
    assert (result.plan.estimate.seconds if dates else result.plan.estimate) == (40.0 if dates else None)


def test_an_interrupted_backfill_stops_its_execution_first_and_then_its_running_days():
    states = Days({"2013-03-08": (1, 1, ""), "2013-03-09": (2, 9, ""), "2013-03-10": (2, 9, "")}, interrupted=4)
    with pytest.raises(KeyboardInterrupt):
        a_backfill(states).backfill(PIPELINE, "2013-03-08", "2013-03-10", parallel=2)
    stopped = [arn.rpartition(":slackwater-")[2].partition("days-c-")[0] for arn in states.stopped]
    assert stopped == ["backfill:", "pipeline-daily_delays:2013-03-09-", "pipeline-daily_delays:2013-03-10-"]


def failure(code):
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "Call")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("ThrottlingException", Throttled),
        ("ServiceUnavailable", Unavailable),
        ("ExpiredTokenException", CloudError),
        ("AccessDeniedException", AccessDenied),
    ],
)
def test_a_client_that_fails_names_the_backfill_that_goes_on_and_how_to_stop_it(code, error):
    states = Days({"2013-03-08": (1, 9, "")}, interrupted=2, failing=failure(code))
    with pytest.raises(error) as raised:
        a_backfill(states).backfill(PIPELINE, "2013-03-08", "2013-03-08")
    arn = f"arn:aws:states:r:0:execution:slackwater-backfill:{states.started[0]['name']}"
    assert type(raised.value) is error
    assert str(raised.value) == (
        f"could not describe {arn}: {code}: no\n"
        "The backfill goes on in the cloud. To stop it:\n"
        f"  aws stepfunctions stop-execution --execution-arn {arn}\n"
        "To follow what is left of it, run the same command again: no day runs twice."
    )
    assert states.stopped == []


@pytest.mark.parametrize(
    ("code", "error", "may_run"),
    [("StateMachineDoesNotExist", NotDeployed, False), ("ServiceUnavailable", Unavailable, True)],
)
def test_a_backfill_without_an_answer_to_its_start_may_go_on_and_one_that_was_refused_does_not(code, error, may_run):
    states = Days({})

    def refuse(**_):
        raise failure(code)

    states.start_execution = refuse
    with pytest.raises(error) as raised:
        a_backfill(states).backfill(PIPELINE, "2013-03-08", "2013-03-08")
    assert ("The backfill may have started. To stop it:" in str(raised.value)) is may_run
    assert ("stop-execution" in str(raised.value)) is may_run


def test_an_interrupted_backfill_that_cannot_be_stopped_is_named():
    states = Days({"2013-03-08": (1, 9, "")}, interrupted=2)

    def refuse(**_):
        raise failure("ThrottlingException")

    states.stop_execution = refuse
    with pytest.raises(Throttled, match=r"The backfill goes on in the cloud\. To stop it:"):
        a_backfill(states).backfill(PIPELINE, "2013-03-08", "2013-03-08")


@pytest.mark.parametrize(("parallel", "seconds"), [(1, 120.0), (3, 40.0), (40, 40.0)])
def test_an_estimate_runs_no_more_days_at_the_same_time_than_jobs_run(parallel, seconds):
    states, table = Days({f"2013-03-{n:02}": (1, 1, "") for n in range(8, 14)}), DictRunTable()
    table.save(a_day("2013-03-07"), a_record("2013-03-07"))
    result = a_backfill(states, table).backfill(PIPELINE, "2013-03-08", "2013-03-13", parallel=parallel)
    assert (result.plan.parallel, result.plan.estimate.seconds) == (parallel, seconds)
    assert json.loads(states.started[0]["input"])["parallel"] == parallel


def test_days_that_were_not_reached_by_a_backfill_that_somebody_else_stopped_are_not_run():
    states = Days({"2013-03-08": (1, 2, ""), "2013-03-09": (99, 2, "")}, error="stopped by hand")
    result = a_backfill(states).backfill(PIPELINE, "2013-03-08", "2013-03-09")
    assert [day.outcome for day in result.days] == ["published", "not run"]
    assert result.failure == "stopped by hand"


@pytest.mark.parametrize("parallel", [0, 41])
def test_a_wrong_number_of_parallel_days_is_refused(parallel):
    with pytest.raises(InputError, match=f"^parallel: {parallel} is not 1 to 40"):
        a_backfill(Days({})).backfill(PIPELINE, "2013-03-08", "2013-03-08", parallel=parallel)


@pytest.mark.parametrize("stale", [False, True])
def test_a_backfill_of_a_pipeline_that_is_not_deployed_is_refused(stale):
    others, states = PROJECT.model_copy(update={"pipelines": {}}), Days({})
    with pytest.raises(NotDeployed, match="the pipeline daily_delays is not deployed: run slackwater deploy"):
        a_backfill(states, deployed=others).backfill(PIPELINE, "2013-03-08", "2013-03-08", stale=stale)
    assert states.started == []


def test_pauses_grow_with_the_descriptions_of_a_poll(pauses):
    dates = [f"2013-03-{n:02}" for n in range(1, 21)]
    a_backfill(Days(dict.fromkeys(dates, (1, 2, "")))).backfill(PIPELINE, dates[0], dates[-1], parallel=20)
    # Each of the 20 days that run is described with its states as well; 10 descriptions in a second.
    assert pauses[0] == pytest.approx(4)
