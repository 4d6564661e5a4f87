"""`slackwater run --from --to`: the plan before the days run, their outcomes, exit codes, and an interruption."""

from __future__ import annotations

import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest

from slackwater.aws.executions.state_machines import ExecutionView, StateView
from slackwater.cli.backfill import late_lines, plan_lines
from slackwater.cli.main import run
from slackwater.client.days.backfill import BackfilledDay, BackfillResult
from slackwater.client.days.backfill_plan import BackfillPlan, DayKind, Estimate
from tests.example_project import PROJECT
from tests.fakes_cli import BEGIN, use_client
from tests.unit.cli.test_changes import FILES

pytestmark = pytest.mark.unit

RANGE = ["run", "daily_delays", "--from", "2013-03-08", "--to", "2013-03-11", *PROJECT]
ESTIMATE = Estimate(runs=3, seconds=250, usd=0.00748)
KINDS = {
    "2013-03-08": DayKind.MISSING,
    "2013-03-09": DayKind.FAILED,
    "2013-03-10": DayKind.CLAIMED,
    "2013-03-11": DayKind.PUBLISHED,
}
DONE = BackfilledDay(date="2013-03-08", kind=DayKind.MISSING, outcome="published", seconds=25.5, rows=29)
BROKEN = BackfilledDay(date="2013-03-09", kind=DayKind.FAILED, outcome="failed", seconds=3.0, reason="no such column")
FIXED = BackfilledDay(date="2013-03-09", kind=DayKind.FAILED, outcome="unchanged", seconds=3.0, rows=7)
CLAIMED = BackfilledDay(date="2013-03-10", kind=DayKind.CLAIMED, outcome="claimed")
FAILURE = "1 of 2 days of daily_delays failed: 2013-03-09"


def a_plan(days=KINDS, estimate=ESTIMATE, parallel=2):
    return BackfillPlan(
        pipeline="daily_delays",
        first="2013-03-08",
        last="2013-03-11",
        parallel=parallel,
        concurrent_runs=3,
        days=days,
        estimate=estimate,
    )


def a_view(status, **more):
    states = (StateView(name="Freeze inputs", entered=BEGIN),) if status == "RUNNING" else ()
    return ExecutionView(arn="arn:e", status=status, started=BEGIN, ended=BEGIN, states=states, **more)


@pytest.fixture
def backfilling(monkeypatch):
    """Let the command use a client whose backfill has this result, or is interrupted. Return the arguments it got."""

    def backfilling(result=None, plan=None, late=()):
        calls = []

        def check(_, *, as_of):
            days = ("2013-03-10", "2013-03-11")
            decided = [SimpleNamespace(date=day, sources=[SimpleNamespace(changes=day in late)]) for day in days]
            return SimpleNamespace(days=decided)

        def backfill(*arguments, on_plan, on_day, **options):
            calls.append((arguments, options))
            on_plan(plan or a_plan())
            if result is None:
                raise KeyboardInterrupt
            on_day("2013-03-08", a_view("RUNNING"))
            on_day("2013-03-08", a_view("SUCCEEDED", output={"outcome": "published"}))
            on_day("2013-03-09", a_view("FAILED" if result.failure else "SUCCEEDED"))
            return result

        use_client(monkeypatch, SimpleNamespace(backfill=backfill, check=check, correlation_id="c", project=FILES))
        return calls

    return backfilling


def a_result(*days, failure=""):
    return BackfillResult(plan=a_plan(), days=days, execution="arn:e", seconds=60.0, failure=failure)


def test_the_plan_is_printed_before_the_days_run_and_their_outcomes_afterwards(capsys, backfilling):
    calls = backfilling(a_result(DONE, FIXED, CLAIMED))
    assert run([*RANGE, "--parallel", "2", "--stale"]) == 0
    assert calls == [(("daily_delays", "2013-03-08", "2013-03-11"), {"parallel": 2, "stale": True})]
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [
        "target: a test",
        "daily_delays, 2013-03-08 to 2013-03-11: 2 days to run (1 missing, 1 failed)",
        "  not run: 1 claimed, 1 published",
        "  about 4 min 10 s with 2 days at the same time, and 0.0075 USD on AWS (median of 3 runs)",
        "2013-03-08: running, Freeze inputs",
        "2013-03-08: done 0.0 s, published",
        "2013-03-09: done 0.0 s",
    ]
    assert shown.out.splitlines() == [
        "date        before   outcome    rows  seconds",
        "2013-03-08  missing  published    29     25.5",
        "2013-03-09  failed   unchanged     7        3",
        "2013-03-10  claimed  claimed",
        "1 day left to other executions, which run them now (slackwater runs daily_delays --date 2013-03-10)",
    ]


