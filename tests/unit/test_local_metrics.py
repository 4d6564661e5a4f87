"""How the local cloud reads metrics from log lines, judges alarms, measures queues and keeps dead letters."""

from __future__ import annotations

import json
import time

import pytest
from ministack.core.responses import request_scope
from ministack.services import cloudwatch, cloudwatch_logs, sns, sqs, stepfunctions

from slackwater.local.alarms import Rule, State, judge, period_of
from slackwater.local.emf import Datum, data
from slackwater.local.monitoring import Monitoring

pytestmark = pytest.mark.unit

NOW = 1_700_000_000


def line(directives, **members):
    return json.dumps({"_aws": {"Timestamp": NOW * 1000, "CloudWatchMetrics": directives}, **members})


def directive(*metrics, dimensions=(("pipeline",),)):
    definitions = [{"Name": name, "Unit": "Count"} for name in metrics]
    return {"Namespace": "N", "Dimensions": [list(names) for names in dimensions], "Metrics": definitions}


def test_every_metric_is_read_with_every_set_of_dimensions():
    both = directive("Runs", "Days", dimensions=[["pipeline"], ["pipeline", "zone"], []])
    read = list(data(line([both], pipeline="p", zone="z", Runs=1, Days=[2, 3.5])))
    sets = [{"pipeline": "p"}, {"pipeline": "p", "zone": "z"}, {}]
    assert read == [
        Datum("N", name, of, "Count", NOW, v) for name, v in (("Runs", (1,)), ("Days", (2, 3.5))) for of in sets
    ]


def test_several_directives_are_read_and_a_unit_may_be_left_out():
    second = {"Namespace": "M", "Dimensions": [], "Metrics": [{"Name": "Runs", "StorageResolution": 1}]}
    read = list(data(line([directive("Runs"), second], pipeline="p", Runs=1)))
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
def test_what_is_named_and_does_not_stand_there_is_passed_over(members):
    assert list(data(line([directive("Runs")], **members))) == []


@pytest.mark.parametrize(
    "text",
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
def test_any_other_line_says_nothing_of_metrics(text):
    assert list(data(text)) == []


def rule(missing, *, periods=3, to_alarm=None, comparison="GreaterThanOrEqualToThreshold"):
    of = {"period": 60, "periods": periods, "to_alarm": to_alarm or periods, "threshold": 1}
    return Rule(comparison=comparison, missing=missing, **of)


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
    ],
)
def test_data_that_is_missing_is_treated_as_cloudwatch_documents_it(points, to_alarm, states):
    values = [{"-": None, "0": 0.0, "X": 1.0}[point] for point in reversed(points.split())]
    for missing, state in zip(MISSING, states.split(), strict=True):
        for current in State:
            found = judge(values, rule(missing, to_alarm=to_alarm), current=current)
            assert found == (current if state == RETAINED else state), missing


def test_an_alarm_does_not_ring_before_there_is_enough_data_to_ring():
    assert judge([1.0, None, None, None, None], rule("missing"), current=State.OK) is State.OK


@pytest.mark.parametrize("missing", MISSING)
def test_the_latest_data_decides_about_an_alarm_of_one_period(missing):
    assert judge([None, 1.0, 0.0], rule(missing, periods=1), current=State.OK) is State.ALARM
    assert judge([0.0, 1.0, 1.0], rule(missing, periods=1), current=State.ALARM) is State.OK


@pytest.mark.parametrize(
    ("comparison", "breaching"),
    [
        ("GreaterThanOrEqualToThreshold", [1, 2]),
        ("GreaterThanThreshold", [2]),
        ("LessThanThreshold", [0]),
        ("LessThanOrEqualToThreshold", [0, 1]),
    ],
)
def test_a_value_breaches_as_the_comparison_says(comparison, breaching):
    compared = rule("missing", comparison=comparison)
    assert [value for value in (0, 1, 2) if compared.breaches(value)] == breaching


def test_periods_are_counted_from_now_backwards_and_what_is_ahead_is_now():
    ages = [period_of(at, now=NOW, period=60) for at in (NOW + 5, NOW, NOW - 59, NOW - 60, NOW - 120)]
    assert ages == [0, 0, 0, 1, 2]


@pytest.fixture
def touched():
    return []


