"""How the local cloud gathers messages for functions: as long and as many as an event source mapping says."""

from __future__ import annotations

import time

import pytest
from ministack.services import lambda_svc, sqs

from slackwater.local import emulator_queues

pytestmark = pytest.mark.unit


@pytest.fixture
def queue(monkeypatch):
    """The address of a queue, with the adapter entered in the emulator's tables, which are as they were afterwards."""
    monkeypatch.setattr(sqs, "_receive_messages_for_esm", sqs._receive_messages_for_esm)
    emulator_queues.gather_batches()
    yield sqs._act_create_queue({"QueueName": "q", "Attributes": {"VisibilityTimeout": "60"}}, "")["QueueUrl"]
    sqs.reset()
    lambda_svc._esms.clear()


@pytest.fixture
def clock(monkeypatch):
    now = [time.time()]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def read_by_function(*, window):
    arn = sqs._queues[sqs._queue_url("q")]["attributes"]["QueueArn"]
    lambda_svc._esms["one"] = {"EventSourceArn": arn, "MaximumBatchingWindowInSeconds": window}


def send(queue, *bodies):
    for body in bodies:
        sqs._act_send_message({"QueueUrl": queue, "MessageBody": body}, queue)


def received(queue, most=1000):
    return [message["body"] for message in sqs._receive_messages_for_esm(queue, most)]


def test_messages_are_gathered_for_the_window_of_the_first_one(queue, clock):
    read_by_function(window=5)
    send(queue, "a")
    clock[0] += 4.9
    send(queue, "b")
    assert received(queue) == []
    clock[0] += 0.1
    assert received(queue) == ["a", "b"]
    clock[0] += 59.9
    assert received(queue) == []
    clock[0] += 5.1
    assert received(queue) == ["a", "b"]


def test_a_full_batch_does_not_wait(queue, clock):
    read_by_function(window=5)
    send(queue, *(str(number) for number in range(25)))
    assert received(queue, 25) == [str(number) for number in range(25)]
    send(queue, *("x" * 1_000_000 for _ in range(7)))
    assert len(received(queue)) == 6
    assert received(queue) == []
    clock[0] += 5
    assert len(received(queue)) == 1


def test_without_a_window_what_is_there_is_taken(queue, clock):
    read_by_function(window=0)
    assert received(queue) == []
    send(queue, "a", "b", "c")
    assert received(queue, 2) == ["a", "b"]
    assert received(queue, 2) == ["c"]


def test_what_was_received_too_often_goes_to_the_dead_letters(queue, clock):
    dead = sqs._act_create_queue({"QueueName": "dead"}, "")["QueueUrl"]
    arn = "arn:aws:sqs:us-east-1:000000000000:dead"
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": 2}}'
    sqs._act_set_queue_attributes({"QueueUrl": queue, "Attributes": {"RedrivePolicy": policy}}, queue)
    send(queue, "a")
    for _ in range(2):
        assert received(queue) == ["a"]
        clock[0] += 61
    assert received(queue) == []
    assert received(dead) == ["a"]
