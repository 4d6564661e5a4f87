"""Monitorings of exactly the published days that new objects have arrived for."""

from __future__ import annotations

import json

import pytest

from lambdas.check_arrivals import handler as check_arrivals
from slackwater.aws.queue import DelayedMessages
from slackwater.errors import CloudError, Throttled
from slackwater.late.check.arrival_checks import ArrivalChecks, execution_name
from slackwater.late.check.decision import DecisionRule
from slackwater.late.check.tasks import DayAction, DayTask, day_tasks
from slackwater.metrics import Metric
from tests.fakes_check import PIPELINE, five_days

pytestmark = pytest.mark.unit


class Machine:
    """The monitoring machine, which refuses a name that it knows."""

    def __init__(self):
        self.started = {}
        self.error = None

    def __call__(self, *, name, pipeline, days):
        if self.error:
            raise self.error
        self.started.setdefault(name, (pipeline, days))


@pytest.fixture
def world():
    return five_days()


@pytest.fixture
def machine():
    return Machine()


class Queue:
    """The messages that are sent to be received later."""

    def __init__(self):
        self.later = []
        self.error = None

    def __call__(self, bodies):
        if self.error and bodies:
            raise self.error
        self.later += bodies


@pytest.fixture
def queue():
    return Queue()


@pytest.fixture
def checks(world, machine, queue):
    return ArrivalChecks(
        project=world.project,
        table=world.table,
        executions=world.executions,
        start=machine,
        send_later=queue,
        now=world.now,
    )


def body(world, event, day, hour="20", *, source="flights"):
    uri = world.add(source, day, hour, name=event)
    return json.dumps({"id": event, "key": uri.removeprefix("s3://raw/")})


def test_one_monitoring_of_a_pipeline_checks_all_days_with_new_objects(world, checks, machine):
    messages = {
        "m1": body(world, "e1", "2013-03-10"),
        "m2": body(world, "e2", "2013-03-08", source="weather"),
        "m3": body(world, "e3", "2013-03-10", "21"),
    }
    result = checks.start_checks(messages)
    name = execution_name(PIPELINE, ["2013-03-08", "2013-03-10"], ["e1", "e2", "e3"])
    assert machine.started == {name: (PIPELINE, ("2013-03-08", "2013-03-10"))}
    assert [(check.pipeline, check.days, check.name) for check in result.started] == [
        (PIPELINE, ("2013-03-08", "2013-03-10"), name)
    ]
    assert (len(name), result.failed, result.older, result.foreign) == (40, {}, {}, ())


def test_a_batch_that_is_delivered_again_starts_nothing(world, checks, machine):
    messages = {"m1": body(world, "e1", "2013-03-10"), "m2": body(world, "e2", "2013-03-09")}
    checks.start_checks(messages)
    # SQS may deliver a batch twice and in another order, and EventBridge an event with another message id.
    checks.start_checks(dict(reversed(messages.items())) | {"m3": messages["m1"]})
    assert len(machine.started) == 1


def test_an_object_that_is_written_again_is_checked_again(world, checks, machine):
    first = body(world, "e1", "2013-03-10")
    checks.start_checks({"m1": first})
    checks.start_checks({"m2": json.dumps(json.loads(first) | {"id": "e2"})})
    assert len(machine.started) == 2


def test_days_that_are_current_or_never_published_start_nothing(world, checks, machine):
    messages = {"m1": body(world, "e1", "2013-03-13", "17"), "m2": body(world, "e2", "2013-03-07")}
    assert world.table.day(PIPELINE, "2013-03-07").published is None
    result = checks.start_checks(messages)
    assert (machine.started, result.started, result.failed) == ({}, (), {})


def test_objects_of_days_before_the_window_are_counted(world, checks, machine):
    result = checks.start_checks({"m1": body(world, "e1", "2013-02-01"), "m2": body(world, "e2", "2013-03-10")})
    assert (result.older, len(machine.started)) == ({PIPELINE: 1}, 1)


def test_no_batch_is_no_work(checks, machine):
    assert checks.start_checks({}).failed == {}
    assert machine.started == {}


def test_an_object_of_a_running_day_is_looked_at_again_later(world, checks, machine, queue):
    world.add("flights", "2013-03-10", "20", name="late", rows=500)
    world.freeze("2013-03-10")
    messages = {"m1": body(world, "e1", "2013-03-10"), "m2": body(world, "e2", "2013-03-09")}
    result = checks.start_checks(messages)
    assert (queue.later, result.postponed, result.failed) == ([messages["m1"]], 1, {})
    assert [days for _, days in machine.started.values()] == [("2013-03-09",)]
    # The execution has died, or ended: the record of a day may still name it.
    world.executions.running.clear()
    result = checks.start_checks({"m3": queue.later.pop()})
    assert [check.days for check in result.started] == [("2013-03-10",)]
    assert queue.later == []


def test_an_object_that_arrives_during_the_first_run_of_its_day_is_looked_at_again_later(world, checks, queue):
    world.freeze("2013-03-07")
    assert world.table.day(PIPELINE, "2013-03-07").published is None
    message = body(world, "e1", "2013-03-07")
    assert (checks.start_checks({"m1": message}).postponed, queue.later) == (1, [message])
    # The first run has ended without publishing: the next one reads the object.
    world.executions.running.clear()
    result = checks.start_checks({"m2": message})
    assert (result.postponed, result.started, result.failed) == (0, (), {})