@pytest.fixture
def monitoring(monkeypatch, touched):
    """The adapter, entered in the emulator's tables, which are as they were afterwards."""
    for module, name in (
        (cloudwatch_logs, "_append_log_events"),
        (stepfunctions, "_fail_execution"),
        (cloudwatch, "_evaluate_alarm"),
        (sns, "_deliver_to_sqs"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    adapter = Monitoring(lambda: touched.append(1))
    adapter.register()
    yield adapter
    for module in (cloudwatch, sns, sqs, stepfunctions):
        module.reset()


def alarm(name="alarm", *, missing="notBreaching", of="p", **more):
    made = {
        "AlarmName": name,
        "AlarmArn": f"arn:aws:cloudwatch:us-east-1:000000000000:alarm:{name}",
        "Namespace": "N",
        "MetricName": "Runs",
        "Dimensions": [{"Name": "pipeline", "Value": of}],
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
    cloudwatch.cloudformation_put_metric_alarm(made)
    return made


def log(text):
    stream = {"events": [], "firstEventTimestamp": None, "lastEventTimestamp": None, "lastIngestionTime": None}
    cloudwatch_logs._append_log_events(stream, [{"timestamp": 1, "message": text, "ingestionTime": 1}])


def ran(of="p", ago=0):
    document = {"Timestamp": int((time.time() - ago) * 1000), "CloudWatchMetrics": [directive("Runs")]}
    log(json.dumps({"_aws": document, "pipeline": of, "Runs": [1.0]}))


def test_an_alarm_rings_for_its_own_dimensions_only(monitoring):
    mine, other = alarm("mine"), alarm("other", of="q")
    ran("p")
    assert monitoring.step(time.time())
    assert (mine["StateValue"], other["StateValue"]) == ("ALARM", "OK")
    assert "GreaterThanOrEqualToThreshold 1" in mine["StateReason"]


def test_an_alarm_goes_out_when_its_data_is_too_old(monitoring):
    ringing = alarm(StateValue="ALARM")
    ran(ago=901)
    monitoring.step(time.time())
    assert ringing["StateValue"] == "OK"


def test_what_changes_nothing_is_not_to_be_kept(monitoring):
    alarm()
    monitoring.step(time.time())
    assert not monitoring.step(time.time())
    log("START RequestId: 1")
    assert not monitoring.step(time.time())


def test_an_alarm_is_evaluated_and_a_metric_put_in_their_own_account_and_region(monitoring):
    with request_scope("111111111111", "eu-west-1"):
        there = alarm()
        ran()
    here = alarm()
    monitoring.step(time.time())
    assert (there["StateValue"], here["StateValue"]) == ("ALARM", "OK")


def test_an_alarm_that_this_cloud_cannot_judge_stays_as_it_is(monitoring):
    band = alarm(ComparisonOperator="GreaterThanUpperThreshold")
    ran()
    monitoring.step(time.time())
    assert (band["StateValue"], band["StateReason"]) == ("INSUFFICIENT_DATA", "new")


def measured(metric):
    found = [points for (_, _, (_, name, _)), points in cloudwatch._metrics.all_items() if name == metric]
    return [(point["Dimensions"]["QueueName"], point["Value"]) for points in found for point in points]


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


def test_a_message_that_is_being_received_has_an_age_still(monitoring):
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
    made = stepfunctions._create_state_machine({"name": name, "definition": definition, "roleArn": role})
    arn = json.loads(made[2])["stateMachineArn"]
    return arn, json.loads(stepfunctions._start_sync_execution({"stateMachineArn": arn})[2])["status"]


def test_an_execution_that_fails_is_measured_by_its_state_machine(monitoring):
    machine = "arn:aws:states:us-east-1:000000000000:stateMachine:{}".format
    of = {"Namespace": "AWS/States", "MetricName": "ExecutionsFailed"}
    failing, other = (
        alarm(name, **of, Dimensions=[{"Name": "StateMachineArn", "Value": machine(name)}])
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
    kept = {"RawMessageDelivery": "false", "FilterPolicy": "", **attributes}
    sns._topics[topic]["subscriptions"].append(
        {
            "arn": f"{topic}:1",
            "topic_arn": topic,
            "protocol": "sqs",
            "endpoint": endpoint,
            "confirmed": True,
            "attributes": kept,
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
