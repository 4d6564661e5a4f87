"""Monitorings of exactly the published days that new objects have arrived for."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from lambdas import check_arrivals
from slackwater.aws.queue import MessageQueue
from slackwater.costs.cost import RunCost
from slackwater.errors import CloudError, Throttled
from slackwater.late.arrival_messages import day_deferred
from slackwater.late.check.arrival_checks import ArrivalChecks, execution_name
from slackwater.late.check.tasks import DayAction, DayTask, day_tasks
from slackwater.late.decision import DecisionRule
from slackwater.pipeline.table_inputs import TableInput
from slackwater.receiver.commits import file_committed
from slackwater.runs.arrivals import day_published
from slackwater.runs.record import DayRecord
from slackwater.sources.partitions import Partition
from tests.fakes_check import NOW, PIPELINE
from tests.fakes_functions import resources_of, use_resources
from tests.fakes_ledger import ArrivalQueueFake

pytestmark = pytest.mark.unit


class Machine:
    """The monitoring machine, which refuses a name that it knows."""

    def __init__(self):
        self.started = {}
        self.error = None

    def __call__(self, *, name, payload):
        if self.error:
            raise self.error
        assert payload == {"pipeline": payload["pipeline"], "days": payload["days"], "correlation_id": name}
        self.started.setdefault(name, (payload["pipeline"], payload["days"]))


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def queue():
    return ArrivalQueueFake()


def checks_of(world, machine, queue, updated=None):
    return ArrivalChecks(
        project=world.project,
        table=world.table,
        executions=world.executions,
        start=machine,
        send_later=queue,
        update_table=lambda source, partitions: updated.append((source, partitions)) if updated is not None else None,
        wake_source=lambda _source, _hours: None,
        now=world.now,
    )


@pytest.fixture
def checks(world, machine, queue):
    return checks_of(world, machine, queue)


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


def test_objects_of_published_days_before_the_window_are_counted(world, checks, machine):
    # The window of seven days begins on 2013-03-09.
    world.time += timedelta(days=3)
    days = {"m1": "2013-03-08", "m2": "2013-03-10", "m3": "2013-02-01", "m4": "2013-03-07"}
    result = checks.start_checks({message: body(world, message, day) for message, day in days.items()})
    assert (result.older, len(machine.started)) == ({PIPELINE: 1}, 1)


def test_an_object_of_two_days_is_not_counted_if_one_of_them_is_in_the_window(world, machine, queue):
    definition = world.project.pipelines[PIPELINE]
    # In India a day begins at 18:30 UTC: this hour belongs to 2013-03-08 and 2013-03-09.
    changed = {PIPELINE: definition.model_copy(update={"timezone": "Asia/Kolkata"})}
    world.project = world.project.model_copy(update={"pipelines": changed})
    message = {"m1": body(world, "e1", "2013-03-08", "18")}
    for days, count in ((3, {}), (4, {PIPELINE: 1})):
        world.time = NOW + timedelta(days=days)
        assert checks_of(world, machine, queue).start_checks(message).older == count


def test_tables_follow_the_partitions_of_all_messages_also_of_days_that_start_nothing(world, machine, queue):
    updated = []
    file = next(file_committed("weather", [Partition("2013-01-01", "03"), Partition("2013-01-01", "04")], time=NOW))
    messages = {
        "m1": body(world, "e1", "2013-03-10"),
        "m2": body(world, "e2", "2013-03-13", "17"),
        "m3": file.model_dump_json(),
        "m4": day_published(PIPELINE, "2013-03-10", time=NOW).model_dump_json(),
        "m5": json.dumps({"id": "e5", "key": "raw/source=removed/date=2013-03-10/hour=20/a.parquet"}),
        "m6": "no message",
    }
    checks_of(world, machine, queue, updated).start_checks(messages)
    assert updated == [
        ("flights", {Partition("2013-03-10", "20"), Partition("2013-03-13", "17")}),
        ("weather", {Partition("2013-01-01", "03"), Partition("2013-01-01", "04")}),
    ]


def test_no_batch_is_no_work(checks, machine):
    assert checks.start_checks({}).failed == {}
    assert machine.started == {}


def test_an_object_of_a_running_day_is_looked_at_again_later(world, checks, machine, queue):
    world.add("flights", "2013-03-10", "20", name="late", rows=500)
    world.freeze("2013-03-10")
    messages = {"m1": timed(world, "e1", "2013-03-10"), "m2": timed(world, "e2", "2013-03-09")}
    result = checks.start_checks(messages)
    assert (queue.bodies, queue.delays, result.postponed, result.failed) == ([messages["m1"]], [300], 1, {})
    assert [days for _, days in machine.started.values()] == [("2013-03-09",)]
    # The execution has died, or ended: the record of a day may still name it.
    world.executions.running.clear()
    result = checks.start_checks({"m3": queue.bodies.pop()})
    assert [check.days for check in result.started] == [("2013-03-10",)]
    assert queue.bodies == []


def test_an_object_that_arrives_during_the_first_run_of_its_day_is_looked_at_again_later(world, checks, queue):
    world.freeze("2013-03-07")
    assert world.table.day(PIPELINE, "2013-03-07").published is None
    message = timed(world, "e1", "2013-03-07")
    assert (checks.start_checks({"m1": message}).postponed, queue.bodies) == (1, [message])
    # The first run has ended without publishing: the next one reads the object.
    world.executions.running.clear()
    result = checks.start_checks({"m2": message})
    assert (result.postponed, result.started, result.failed) == (0, (), {})


def deferred(world, _event, day):
    return day_deferred(PIPELINE, day, not_before=world.now()).model_dump_json()


def timed(world, event, day):
    return json.dumps(json.loads(body(world, event, day)) | {"time": world.now().isoformat()})


@pytest.mark.parametrize("message_of", [deferred, timed, body])
def test_a_message_about_a_day_that_runs_for_days_becomes_a_dead_letter(world, checks, machine, queue, message_of):
    message = message_of(world, "e1", "2013-03-10")
    world.add("flights", "2013-03-10", "20", name="late", rows=500)
    world.freeze("2013-03-10")
    if message_of is body:
        # A message of an older version has no time: its four days begin when it is sent again.
        assert checks.start_checks({"m1": message}).postponed == 1
        sent = json.loads(message) | {"time": world.now().isoformat().replace("+00:00", "Z")}
        message = queue.bodies.pop()
        assert (json.loads(message), queue.delays.pop()) == (sent, 300)
    for _ in range(4 * 24 + 1):
        result = checks.start_checks({"m1": message})
        assert (result.failed, result.postponed, queue.bodies.pop(), queue.delays.pop()) == ({}, 1, message, 300)
        world.time += timedelta(hours=1)
    # SQS keeps a message for four days as well. Five failed attempts make it a dead letter, and an alarm fires.
    result = checks.start_checks({"m1": message})
    assert result.failed == {"m1": "daily_delays 2013-03-10: its run has not ended 4 days after this message"}
    assert (result.postponed, queue.bodies, machine.started) == (0, [], {})
    world.executions.running.clear()
    assert [check.days for check in checks.start_checks({"m1": message}).started] == [("2013-03-10",)]


def test_messages_that_cannot_be_sent_again_are_delivered_again(world, checks, queue):
    world.add("flights", "2013-03-10", "20", name="late", rows=500)
    world.freeze("2013-03-10")
    queue.error = CloudError("no queue")
    result = checks.start_checks({"m1": body(world, "e1", "2013-03-10")})
    assert (result.failed, result.postponed) == ({"m1": "no queue"}, 0)


class Sqs:
    """A queue that refuses the message `bad`."""

    def __init__(self):
        self.sent = []

    def send_message_batch(self, **request):
        self.sent.append(request)
        is_bad = "bad" in request["Entries"][0].values()
        return {"Failed": [{"Id": "0", "Code": "Throttled"}]} if is_bad else {}


def test_messages_are_sent_in_batches_of_ten():
    sqs = Sqs()
    send = MessageQueue(sqs, "url")
    send([])
    assert sqs.sent == []
    send([(str(number), number) for number in range(21)])
    assert [len(request["Entries"]) for request in sqs.sent] == [10, 10, 1]
    assert sqs.sent[2] == {"QueueUrl": "url", "Entries": [{"Id": "0", "MessageBody": "20", "DelaySeconds": 20}]}
    with pytest.raises(CloudError, match="Throttled"):
        send([("bad", 0)])


def test_without_a_queue_nothing_is_sent():
    sqs = Sqs()
    MessageQueue(sqs, "")([("body", 0)])
    assert sqs.sent == []


def committed(world, *partitions, source="flights"):
    """The bodies of the messages after a commit now."""
    messages = file_committed(source, [Partition(*partition) for partition in partitions], time=world.now())
    return {f"m{number}": message.model_dump_json() for number, message in enumerate(messages)}


def test_a_check_starts_when_the_rows_of_a_pulled_file_count_not_only_when_they_are_written(world, checks, machine):
    written = body(world, "e1", "2013-03-10")
    checks.start_checks({"m1": written})
    result = checks.start_checks(committed(world, ("2013-03-10", "20"), ("2013-03-11", "20")))
    assert [check.days for check in result.started] == [("2013-03-10", "2013-03-11")]
    # Delivered in one batch, both lead to one check.
    result = checks.start_checks(committed(world, ("2013-03-10", "20")) | {"e": written})
    assert [check.days for check in result.started] == [("2013-03-10",)]


def test_a_file_that_is_committed_after_a_run_has_listed_an_older_day_puts_the_day_on_the_list(world, checks):
    written = json.loads(body(world, "e1", "2013-03-08"))
    world.time = NOW + timedelta(days=30)
    before = world.now() - timedelta(minutes=1)
    # The object is written, the day runs again for another reason and ignores it, and then the file is committed.
    world.add("flights", "2013-03-08", "21", name="other")
    world.publish("2013-03-08")
    result = checks.start_checks({"m": json.dumps(written | {"time": before.isoformat()})})
    assert (result.older, world.table.late_days(PIPELINE, last="2013-04-30")) == ({PIPELINE: 1}, [])
    world.time += timedelta(seconds=2)
    assert checks.start_checks(committed(world, ("2013-03-08", "20"))).older == {}
    (listed,) = world.table.late_days(PIPELINE, last="2013-04-30")
    assert (listed.date, listed.objects) == ("2013-03-08", 0)


def test_a_deferred_day_is_checked_when_it_may_run_again(world, checks, machine, queue):
    until = world.now() + timedelta(minutes=40)
    message = day_deferred(PIPELINE, "2013-03-10", not_before=until).model_dump_json()
    waited = []
    while not machine.started:
        # Several checks have deferred the day: their messages are one from here on.
        sent, queue.bodies, queue.delays = queue.bodies or [message, message], [], []
        result = checks.start_checks(dict(enumerate(sent)))
        assert (len(queue.bodies), result.postponed, result.failed) == ((0, 0, {}) if machine.started else (1, 1, {}))
        waited += queue.delays
        world.time += timedelta(seconds=sum(queue.delays))
    assert (waited, world.now()) == ([900, 900, 600], until)
    assert list(machine.started.values()) == [(PIPELINE, ("2013-03-10",))]
    # A message that is delivered again starts nothing.
    checks.start_checks({"m9": message})
    assert len(machine.started) == 1


def test_a_deferred_day_that_has_left_the_window_starts_nothing(world, checks, machine):
    world.time += timedelta(days=30)
    message = day_deferred(PIPELINE, "2013-03-10", not_before=NOW)
    result = checks.start_checks({"m1": message.model_dump_json()})
    assert (machine.started, result.failed, result.older, world.table.late) == ({}, {}, {}, {})


def upstream_published(world, on_change="auto"):
    """The body of the message that the day of a table has been published, of which the pipeline's days are the same."""
    definition = world.project.pipelines[PIPELINE]
    tables = {"up": TableInput(table="upstream", missing="empty", on_change=on_change)}
    upstream, changed = (
        definition.model_copy(update=update) for update in ({"pipeline": "upstream"}, {"tables": tables})
    )
    world.project = world.project.model_copy(update={"pipelines": {"upstream": upstream, PIPELINE: changed}})
    return {day: day_published("upstream", day, time=world.now()).model_dump_json() for day in ("2013-03-10", NEVER)}


