"""The emulator's inner tables of queues and of what functions take from them: what `emulator` is for the rest."""

from __future__ import annotations

import functools
import importlib
import time
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from slackwater.local.emulator import Scope

_MOST_BYTES = 6_000_000
"""Of messages that Lambda hands over at once."""


class Waiting(NamedTuple):
    """What a queue holds."""

    visible: int
    """Messages that can be received."""
    oldest: float | None
    """When the oldest message was sent, also one that is being received; None when the queue is empty."""


def _module(name: str) -> Any:
    return importlib.import_module(f"ministack.services.{name}")


def waiting() -> dict[tuple[Scope, str], Waiting]:
    """Return what each queue holds, by scope and name."""
    now, found = time.time(), {}
    for (account, region, _), queue in _module("sqs")._queues.all_items():
        messages = list(queue["messages"])
        visible = sum(message["visible_at"] <= now for message in messages)
        oldest = min((message["sent_at"] for message in messages), default=None)
        found[(account, region), queue["name"]] = Waiting(visible, oldest)
    return found


def gather_batches() -> None:
    """Let a function's batches of messages be as large as its mapping says, and wait for more as long as it says.

    The emulator hands over what there is at once, and at most ten messages.
    """
    queues, functions = _module("sqs"), _module("lambda_svc")
    receive = queues._receive_messages_for_esm

    @functools.wraps(receive)
    def receive_messages(queue_url: str, max_number: int) -> Any:
        with queues._queues_lock:
            queue = queues._get_q(queue_url)
            queues._expire_retained(queue)
            queues._dlq_sweep(queue)
            now = time.time()
            found = [message for message in queue["messages"] if message["visible_at"] <= now]
            sizes = accumulate(len(message["body"]) for message in found)
            fitting = len(list(takewhile(lambda size: size <= _MOST_BYTES, sizes)))
            since = min((message["visible_at"] for message in found), default=now)
            is_full = fitting >= max_number or fitting < len(found)
            if not is_full and now - since < _window(functions, queue):
                return []
            return queues._collect_msgs(queue, min(fitting, max_number), int(queue["attributes"]["VisibilityTimeout"]))

    queues._receive_messages_for_esm = receive_messages


def _window(functions: Any, queue: Any) -> float:
    """Return for how many seconds the mappings that read a queue gather messages."""
    arn = queue["attributes"]["QueueArn"]
    reading = (mapping for mapping in functions._esms.values() if mapping["EventSourceArn"] == arn)
    return max((mapping["MaximumBatchingWindowInSeconds"] for mapping in reading), default=0)