def test_messages_that_cannot_be_sent_again_are_delivered_again(world, checks, queue):
    world.add("flights", "2013-03-10", "20", name="late", rows=500)
    world.freeze("2013-03-10")
    queue.error = CloudError("no queue")
    assert checks.start_checks({"m1": body(world, "e1", "2013-03-10")}).failed == {"m1": "no queue"}


def test_messages_are_sent_again_in_batches_of_ten():
    sent = []

    class Sqs:
        def send_message_batch(self, **request):
            sent.append(request)
            return {"Failed": [{"Id": "0", "Code": "Throttled"}]} if "bad" in request["Entries"][0].values() else {}

    later = DelayedMessages(Sqs(), "url", 300)
    later([])
    assert sent == []
    later([str(number) for number in range(21)])
    assert [len(request["Entries"]) for request in sent] == [10, 10, 1]
    assert sent[2] == {"QueueUrl": "url", "Entries": [{"Id": "0", "MessageBody": "20", "DelaySeconds": 300}]}
    with pytest.raises(CloudError, match="Throttled"):
        later(["bad"])


@pytest.mark.parametrize("wrong", ["", "{", "[]", "{}", '{"id": "e", "key": 1}', '{"id": "e", "key": "k", "more": 1}'])
def test_a_message_of_another_form_fails_alone(world, checks, machine, wrong):
    result = checks.start_checks({"m1": wrong, "m2": body(world, "e2", "2013-03-10")})
    assert list(result.failed) == ["m1"]
    assert len(machine.started) == 1


def test_messages_whose_check_cannot_start_are_delivered_again_and_others_are_not(world, checks, machine):
    machine.error = Throttled("too many executions")
    messages = {"m1": body(world, "e1", "2013-03-10"), "m2": body(world, "e2", "2013-03-13", "17")}
    result = checks.start_checks(messages)
    assert result.failed == {"m1": "too many executions"}
    machine.error = None
    assert checks.start_checks({"m1": messages["m1"]}).failed == {}
    assert len(machine.started) == 1


def test_a_table_that_cannot_be_read_fails_the_messages_of_its_pipeline(world, checks, machine, monkeypatch):
    def fail(*_):
        raise CloudError("no table")

    monkeypatch.setattr(world.table, "day", fail)
    assert checks.start_checks({"m1": body(world, "e1", "2013-03-10")}).failed == {"m1": "no table"}


def test_the_handler_reports_failed_messages_and_counts_older_objects(world, checks, machine, monkeypatch):
    put = []
    monkeypatch.setattr(check_arrivals, "build_checks", lambda: checks)
    monkeypatch.setattr(
        check_arrivals, "put_metric", lambda metric, value, **subject: put.append((metric, value, subject))
    )
    bodies = {"m1": body(world, "e1", "2013-03-10"), "m2": "{", "m3": body(world, "e3", "2013-02-01")}
    records = [{"messageId": message, "body": text} for message, text in bodies.items()]
    assert check_arrivals.handler({"Records": records}, None) == {"batchItemFailures": [{"itemIdentifier": "m2"}]}
    assert put == [(Metric.LATE_OBJECTS_OLDER, 1, {"pipeline": PIPELINE})]


def test_the_machine_is_started_with_the_days_under_the_name_of_the_batch():
    calls = []

    class Machines:
        def start_once(self, arn, *, name, payload):
            calls.append((arn, name, payload))

    check_arrivals.MonitorMachine(Machines(), "arn")(name="arrival-1", pipeline="p", days=("2013-03-10",))
    payload = {"pipeline": "p", "days": ("2013-03-10",), "correlation_id": "arrival-1"}
    assert calls == [("arn", "arrival-1", payload)]


def check(world, *dates):
    return world.checker.check(pipeline=PIPELINE, as_of=None, dates=dates)


def test_a_check_of_some_days_decides_about_these_only(world):
    for day in ("2013-03-09", "2013-03-10"):
        world.add("flights", day, "20", name="late", rows=500)
    report = check(world, "2013-03-10", "2013-03-11")
    assert [(day.date, day.rule) for day in report.days] == [
        ("2013-03-10", DecisionRule.GROWN),
        ("2013-03-11", DecisionRule.UNCHANGED),
    ]
    assert day_tasks(report) == (DayTask(date="2013-03-10", action=DayAction.RERUN),)
    assert (report.as_of, report.complete) == ("2013-03-13", False)


def test_a_check_of_some_days_reads_nothing_else(world):
    # Listing an earlier day would be needed to find its last arrival.
    world.store.delete([uri for uri in world.store.objects if uri.startswith("s3://raw/")])
    report = check(world, "2013-03-10")
    assert (report.overdue, report.notifications_due, report.last_arrivals) == ((), (), {})


def test_days_that_have_left_the_window_meanwhile_are_left_out(world):
    report = check(world, "2013-03-01", "2013-03-14")
    assert (report.days, day_tasks(report)) == ((), ())


def test_a_due_notification_waits_for_the_complete_check(world):
    world.add("weather", "2013-03-10", "20", name="late", rows=1)
    world.publish("2013-03-10")
    assert day_tasks(check(world, "2013-03-10")) == ()
    assert [task.action for task in day_tasks(world.check())] == [DayAction.NOTIFY]


def test_a_second_check_of_a_day_that_is_running_again_starts_nothing(world):
    world.add("flights", "2013-03-10", "20", name="late", rows=500)
    world.freeze("2013-03-10")
    assert [day.rule for day in check(world, "2013-03-10").days] == [DecisionRule.RUNNING]
