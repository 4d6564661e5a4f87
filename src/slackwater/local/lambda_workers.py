"""The processes of Lambda functions, which the emulator calls workers.

- Layers are unpacked once: the emulator unpacks them for every worker, which takes seconds and 150 MB each time.
- A worker is forked by a process that has imported the modules of its layers already, unless that is not safe
  (`slackwater.local.fork_server`).
- An exception of a function is reported by its class and with its stack trace, and the end of its process as
  `Runtime.ExitError`: retries name them.
- As many workers start at a time as this machine has cores: the emulator starts one for every invocation that finds no
  idle worker, and ten that start at once take longer than two that then serve all ten invocations.
"""

from __future__ import annotations

import contextvars
import hashlib
import io
import subprocess
import sys
import threading
import time
import types
import weakref
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from slackwater.errors import CloudError
from slackwater.local.emulator import module, replaces
from slackwater.local.fork_server import ForkedProcess, ForkServers, Program
from slackwater.local.layout import ARCHITECTURE, PYTHON
from slackwater.local.unpacked import Unpacked

# After this time an invocation gets a worker of its own: it may be one that a starting worker waits for.
_START_SECONDS = 3.0
# What the emulator says about a worker that has ended during an invocation.
_DIED = "Worker process died"
# A worker reads this file as Lambda does, so that the layer comes before everything else on its path.
_PATH_FILE = f"python/lib/python{PYTHON}/site-packages/shared-layer.pth"
# Beginnings of the names of variables that Python reads when it starts, or a module of the layer when it is imported.
# Workers with other values of these have another fork server.
_READ_AT_IMPORT = (
    *("PYTHON", "LANG", "LC_", "LD_", "TZ", "PATH", "HOME", "TMPDIR", "SSL_CERT_", "REQUESTS_", "CURL_"),
    *("AWS_EXECUTION_ENV", "AWS_LAMBDA_INITIALIZATION_TYPE", "AWS_NEW_", "AWS_CA_BUNDLE", "BOTO", "POWERTOOLS_D"),
    *("ARROW_", "PYARROW_", "NPY_", "NUMPY_", "OPENBLAS_", "OMP_", "MALLOC_", "PANDAS_", "PYDANTIC_", "PYICEBERG_"),
    *("PYPARSING", "RUAMEL", "_PYTHON"),
)


class _Spawning(NamedTuple):
    """A worker that starts."""

    function: Mapping[str, Any]
    """The configuration of its function."""
    layers: list[Path]
    """The unpacked layers."""


def register(unpacked: Unpacked, servers: ForkServers, *, cores: int) -> None:
    """Change how the emulator runs functions; layers are in `unpacked`, and `servers` fork workers."""
    share_layers(unpacked, servers)
    limit_starting_workers(cores)
    report_exceptions()


def share_layers(unpacked: Unpacked, servers: ForkServers) -> None:
    """Give starting Lambda workers a `path_layer` for each layer's zip; other callers still get the zip itself.

    Workers of functions with layers are forked.
    """
    functions, runtime = module("services.lambda_svc"), module("core.lambda_runtime")
    # The worker that starts. Only workers get the small zip. GetLayerVersion, for example, must return the real one.
    spawning: contextvars.ContextVar[_Spawning | None] = contextvars.ContextVar("spawning", default=None)

    @replaces(functions, "_resolve_layer_zip")
    def resolve_layer(resolve: Any, attachment: Any) -> bytes | None:
        layer: bytes | None = resolve(attachment)
        worker = spawning.get()
        if not layer or worker is None:
            return layer
        worker.layers.append(unpacked_layer(layer, unpacked))
        return path_layer(worker.layers[-1])

    @replaces(runtime.Worker, "_spawn")
    def spawn_worker(spawn: Any, worker: Any) -> None:
        check_layers_load(worker.config)
        token = spawning.set(_Spawning(worker.config, []))
        try:
            spawn(worker)
        finally:
            spawning.reset(token)

    def start(command: Sequence[str], **options: Any) -> subprocess.Popen[Any] | ForkedProcess:
        forked = None
        if worker := spawning.get():
            options["env"] = environment = without_python_path(options["env"], worker.function)
            if worker.layers and command[0] == sys.executable:
                script, cwd = Path(command[1]), Path(options["cwd"])
                forked = fork_worker(servers, script, worker.layers, cwd=cwd, environment=environment)
        return forked or subprocess.Popen(command, **options)  # noqa: S603 - as the emulator does it

    runtime.subprocess = types.SimpleNamespace(**{**vars(subprocess), "Popen": start})


