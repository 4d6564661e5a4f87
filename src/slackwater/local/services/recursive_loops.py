"""Recursive loop detection of Lambda, also for loops through queues.

Lambda stops a function that is invoked about 16 times in one chain of requests, unless its `RecursiveLoop` is `Allow`.
The emulator counts the invocations of a chain that invoke each other directly: a header of each request of a function
has their number. Here a message keeps the number, and CloudFormation sets `RecursiveLoop`. AWS counts the invocations
of each function by itself, which is the same for a function that sends to its own queue.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from slackwater.local.emulator import module

# A system attribute of a message that no API returns. The number of the invocation that has sent it.
_DEPTH = "SlackwaterInvokeDepth"


def register() -> None:
    """Replace the emulator's functions that send messages, invoke functions with messages, and provision functions."""
    queues, functions = module("services.sqs"), module("services.lambda_svc")
    handle, build, run = queues.handle_request, queues._build_send_sys_attrs, functions._run_sqs_batch

    @functools.wraps(handle)
    async def handle_request(method: str, path: str, headers: dict[str, str], body: bytes, query: Any) -> Any:
        token = functions._invoke_depth.set(functions._inbound_invoke_depth(headers))
        try:
            return await handle(method, path, headers, body, query)
        finally:
            functions._invoke_depth.reset(token)

    @functools.wraps(build)
    def build_attributes(now: float, attributes: Any) -> dict[str, Any]:
        return {**build(now, attributes), _DEPTH: functions._invoke_depth.get()}

    @functools.wraps(run)
    def run_batch(mapping: Any, function: Any, event: Any, batch: Any, *queue: str) -> None:
        # AWS does not document the number of a batch. Messages of a stopped batch become visible, and dead letters.
        depth = 1 + max(message["sys"].get(_DEPTH, 0) for message in batch)
        if functions._recursive_loop_drop(mapping["FunctionName"], function, depth) is None:
            token = functions._invoke_depth.set(depth)
            try:
                run(mapping, function, event, batch, *queue)
            finally:
                functions._invoke_depth.reset(token)

    queues.handle_request, queues._build_send_sys_attrs = handle_request, build_attributes
    functions._run_sqs_batch = run_batch
    handlers = module("services.cloudformation.provisioners")._RESOURCE_HANDLERS["AWS::Lambda::Function"]
    for action, argument in (("create", 1), ("update", 2)):
        handlers[action] = _with_recursive_loop(handlers[action], argument)


def _with_recursive_loop(provision: Callable[..., Any], argument: int) -> Callable[..., Any]:
    """Return `provision` with the property `RecursiveLoop`, where the properties are its argument of that number."""

    @functools.wraps(provision)
    def provision_function(*arguments: Any, **options: Any) -> Any:
        result = provision(*arguments, **options)
        setting = {"RecursiveLoop": arguments[argument].get("RecursiveLoop", "Terminate")}
        module("services.lambda_svc")._put_function_recursion_config(result[0], setting)
        return result

    return provision_function
