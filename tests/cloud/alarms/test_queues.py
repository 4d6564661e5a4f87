"""Alarms about queues fire when their cause happens, as a client of CloudWatch sees it."""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack, contextmanager

import pytest

from tests.cloud.alarms.drill import PAGE, WARNING, causes, changed_alarm, reset_alarm, until
from tests.cloud.roles import create_queue

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]


@causes("dead-letters")
def test_an_alarm_fires_for_a_message_that_cannot_be_delivered(cloud, metric, state, messages, runbook):
    outputs, sns, sqs = cloud.outputs(), cloud.client("sns"), cloud.client("sqs")
    gone, arn = create_queue(sqs, "soon-gone")
    dead = outputs["DeadLetterQueueUrl"]
    dead_arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    subscription = sns.subscribe(
        TopicArn=outputs["ChangeTopicArn"],
        Protocol="sqs",
        Endpoint=arn,
        Attributes={"RedrivePolicy": json.dumps({"deadLetterTargetArn": dead_arn})},
    )["SubscriptionArn"]
    sqs.delete_queue(QueueUrl=gone)
    depth = {"namespace": "AWS/SQS", "QueueName": "slackwater-dead-letters"}
    try:
        sns.publish(TopicArn=outputs["ChangeTopicArn"], Subject="to nobody", Message="undeliverable")
        assert until(lambda: metric("ApproximateNumberOfMessagesVisible", "Maximum", **depth)) >= 1
        assert until(lambda: state("dead-letters") == "ALARM")
        assert until(lambda: messages.of(WARNING, "dead-letters"))
        _, received, _, left = runbook("dead-letters")
        assert "TopicArn" in received
        assert re.findall(r'"ApproximateNumberOfMessages\w*": "(\d+)"', left) == ["0", "0", "0"]
    finally:
        sns.unsubscribe(SubscriptionArn=subscription)
        sqs.purge_queue(QueueUrl=dead)


def mapping_of(cloud, function):
    """Return the event source mapping of a function, and the URL of its queue."""
    functions, sqs = cloud.client("lambda"), cloud.client("sqs")
    [mapping] = functions.list_event_source_mappings(FunctionName=f"slackwater-{function}")["EventSourceMappings"]
    return mapping, sqs.get_queue_url(QueueName=mapping["EventSourceArn"].rpartition(":")[2])["QueueUrl"]


@contextmanager
def repeated_at_once(cloud, function):
    """Deliver a message that a function fails to handle again at once, not after minutes. Returns the queue's URL."""
    functions, sqs = cloud.client("lambda"), cloud.client("sqs")
    mapping, url = mapping_of(cloud, function)
    known = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
    batches = {key: mapping[key] for key in ("BatchSize", "MaximumBatchingWindowInSeconds")}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "0"})
    functions.update_event_source_mapping(UUID=mapping["UUID"], BatchSize=1, MaximumBatchingWindowInSeconds=0)
    try:
        yield url
    finally:
        functions.update_event_source_mapping(UUID=mapping["UUID"], **batches)
        sqs.set_queue_attributes(QueueUrl=url, Attributes=known)


@causes("event-dead-letters", "arrival-dead-letters", "state-dead-letters")
def test_alarms_fire_for_events_and_arrivals_that_cannot_be_handled_in_five_attempts(cloud, state, messages, runbook):
    sqs, outputs = cloud.client("sqs"), cloud.outputs()
    events = outputs["EventDeadLetterQueueUrl"]
    arrivals = sqs.get_queue_url(QueueName="slackwater-arrivals-dead-letters")["QueueUrl"]
    states = sqs.get_queue_url(QueueName="slackwater-states-dead-letters")["QueueUrl"]
    functions = {
        "event-dead-letters": "store-events",
        "arrival-dead-letters": "check-arrivals",
        "state-dead-letters": "fold-state",
    }
    with ExitStack() as stack:
        for alarm, function in functions.items():
            reset_alarm(cloud, alarm)
            url = stack.enter_context(repeated_at_once(cloud, function))
            sqs.send_message(QueueUrl=url, MessageBody="a test")
        for alarm in functions:
            assert until(lambda of=alarm: state(of) == "ALARM")
    [log] = runbook("event-dead-letters")
    assert "the message is not a batch of events" in log
    _, _, received, log, left = runbook("arrival-dead-letters")
    assert "a test" in received
    assert "message not handled" in log
    assert '"ApproximateNumberOfMessagesNotVisible": "1"' in left
    _, _, received, log, _ = runbook("state-dead-letters")
    assert "a test" in received
    assert "the message is not readable" in log
    for url in (events, arrivals, states):
        sqs.purge_queue(QueueUrl=url)
    assert until(lambda: messages.of(PAGE, "events"))
    assert until(lambda: messages.of(WARNING, "arrival-dead-letters"))
    assert until(lambda: messages.of(WARNING, "state-dead-letters"))


@contextmanager
def unread(cloud, function):
    """Keep a function from reading its queue, so that messages wait in it. Returns the queue's URL."""
    functions, sqs = cloud.client("lambda"), cloud.client("sqs")
    mapping, url = mapping_of(cloud, function)
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    try:
        yield url
    finally:
        sqs.purge_queue(QueueUrl=url)
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)


@causes("events-waiting", "arrivals-waiting", "states-waiting")
def test_alarms_fire_for_events_and_arrivals_that_wait(cloud, state, messages, runbook):
    sqs, cloudwatch, urls = cloud.client("sqs"), cloud.client("cloudwatch"), list[str]()
    pages = len(messages.of(PAGE, "events"))
    waiting = (
        ("events-waiting", "store-events", 10),
        ("arrivals-waiting", "check-arrivals", 40),
        ("states-waiting", "fold-state", 70),
    )
    with ExitStack() as stack:
        for alarm, function, minutes in waiting:
            [deployed] = cloudwatch.describe_alarms(AlarmNames=[f"slackwater-{alarm}"])["MetricAlarms"]
            assert deployed["Threshold"] == minutes * 60
            # A second instead of many minutes.
            stack.enter_context(changed_alarm(cloud, alarm, Threshold=1))
            urls.append(stack.enter_context(unread(cloud, function)))
            sqs.send_message(QueueUrl=urls[-1], MessageBody="the oldest")
        time.sleep(1.1)
        for (alarm, *_), url in zip(waiting, urls, strict=True):
            # SQS measures a queue once a minute, the local cloud also when the number of messages changes.
            sqs.send_message(QueueUrl=url, MessageBody="a newer one")
            assert until(lambda of=alarm: state(of) == "ALARM")
            runbook(alarm)
    assert until(lambda: messages.of(WARNING, "arrivals-waiting"))
    assert until(lambda: messages.of(WARNING, "states-waiting"))
    # The dead letters of the test before have the same cause, if it has run.
    assert until(lambda: len(messages.of(PAGE, "events")) == max(pages, 1))
