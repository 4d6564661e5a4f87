"""`slackwater monitor`: the decisions printed before any day is run again, and the outcomes printed afterwards."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace

import pytest

from slackwater.aws.executions.state_machines import ExecutionView, StateView
from slackwater.cli.commands.monitor import monitor_document, print_day_outcomes, print_decisions
from slackwater.client.day_client import DayClient
from slackwater.client.days.executions import Executions
from slackwater.client.monitoring import Monitor
from slackwater.client.plan import Plan
from slackwater.errors import AccessDenied, RunFailed, SlackwaterError
from slackwater.late.check.dry_run import without_writes
from slackwater.late.decision import CheckReport, DayDecision, DecisionRule, LateDecision
from slackwater.late.report.message import compose
from slackwater.project.project import Project
from slackwater.runs.record import DayRecord
from tests.example_project import PROJECT, example_project
from tests.fakes_check import five_days
from tests.fakes_cli import BEGIN, FakeObjects, a_client, use_client
from tests.fakes_comparison import comparison

pytestmark = pytest.mark.unit

REASONS = (
    "flights grew by 1 row: reaches rows 1 of its source",
    "weather grew by 3 rows: reaches rows 3 of its source",
)
REPORT = CheckReport(
    pipeline="daily_delays",
    as_of="2013-03-12",
    checked_at=BEGIN,
    seconds=0.2,
    days=(
        DayDecision(
            pipeline="daily_delays",
            date="2013-03-10",
            decision=LateDecision.RERUN,
            rule=DecisionRule.GROWN,
            reasons=REASONS,
        ),
        DayDecision(
            pipeline="daily_delays",
            date="2013-03-12",
            decision=LateDecision.IGNORE,
            rule=DecisionRule.CURRENT,
            reasons=("current",),
        ),
    ),
)
CHECKED = StateView(name="Check the days", entered=BEGIN, exited=BEGIN + timedelta(seconds=1))
NOTIFIED = {
    "date": "2013-03-10", "outcome": "published", "run_id": "r", "attempt": 2, "notified": True, "reason": "",
    "comparison": "s3://exchange/c.json", "message": "s3://exchange/m.json",
}  # fmt: skip
FAILED = {"date": "2013-03-09", "outcome": "failed", "failed_step": "run", "error": "E", "reason": "it broke"}
NOT_COMPARED = {
    "date": "2013-03-08", "outcome": "published", "run_id": "r", "attempt": 3, "failed_step": "compare", "error": "E",
    "reason": "published as attempt 3, but not compared: too large",
}  # fmt: skip


@dataclass
class OneExecution:
    """State machines with one execution, whose check has ended in the first view."""

    end: ExecutionView
    failed: dict = field(default_factory=dict)
    payload: dict = field(default_factory=dict)

    def start(self, machine, *, name, payload):
        self.payload = payload
        return f"arn:aws:states:x:0:execution:{machine}:{name}"

    def follow(self, executions):
        yield ExecutionView(arn=executions[0], status="RUNNING", started=BEGIN, states=(CHECKED,))
        yield self.end

    def failure_input(self, execution):
        return self.failed


class Store(FakeObjects):
    """Objects by URI; every other URI has the report."""

    def get(self, uri):
        return REPORT.model_dump_json() if "/checks/" in uri else super().get(uri)


def view(status, **more):
    return ExecutionView(arn="arn:e", status=status, started=BEGIN, states=(CHECKED,), **more)


def monitor(machines, store=None):
    stored = comparison()
    objects = {
        "s3://exchange/c.json": stored.model_dump_json(),
        "s3://exchange/m.json": compose(stored).model_dump_json(),
    }
    table = SimpleNamespace(day=lambda pipeline, date: DayRecord(pipeline=pipeline, date=date))
    store = Store(objects) if store is None else store
    executions = Executions(state_machines=machines, correlation_id="c")
    return Monitor(executions=executions, table=table, store=store, machine="monitor-days", exchange_bucket="exchange")


def test_the_decisions_are_reported_before_a_day_is_run_again(capsys):
    machines = OneExecution(view("SUCCEEDED", output={"days": [NOTIFIED]}))
    reports = []
    result = monitor(machines).run("daily_delays", "2013-03-12", on_report=reports.append)
    assert reports == [REPORT]
    assert {machines.payload[name] for name in ("pipeline", "as_of")} == {"daily_delays", "2013-03-12"}
    assert (result.failure, [day.notified for day in result.days]) == ("", [True])
    print_decisions(REPORT)
    assert capsys.readouterr().out.splitlines() == [
        "daily_delays as of 2013-03-12: 1 late day (2 days checked in 0.2 s)",
        "date        decision  reason",
        "2013-03-10  rerun     flights grew by 1 row: reaches rows 1 of its source",
        "                      weather grew by 3 rows: reaches rows 3 of its source",
        "2013-03-12  ignore    current",
    ]


def test_a_dry_run_shows_the_decisions_and_starts_nothing(printed_by, document_of, monkeypatch):
    world = five_days()
    world.add("flights", "2013-03-10", "20", name="late", rows=500)
    monkeypatch.setattr(DayClient, "plan", lambda *_: Plan(changes=()))
    use_client(monkeypatch, a_client(world.project, dry_checker=without_writes(world.checker)))
    arguments = ["monitor", "daily_delays", "--dry-run", "--as-of", "2013-03-12", *PROJECT]
    before = deepcopy((vars(world.table), world.store.objects))
    shown = printed_by(*arguments)
    assert shown.err.endswith("dry run: no day runs, and nothing is recorded or sent\n")
    assert "2013-03-10                rerun     flights grew by 500 rows (50.0 %), 1 object, 500 Bytes" in shown.out
    [pipeline] = document_of(*arguments)["pipelines"]
    assert {day["date"]: day["rule"] for day in pipeline["check"]["days"]}["2013-03-10"] == "grown"
    assert (vars(world.table), world.store.objects) == before
    empty = SimpleNamespace(project=Project(sources={}, pipelines={}))
    use_client(monkeypatch, a_client(example_project(), dry_checker=empty))
    assert "the pipeline daily_delays is not deployed: run slackwater deploy" in printed_by(*arguments, code=1).err


def test_days_in_a_row_that_are_ignored_for_one_reason_share_a_line(capsys):
    ignored = {"pipeline": "p", "decision": LateDecision.IGNORE, "rule": DecisionRule.UNCHANGED}
    reasons = ["none"] * 3 + ["other"] + ["none"] * 2
    days = [DayDecision(date=f"2013-03-{n:02}", reasons=(reason,), **ignored) for n, reason in enumerate(reasons, 1)]
    late = [day.model_copy(update={"decision": LateDecision.DEFER}) for day in days[-2:]]
    print_decisions(REPORT.model_copy(update={"days": (*days, *late)}))
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[2:]] == [
        "2013-03-01 to 2013-03-03",
        "2013-03-04",
        "2013-03-05 to 2013-03-06",
        "2013-03-05",
        "2013-03-06",
    ]


def test_comparison_and_notification_are_printed(capsys):
    machines = OneExecution(view("SUCCEEDED", output={"days": [NOTIFIED]}))
    print_day_outcomes(monitor(machines).run("p", "2013-03-12"))
    shown = capsys.readouterr().out
    message = compose(comparison())
    assert "daily_delays 2013-03-10: version 1 -> 2" in shown
    assert f"Notification: {message.subject}" in shown
    assert shown.endswith(f"Notification: {message.subject}\n"), "the body repeats the comparison"
    assert shown.count("Changed rows") == 1


def test_the_outcomes_of_other_days_are_printed_when_one_fails(capsys):
    cause = "2 of 3 late days of daily_delays failed: 2013-03-09: it broke"
    days = [NOT_COMPARED, FAILED, NOTIFIED]
    machines = OneExecution(view("FAILED", error="DaysFailed", cause=cause), failed={"days": days})
    result = monitor(machines).run("daily_delays", "2013-03-12")
    assert result.failure == cause
    print_day_outcomes(result)
    shown = capsys.readouterr().out
    assert "daily_delays 2013-03-09: failed: it broke" in shown
    assert "daily_delays 2013-03-08: published as attempt 3, but not compared: too large" in shown
    assert "Notification: " in shown
    document = json.loads(json.dumps(monitor_document(result)))
    assert [(day["date"], day["outcome"], day["failed_step"], day["attempt"]) for day in document["days"]] == [
        ("2013-03-08", "published", "compare", 3),
        ("2013-03-09", "failed", "run", None),
        ("2013-03-10", "published", "", 2),
    ]


def test_a_failed_check_raises_with_its_reason():
    machines = OneExecution(view("FAILED", error="E", cause='{"errorMessage": "no such day"}'))
    machines.follow = lambda _: iter([machines.end])
    with pytest.raises(RunFailed, match="no such day"):
        monitor(machines, FakeObjects()).run("p", "2013-03-12")


class Refusing:
    """Objects whose reading is refused, as for a missing object without the permission to list the bucket."""

    def get(self, uri):
        raise AccessDenied(f"could not read {uri}")


def test_a_failed_check_raises_its_reason_even_if_its_report_cannot_be_read():
    machines = OneExecution(view("FAILED", error="E", cause='{"errorMessage": "no such day"}'))
    machines.follow = lambda _: iter([machines.end])
    with pytest.raises(RunFailed, match="no such day"):
        monitor(machines, Refusing()).run("p", "2013-03-12")


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (Refusing(), "could not read s3://exchange/checks/p/2013-03-12/"),
        (SimpleNamespace(get=lambda _: b"{}"), "is not a report that this version can read: deploy the project again"),
    ],
)
def test_a_report_that_cannot_be_read_after_a_successful_check_is_named(store, message):
    with pytest.raises(SlackwaterError, match=message):
        monitor(OneExecution(view("SUCCEEDED")), store).run("p", "2013-03-12")


def test_an_unchanged_day_names_the_run_with_the_same_inputs(capsys):
    same = {
        **NOTIFIED,
        "outcome": "unchanged",
        "notified": False,
        "reason": "already notified",
        "comparison": "",
        "message": "",
    }
    machines = OneExecution(view("SUCCEEDED", output={"days": [same]}))
    print_day_outcomes(monitor(machines).run("p", "2013-03-12"))
    shown = capsys.readouterr().out
    assert "not run again, because run r, attempt 2, has the same inputs" in shown
    assert "No notification: already notified" in shown