def without_python_path(environment: Mapping[str, str], function: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a function's worker without the `PYTHONPATH` of this process, as on AWS."""
    own = function.get("Environment", {}).get("Variables", {})
    return {name: value for name, value in environment.items() if name != "PYTHONPATH" or name in own}


def fork_worker(
    servers: ForkServers, script: Path, layers: Sequence[Path], *, cwd: Path, environment: Mapping[str, str]
) -> ForkedProcess | None:
    """Fork the worker `script` of the function in the folder `cwd`; return None if it has to be started otherwise."""
    program = Program(script, [], environment, cwd, imports=sorted(cwd.rglob("*.py")), folder=cwd)
    # The last layer comes first on a worker's path.
    libraries = [str(layer / "python") for layer in reversed(layers)]
    variables = {name: value for name, value in environment.items() if name.startswith(_READ_AT_IMPORT)}
    return servers.start(program, libraries=libraries, variables=variables)


def limit_starting_workers(cores: int) -> None:
    """Let an invocation wait for an idle worker while `cores` workers start, instead of starting another one."""
    functions, runtime = module("services.lambda_svc"), module("core.lambda_runtime")
    # Workers that serve their first invocation: that is when a function imports its modules. The emulator forgets a
    # worker that has failed, and does not release it.
    starting: weakref.WeakSet[Any] = weakref.WeakSet()
    gate = threading.Lock()

    @replaces(functions, "acquire_worker")
    def acquire_worker(
        acquire: Any, func_name: str, config: Any, *arguments: Any, qualifier: str = "$LATEST", **more: Any
    ) -> Any:
        key = runtime._worker_key(func_name, config, qualifier)
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with gate:
                idle = any(not worker.in_use for worker in list(runtime._workers.get(key, [])))
                if idle or len(starting) < cores or time.monotonic() > deadline:
                    worker, reason = acquire(func_name, config, *arguments, qualifier=qualifier, **more)
                    if reason == "spawn":
                        starting.add(worker)
                    return worker, reason
            time.sleep(0.01)

    @replaces(functions, "release_worker")
    def release_worker(release: Any, worker: Any) -> None:
        if worker is not None:
            starting.discard(worker)
        release(worker)


def report_exceptions() -> None:
    """Report errors of Python functions as Lambda does: for the emulator, each one is a `Runtime.HandlerError`."""
    functions, runtime = module("services.lambda_svc"), module("core.lambda_runtime")
    latest: contextvars.ContextVar[Mapping[str, Any] | None] = contextvars.ContextVar("latest", default=None)

    @replaces(runtime.Worker, "invoke")
    def invoke(call: Any, worker: Any, *arguments: Any, **options: Any) -> Any:
        response = call(worker, *arguments, **options)
        latest.set(response)
        return response

    @replaces(functions, "_execute_function_warm")
    def execute(call: Any, function: Any, event: Any, request_id: str) -> Any:
        latest.set(None)
        result, response = call(function, event, request_id), latest.get() or {}
        if result.get("error") and (trace := response.get("trace")):
            result["body"] = {
                "errorMessage": response["error"],
                "errorType": exception_class(trace, response["error"]),
                "requestId": request_id,
                "stackTrace": trace.splitlines(keepends=True)[1:-1],
            }
        elif result.get("error") and response.get("error") == _DIED:
            message = f"RequestId: {request_id} Error: Runtime exited without providing a reason"
            result["body"] = {"errorMessage": message, "errorType": "Runtime.ExitError"}
        return result


def exception_class(trace: str, message: str) -> str:
    """Return the name of the class of the exception at the end of a stack trace, whose message is known."""
    last = trace.rstrip().removesuffix(message.rstrip()).splitlines()[-1]
    return last.partition(":")[0].rpartition(".")[2]


def check_layers_load(function: Mapping[str, Any]) -> None:
    """Raise `CloudError` when a Python function has layers for another Python or processor than this machine's.

    Their compiled modules would not load. On AWS, the function's runtime and architecture decide what runs it.
    """
    runtime, architectures = function.get("Runtime", ""), function.get("Architectures") or ["x86_64"]
    needed, present = (runtime, architectures[0]), (f"python{PYTHON}", ARCHITECTURE)
    if function.get("Layers") and runtime.startswith("python") and needed != present:
        raise CloudError(
            f"{function['FunctionName']} needs {runtime} on {architectures[0]}, but the local cloud runs functions "
            f"with {present[0]} on {present[1]}: deploy with `slackwater deploy`, which sets lambda_python and "
            "architecture for it"
        )


def unpacked_layer(layer: bytes, unpacked: Unpacked) -> Path:
    """Unpack a layer's zip, unless it has been unpacked. Return its folder."""

    def unpack(folder: Path) -> None:
        with zipfile.ZipFile(io.BytesIO(layer)) as archive:
            archive.extractall(folder)  # zipfile strips "..", drives and roots from names

    return unpacked.add(hashlib.sha256(layer).hexdigest()[:32], unpack)


def path_layer(unpacked: Path) -> bytes:
    """Return the zip of a small layer that directs workers to an unpacked layer."""
    stub = io.BytesIO()
    with zipfile.ZipFile(stub, "w") as archive:
        archive.writestr(_PATH_FILE, f"import sys; sys.path.insert(0, {str(unpacked / 'python')!r})\n")
    return stub.getvalue()
