"""`slackwater monitor`: what is shown of a check before any day is run again, and of what was done then."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace

import pytest

from slackwater.aws.machines import ExecutionView, StateView
from slackwater.cli.commands.monitor import described, show, show_decisions
from slackwater.cli.monitoring import Monitor
from slackwater.errors import RunFailed
from slackwater.late.decision import CheckReport, DayDecision, DecisionRule, LateDecision
from slackwater.late.message import compose
from slackwater.runs.record import DayRecord
from tests.fakes_cli import BEGIN, FakeObjects
from tests.fakes_late import comparison

pytestmark = pytest.mark.unit

REASON = "flights grew by 1 row: reaches rows 1 of its source; weather grew by 3 rows: reaches rows 3 of its source"
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
            reason=REASON,
        ),
        DayDecision(
            pipeline="daily_delays",
            date="2013-03-12",
            decision=LateDecision.IGNORE,
            rule=DecisionRule.CURRENT,
            reason="current",
        ),
    ),
)
CHECKED = StateView(name="Check the days", entered=BEGIN, exited=BEGIN + timedelta(seconds=1))
TOLD = {
    "date": "2013-03-10", "outcome": "published", "run_id": "r", "attempt": 2, "told": True, "why": "",
    "comparison": "s3://exchange/c.json", "message": "s3://exchange/m.json",
}  # fmt: skip
FAILED = {"date": "2013-03-09", "outcome": "failed", "error": "E", "reason": "it broke"}


@dataclass
class OneExecution:
    """State machines with one execution, whose check has ended at the first look."""

    end: ExecutionView
    failed: dict = field(default_factory=dict)
    payload: dict = field(default_factory=dict)

    def start(self, machine, *, name, payload):
        self.payload = payload
        return f"arn:aws:states:x:0:execution:{machine}:{name}"

    def follow(self, executions):
        yield ExecutionView(arn=executions[0], status="RUNNING", started=BEGIN, states=(CHECKED,))
        yield self.end

    def given_to(self, execution, state):
        return self.failed if state == "Days failed" else {}


class Store(FakeObjects):
    """Objects, and the report at whatever address it is asked for."""

    def get(self, uri):
        return REPORT.model_dump_json() if "/checks/" in uri else super().get(uri)


def view(status, **more):
    return ExecutionView(arn="arn:e", status=status, started=BEGIN, states=(CHECKED,), **more)


def monitor(machines, store=None):
    found = comparison()
    known = {
        "s3://exchange/c.json": found.model_dump_json(),
        "s3://exchange/m.json": compose(found).model_dump_json(),
    }
    table = SimpleNamespace(day=lambda pipeline, date: DayRecord(pipeline=pipeline, date=date))
    store = Store(known) if store is None else store
    return Monitor(machines=machines, table=table, store=store, machine="monitor-days", exchange_bucket="exchange")


def test_the_decisions_are_known_before_a_day_is_run_again(capsys):
    machines = OneExecution(view("SUCCEEDED", output={"days": [TOLD]}))
    reports = []
    monitored = monitor(machines).run("daily_delays", "2013-03-12", found=reports.append)
    assert reports == [REPORT]
    assert {machines.payload[name] for name in ("pipeline", "as_of")} == {"daily_delays", "2013-03-12"}
    assert (monitored.failure, [day.told for day in monitored.days]) == ("", [True])
    show_decisions(REPORT)
    assert capsys.readouterr().out.splitlines() == [
        "daily_delays as of 2013-03-12: 1 late day (2 days checked in 0.2 s)",
        "date        decision  why",
        "2013-03-10  rerun     flights grew by 1 row: reaches rows 1 of its source",
        "                      weather grew by 3 rows: reaches rows 3 of its source",
        "2013-03-12  ignore    current",
    ]


def test_comparison_and_message_are_shown(capsys):
    show(monitor(OneExecution(view("SUCCEEDED", output={"days": [TOLD]}))).run("p", "2013-03-12", found=id))
    shown = capsys.readouterr().out
    message = compose(comparison())
    assert "daily_delays 2013-03-10: version 1 -> 2" in shown
    assert f"Told: {message.subject}" in shown
    assert all(line.strip() in shown for line in message.body.splitlines())


def test_what_was_done_about_other_days_is_shown_when_one_fails(capsys):
    words = "1 of 2 late days of daily_delays failed: 2013-03-09: it broke"
    machines = OneExecution(view("FAILED", error="DaysFailed", cause=words), failed={"days": [FAILED, TOLD]})
    monitored = monitor(machines).run("daily_delays", "2013-03-12", found=id)
    assert monitored.failure == words
    show(monitored)
    shown = capsys.readouterr().out
    assert "daily_delays 2013-03-09: failed: it broke" in shown
    assert "Told: " in shown
    document = json.loads(json.dumps(described(monitored)))
    assert [(day["date"], day["outcome"]) for day in document["days"]] == [
        ("2013-03-09", "failed"),
        ("2013-03-10", "published"),
    ]


def test_a_check_that_failed_raises_with_its_words():
    machines = OneExecution(view("FAILED", error="E", cause='{"errorMessage": "no such day"}'))
    machines.follow = lambda _: iter([machines.end])
    with pytest.raises(RunFailed, match="no such day"):
        monitor(machines, FakeObjects()).run("p", "2013-03-12", found=id)


def test_a_day_that_equals_a_run_names_it(capsys):
    same = {**TOLD, "outcome": "unchanged", "told": False, "why": "already told", "comparison": "", "message": ""}
    show(monitor(OneExecution(view("SUCCEEDED", output={"days": [same]}))).run("p", "2013-03-12", found=id))
    shown = capsys.readouterr().out
    assert "not run again: these inputs are those of run r, attempt 2" in shown
    assert "Nobody was told: already told" in shown
