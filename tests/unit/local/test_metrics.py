"""The local cloud's metrics from log lines and queues, states of alarms, and dead letters."""

from __future__ import annotations

import json
import time

import pytest
from ministack.core.responses import request_scope
from ministack.services import cloudwatch, cloudwatch_logs, sns, sqs, stepfunctions

from slackwater.local.services import queues
from slackwater.local.services.monitoring import (
    AlarmDefinition,
    AlarmState,
    MetricDatum,
    Monitoring,
    evaluate,
    period_index,
    read_metrics,
)

pytestmark = pytest.mark.unit

NOW = 1_700_000_000


def line(directives, **members):
    return json.dumps({"_aws": {"Timestamp": NOW * 1000, "CloudWatchMetrics": directives}, **members})


def directive(*metrics, dimensions=(("pipeline",),)):
    definitions = [{"Name": name, "Unit": "Count"} for name in metrics]
    return {"Namespace": "N", "Dimensions": [list(names) for names in dimensions], "Metrics": definitions}


def test_every_metric_is_read_with_every_set_of_dimensions():
    both = directive("Runs", "Days", dimensions=[["pipeline"], ["pipeline", "stage"], []])
    read = list(read_metrics(line([both], pipeline="p", stage="z", Runs=1, Days=[2, 3.5])))
    sets = [{"pipeline": "p"}, {"pipeline": "p", "stage": "z"}, {}]
    assert read == [
        MetricDatum("N", name, dimensions, "Count", NOW, values)
        for name, values in (("Runs", (1,)), ("Days", (2, 3.5)))
        for dimensions in sets
    ]


def test_several_directives_are_read_and_a_unit_may_be_left_out():
    second = {"Namespace": "M", "Dimensions": [], "Metrics": [{"Name": "Runs", "StorageResolution": 1}]}
    read = list(read_metrics(line([directive("Runs"), second], pipeline="p", Runs=1)))
    assert [(datum.namespace, datum.dimensions, datum.unit) for datum in read] == [
        ("N", {"pipeline": "p"}, "Count"),
        ("M", {}, "None"),
    ]


@pytest.mark.parametrize(
    "members",
    [
        {"pipeline": "p"},
        {"pipeline": "p", "Runs": "1"},
        {"pipeline": "p", "Runs": True},
        {"pipeline": "p", "Runs": [1, "2"]},
        {"pipeline": "p", "Runs": []},
        {"pipeline": "p", "Runs": [1] * 101},
        {"Runs": 1},
        {"pipeline": 7, "Runs": 1},
    ],
)
def test_metrics_without_values_are_skipped(members):
    assert list(read_metrics(line([directive("Runs")], **members))) == []


@pytest.mark.parametrize(
    "other_line",
    [
        "START RequestId: 1",
        '{"level": "INFO", "message": "\\"_aws\\" is no metadata"}',
        '"_aws"',
        '["_aws"]',
        '{"_aws": 1}',
        '{"_aws": {"CloudWatchMetrics": []}}',
        '{"_aws": {"Timestamp": 1, "CloudWatchMetrics": [{"Namespace": "N"}]}}',
        '{"_aws": ',
    ],
)
def test_other_lines_have_no_metrics(other_line):
    assert list(read_metrics(other_line)) == []


def definition(missing, *, periods=3, to_alarm=None, comparison="GreaterThanOrEqualToThreshold"):
    counts = {"evaluation_periods": periods, "datapoints_to_alarm": to_alarm or periods}
    return AlarmDefinition(period=60, threshold=1, comparison=comparison, missing=missing, **counts)


RETAINED = "RETAINED"
MISSING = ("missing", "ignore", "breaching", "notBreaching")
"""In the order of the columns of CloudWatch's documentation."""


@pytest.mark.parametrize(
    ("points", "to_alarm", "states"),
    [
        ("0 - X - X", 3, "OK OK OK OK"),
        ("- - - - 0", 3, "OK OK OK OK"),
        ("- - - - -", 3, "INSUFFICIENT_DATA RETAINED ALARM OK"),
        ("0 X X - X", 3, "ALARM ALARM ALARM ALARM"),
        ("- - X - -", 3, "ALARM RETAINED ALARM OK"),
        ("0 - X - X", 2, "ALARM ALARM ALARM ALARM"),
        ("0 0 X 0 X", 2, "ALARM ALARM ALARM ALARM"),
        ("0 - X - -", 2, "OK OK ALARM OK"),
        ("- - - - 0", 2, "OK OK ALARM OK"),
        ("- - - X -", 2, "ALARM RETAINED ALARM OK"),
        # Pulls of three hours: all of them, or all but the latest one, have left files.
        ("- - X X X", 3, "ALARM ALARM ALARM ALARM"),
        ("- - X X 0", 3, "OK OK OK OK"),
    ],
)
def test_missing_data_is_treated_as_cloudwatch_documents_it(points, to_alarm, states):
    values = [{"-": None, "0": 0.0, "X": 1.0}[point] for point in reversed(points.split())]
    for missing, state in zip(MISSING, states.split(), strict=True):
        for current in AlarmState:
            result = evaluate(values, definition(missing, to_alarm=to_alarm), current=current)
            assert result == (current if state == RETAINED else state), missing


