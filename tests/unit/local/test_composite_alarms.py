"""Composite alarms of stacks: created, changed, replaced and deleted; their states and their notifications."""

from __future__ import annotations

import json

import pytest
from ministack.services import cloudwatch, sns, sqs
from ministack.services.cloudformation import provisioners

from slackwater.local.services import composite_alarms

pytestmark = pytest.mark.unit

TYPE = "AWS::CloudWatch::CompositeAlarm"
TOPIC = "arn:aws:sns:us-east-1:000000000000:t"


@pytest.fixture(autouse=True)
def handlers(monkeypatch):
    """The handlers of stacks, with ours until the test ends."""
    table = dict(provisioners._RESOURCE_HANDLERS)
    monkeypatch.setattr(provisioners, "_RESOURCE_HANDLERS", table)
    composite_alarms.register()
    yield table[TYPE]
    for service in (cloudwatch, sns, sqs):
        service.reset()


def child(name, state="OK"):
    cloudwatch._alarms[name] = {
        "AlarmName": name,
        "AlarmArn": f"arn:aws:cloudwatch:us-east-1:000000000000:alarm:{name}",
        "StateValue": state,
        "StateReason": "a test",
        "StateUpdatedTimestamp": 1_700_000_000,
    }


def change(name, state):
    """Set the state of an alarm, as `SetAlarmState` does."""
    request = {"AlarmName": name, "StateValue": state, "StateReason": "a test"}
    assert cloudwatch._set_alarm_state({}, request, False, is_json=True)[0] == 200


def create(rule, name="c", **more):
    return composite_alarms.create({"AlarmName": name, "AlarmRule": rule, **more})


def state(name="c"):
    return cloudwatch._composite_alarms[name]["StateValue"]


def test_the_attributes_are_those_of_cloudformation(handlers):
    child("a")
    assert handlers["create"]("Any", {"AlarmName": "c", "AlarmRule": 'ALARM("a")'}, "stack") == (
        "c",
        {"Arn": "arn:aws:cloudwatch:us-east-1:000000000000:alarm:c"},
    )


@pytest.mark.parametrize(
    ("rule", "states"),
    [
        # What our rules use, for each state of `a`, with `b` in OK: OK, ALARM, INSUFFICIENT_DATA.
        ('ALARM("a")', "OK ALARM OK"),
        ('ALARM("a") OR ALARM("b")', "OK ALARM OK"),
        ('ALARM("a") AND NOT ALARM("b")', "OK ALARM OK"),
        ('ALARM("b") OR (ALARM("a") AND NOT (ALARM("b") OR INSUFFICIENT_DATA("b")))', "OK ALARM OK"),
        ('ALARM("b") OR (OK("b") AND NOT (ALARM("a") OR INSUFFICIENT_DATA("a")))', "ALARM OK OK"),
        ('ALARM("a") OR FALSE', "OK ALARM OK"),
    ],
)
def test_a_rule_decides_the_state(rule, states):
    child("a"), child("b")
    create(rule)
    seen = []
    for of_child in ("OK", "ALARM", "INSUFFICIENT_DATA"):
        change("a", of_child)
        seen.append(state())
    assert " ".join(seen) == states


def test_a_composite_alarm_follows_another_one():
    child("a")
    create('ALARM("a")', "inner")
    create('ALARM("inner")', "outer")
    change("a", "ALARM")
    assert state("outer") == "ALARM"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ('ALARM("a") OR ALARM("gone")', "gone.* in the alarm rule do not exist"),
        ('ALARM("a") OR', "Unsupported token"),
        ("", "Unsupported token"),
    ],
)
def test_a_rule_that_cloudwatch_refuses_fails_the_resource(rule, message):
    child("a")
    with pytest.raises(ValueError, match=message):
        create(rule)
    assert "c" not in cloudwatch._composite_alarms


def test_what_is_not_emulated_is_refused():
    child("a")
    with pytest.raises(ValueError, match="c: ActionsSuppressor is not emulated"):
        create('ALARM("a")', ActionsSuppressor="a", ActionsSuppressorWaitPeriod=60)
    with pytest.raises(ValueError, match="AlarmName is missing"):
        create('ALARM("a")', "")


