"""SQS as on AWS: batches that Lambda's mappings collect, dead letters of SNS, and events that EventBridge may send.

It replaces functions of the emulator's queues and topics; see `emulator`.
"""

from __future__ import annotations

import functools
import json
import time
from itertools import accumulate, takewhile
from typing import Any

from slackwater.local.emulator import module, request_scope

# Lambda's limit for the payload of one invocation is 6 MB.
_MAX_BATCH_BYTES = 6_000_000


def register() -> None:
    """Replace the emulator's functions that receive messages for functions and deliver messages of topics."""
    queues, topics, functions = (module(f"services.{name}") for name in ("sqs", "sns", "lambda_svc"))
    receive, deliver = queues._receive_messages_for_esm, topics._deliver_to_sqs
    _check_events(queues, module("services.eventbridge"))

    # The emulator invokes the function with the messages that a queue holds, at most ten. AWS collects messages for
    # MaximumBatchingWindowInSeconds, or until BatchSize or the limit of a payload is reached.
    @functools.wraps(receive)
    def receive_messages(queue_url: str, max_number: int) -> Any:
        with queues._queues_lock:
            queue = queues._get_q(queue_url)
            # The emulator's own function begins with these two: expired messages, then messages for the dead letters.
            queues._expire_retained(queue)
            queues._dlq_sweep(queue)
            now, arn = time.time(), queue["attributes"]["QueueArn"]
            mappings = [mapping for mapping in functions._esms.values() if mapping["EventSourceArn"] == arn]
            window = max((mapping["MaximumBatchingWindowInSeconds"] for mapping in mappings), default=0)
            visible = [message for message in queue["messages"] if message["visible_at"] <= now]
            sizes = accumulate(len(message["body"]) for message in visible)
            fitting = len(list(takewhile(lambda size: size <= _MAX_BATCH_BYTES, sizes)))
            first_visible_at = min((message["visible_at"] for message in visible), default=now)
            full = fitting >= max_number or fitting < len(visible)
            if not full and now - first_visible_at < window:
                return []
            return queues._collect_msgs(queue, min(fitting, max_number), int(queue["attributes"]["VisibilityTimeout"]))

    # When the subscribed queue is deleted, AWS sends the message to the subscription's dead-letter queue; the emulator
    # drops it.
    @functools.wraps(deliver)
    def deliver_to_sqs(endpoint: str, *message: Any, topic_arn: str, **more: Any) -> None:
        if queues._queue_by_arn(endpoint) is None:
            for subscription in topics._topic_by_arn_any_scope(topic_arn)["subscriptions"]:
                policy = subscription["attributes"].get("RedrivePolicy")
                if subscription["endpoint"] == endpoint and policy:
                    endpoint = json.loads(policy)["deadLetterTargetArn"]
                    break
        deliver(endpoint, *message, topic_arn=topic_arn, **more)

    queues._receive_messages_for_esm, topics._deliver_to_sqs = receive_messages, deliver_to_sqs


def _check_events(queues: Any, rules: Any) -> None:
    """Let a rule of EventBridge send events only to queues whose policy allows it, as on AWS."""
    invoke = rules._invoke_target

    @functools.wraps(invoke)
    def invoke_target(target: Any, event: Any, rule: Any, view: Any = None) -> None:
        queue, account = target["Arn"], request_scope().account
        is_queue = queue.startswith("arn:aws:sqs:")
        if not is_queue or queues.queue_policy_allows(queue, "events.amazonaws.com", rule["Arn"], account):
            invoke(target, event, rule, view)

    rules._invoke_target = invoke_target