def test_an_alarm_does_not_fire_before_there_is_enough_data():
    assert evaluate([1.0, None, None, None, None], definition("missing"), current=AlarmState.OK) is AlarmState.OK


@pytest.mark.parametrize("missing", MISSING)
def test_the_latest_data_decides_about_an_alarm_of_one_period(missing):
    assert evaluate([None, 1.0, 0.0], definition(missing, periods=1), current=AlarmState.OK) is AlarmState.ALARM
    assert evaluate([0.0, 1.0, 1.0], definition(missing, periods=1), current=AlarmState.ALARM) is AlarmState.OK


@pytest.mark.parametrize(
    ("comparison", "breaching"),
    [
        ("GreaterThanOrEqualToThreshold", [1, 2]),
        ("GreaterThanThreshold", [2]),
        ("LessThanThreshold", [0]),
        ("LessThanOrEqualToThreshold", [0, 1]),
    ],
)
def test_a_value_breaches_by_the_comparison(comparison, breaching):
    compared = definition("missing", comparison=comparison)
    assert [value for value in (0, 1, 2) if compared.breaches(value)] == breaching


def test_periods_are_counted_backwards_and_the_future_belongs_to_the_current_one():
    ages = [period_index(at, now=NOW, period=60) for at in (NOW + 5, NOW, NOW - 59, NOW - 60, NOW - 120)]
    assert ages == [0, 0, 0, 1, 2]


@pytest.fixture
def touched():
    return []


