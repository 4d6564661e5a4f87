"""Recursive loop detection of Lambda, also for loops through queues.

Lambda stops a function that is invoked about 16 times in one chain of requests, unless its `RecursiveLoop` is `Allow`.
The emulator counts the invocations of a chain that invoke each other directly: a header of each request of a function
has their number. Here a message keeps the number, and CloudFormation sets `RecursiveLoop`. AWS counts the invocations
of each function by itself, which is the same for a function that sends to its own queue.
"""

from __future__ import annotations

from typing import Any

from slackwater.local.emulator import module, replaces, resource_handlers

# A system attribute of a message that no API returns. The number of the invocation that has sent it.
_DEPTH = "SlackwaterInvokeDepth"


def register() -> None:
    """Replace the emulator's functions that send messages, invoke functions with messages, and provision functions."""
    queues, functions = module("services.sqs"), module("services.lambda_svc")

    @replaces(queues, "handle_request")
    async def handle_request(handle: Any, method: str, path: str, headers: dict[str, str], *request: Any) -> Any:
        token = functions._invoke_depth.set(functions._inbound_invoke_depth(headers))
        try:
            return await handle(method, path, headers, *request)
        finally:
            functions._invoke_depth.reset(token)

    @replaces(queues, "_build_send_sys_attrs")
    def build_attributes(build: Any, now: float, attributes: Any) -> dict[str, Any]:
        return {**build(now, attributes), _DEPTH: functions._invoke_depth.get()}

    @replaces(functions, "_run_sqs_batch")
    def run_batch(run: Any, mapping: Any, function: Any, event: Any, batch: Any, *queue: str) -> None:
        # AWS does not document the number of a batch. Messages of a stopped batch become visible, and dead letters.
        depth = 1 + max(message["sys"].get(_DEPTH, 0) for message in batch)
        if functions._recursive_loop_drop(mapping["FunctionName"], function, depth) is None:
            token = functions._invoke_depth.set(depth)
            try:
                run(mapping, function, event, batch, *queue)
            finally:
                functions._invoke_depth.reset(token)

    handlers = resource_handlers("AWS::Lambda::Function")

    @replaces(handlers, "create")
    def create_function(create: Any, logical_id: str, properties: Any, stack: str) -> Any:
        return with_recursive_loop(create(logical_id, properties, stack), properties)

    @replaces(handlers, "update")
    def update_function(update: Any, physical_id: str, old: Any, new: Any, *more: Any) -> Any:
        return with_recursive_loop(update(physical_id, old, new, *more), new)

    def with_recursive_loop(provisioned: Any, properties: Any) -> Any:
        setting = {"RecursiveLoop": properties.get("RecursiveLoop", "Terminate")}
        functions._put_function_recursion_config(provisioned[0], setting)
        return provisioned
