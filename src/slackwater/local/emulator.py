"""The place that touches the emulator's inner tables, with `emulator_metrics` and `emulator_queues` for theirs.

MiniStack has no plug-in interface, so a service is added by entering it in the tables that its own services stand in.
`tests/unit/test_local_ministack_contract.py` holds every name and signature used here; the version is pinned exactly.
"""

from __future__ import annotations

import contextvars
import functools
import importlib
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol

from slackwater.local import layout

Response = tuple[int, dict[str, str], bytes]
"""HTTP status, headers, body."""
Scope = tuple[str, str]
"""Account and region."""


class Service(Protocol):
    """What the emulator asks of a service module."""

    async def handle_request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query_params: Mapping[str, list[str]]
    ) -> Response:
        """Answer one request."""

    def get_state(self) -> dict[str, Any]:
        """Return what outlives the process, as JSON."""

    def load_persisted_state(self, data: dict[str, Any]) -> None:
        """Take back what `get_state` returned before a restart."""

    def reset(self) -> None:
        """Forget everything."""


class Abandoned(SystemExit):
    """Ends the thread of an integration whose result nobody waits for: any other error would fail its execution."""


class TaskHandle:
    """A service integration that is running: says when its result is no longer wanted."""

    def __init__(self, execution: Mapping[str, Any] | None) -> None:
        self._execution = execution
        self._timed_out = threading.Event()

    def time_out(self) -> None:
        """Say that the state's `TimeoutSeconds` have passed."""
        self._timed_out.set()

    @property
    def abandoned(self) -> bool:
        """Whether the state timed out, or its execution was stopped."""
        stopped = self._execution is not None and self._execution["status"] != "RUNNING"
        return stopped or self._timed_out.is_set()


_execution: contextvars.ContextVar[Mapping[str, Any] | None] = contextvars.ContextVar("execution", default=None)
_task: contextvars.ContextVar[TaskHandle | None] = contextvars.ContextVar("task", default=None)


def configure(*, state: Path, objects: Path, port: int) -> None:
    """Set what the emulator reads from the environment when it is imported. Call it before anything else here."""
    if "ministack.app" in sys.modules:
        raise RuntimeError("the emulator is imported already, and has read its settings")
    os.environ.update(
        GATEWAY_PORT=str(port),
        BIND_HOST=layout.HOST,
        MINISTACK_HOST="localhost",
        MINISTACK_REGION=layout.REGION,
        MINISTACK_ACCOUNT_ID=layout.ACCOUNT,
        PERSIST_STATE="1",
        STATE_DIR=str(state),
        S3_PERSIST="1",
        S3_DATA_DIR=str(objects),
        LAMBDA_EXECUTOR="local",
        LOG_LEVEL="WARNING",
        SFTP_ENABLED="0",
        IOT_MTLS_ENABLED="0",
        # Lambda functions run in the emulator's own Python, and find AWS through these.
        **layout.environment(f"http://{layout.HOST}:{port}"),
    )


def _module(name: str) -> Any:
    return importlib.import_module(f"ministack.{name}")


def application() -> Callable[..., Awaitable[None]]:
    """Return the emulator as an ASGI application."""
    app: Callable[..., Awaitable[None]] = _module("app").app
    return app


def register_service(name: str, service: Service) -> None:
    """Serve requests that are signed for `name`, and keep the service's state with the others'."""
    app, key = _module("app"), name.replace("-", "_")
    app.SERVICE_REGISTRY[name] = {"module": key}
    app.SERVICE_HANDLERS[name] = service.handle_request
    app._state_map[key] = key
    app._loaded_modules[key] = service
    _module("core.router").SERVICE_PATTERNS[name] = {"host_patterns": [rf"{name}\."]}


def register_resource(resource_type: str, handlers: Mapping[str, Callable[..., Any]]) -> None:
    """Provision `resource_type` in stacks with `handlers`: create, update and delete."""
    _module("services.cloudformation.provisioners")._RESOURCE_HANDLERS[resource_type] = dict(handlers)


def register_integration(prefix: str, call: Callable[[str, Any, TaskHandle], Any]) -> None:
    """Let states whose resource starts with `prefix` run `call(resource, arguments, task)`."""

    def dispatch(resource: str, arguments: Any) -> Any:
        return call(resource, arguments, _task.get() or TaskHandle(_execution.get()))

    _module("services.stepfunctions")._SERVICE_DISPATCH[prefix] = dispatch