def test_a_change_keeps_the_state_and_another_name_is_another_alarm(handlers):
    child("a", "ALARM"), child("b")
    create('ALARM("a")')
    old, new = {"AlarmName": "c"}, {"AlarmName": "c", "AlarmRule": 'ALARM("a") OR ALARM("b")', "AlarmDescription": "d"}
    assert handlers["update"]("c", old, new, "stack")[0] == "c"
    assert (state(), cloudwatch._composite_alarms["c"]["AlarmDescription"]) == ("ALARM", "d")
    assert handlers["update"]("c", new, {**new, "AlarmName": "e"}, "stack")[0] == "e"
    handlers["delete"]("c", new)
    assert list(cloudwatch._composite_alarms) == ["e"]


def test_an_alarm_in_a_rule_is_not_deleted_before_the_composite_alarm(handlers):
    child("a")
    create('ALARM("a")')
    create('ALARM("c")', "outer")
    delete = provisioners._RESOURCE_HANDLERS["AWS::CloudWatch::Alarm"]["delete"]
    with pytest.raises(ValueError, match="Cannot delete a as there are composite alarm"):
        delete("a", {})
    with pytest.raises(ValueError, match="Cannot delete c as there are composite alarm"):
        handlers["delete"]("c", {})
    handlers["delete"]("outer", {})
    handlers["delete"]("c", {})
    delete("a", {})
    assert not list(cloudwatch._alarms.keys())


def test_the_deletion_of_a_deleted_alarm_succeeds(handlers):
    handlers["delete"]("never created", {})


@pytest.fixture
def messages():
    """Return a function that returns the alarms and states of all notifications."""
    sqs._act_create_queue({"QueueName": "q"}, "")
    endpoint = "arn:aws:sqs:us-east-1:000000000000:q"
    subscription = {"arn": f"{TOPIC}:1", "topic_arn": TOPIC, "protocol": "sqs", "endpoint": endpoint}
    attributes = {"RawMessageDelivery": "true", "FilterPolicy": ""}
    sns._topics[TOPIC] = {
        "arn": TOPIC,
        "subscriptions": [{**subscription, "confirmed": True, "attributes": attributes}],
        "attributes": {},
    }

    def messages():
        bodies = [json.loads(message["body"]) for message in sqs._queue_by_arn(endpoint)["messages"]]
        return [(body["AlarmName"], body["NewStateValue"], body["NewStateReason"]) for body in bodies]

    return messages


def test_an_alarm_pages_when_what_has_kept_it_from_paging_is_over(messages):
    for name in ("failed", "overdue", "silent"):
        child(name)
    create('ALARM("failed") OR (ALARM("overdue") AND NOT (ALARM("silent")))', AlarmActions=[TOPIC])
    change("silent", "ALARM"), change("overdue", "ALARM")
    assert messages() == []
    change("failed", "ALARM")
    assert len(messages()) == 1
    change("failed", "OK")
    change("silent", "OK")
    [_, (*alarm, reason)] = messages()
    assert (alarm, "alarm:silent transitioned to OK" in reason) == (["c", "ALARM"], True)


@pytest.mark.parametrize("enabled", [True, False, "true", "false"])
def test_one_message_is_sent_for_a_change_of_state_however_many_alarms_follow(messages, enabled):
    child("a"), child("b")
    create('ALARM("a") OR ALARM("b")', AlarmActions=[TOPIC], ActionsEnabled=enabled)
    for name in ("a", "b"):
        change(name, "ALARM")
    change("a", "OK")
    sent = messages()
    assert [message[:2] for message in sent] == ([("c", "ALARM")] if enabled in {True, "true"} else [])
    for *_, reason in sent:
        assert reason.startswith("arn:aws:cloudwatch:us-east-1:000000000000:alarm:a transitioned to ALARM")
    change("b", "OK")
    assert state() == "OK"
    change("b", "ALARM")
    assert len(messages()) == 2 * len(sent)


def test_an_alarm_that_a_rule_no_longer_names_is_deleted():
    """`slackwater deploy` changes the rule so before CloudFormation deletes the alarms of a removed pipeline."""
    child("a"), child("b")
    create('ALARM("a") OR ALARM("b")')
    create('FALSE OR ALARM("b")')
    provisioners._RESOURCE_HANDLERS["AWS::CloudWatch::Alarm"]["delete"]("a", {})
    assert list(cloudwatch._alarms.keys()) == ["b"]
    change("b", "ALARM")
    assert state() == "ALARM"
