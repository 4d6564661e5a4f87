"""The local cloud collects batches of messages for functions as an event source mapping defines them."""

from __future__ import annotations

import time

import pytest
from ministack.services import lambda_svc, sns, sqs
from ministack.services.cloudformation import provisioners

from slackwater.local.services import queues

pytestmark = pytest.mark.unit

MAPPING = "AWS::Lambda::EventSourceMapping"


@pytest.fixture
def queue(monkeypatch):
    """The URL of a queue, with the adapter registered with the emulator until the test ends."""
    monkeypatch.setattr(sqs, "_receive_messages_for_esm", sqs._receive_messages_for_esm)
    monkeypatch.setattr(sns, "_deliver_to_sqs", sns._deliver_to_sqs)
    handlers = dict(provisioners._RESOURCE_HANDLERS[MAPPING])
    monkeypatch.setitem(provisioners._RESOURCE_HANDLERS, MAPPING, handlers)
    queues.register()
    yield sqs._act_create_queue({"QueueName": "q", "Attributes": {"VisibilityTimeout": "60"}}, "")["QueueUrl"]
    sqs.reset()
    lambda_svc._esms.clear()


@pytest.fixture
def now(monkeypatch):
    current = [time.time()]
    monkeypatch.setattr(time, "time", lambda: current[0])
    return current


def read_by_function(*, window):
    arn = sqs._queues[sqs._queue_url("q")]["attributes"]["QueueArn"]
    lambda_svc._esms["one"] = {"EventSourceArn": arn, "MaximumBatchingWindowInSeconds": window}


def send(queue, *bodies):
    for body in bodies:
        sqs._act_send_message({"QueueUrl": queue, "MessageBody": body}, queue)


def received(queue, most=1000):
    return [message["body"] for message in sqs._receive_messages_for_esm(queue, most)]


def test_messages_are_collected_for_the_window_of_the_first_one(queue, now):
    read_by_function(window=5)
    send(queue, "a")
    now[0] += 4.9
    send(queue, "b")
    assert received(queue) == []
    now[0] += 0.1
    assert received(queue) == ["a", "b"]
    now[0] += 59.9
    assert received(queue) == []
    now[0] += 5.1
    assert received(queue) == ["a", "b"]


def test_a_full_batch_does_not_wait(queue, now):
    read_by_function(window=5)
    send(queue, *(str(number) for number in range(25)))
    assert received(queue, 25) == [str(number) for number in range(25)]
    send(queue, *("x" * 1_000_000 for _ in range(7)))
    assert len(received(queue)) == 6
    assert received(queue) == []
    now[0] += 5
    assert len(received(queue)) == 1


def test_without_a_window_messages_are_received_immediately(queue, now):
    read_by_function(window=0)
    assert received(queue) == []
    send(queue, "a", "b", "c")
    assert received(queue, 2) == ["a", "b"]
    assert received(queue, 2) == ["c"]


def test_a_message_that_was_received_too_often_becomes_a_dead_letter(queue, now):
    dead = sqs._act_create_queue({"QueueName": "dead"}, "")["QueueUrl"]
    arn = "arn:aws:sqs:us-east-1:000000000000:dead"
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": 2}}'
    sqs._act_set_queue_attributes({"QueueUrl": queue, "Attributes": {"RedrivePolicy": policy}}, queue)
    send(queue, "a")
    for _ in range(2):
        assert received(queue) == ["a"]
        now[0] += 61
    assert received(queue) == []
    assert received(dead) == ["a"]


def test_the_text_of_a_batch_as_json_counts(queue, now):
    read_by_function(window=5)
    # Each quotation mark takes two bytes of the event that the function gets.
    send(queue, *('"' * 1_000_000 for _ in range(4)))
    assert len(received(queue)) == 3


@pytest.mark.parametrize(
    ("mapping", "reason"),
    [
        ({"BatchSize": 11}, "Maximum batch window in seconds must be greater than 0 if .* greater than 10"),
        ({"BatchSize": 10_001, "MaximumBatchingWindowInSeconds": 5}, "BatchSize is 10001: .* from 1 to 10000"),
        ({"BatchSize": 0}, "BatchSize is 0"),
        ({"MaximumBatchingWindowInSeconds": 301}, "MaximumBatchingWindowInSeconds is 301: .* from 0 to 300"),
        ({"MaximumBatchingWindowInSeconds": -1}, "MaximumBatchingWindowInSeconds is -1"),
    ],
)
def test_batches_that_lambda_refuses_are_refused(queue, mapping, reason):
    arn = sqs._queues[sqs._queue_url("q")]["attributes"]["QueueArn"]
    handlers = provisioners._RESOURCE_HANDLERS[MAPPING]
    with pytest.raises(ValueError, match=reason):
        handlers["create"]("M", {"FunctionName": "f", "EventSourceArn": arn, **mapping}, "stack")
    with pytest.raises(ValueError, match=reason):
        handlers["update"]("id", {}, {"FunctionName": "f", "EventSourceArn": arn, **mapping}, "stack")


def test_a_mapping_whose_messages_would_be_delivered_while_they_are_handled_is_refused(queue, monkeypatch):
    arn = sqs._queues[sqs._queue_url("q")]["attributes"]["QueueArn"]
    config = {"Timeout": 61}
    monkeypatch.setattr(lambda_svc, "_get_func_record_for_ref", lambda _name: (None, config, "f"))
    create = provisioners._RESOURCE_HANDLERS[MAPPING]["create"]
    mapping = {"FunctionName": "f", "EventSourceArn": arn, "BatchSize": 100, "MaximumBatchingWindowInSeconds": 5}
    with pytest.raises(ValueError, match="visibility timeout: 60 seconds is less than Function timeout: 61 seconds"):
        create("M", mapping, "stack")
    config["Timeout"] = 60
    assert create("M", mapping, "stack")[0] in lambda_svc._esms
