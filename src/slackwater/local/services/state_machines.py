"""Step Functions as on AWS: service integrations, stopped and timed-out tasks, outputs and events.

It replaces functions of the emulator's state machines; see `emulator`.
"""

from __future__ import annotations

import contextvars
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from slackwater.errors import AccessDenied
from slackwater.local.emulator import module, replaces, request_scope
from slackwater.local.services.permissions import Principal, assume_role

_INTEGRATION = "arn:aws:states:::"
CALLBACK = ".waitForTaskToken"
"""The end of the resource of a state that waits until somebody returns its token."""
# Step Functions creates these EventBridge rules with the state machine's role, to get notified of the end of a task.
_EVENT_RULES = {
    "emr-serverless:startJobRun.sync": "StepFunctionsGetEventsForEMRServerlessJobRule",
    "states:startExecution.sync:2": "StepFunctionsGetEventsForStepFunctionsExecutionRule",
}
# Definition and execution of the state that the current thread runs. The emulator passes neither to integrations.
_state: contextvars.ContextVar[tuple[Any, Any]] = contextvars.ContextVar("state")
# Execution and id of the last event of the current thread. The thread of a branch starts with those of its parent.
_previous: contextvars.ContextVar[tuple[Any, int]] = contextvars.ContextVar("previous", default=(None, 0))
# Execution, and states by name, of the branches that the current thread runs.
_branches: contextvars.ContextVar[tuple[Any, Mapping[str, Any]]] = contextvars.ContextVar(
    "branches", default=(None, {})
)
_POLL_SECONDS = 0.05


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
        return self.stopped or time.monotonic() > self._deadline

    @property
    def stopped(self) -> bool:
        """Whether its execution was stopped."""
        return bool(self._execution["status"] != "RUNNING")

    def submitted(self, resource: str, output: Mapping[str, Any]) -> None:
        """Add the event of a started job, by which it is known although its state may never end."""
        details = {"resource": resource, "output": json.dumps(output), "outputDetails": {"truncated": False}}
        add_event = module("services.stepfunctions")._add_event
        add_event(self._execution, "TaskSubmitted", {"taskSubmittedEventDetails": details})

    @property
    def machine(self) -> str:
        """ARN of the state machine."""
        return str(self._execution["stateMachineArn"])

    @property
    def role(self) -> Principal:
        """The role of the state machine. Raises `AccessDenied` when Step Functions cannot assume it."""
        machine = module("services.stepfunctions")._state_machines[self._execution["stateMachineArn"]]
        source, session = machine["stateMachineArn"], self._execution["name"][:64]
        return assume_role(machine["roleArn"], service="states.amazonaws.com", source=source, session=session)


def register_integration(prefix: str, call: Callable[[str, Any, TaskHandle], Any]) -> None:
    """Run `call(resource, arguments, task)` for states whose resource starts with `prefix`; it returns their result."""

    def dispatch(resource: str, arguments: Any) -> Any:
        return call(resource, arguments, running_task())

    module("services.stepfunctions")._SERVICE_DISPATCH[prefix] = dispatch


def running_task() -> TaskHandle:
    """Return the integration that the current thread runs."""
    definition, execution = _state.get()
    return TaskHandle(execution, definition.get("TimeoutSeconds", math.inf))


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

    # The emulator does not end the thread of a stopped or timed-out task, so its job would continue. `TaskHandle` shows
    # the integration that its task is abandoned.
    @replaces(machines, "_execute_task")
    def execute_tracked_task(execute: Any, state_def: Any, raw_input: Any, execution: Any, ctx: Any) -> Any:
        token = _state.set((state_def, execution))
        try:
            return in_branch(state_def, lambda: execute(state_def, raw_input, execution, ctx))
        finally:
            _state.reset(token)

    # On a busy machine, the integration may notice before the emulator that its time is over.
    @replaces(machines, "_invoke_resource_with_timeout")
    def invoke_until_time_out(invoke: Any, resource: str, input_data: Any, timeout: float) -> Any:
        try:
            return invoke(resource, input_data, timeout)
        except TaskAbandoned:
            _, execution = _state.get()
            if execution["status"] == "RUNNING":
                fail_state("States.Timeout", f"Task timed out after {timeout} seconds")
            raise

    # The emulator has no events for the states of branches.
    @replaces(machines, "_run_parallel_branches")
    def run_named_branches(run_branches: Any, state_def: Any, raw_input: Any, execution: Any, ctx: Any) -> Any:
        states = {name: state for branch in state_def["Branches"] for name, state in branch["States"].items()}
        token = _branches.set((execution, states))
        try:
            return run_branches(state_def, raw_input, execution, ctx)
        finally:
            _branches.reset(token)

    @replaces(machines, "_execute_choice")
    def execute_named_choice(execute: Any, state_def: Any, raw_input: Any, ctx: Any) -> Any:
        return in_branch(state_def, lambda: execute(state_def, raw_input, ctx))

    def in_branch(state_def: Any, execute: Callable[[], Any]) -> Any:
        """Execute a state. If it belongs to a branch, add the events of its entry and its exit."""
        execution, states = _branches.get()
        name = next((name for name, state in states.items() if state is state_def), None)
        if name is None:
            return execute()
        event = f"{state_def['Type']}State"
        machines._add_event(execution, f"{event}Entered", {"stateEnteredEventDetails": {"name": name}})
        result = execute()
        machines._add_event(execution, f"{event}Exited", {"stateExitedEventDetails": {"name": name}})
        return result

    # The emulator calls this function last for a `Succeed` state, at the top level and inside `Map` and `Parallel`, and
    # ignores the state's JSONata `Output`.
    @replaces(machines, "_apply_output_path")
    def apply_output(apply_output_path: Any, state_def: Any, data: Any, ctx: Any = None) -> Any:
        if state_def.get("Type") == "Succeed" and machines._state_query_language(state_def, ctx) == "JSONata":
            return machines._apply_jsonata_output(state_def, data, ctx, default=data)
        return apply_output_path(state_def, data, ctx)

    # In the events of a task, AWS names the service and the action, such as `lambda` and `invoke`. The emulator writes
    # the whole resource. It also lacks the event before, which is one of the same branch.
    @replaces(machines, "_add_event")
    def add_aws_event(add_event: Any, execution: Any, event_type: str, details: Any = None) -> Any:
        known, previous = _previous.get()
        if known is not execution or event_type.endswith(("ParallelStateExited", "MapStateExited")):
            previous = len(execution["events"])
        more = {key: split_resource(value) for key, value in (details or {}).items()}
        event = add_event(execution, event_type, {**more, "previousEventId": previous})
        _previous.set((execution, event["id"]))
        return event