NEVER = "2013-03-07"
"""A day of the window that was never published."""


@pytest.mark.parametrize(("on_change", "listed"), [("auto", ["2013-03-10"]), ("hold", ["2013-03-10"]), ("notify", [])])
def test_a_day_that_has_read_a_table_is_checked_when_the_table_has_changed(world, machine, queue, on_change, listed):
    messages = upstream_published(world, on_change)
    result = checks_of(world, machine, queue).start_checks(messages)
    assert [(check.pipeline, check.days) for check in result.started] == [(PIPELINE, ("2013-03-10",))]
    days = world.table.late_days(PIPELINE, last="2013-04-30")
    assert [(day.date, day.objects) for day in days] == [(date, 0) for date in listed]


def test_a_day_that_was_run_after_its_table_had_changed_is_not_listed_as_late(world, machine, queue):
    messages = upstream_published(world)
    world.time += timedelta(minutes=1)
    world.add("flights", "2013-03-10", "20", name="late", rows=500)
    world.publish("2013-03-10")
    checks_of(world, machine, queue).start_checks(messages)
    assert world.table.late_days(PIPELINE, last="2013-04-30") == []


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
    failed = checks.start_checks({"m1": body(world, "e1", "2013-03-10")}).failed
    assert failed == {"m1": "daily_delays 2013-03-10: no table"}


