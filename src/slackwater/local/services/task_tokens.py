"""States that wait for a task token, as on AWS: each token is accepted once, until its state has ended.

The emulator accepts a second answer, ignores errors of the function that gets the token, and waits on when the
execution was stopped. This module replaces these functions of it; see `emulator`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from slackwater.local.emulator import module, replaces
from slackwater.local.services.state_machines import (
    CALLBACK,
    TaskAbandoned,
    fail_state,
    running_task,
)

# API reference of Step Functions, SendTaskSuccess and SendTaskFailure. Bytes of an output, characters of the others.
_LIMITS = {"taskToken": 2_048, "output": 262_144, "error": 256, "cause": 32_768}
_POLL_SECONDS = 0.1
# The machines of the states that wait, and those of states that have ended, by token.
_open: dict[str, str] = {}
_ended: dict[str, str] = {}
# An answer comes either before the end of a state, or after it.
_ending = threading.Lock()


def register() -> None:
    """Make states with `.waitForTaskToken` behave as documented by AWS. Call it once, before any execution starts."""
    machines = module("services.stepfunctions")

    @replaces(machines, "_invoke_with_callback")
    def wait_for_token(_invoke: Any, resource: str, arguments: Any, token: str, _state: Any) -> Any:
        return _wait_for_token(resource, arguments, token)

    for name in ("_send_task_success", "_send_task_failure"):
        replaces(machines, name)(_answer)

    # A caller needs the permission on the state machine of the token.
    @replaces(module("core.iam_actions"), "extract_resource_arn")
    def extract_resource(extract: Any, service: str, *request: Any) -> str:
        arn: str = extract(service, *request)
        return (_machine_of(request[3]) or arn) if service == "states" else arn


def _wait_for_token(resource: str, arguments: Any, token: str) -> Any:
    """Call the function of a state, and return the output with which somebody answers."""
    machines, task = module("services.stepfunctions"), running_task()
    answer: dict[str, Any] = {"event": threading.Event(), "result": None, "error": None, "heartbeat": None}
    _open[token] = task.machine
    machines._task_tokens[token] = answer
    try:
        # The token may be returned before the function ends. An error of the function fails the state.
        task.submitted(resource, machines._invoke_resource(resource.removesuffix(CALLBACK), arguments))
        while not (answer["event"].wait(_POLL_SECONDS) or task.abandoned):
            pass
    finally:
        with _ending:
            del machines._task_tokens[token]
            _ended[token] = _open.pop(token)
    if task.stopped:
        raise TaskAbandoned
    if not answer["event"].is_set():
        fail_state("States.Timeout", "")
    if answer["error"]:
        fail_state(answer["error"]["Error"], answer["error"]["Cause"])
    return json.loads(answer["result"])


def _answer(send: Any, data: Mapping[str, Any]) -> Any:
    """Answer SendTaskSuccess or SendTaskFailure."""
    refused = module("core.responses").error_response_json
    for name, limit in _LIMITS.items():
        value = data.get(name) or ""
        if len(value.encode() if name == "output" else value) > limit:
            message = f"1 validation error detected: Value at '{name}' failed to satisfy constraint: Member must have "
            return refused("ValidationException", f"{message}length less than or equal to {limit}", 400)
    token = data.get("taskToken", "")
    if token not in _open and token not in _ended:
        return refused("InvalidToken", "Invalid Token: 'Invalid token'", 400)
    if "output" in data and not _is_json(data["output"]):
        return refused("InvalidOutput", "Invalid Output", 400)
    with _ending:
        waiting = module("services.stepfunctions")._task_tokens.get(token)
        if waiting is None or waiting["event"].is_set():
            return refused("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'", 400)
        return send(data)


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


def _machine_of(body: bytes) -> str | None:
    """Return the state machine of the token in a request; None for any other request."""
    try:
        token = json.loads(body or b"{}").get("taskToken")
    except (ValueError, AttributeError):
        return None
    return _open.get(token) or _ended.get(token)
