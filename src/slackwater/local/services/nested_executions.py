"""Executions that state machines start and wait for: they end with the execution that waits, as on AWS.

The emulator runs them in the thread of the state, so they would go on after their parent was stopped, and a `Map` state
of a stopped execution would start its remaining items.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from slackwater.local.emulator import module
from slackwater.local.services.state_machines import TaskAbandoned, fail_state, running_task

_POLL_SECONDS = 0.05


def stop_with_parents() -> None:
    """Make the emulator stop nested executions with their parent. Call it once, before any execution starts."""
    machines = module("services.stepfunctions")
    machines._invoke_nested_start_execution_sync = _run_nested
    for name in ("_execute_task", "_execute_map", "_execute_parallel"):
        setattr(machines, name, _ending_with_execution(getattr(machines, name)))
    run_execution = machines._run_execution

    @functools.wraps(run_execution)
    def run_until_abandoned(arn: str) -> None:
        # Otherwise the thread of a stopped execution would end with a traceback in the log.
        with suppress(TaskAbandoned):
            run_execution(arn)

    machines._run_execution = run_until_abandoned


def _run_nested(resource: str, arguments: Any) -> dict[str, Any]:
    """Start the execution of a `startExecution.sync:2` state, wait for its end, and return the state's result.

    The state fails as on AWS: `States.TaskFailed`, with the description of the execution as the cause.
    """
    machines, task = module("services.stepfunctions"), running_task()
    arn = machines._invoke_nested_start_execution(resource, arguments)["ExecutionArn"]
    execution = machines._executions[arn]
    while execution["status"] == "RUNNING":
        if task.abandoned:
            machines._stop_execution({"executionArn": arn})
            raise TaskAbandoned
        time.sleep(_POLL_SECONDS)
    result = {
        "ExecutionArn": arn,
        "Input": execution["input"],
        "Name": execution["name"],
        "StartDate": execution["startDate"],
        "StateMachineArn": execution["stateMachineArn"],
        "Status": execution["status"],
        "StopDate": execution["stopDate"],
    }
    if execution["status"] != "SUCCEEDED":
        reasons = {name.title(): execution[name] for name in ("error", "cause") if execution.get(name)}
        fail_state("States.TaskFailed", json.dumps({**result, **reasons}))
    output = execution["output"] or "{}"
    return {**result, "Output": json.loads(output) if resource.endswith(":2") else output}


def _ending_with_execution(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that executes a state, so that it neither starts nor ends in an execution that has ended."""

    @functools.wraps(execute)
    def execute_state(state_def: Any, raw_input: Any, execution: Any, ctx: Any) -> Any:
        if execution["status"] != "RUNNING":
            raise TaskAbandoned
        try:
            return execute(state_def, raw_input, execution, ctx)
        finally:
            # A state of the items has no result then: going on would fail the execution that was stopped.
            if execution["status"] != "RUNNING":
                raise TaskAbandoned

    return execute_state
