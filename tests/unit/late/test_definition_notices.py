"""The message that a new definition would change published days: once for each definition."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest

from slackwater.errors import ResponseLost, SlackwaterError, Throttled
from slackwater.late.changes.definition_notices import DefinitionChangeDocument, DefinitionNotifier
from slackwater.late.changes.outbox import Outbox
from slackwater.model import json_schema
from tests.fakes_check import PIPELINE, World, five_days
from tests.fakes_notification import Crashed, TopicFake
from tests.late_processes import FAULTS, Process
from tests.unit.late.test_new_definition import EAST, STEPS, define

pytestmark = pytest.mark.unit

CONTRACT = Path(__file__).resolve().parents[3] / "docs" / "contracts" / "definition-change.schema.json"
WRITES = 3
"""Writes of one message: the claim, the sending, the settled claim."""


class Notified:
    """Five published days with a pipeline, and the messages about its definitions."""

    def __init__(self) -> None:
        self.world: World = five_days()
        self.outbox, self.alarms = TopicFake(), list[str]()
        self.world.executions.running.clear()

    def notify(self, execution: str = "one", process: Process | None = None, **check: object) -> bool:
        world, process = self.world, process or Process()
        world.executions.known.add(execution)
        notifier = DefinitionNotifier(
            project=world.project, table=process.using(world.table),
            outbox=Outbox(
                executions=world.executions, topic=process.using(self.outbox), now=world.now,
                put_metric=lambda *_, **__: None,
                warn=lambda _message, *, date: self.alarms.append(date),
            ),
        )  # fmt: skip
        return notifier.notify(world.checker.check(pipeline=PIPELINE, as_of=None, **check), execution=execution)

    @property
    def subjects(self) -> list[str]:
        return [message["subject"] for message in self.outbox.sent]


@pytest.fixture
def days() -> Notified:
    return Notified()


def test_people_are_notified_once_of_how_many_days_a_definition_would_change(days):
    assert not days.notify()
    define(days.world, timezone=EAST)
    assert [days.notify(name) for name in ("one", "two", "one")] == [True, False, False]
    define(days.world, timezone="UTC")
    assert [days.notify(), days.notify()] == [True, False]
    define(days.world, timezone="America/New_York")
    assert not days.notify()
    assert days.subjects == [f"{PIPELINE}: 5 published days of the last 7 keep an earlier definition"] * 2
    assert days.alarms == []


def test_the_message_names_the_changes_the_days_and_the_command(days):
    define(days.world, timezone=EAST, team="operations")
    days.notify()
    (message,) = days.outbox.sent
    assert message["body"] == (
        "The definition of daily_delays has changed since these days were published:\n"
        "  timezone: America/New_York -> Etc/GMT-6\n\n"
        "It would change 5 published days from 2013-03-08 to 2013-03-12. They are not run again, because "
        "`late.on_definition` is `keep`. To run them with the new definition:\n"
        "  slackwater run daily_delays --from 2013-03-08 --to 2013-03-12 --stale\n"
    )
    assert message["attributes"] == {
        "pipeline": PIPELINE, "date": "2013-03-12", "severity": "info", "team": "operations"
    }  # fmt: skip
    document = json.loads(message["document"])
    jsonschema.validate(document, json.loads(CONTRACT.read_text(encoding="utf-8")))
    assert document["days"] == [f"2013-03-{number:02}" for number in range(8, 13)]
    assert document["changes"] == ["timezone: America/New_York -> Etc/GMT-6"]


def test_the_contract_is_that_of_the_code():
    assert CONTRACT.read_text(encoding="utf-8") == json_schema(DefinitionChangeDocument), (
        "write it again: python -m slackwater.late.changes.definition_notices > docs/contracts/..."
    )


def test_days_that_run_again_are_not_counted(days):
    define(days.world, sources=("flights",), steps=STEPS)
    days.world.add("flights", "2013-03-10", "17", name="late", rows=500)
    days.notify()
    assert days.subjects == [f"{PIPELINE}: 4 published days of the last 7 keep an earlier definition"]


def test_a_pipeline_that_runs_its_days_again_sends_no_such_message(days):
    define(days.world, timezone=EAST, on_definition="rerun")
    days.world.add("flights", "2013-03-10", "17", name="a", rows=1)
    assert not days.notify()


def test_a_check_of_some_days_sends_no_message(days):
    define(days.world, timezone=EAST)
    assert not days.notify(dates=["2013-03-10"])
    assert days.notify()


def test_a_refused_message_is_sent_by_the_next_check(days):
    define(days.world, timezone=EAST)
    days.outbox.refuses = Throttled("slow down")
    with pytest.raises(Throttled):
        days.notify()
    days.outbox.refuses = None
    assert [days.notify("two"), days.notify("three")] == [True, False]
    assert days.alarms == []


def test_a_message_whose_answer_is_lost_is_not_sent_again(days):
    define(days.world, timezone=EAST)
    days.outbox.loses = ResponseLost("no answer")
    assert not days.notify()
    days.outbox.loses = None
    assert not days.notify("two")
    assert (len(days.outbox.sent), days.alarms) == (1, ["2013-03-12"])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", range(1, WRITES + 1))
@pytest.mark.parametrize("follower", ["one", "two"])
def test_a_fault_at_any_write_ends_in_one_message_or_in_an_alarm(days, at, fault, follower):
    define(days.world, timezone=EAST)
    with suppress(Crashed, SlackwaterError):
        days.notify(process=Process(at=at, fault=fault))
    for _ in range(2):
        days.notify(follower)
    assert len(days.outbox.sent) <= 1
    assert days.outbox.sent or days.alarms


def test_a_later_definition_hides_no_message_that_may_or_may_not_have_been_sent(days):
    define(days.world, timezone=EAST)
    with suppress(Crashed):
        days.notify(process=Process(at=2, fault="ends before"))
    define(days.world, timezone="UTC")
    assert days.notify("two")
    assert (len(days.outbox.sent), days.alarms) == (1, ["2013-03-12"])


def test_of_two_checks_at_once_one_sends_the_message(days):
    define(days.world, timezone=EAST)
    table = days.world.table
    save = table.save_definition_notice

    def save_second(notice) -> None:
        table.save_definition_notice = save
        days.notify("two")
        save(notice)

    table.save_definition_notice = save_second
    days.world.executions.running |= {"one", "two"}
    assert not days.notify("one")
    assert (len(days.outbox.sent), days.alarms) == (1, [])