def require_permissions() -> None:
    """Check the permissions of a state machine's role before each task, which the emulator does not do."""

    @replaces(module("services.stepfunctions"), "_invoke_resource")
    def invoke_with_role(invoke: Any, resource: str, arguments: Any) -> Any:
        _check_task(resource.removeprefix(_INTEGRATION), arguments, TaskHandle(_state.get()[1], math.inf))
        return invoke(resource, arguments)


def _check_task(action: str, arguments: Any, task: TaskHandle) -> None:
    """Fail the state unless its machine's role has the permissions of Step Functions' user guide for its integration.

    `emr.step_functions` checks those of StartJobRun itself.
    """
    try:
        role = task.role
        if action == "lambda:invoke":
            role.require("lambda:InvokeFunction", arguments["FunctionName"])
        if action.startswith("states:startExecution"):
            executions = arguments["StateMachineArn"].replace(":stateMachine:", ":execution:") + ":new"
            role.require("states:StartExecution", arguments["StateMachineArn"])
            for verb in ("DescribeExecution", "StopExecution") if ".sync" in action else ():
                role.require(f"states:{verb}", executions)
        if rule := _EVENT_RULES.get(action):
            scope = request_scope()
            for verb in ("PutRule", "PutTargets", "DescribeRule"):
                role.require(f"events:{verb}", f"arn:aws:events:{scope.region}:{scope.account}:rule/{rule}")
    except AccessDenied as error:
        # The error names of AWS: `Lambda.AWSLambdaException` also for a missing permission.
        name = "Lambda.AWSLambdaException" if action == "lambda:invoke" else "StepFunctions.AccessDeniedException"
        fail_state(name, str(error))


def split_resource(details: Any) -> Any:
    """Return an event's details with the resource's ARN split into service and action."""
    resource = details.get("resource", "") if isinstance(details, dict) else ""
    if not resource.startswith(_INTEGRATION):
        return details
    service, _, action = resource.removeprefix(_INTEGRATION).partition(":")
    return {**details, "resourceType": service, "resource": action}


def stop_with_parents() -> None:
    """Make the emulator stop nested executions with their parent. Call it once, before any execution starts."""
    machines = module("services.stepfunctions")
    machines._invoke_nested_start_execution_sync = _run_nested
    for name in ("_execute_task", "_execute_map", "_execute_parallel"):
        replaces(machines, name)(_end_with_execution)

    @replaces(machines, "_run_execution")
    def run_until_abandoned(run_execution: Any, arn: str) -> None:
        # Otherwise the thread of a stopped execution would end with a traceback in the log.
        with suppress(TaskAbandoned):
            run_execution(arn)


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


def _end_with_execution(execute: Any, state_def: Any, raw_input: Any, execution: Any, ctx: Any) -> Any:
    """Execute a state, unless its execution has ended, and go on to the next one only if it has not ended since."""
    if execution["status"] != "RUNNING":
        raise TaskAbandoned
    try:
        return execute(state_def, raw_input, execution, ctx)
    finally:
        # A state of the items has no result then: going on would fail the execution that was stopped.
        if execution["status"] != "RUNNING":
            raise TaskAbandoned