@pytest.mark.parametrize("broken", ["day", "run", "record_late_day", "is_running"])
def test_a_day_that_fails_fails_its_own_messages_only(world, checks, machine, monkeypatch, broken):
    if broken == "is_running":
        world.add("flights", "2013-03-10", "21", name="late")
        world.freeze("2013-03-10")
    owner = world.executions if broken == "is_running" else world.table
    call = getattr(owner, broken)

    def fail(*arguments, **options):
        if "2013-03-10" in arguments or broken == "is_running":
            DayRecord.model_validate_json('{"pipeline": 1}')
        return call(*arguments, **options)

    monkeypatch.setattr(owner, broken, fail)
    days = {"m1": "2013-03-10", "m2": "2013-03-09", "m3": "2013-02-01"}
    messages = {message: body(world, message, day) for message, day in days.items()}
    result = checks.start_checks(messages)
    assert (list(result.failed), [days for _, days in machine.started.values()]) == (["m1"], [("2013-03-09",)])
    assert result.failed["m1"].startswith("daily_delays 2013-03-10: DayRecord: ")
    assert [day.date for day in world.table.late_days(PIPELINE, last="2013-04-30")] == ["2013-03-09"]


def test_the_handler_reports_failed_messages_and_lists_published_days_for_the_ledger(world, checks, monkeypatch):
    use_resources(monkeypatch, check_arrivals, arrival_checks=checks)
    world.time += timedelta(days=3)
    bodies = {"m1": body(world, "e1", "2013-03-10"), "m2": "{", "m3": body(world, "e3", "2013-03-08")}
    records = [{"messageId": message, "body": text} for message, text in bodies.items()]
    assert check_arrivals.handler({"Records": records}, None) == {"batchItemFailures": [{"itemIdentifier": "m2"}]}
    assert [day.date for day in world.table.ledger_days(PIPELINE)] == ["2013-03-08", "2013-03-10"]