def follow_tasks() -> None:
    """Let integrations learn that their execution was stopped or their state timed out."""
    machines = _module("services.stepfunctions")
    execute, invoke = machines._execute_task, machines._invoke_resource_with_timeout

    @functools.wraps(execute)
    def execute_task(state_def: Any, raw_input: Any, execution: Any, ctx: Any) -> Any:
        token = _execution.set(execution)
        try:
            return execute(state_def, raw_input, execution, ctx)
        finally:
            _execution.reset(token)

    @functools.wraps(invoke)
    def invoke_with_timeout(resource: Any, input_data: Any, timeout: Any) -> Any:
        task = TaskHandle(_execution.get())
        token = _task.set(task)
        try:
            return invoke(resource, input_data, timeout)
        except machines._ExecutionError:
            task.time_out()
            raise
        finally:
            _task.reset(token)

    machines._execute_task = execute_task
    machines._invoke_resource_with_timeout = invoke_with_timeout


def address_apis_by_path(endpoint: str) -> None:
    """Give HTTP APIs an address that every client can resolve: not all of them know names under `.localhost`."""
    provisioners, apis = _module("services.cloudformation.provisioners"), _module("services.apigateway")._apis
    handlers = provisioners._RESOURCE_HANDLERS["AWS::ApiGatewayV2::Api"]
    create = handlers["create"]

    @functools.wraps(create)
    def create_api(logical_id: str, props: Any, stack_name: str) -> tuple[str, dict[str, Any]]:
        api_id, attributes = create(logical_id, props, stack_name)
        address = f"{endpoint}/_aws/execute-api/{api_id}/$default"
        apis[api_id]["apiEndpoint"] = address
        return api_id, {**attributes, "ApiEndpoint": address}

    handlers["create"] = create_api


def share_layers(shared: Callable[[bytes], bytes]) -> None:
    """Give starting Lambda workers `shared(layer)` for each layer's zip; whoever else asks gets the zip itself."""
    functions, worker = _module("services.lambda_svc"), _module("core.lambda_runtime").Worker
    resolve, spawn = functions._resolve_layer_zip, worker._spawn
    starting: contextvars.ContextVar[bool] = contextvars.ContextVar("starting", default=False)

    @functools.wraps(resolve)
    def resolve_layer(attachment: Any) -> bytes | None:
        layer: bytes | None = resolve(attachment)
        return shared(layer) if layer and starting.get() else layer

    @functools.wraps(spawn)
    def spawn_worker(self: Any) -> None:
        token = starting.set(True)
        try:
            spawn(self)
        finally:
            starting.reset(token)

    functions._resolve_layer_zip = resolve_layer
    worker._spawn = spawn_worker


def fail_state(error: str, cause: str) -> NoReturn:
    """Fail the running state, as its `Retry` and `Catch` see it."""
    raise _module("services.stepfunctions")._ExecutionError(error, cause)


def executions_running() -> bool:
    """Whether any state machine is at work."""
    machines = sys.modules.get("ministack.services.stepfunctions")
    if machines is None:
        return False
    return any(execution.get("status") == "RUNNING" for execution in machines._executions.all_values())


def service_states() -> dict[str, Callable[[], Any]]:
    """Return, for each service in use, what gives its state."""
    states: dict[str, Callable[[], Any]] = _module("app")._build_persistence_save_dict()
    return states


def write_state(service: str, state: Any, file: IO[str]) -> None:
    """Write a service's state as the JSON document that the emulator loads when it starts.

    It is written piece by piece, so that other threads go on meanwhile: Lambda's layers make a document of 80 MB.
    """
    version = _module("core.persistence")._state_format_version(service)
    json.dump({"__ministack_format__": version, "payload": state}, file, default=plain)


def plain(value: Any) -> Any:
    """Return the JSON form of one of the emulator's own containers."""
    return _module("core.persistence")._json_default(value)


def request_scope() -> Scope:
    """Return account and region of the request, or of the execution, that is being served."""
    responses = _module("core.responses")
    return responses.get_account_id(), responses.get_region()
