"""Objects that are written become messages of a queue, as the template's rule defines them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from ministack import app
from ministack.services import eventbridge, lambda_svc, s3, sns, sqs

from slackwater.late.arrival_messages import ObjectWritten
from slackwater.local.services import queues

pytestmark = pytest.mark.unit

RULE = "arn:aws:events:us-east-1:000000000000:rule/arrivals"
QUEUE = "arn:aws:sqs:us-east-1:000000000000:arrivals"
KEY = "raw/source=flights/date=2013-03-10/hour=20/a.parquet"
CONFIGURATION = "<NotificationConfiguration><EventBridgeConfiguration/></NotificationConfiguration>"


@pytest.fixture
def queue(monkeypatch):
    """A queue that is the target of a rule, and a function that sets which rule the queue's policy names."""
    for module, name in (
        (sqs, "_receive_messages_for_esm"),
        (sns, "_deliver_to_sqs"),
        (eventbridge, "_invoke_target"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(app, "AUTH", True)
    queues.register()
    url = sqs._act_create_queue({"QueueName": "arrivals"}, "")["QueueUrl"]
    key = eventbridge._rule_key("arrivals", "default")
    pattern = {
        "source": ["aws.s3"],
        "detail-type": ["Object Created"],
        "detail": {"bucket": {"name": ["raw"]}, "object": {"key": [{"prefix": "raw/source="}]}},
    }
    eventbridge._rules[key] = {
        "Name": "arrivals",
        "Arn": RULE,
        "EventBusName": "default",
        "State": "ENABLED",
        "EventPattern": json.dumps(pattern),
    }
    paths = {"id": "$.id", "key": "$.detail.object.key", "time": "$.time"}
    transformer = {"InputPathsMap": paths, "InputTemplate": '{"id": <id>, "key": <key>, "time": <time>}'}
    eventbridge._targets[key] = [{"Id": "Queue", "Arn": QUEUE, "InputTransformer": transformer}]
    s3._bucket_notifications["raw"] = CONFIGURATION

    def allow(rule):
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": QUEUE,
            "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        sqs._act_set_queue_attributes({"QueueUrl": url, "Attributes": {"Policy": policy}}, url)

    yield allow
    del eventbridge._rules[key], eventbridge._targets[key], s3._bucket_notifications["raw"]
    sqs.reset()
    lambda_svc._esms.clear()


def messages():
    return [message["body"] for message in sqs._queues[sqs._queue_url("arrivals")]["messages"]]


def write(key, *, bucket="raw", event="s3:ObjectCreated:Put"):
    s3._fire_s3_event(bucket, key, event, size=1, etag="e")


def test_an_object_of_a_partition_is_one_message_with_its_plain_key(queue):
    queue(RULE)
    write(KEY)
    [body] = messages()
    # Notifications of S3 encode `=` in keys as `%3D`; its events on EventBridge do not.
    written = ObjectWritten.model_validate_json(body)
    assert written.key == KEY
    assert written.time is not None
    assert timedelta(0) <= datetime.now(UTC) - written.time < timedelta(minutes=1)


def test_each_writing_has_an_id_of_its_own(queue):
    queue(RULE)
    write(KEY)
    write(KEY)
    assert len({ObjectWritten.model_validate_json(body).id for body in messages()}) == 2


def test_other_objects_and_events_are_no_message(queue):
    queue(RULE)
    write("landing/source=flights/a.csv")
    write("raw/other")
    write(KEY, bucket="exchange")
    write(KEY, event="s3:ObjectRemoved:Delete")
    assert messages() == []


@pytest.mark.parametrize("rule", [None, RULE + "-other"])
def test_a_queue_whose_policy_does_not_name_the_rule_gets_nothing(queue, rule):
    if rule:
        queue(rule)
    write(KEY)
    assert messages() == []