def test_of_days_that_were_never_published_only_older_ones_with_data_of_a_source_are_listed_for_the_ledger(
    world, checks
):
    checks.start_checks({day: body(world, day, day) for day in ("2013-03-07", "2013-03-01")})
    assert [day.date for day in world.table.ledger_days(PIPELINE)] == ["2013-03-01"]


def test_the_machine_is_started_with_the_days_under_the_name_of_the_batch():
    calls = []

    class StateMachines:
        def start_once(self, arn, *, name, payload):
            calls.append((arn, name, payload))

    resources = resources_of({"monitor_machine": "arn"}, project=None, run_table=None, state_machines=StateMachines())
    payload = {"pipeline": "p", "days": ("2013-03-10",), "correlation_id": "arrival-1"}
    check_arrivals.arrival_checks(resources).start(name="arrival-1", payload=payload)
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


PRICE = 0.5
"""Of a run, in USD."""


def with_budget(world, budget):
    definition = world.project.pipelines[PIPELINE]
    late = definition.late.model_copy(update={"budget_per_day": budget})
    changed = definition.model_copy(update={"late": late})
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: changed}})
    for record in list(world.table.records.values()):
        world.table.save_cost(record.model_copy(update={"cost": RunCost(usd=PRICE, complete=True)}))


def test_days_that_wait_for_the_budget_keep_their_order_in_a_check_of_another_day(world):
    first = "2013-03-09"
    with_budget(world, 1.5 * PRICE)
    late = {"2013-03-12": 700, "2013-03-09": 400, "2013-03-10": 600, "2013-03-11": 500}
    for date, rows in late.items():
        world.add("flights", date, "20", name="late", rows=rows)
        check(world, date)
        if date == "2013-03-12":
            world.publish(date)  # what is left of today's budget does not suffice for the others
    waiting = sorted(late.keys() - {"2013-03-12"})
    assert {day.rule for day in check(world, *waiting).days} == {DecisionRule.OVER_BUDGET}
    world.time += timedelta(days=1)
    report = check(world, next(date for date in waiting if date != first))
    assert [task.date for task in day_tasks(report)] == [first]
    assert [day.date for day in report.days if day.rule is DecisionRule.OVER_BUDGET] == [
        date for date in waiting if date != first
    ]
    # Its run is active: another check neither decides about it nor has it checked again.
    world.freeze(first)
    report = check(world, next(date for date in waiting if date != first))
    assert [day.date for day in report.days] == [date for date in waiting if date != first]


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
