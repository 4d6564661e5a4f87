"""Step Functions as on AWS: service integrations, stopped and timed-out tasks, outputs and events.

It replaces functions of the emulator's state machines; see `emulator`.
"""

from __future__ import annotations

import contextvars
import functools
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from slackwater.local.emulator import module

_INTEGRATION = "arn:aws:states:::"
# Definition and execution of the state that the current thread runs. The emulator passes neither to integrations.
_state: contextvars.ContextVar[tuple[Any, Any]] = contextvars.ContextVar("state")


class TaskAbandoned(SystemExit):
    """Ends the thread of an integration whose result nobody needs any more.

    It is a `SystemExit`, because the emulator catches every `Exception` and fails the execution, which has ended.
    """


class TaskHandle:
    """A running service integration."""

    def __init__(self, execution: Mapping[str, Any], timeout_seconds: float) -> None:
        self._execution, self._deadline = execution, time.monotonic() + timeout_seconds

    @property
    def abandoned(self) -> bool:
        """Whether the state timed out or its execution was stopped."""
        return self._execution["status"] != "RUNNING" or time.monotonic() > self._deadline


def register_integration(prefix: str, call: Callable[[str, Any, TaskHandle], Any]) -> None:
    """Run `call(resource, arguments, task)` for states whose resource starts with `prefix`; it returns their result."""

    def dispatch(resource: str, arguments: Any) -> Any:
        definition, execution = _state.get()
        return call(resource, arguments, TaskHandle(execution, definition.get("TimeoutSeconds", math.inf)))

    module("services.stepfunctions")._SERVICE_DISPATCH[prefix] = dispatch


def fail_state(error: str, cause: str) -> NoReturn:
    """Fail the running state with an error that its `Retry` and `Catch` can match."""
    raise module("services.stepfunctions")._ExecutionError(error, cause)


def executions_running() -> bool:
    """Return whether any execution of a state machine is running."""
    machines = sys.modules.get("ministack.services.stepfunctions")
    if machines is None:
        return False
    return any(execution.get("status") == "RUNNING" for execution in machines._executions.all_values())


def complete_states() -> None:
    """Make the emulator's state machines behave as documented by AWS. Call it once, before any execution starts."""
    machines = module("services.stepfunctions")
    execute_task, apply_output_path, add_event = (
        machines._execute_task,
        machines._apply_output_path,
        machines._add_event,
    )

    # The emulator does not end the thread of a stopped or timed-out task, so its job would continue. `TaskHandle` shows
    # the integration that its task is abandoned.
    @functools.wraps(execute_task)
    def execute_tracked_task(state_def: Any, raw_input: Any, execution: Any, ctx: Any) -> Any:
        token = _state.set((state_def, execution))
        try:
            return execute_task(state_def, raw_input, execution, ctx)
        finally:
            _state.reset(token)

    # The emulator calls this function last for a `Succeed` state, at the top level and inside `Map` and `Parallel`, and
    # ignores the state's JSONata `Output`.
    @functools.wraps(apply_output_path)
    def apply_output(state_def: Any, data: Any, ctx: Any = None) -> Any:
        if state_def.get("Type") == "Succeed" and machines._state_query_language(state_def, ctx) == "JSONata":
            return machines._apply_jsonata_output(state_def, data, ctx, default=data)
        return apply_output_path(state_def, data, ctx)

    # In the events of a task, AWS names the service and the action, such as `lambda` and `invoke`. The emulator writes
    # the whole resource.
    @functools.wraps(add_event)
    def add_aws_event(execution: Any, event_type: str, details: Any = None) -> Any:
        return add_event(execution, event_type, {key: split_resource(value) for key, value in (details or {}).items()})

    machines._execute_task, machines._apply_output_path, machines._add_event = (
        execute_tracked_task,
        apply_output,
        add_aws_event,
    )


def split_resource(details: Any) -> Any:
    """Return an event's details with the resource's ARN split into service and action."""
    resource = details.get("resource", "") if isinstance(details, dict) else ""
    if not resource.startswith(_INTEGRATION):
        return details
    service, _, action = resource.removeprefix(_INTEGRATION).partition(":")
    return {**details, "resourceType": service, "resource": action}
