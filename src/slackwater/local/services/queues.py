"""SQS as on AWS: batches that Lambda's mappings collect, dead letters of SNS, and events that EventBridge may send.

It replaces functions of the emulator's queues and topics; see `emulator`.
"""

from __future__ import annotations

import json
import time
from itertools import accumulate, takewhile
from typing import Any

from slackwater.local.emulator import module, replaces, request_scope, resource_handlers

# Lambda's limit for the payload of one invocation is 6 MiB. It has the messages as JSON strings, and of each its
# receipt handle and attributes.
_MAX_BATCH_BYTES, _RECORD_BYTES = 6 * 2**20, 1_000
# The limits of a mapping of a standard queue, and of one without a batching window.
_MAX_BATCH_SIZE, _MAX_BATCH_WITHOUT_WINDOW, _MAX_WINDOW = 10_000, 10, 300


def register() -> None:
    """Replace the emulator's functions that receive messages for functions and deliver messages of topics."""
    queues, topics, functions = (module(f"services.{name}") for name in ("sqs", "sns", "lambda_svc"))

    # The emulator invokes the function with the messages that a queue holds, at most ten. AWS collects messages for
    # MaximumBatchingWindowInSeconds, or until BatchSize or the limit of a payload is reached.
    @replaces(queues, "_receive_messages_for_esm")
    def receive_messages(_receive: Any, queue_url: str, max_number: int) -> Any:
        with queues._queues_lock:
            queue = queues._get_q(queue_url)
            # The emulator's own function begins with these two: expired messages, then messages for the dead letters.
            queues._expire_retained(queue)
            queues._dlq_sweep(queue)
            now, arn = time.time(), queue["attributes"]["QueueArn"]
            mappings = [mapping for mapping in functions._esms.values() if mapping["EventSourceArn"] == arn]
            window = max((mapping["MaximumBatchingWindowInSeconds"] for mapping in mappings), default=0)
            visible = [message for message in queue["messages"] if message["visible_at"] <= now]
            sizes = accumulate(len(json.dumps(message["body"])) + _RECORD_BYTES for message in visible)
            fitting = len(list(takewhile(lambda size: size <= _MAX_BATCH_BYTES, sizes)))
            first_visible_at = min((message["visible_at"] for message in visible), default=now)
            full = fitting >= max_number or fitting < len(visible)
            if not full and now - first_visible_at < window:
                return []
            return queues._collect_msgs(queue, min(fitting, max_number), int(queue["attributes"]["VisibilityTimeout"]))

    _refuse_mappings(queues, functions)

    # When the subscribed queue is deleted, AWS sends the message to the subscription's dead-letter queue; the emulator
    # drops it.
    @replaces(topics, "_deliver_to_sqs")
    def deliver_to_sqs(deliver: Any, endpoint: str, *message: Any, topic_arn: str, **more: Any) -> None:
        if queues._queue_by_arn(endpoint) is None:
            for subscription in topics._topic_by_arn_any_scope(topic_arn)["subscriptions"]:
                policy = subscription["attributes"].get("RedrivePolicy")
                if subscription["endpoint"] == endpoint and policy:
                    endpoint = json.loads(policy)["deadLetterTargetArn"]
                    break
        deliver(endpoint, *message, topic_arn=topic_arn, **more)

    # A rule of EventBridge sends events only to queues whose policy allows it.
    @replaces(module("services.eventbridge"), "_invoke_target")
    def invoke_target(invoke: Any, target: Any, event: Any, rule: Any, *view: Any) -> None:
        queue, account = target["Arn"], request_scope().account
        is_queue = queue.startswith("arn:aws:sqs:")
        if not is_queue or queues.queue_policy_allows(queue, "events.amazonaws.com", rule["Arn"], account):
            invoke(target, event, rule, *view)


def _refuse_mappings(queues: Any, functions: Any) -> None:
    """Refuse the event source mappings of queues that AWS refuses; the emulator creates them."""
    handlers = resource_handlers("AWS::Lambda::EventSourceMapping")

    @replaces(handlers, "create")
    def create_mapping(create: Any, logical_id: str, props: Any, stack: str) -> Any:
        _check_batches(props)
        queue = queues._queue_by_arn(props["EventSourceArn"])
        if queue is not None:
            function = functions._get_func_record_for_ref(props["FunctionName"])[1]
            timeout, visibility = int(function["Timeout"]), int(queue["attributes"]["VisibilityTimeout"])
            if visibility < timeout:
                raise ValueError(
                    f"Queue visibility timeout: {visibility} seconds is less than Function timeout: {timeout} seconds"
                )
        return create(logical_id, props, stack)

    @replaces(handlers, "update")
    def update_mapping(update: Any, physical_id: str, old: Any, new: Any, stack: str) -> Any:
        _check_batches(new)
        return update(physical_id, old, new, stack)


def _check_batches(mapping: Any) -> None:
    if ":sqs:" not in mapping["EventSourceArn"]:
        return
    size, window = int(mapping.get("BatchSize", 10)), int(mapping.get("MaximumBatchingWindowInSeconds", 0))
    if not 0 <= window <= _MAX_WINDOW:
        raise ValueError(f"MaximumBatchingWindowInSeconds is {window}: it must be from 0 to {_MAX_WINDOW}")
    if not 1 <= size <= _MAX_BATCH_SIZE:
        raise ValueError(f"BatchSize is {size}: it must be from 1 to {_MAX_BATCH_SIZE}")
    if size > _MAX_BATCH_WITHOUT_WINDOW and not window:
        raise ValueError(
            "Maximum batch window in seconds must be greater than 0 if maximum batch size is greater than "
            f"{_MAX_BATCH_WITHOUT_WINDOW}"
        )