def test_published_days_with_late_data_are_counted_with_the_commands_that_run_them(printed_by, backfilling):
    """The other day with late data is claimed by another execution."""
    backfilling(a_result(DONE, FIXED), late=("2013-03-10", "2013-03-11"))
    assert (
        "\n  1 published day has late data: slackwater monitor daily_delays --as-of 2013-03-12 runs those that reach a "
        "threshold; or slackwater run daily_delays --date 2013-03-11\n"
    ) in printed_by(*RANGE).err


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (1, "1 day was published without rows (2013-03-01)"),
        (5, "5 days were published without rows (2013-03-01, 2013-03-02, 2013-03-03 and 2 more)"),
    ],
)
def test_days_without_rows_are_named(printed_by, backfilling, number, line):
    dates = [f"2013-03-{day:02}" for day in range(1, number + 1)]
    days = [BackfilledDay(date=day, kind=DayKind.MISSING, outcome="published", rows=0) for day in dates]
    backfilling(a_result(*days, DONE))
    assert printed_by(*RANGE).out.splitlines()[-1] == (
        f"{line}. When their data has arrived, a check runs them again, or you: slackwater run daily_delays --date "
        "2013-03-01"
    )


def test_a_failed_day_is_named_with_the_command_that_shows_its_log(printed_by, backfilling):
    backfilling(a_result(DONE, BROKEN, failure=FAILURE))
    assert printed_by(*RANGE, code=1).err.splitlines()[-3:] == [
        f"error: {FAILURE}",
        "  2013-03-09: no such column",
        "    its log: slackwater logs daily_delays --date 2013-03-09",
    ]


@pytest.mark.parametrize(
    ("result", "code"),
    [(a_result(DONE, FIXED), 0), (a_result(DONE, BROKEN, failure=FAILURE), 1), (a_result(CLAIMED), 0)],
)
def test_with_json_there_is_one_document_at_the_end(document_of, backfilling, result, code):
    backfilling(result)
    document = document_of(*RANGE, code=code)
    assert (document["failure"], document["correlation_id"]) == (result.failure or None, "c")
    assert document["before"] == dict.fromkeys(DayKind, 0) | dict.fromkeys(KINDS.values(), 1)
    assert document["estimate"]["usd"] == 0.00748
    assert [(day["date"], day["kind"], day["outcome"]) for day in document["days"]] == [
        (day.date, day.kind.value, day.outcome) for day in result.days
    ]


@pytest.mark.parametrize(
    ("plan", "lines"),
    [
        (a_plan(estimate=None), ["2 days to run (1 missing, 1 failed)", "1 claimed", "no estimate: no run yet"]),
        (a_plan({"2013-03-08": DayKind.PUBLISHED}, None), ["0 days to run", "1 published"]),
        (a_plan({"2013-03-08": DayKind.STALE}), ["1 day to run (1 stale)", "about 4 min 10 s"]),
    ],
)  # fmt: skip
def test_a_plan_without_an_estimate_or_without_days_says_so(capsys, backfilling, plan, lines):
    backfilling(plan=plan)
    run(RANGE)
    _, *shown = capsys.readouterr().err.partition("The backfill was stopped")[0].splitlines()
    assert [line in text for line, text in zip(lines, shown, strict=True)] == [True] * len(lines)


@pytest.mark.parametrize(("parallel", "days"), [(3, KINDS), (4, KINDS), (4, {"2013-03-08": DayKind.PUBLISHED})])
def test_a_plan_with_more_days_than_jobs_at_the_same_time_says_so(parallel, days):
    lines = plan_lines(a_plan(days, parallel=parallel))
    notes = [line for line in lines if "concurrent_runs" in line]
    note = (
        "  --parallel 4 is more than the 3 jobs that run at the same time (setting concurrent_runs): further jobs wait "
        "in the queue, and those of other runs behind them"
    )
    assert notes == ([note] if parallel > 3 and days is KINDS else [])
    assert ("with 3 days at the same time" in "\n".join(lines)) is (days is KINDS)


def test_a_plan_of_hours_names_those_that_changed_and_those_that_a_person_decides_about():
    kinds = [DayKind.CHANGED, DayKind.HELD, DayKind.PUBLISHED]
    hours = {f"2013-03-08T0{number}": kind for number, kind in enumerate(kinds)}
    plan = replace(a_plan(hours, estimate=None), pipeline="hourly_delays", first="2013-03-08T00", last="2013-03-08T02")
    client = SimpleNamespace(project=SimpleNamespace(pipeline=lambda _: SimpleNamespace(period="hour")))
    assert [*plan_lines(plan), *late_lines(client, plan)] == [
        "hourly_delays, 2013-03-08T00 to 2013-03-08T02: 1 hour to run (1 changed)",
        "  not run: 1 held, 1 published",
        "  no estimate: no run yet",
        "  1 hour held until you decide: slackwater why hourly_delays --date 2013-03-08T01",
    ]


@pytest.mark.parametrize("options", [[], ["--parallel", "3", "--stale"]])
def test_an_interrupted_backfill_prints_the_command_that_continues_it(printed_by, backfilling, options):
    calls = backfilling()
    *_, command, interrupted = printed_by(*RANGE, *options, code=130).err.splitlines()
    assert interrupted == "interrupted"
    run(shlex.split(command)[1:])
    assert calls[0] == calls[1]
