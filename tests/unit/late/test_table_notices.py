"""Messages about changed days of other pipelines: `on_change: notify`."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest

from lambdas import check_days
from slackwater.errors import ResponseLost, Throttled
from slackwater.late.changes.outbox import Outbox
from slackwater.late.changes.table_notices import TableChangeDocument, TableNotifier
from slackwater.late.check.tasks import day_tasks
from slackwater.late.decision import DecisionRule, LateDecision
from slackwater.metrics import Metric
from slackwater.model import json_schema
from slackwater.runs.record import DayRecord
from tests.fakes_check import PIPELINE
from tests.fakes_functions import resources_of, use_resources
from tests.fakes_notification import Crashed, Hooked, TopicFake, WriteHook
from tests.unit.runs.test_table_inputs import SUNDAY, Weeks, week_of, weekly

pytestmark = pytest.mark.unit

DATE, CONTRACT = str(SUNDAY), Path(__file__).resolve().parents[3] / "docs" / "contracts" / "table-change.schema.json"
WRITES = 3
"""Writes of one message: the claim, the sending, the settled claim."""


class World(Weeks):
    """A published week of a pipeline that is notified of changed days, and the messages about it."""

    def __init__(self):
        super().__init__(on_change="notify")
        self.outbox, self.alarms = TopicFake(), []
        self.publish_week()
        self.executions.running |= {"one", "two"}
        self.executions.known |= {"one", "two"}

    def change(self, *, days_before=0, content="other", attempt=2, rows=11):
        self.publish_daily(SUNDAY - timedelta(days=days_before), content=content, attempt=attempt, rows=rows)

    def notify(self, *, execution="one", hook=None):
        return self.notifier(hook).notify(self.project.pipelines[PIPELINE], week_of(self), execution=execution)

    def notifier(self, hook=None):
        hook = hook or WriteHook()
        return TableNotifier(
            table=Hooked(self.table, hook),
            outbox=Outbox(
                executions=self.executions,
                topic=Hooked(self.outbox, hook),
                now=self.now,
                put_metric=lambda *_, **__: None,
                warn=lambda _message, *, date: self.alarms.append(date),
            ),
        )

    @property
    def record(self) -> DayRecord:
        return self.table.day(PIPELINE, DATE)

    @property
    def subjects(self):
        return [message["subject"] for message in self.outbox.sent]


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize("rows", [11, 3])
def test_a_changed_day_runs_nothing_and_holds_nothing(world, rows):
    world.change(rows=rows)
    decision = week_of(world)
    assert (decision.decision, decision.rule) == (LateDecision.IGNORE, DecisionRule.TABLE_NOTIFIED)
    assert decision.reasons[0].startswith(f"days has 1 changed day, 10 -> {rows} rows (")
    assert decision.reasons[0].endswith("): tables.days.on_change is notify")
    assert [(item.name, item.version, item.rows_before, item.rows_now) for item in decision.table_changes] == [
        (f"days daily {DATE}", "other", 10, rows)
    ]
    assert day_tasks(world.check("2013-03-11")) == ()
    assert world.record.hold is None


def test_one_message_names_the_day_and_the_command(world):
    world.change()
    assert world.notify()
    (message,) = world.outbox.sent
    assert message["subject"] == f"{PIPELINE} {DATE}: daily {DATE}: 10 -> 11 rows"
    assert f"  slackwater run {PIPELINE} --date {DATE}\n" in message["body"]
    assert message["attributes"] == {"pipeline": PIPELINE, "date": DATE, "severity": "info"}
    document = json.loads(message["document"])
    jsonschema.Draft202012Validator(json.loads(CONTRACT.read_text(encoding="utf-8"))).validate(document)
    assert TableChangeDocument.model_validate(document).changes[0].rows_now == 11
    assert (world.record.table_notice.reason, world.alarms) == (f"daily {DATE}: 10 -> 11 rows", [])


def test_the_message_has_the_team_of_the_pipeline(world):
    definition = weekly(on_change="notify").model_copy(update={"team": "operations"})
    world.project = world.project.model_copy(update={"pipelines": {**world.project.pipelines, PIPELINE: definition}})
    world.change()
    world.notify()
    assert world.outbox.sent[0]["attributes"]["team"] == "operations"


def test_the_contract_in_docs_is_up_to_date():
    assert CONTRACT.read_text(encoding="utf-8") == json_schema(TableChangeDocument), (
        "write it again: python -m slackwater.late.changes.table_notices > docs/contracts/table-change.schema.json"
    )


def test_there_is_no_message_without_a_change(world):
    assert not world.notify()
    assert (world.outbox.sent, world.record.table_notice) == ([], None)


def test_each_change_is_in_one_message(world):
    world.change()
    assert [world.notify(), world.notify(execution="two"), world.notify()] == [True, False, False]
    world.change(days_before=2)
    assert [world.notify(), world.notify()] == [True, False]
    world.change(content="another", attempt=3, rows=12)
    assert [world.notify(), world.notify()] == [True, False]
    friday = SUNDAY - timedelta(days=2)
    assert world.subjects == [
        f"{PIPELINE} {DATE}: daily {DATE}: 10 -> 11 rows",
        f"{PIPELINE} {DATE}: daily {friday}: 10 -> 11 rows",
        f"{PIPELINE} {DATE}: daily {DATE}: 10 -> 12 rows",
    ]


def test_a_run_takes_the_change_in_and_a_later_change_is_told_again(world):
    world.change()
    world.notify()
    world.publish_week()
    assert week_of(world).rule is DecisionRule.UNCHANGED
    world.change(content="another", attempt=3, rows=12)
    assert world.notify()
    assert world.subjects[-1] == f"{PIPELINE} {DATE}: daily {DATE}: 11 -> 12 rows"


def test_a_day_that_is_published_again_meanwhile_needs_no_message(world):
    world.change()
    decision = week_of(world)
    world.publish_week()
    assert not world.notifier().notify(world.project.pipelines[PIPELINE], decision, execution="one")
    assert world.outbox.sent == []


@pytest.mark.parametrize("at", range(WRITES))
@pytest.mark.parametrize("follower", ["one", "two"])
def test_a_crash_before_any_write_ends_in_one_message_or_in_an_alarm(world, at, follower):
    world.change()
    with suppress(Crashed):
        world.notify(hook=WriteHook(at=at))
    if follower == "two":
        # While the other execution is running, it may be sending.
        assert world.notify(execution="two") is (at == 0)
        world.executions.running.discard("one")
        world.time += timedelta(minutes=5)
    for _ in range(3):
        world.notify(execution=follower)
    assert (len(world.outbox.sent), world.alarms) == {0: (1, []), 1: (0, [DATE]), 2: (1, [DATE])}[at]


def test_a_write_of_another_process_is_not_lost(world):
    world.change()

    def change_day():
        world.table.save(world.record.model_copy(update={"baseline_attempt": 7}))

    for at in (0, 2):
        world.change(content=f"at {at}", attempt=at + 2, rows=20 + at)
        assert world.notify(hook=WriteHook(at=at, action=change_day))
    assert (len(world.outbox.sent), world.record.baseline_attempt) == (2, 7)
    assert not world.notify()


def test_two_monitorings_at_the_same_time_send_one_message(world):
    world.change()
    results = []
    hook = WriteHook(at=0, action=lambda: results.append(world.notify(execution="two")))
    results.append(world.notify(hook=hook))
    assert (results, len(world.outbox.sent)) == ([True, False], 1)


def test_a_refused_message_is_sent_by_the_next_check(world):
    world.change()
    world.outbox.refuses = Throttled("slow down")
    with pytest.raises(Throttled):
        world.notify()
    world.outbox.refuses = None
    assert [world.notify(execution="two"), world.notify()] == [True, False]
    assert world.alarms == []


def test_a_lost_response_fires_the_alarm_and_nothing_is_sent_again(world):
    world.change()
    world.outbox.loses = ResponseLost("no answer")
    assert not world.notify()
    world.outbox.loses = None
    assert not world.notify(execution="two")
    assert (world.alarms, len(world.outbox.sent)) == ([DATE], 1)


class Notifier:
    """A notifier that fails for some days."""

    def __init__(self, *failing):
        self.failing, self.notified = failing, []

    def notify(self, _definition, day, *, execution):
        assert execution == "one"
        if day.date in self.failing:
            raise Throttled("slow down")
        self.notified.append(day.date)
        return True


def report_of(world, *decisions):
    report = world.check("2013-03-11")
    day = week_of(world)
    days = [
        day.model_copy(update={"date": f"2013-02-{number:02}", "decision": decision})
        for number, decision in enumerate(decisions, start=1)
    ]
    return report.model_copy(update={"days": tuple(days)})


def monitor_of(world, notifier):
    """A monitor that notifies people with the notifier, and the metrics that it puts."""
    put = []
    ports = {"run_table": world.table, "outbox": None}
    resources = resources_of(checker=world.checker, project=world.project, event_counts=None, **ports)
    monitor = check_days.monitor(resources)
    return replace(
        monitor, tables=notifier, put_metric=lambda metric, value, **subject: put.append((metric, value, subject))
    ), put


def test_the_function_notifies_of_days_that_do_not_run_again_and_an_error_stops_no_other(world):
    world.change()
    decisions = (LateDecision.IGNORE, LateDecision.RERUN, LateDecision.DEFER, LateDecision.HOLD, LateDecision.IGNORE)
    notifier = Notifier("2013-02-01")
    monitor, put = monitor_of(world, notifier)
    monitor.notify_of_tables(report_of(world, *decisions), world.project.pipelines[PIPELINE], execution="one")
    assert notifier.notified == ["2013-02-04", "2013-02-05"]
    subject = {"pipeline": PIPELINE}
    assert put == [(Metric.CHECK_PARTS_FAILED, 1, subject), (Metric.NOTIFICATIONS_SENT, 2, subject)]


def test_a_check_of_some_days_notifies_too(world, monkeypatch):
    notifier = Notifier()
    monitor, _ = monitor_of(world, notifier)
    use_resources(monkeypatch, check_days, monitor=monitor)
    event = {"pipeline": PIPELINE, "as_of": "2013-03-11", "days": [DATE], "execution": "one", "correlation_id": "c"}
    check_days.handler(event, None)
    assert notifier.notified == []
    world.change()
    check_days.handler(event, None)
    assert notifier.notified == [DATE]


def test_one_check_sends_at_most_ten_messages(world):
    world.change()
    notifier = Notifier()
    report = report_of(world, *[LateDecision.IGNORE] * 12)
    monitor, _ = monitor_of(world, notifier)
    monitor.notify_of_tables(report, world.project.pipelines[PIPELINE], execution="one")
    assert len(notifier.notified) == 10


def test_a_version_that_was_named_for_an_earlier_attempt_is_named_again(world):
    world.change(content="second")
    assert world.notify()
    world.change(content="third", attempt=3, rows=12)
    world.time += timedelta(hours=2)
    world.publish_week()
    assert not world.notify()
    # The other pipeline has published its second version again: the day comes from the third one.
    world.change(content="second", attempt=4)
    assert world.notify()
    assert not world.notify()
    assert len(world.outbox.sent) == 2


def test_a_version_that_returns_is_not_named_again_after_a_message_about_another_day(world):
    world.change(content="second")
    assert world.notify()
    # The other pipeline publishes the version again that the run has read, and then changes another day.
    world.change(content="rows 0", attempt=3, rows=10)
    world.change(days_before=2)
    assert world.notify()
    world.change(content="second", attempt=4)
    assert not world.notify()
    assert len(world.outbox.sent) == 2