@pytest.fixture
def monitoring(monkeypatch, touched):
    """Monitoring, registered with the emulator until the test ends."""
    for module, name in (
        (cloudwatch_logs, "_append_log_events"),
        (stepfunctions, "_fail_execution"),
        (cloudwatch, "_evaluate_alarm"),
        (sns, "_deliver_to_sqs"),
        (sqs, "_receive_messages_for_esm"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    adapter = Monitoring(lambda: touched.append(1))
    adapter.register()
    queues.register()
    yield adapter
    for module in (cloudwatch, sns, sqs, stepfunctions):
        module.reset()


def alarm(name="alarm", *, missing="notBreaching", pipeline="p", **more):
    document = {
        "AlarmName": name,
        "AlarmArn": f"arn:aws:cloudwatch:us-east-1:000000000000:alarm:{name}",
        "Namespace": "N",
        "MetricName": "Runs",
        "Dimensions": [{"Name": "pipeline", "Value": pipeline}],
        "Statistic": "Sum",
        "Period": 300,
        "EvaluationPeriods": 1,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "TreatMissingData": missing,
        "StateValue": "INSUFFICIENT_DATA",
        "StateReason": "new",
        "ActionsEnabled": True,
        **more,
    }
    cloudwatch.cloudformation_put_metric_alarm(document)
    return document


def log(line):
    stream = {"events": [], "firstEventTimestamp": None, "lastEventTimestamp": None, "lastIngestionTime": None}
    cloudwatch_logs._append_log_events(stream, [{"timestamp": 1, "message": line, "ingestionTime": 1}])


def ran(pipeline="p", ago=0):
    document = {"Timestamp": int((time.time() - ago) * 1000), "CloudWatchMetrics": [directive("Runs")]}
    log(json.dumps({"_aws": document, "pipeline": pipeline, "Runs": [1.0]}))


def test_an_alarm_fires_for_its_own_dimensions_only(monitoring):
    mine, other = alarm("mine"), alarm("other", pipeline="q")
    ran("p")
    assert monitoring.step(time.time())
    assert (mine["StateValue"], other["StateValue"]) == ("ALARM", "OK")
    assert "GreaterThanOrEqualToThreshold 1" in mine["StateReason"]


def test_an_alarm_returns_to_ok_when_its_data_is_too_old(monitoring):
    firing = alarm(StateValue="ALARM")
    ran(ago=901)
    monitoring.step(time.time())
    assert firing["StateValue"] == "OK"


def test_a_step_without_changes_is_not_saved(monitoring):
    alarm()
    monitoring.step(time.time())
    assert not monitoring.step(time.time())
    log("START RequestId: 1")
    assert not monitoring.step(time.time())


def test_an_alarm_is_evaluated_and_a_metric_put_in_their_own_account_and_region(monitoring):
    with request_scope("111111111111", "eu-west-1"):
        other_alarm = alarm()
        ran()
    own_alarm = alarm()
    monitoring.step(time.time())
    assert (other_alarm["StateValue"], own_alarm["StateValue"]) == ("ALARM", "OK")


def test_an_unsupported_alarm_keeps_its_state(monitoring):
    band = alarm(ComparisonOperator="GreaterThanUpperThreshold")
    ran()
    monitoring.step(time.time())
    assert (band["StateValue"], band["StateReason"]) == ("INSUFFICIENT_DATA", "new")


def measured(metric):
    series = [points for (_, _, (_, name, _)), points in cloudwatch._metrics.all_items() if name == metric]
    return [(point["Dimensions"]["QueueName"], point["Value"]) for points in series for point in points]


def test_a_queue_is_measured_when_it_changes_and_each_minute_while_something_waits(monitoring):
    url = sqs._act_create_queue({"QueueName": "q"}, "")["QueueUrl"]
    now = time.time()
    assert monitoring.step(now)
    assert not monitoring.step(now + 100)
    sqs._act_send_message({"QueueUrl": url, "MessageBody": "m"}, url)
    assert [monitoring.step(now + seconds) for seconds in (101, 102, 160, 161, 162)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert measured("ApproximateNumberOfMessagesVisible") == [("q", 0), ("q", 1), ("q", 1)]
    assert measured("ApproximateAgeOfOldestMessage") == [
        ("q", 0),
        ("q", pytest.approx(101, abs=2)),
        ("q", pytest.approx(161, abs=2)),
    ]


def test_a_message_in_flight_still_has_an_age(monitoring):
    url = sqs._act_create_queue({"QueueName": "q"}, "")["QueueUrl"]
    sqs._act_send_message({"QueueUrl": url, "MessageBody": "m"}, url)
    sqs._receive_messages_for_esm(url, 1)
    monitoring.step(time.time() + 700)
    assert measured("ApproximateNumberOfMessagesVisible") == [("q", 0)]
    assert measured("ApproximateAgeOfOldestMessage") == [("q", pytest.approx(700, abs=2))]


def executed(name, state):
    """Run a state machine of one state to its end."""
    definition = json.dumps({"StartAt": "only", "States": {"only": state}})
    role = "arn:aws:iam::000000000000:role/any"
    created = stepfunctions._create_state_machine({"name": name, "definition": definition, "roleArn": role})
    arn = json.loads(created[2])["stateMachineArn"]
    return arn, json.loads(stepfunctions._start_sync_execution({"stateMachineArn": arn})[2])["status"]


def test_an_execution_that_fails_is_measured_by_its_state_machine(monitoring):
    machine = "arn:aws:states:us-east-1:000000000000:stateMachine:{}".format
    metric = {"Namespace": "AWS/States", "MetricName": "ExecutionsFailed"}
    failing, other = (
        alarm(name, **metric, Dimensions=[{"Name": "StateMachineArn", "Value": machine(name)}])
        for name in ("fails", "ends")
    )
    assert executed("fails", {"Type": "Fail", "Error": "E"}) == (machine("fails"), "FAILED")
    assert executed("ends", {"Type": "Succeed"}) == (machine("ends"), "SUCCEEDED")
    assert monitoring.step(time.time())
    assert (failing["StateValue"], other["StateValue"]) == ("ALARM", "OK")


@pytest.fixture
def topic():
    arn = "arn:aws:sns:us-east-1:000000000000:t"
    sns._topics[arn] = {"arn": arn, "subscriptions": [], "attributes": {}}
    return arn


def subscribed(topic, queue, **attributes):
    endpoint = f"arn:aws:sqs:us-east-1:000000000000:{queue}"
    settings = {"RawMessageDelivery": "false", "FilterPolicy": "", **attributes}
    sns._topics[topic]["subscriptions"].append(
        {
            "arn": f"{topic}:1",
            "topic_arn": topic,
            "protocol": "sqs",
            "endpoint": endpoint,
            "confirmed": True,
            "attributes": settings,
        }
    )


def bodies(queue):
    return [json.loads(message["body"])["Message"] for message in sqs._queue_by_arn(queue)["messages"]]


def test_a_message_whose_queue_is_gone_goes_to_the_dead_letters(monitoring, topic):
    sqs._act_create_queue({"QueueName": "dead"}, "")
    dead = "arn:aws:sqs:us-east-1:000000000000:dead"
    subscribed(topic, "gone", RedrivePolicy=json.dumps({"deadLetterTargetArn": dead}))
    sns._fanout(topic, "id", "text", "subject")
    assert bodies(dead) == ["text"]
    sqs._act_create_queue({"QueueName": "gone"}, "")
    sns._fanout(topic, "id", "delivered", "subject")
    assert bodies(dead) == ["text"]
    assert bodies("arn:aws:sqs:us-east-1:000000000000:gone") == ["delivered"]


def test_a_subscription_without_a_redrive_policy_loses_its_message(monitoring, topic):
    subscribed(topic, "gone")
    sns._fanout(topic, "id", "text", "subject")
    assert measured("ApproximateNumberOfMessagesVisible") == []
