"""Workers of Lambda functions: layers are unpacked once and shared, and few workers start at a time."""

from __future__ import annotations

import io
import json
import os
import site
import subprocess
import sys
import time
import traceback
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ministack.core import lambda_runtime
from ministack.services import lambda_svc

from slackwater.errors import CloudError
from slackwater.local import lambda_workers
from slackwater.local.emr import spark
from slackwater.local.fork_server import ForkedProcess, ForkServers
from slackwater.local.lambda_workers import (
    check_layers_load,
    limit_starting_workers,
    path_layer,
    report_exceptions,
    share_layers,
    unpacked_layer,
)
from slackwater.local.layout import ARCHITECTURE, PYTHON
from slackwater.local.unpacked import Unpacked
from tests.fakes_local import end_fork_servers

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
OTHER = {"x86_64": "arm64", "arm64": "x86_64"}[ARCHITECTURE]


def zipped(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, source in files.items():
            archive.writestr(name, source)
    return content.getvalue()


def test_a_layer_is_unpacked_once_and_comes_first_on_a_workers_path(tmp_path, monkeypatch):
    layer = zipped({"python/some_module.py": "VALUE = 1\n"})
    layers = Unpacked(tmp_path / "layers")
    unpacked = unpacked_layer(layer, layers)
    module = unpacked / "python" / "some_module.py"
    written = module.stat().st_mtime_ns
    assert unpacked_layer(layer, layers) == unpacked
    assert module.stat().st_mtime_ns == written
    with zipfile.ZipFile(io.BytesIO(path_layer(unpacked))) as archive:
        archive.extractall(tmp_path / "worker")
    monkeypatch.setattr(sys, "path", list(sys.path))
    (packages,) = (tmp_path / "worker" / "python" / "lib").glob("*/site-packages")
    site.addsitedir(str(packages))
    assert sys.path[0] == str(unpacked / "python")


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Start workers of functions with this layer and this code; yield how they report themselves."""
    monkeypatch.setattr(lambda_svc, "_resolve_layer_zip", lambda attachment: attachment["zip"])
    monkeypatch.setattr(lambda_runtime.Worker, "_spawn", lambda_runtime.Worker._spawn)
    monkeypatch.setattr(lambda_runtime, "subprocess", subprocess)
    # With an empty entry in its own, a worker that Python starts imports the modules of its function first.
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    servers = ForkServers()
    share_layers(Unpacked(tmp_path / "layers"), servers)
    workers = []

    def start(layer, code, **variables):
        config = {
            "FunctionName": "show",
            "FunctionArn": "arn:aws:lambda:us-east-1:000000000000:function:show",
            "Runtime": f"python{PYTHON}",
            "Architectures": [ARCHITECTURE],
            "Handler": "handler.handler",
            "Layers": [{"Arn": "layer", "zip": zipped({f"python/{name}": text for name, text in layer.items()})}],
            "Environment": {"Variables": variables},
        }
        worker = lambda_runtime.Worker("show", config, zipped(code))
        workers.append(worker)
        return worker.invoke({}, "request")["result"], isinstance(worker._proc, ForkedProcess)

    yield start
    processes = [worker._proc for worker in workers]
    lambda_runtime.kill_workers(workers)
    assert all(process.poll() is not None for process in processes)
    for process in processes:
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
    end_fork_servers(servers)


HANDLER = """
import os, sys
import library
print("to the log")
def handler(event, context):
    return [library.VERSION, library.DEBUG, os.environ.get("OWN"), library.__file__.split("/")[-3], os.getcwd()[-5:]]
"""
LIBRARY = "import os\nVERSION = {!r}\nDEBUG = os.environ.get('POWERTOOLS_DEBUG')\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process is forked")
def test_a_forked_worker_has_its_layer_and_its_variables(started):
    code, one, two = {"handler.py": HANDLER}, {"library.py": LIBRARY.format("1")}, {"library.py": LIBRARY.format("2")}
    results = [started(one, code, OWN="a"), started(one, code, OWN="b"), started(two, code)]
    results.append(started(one, code, POWERTOOLS_DEBUG="1"))
    assert [(*result[:3], forked) for result, forked in results] == [
        ("1", None, "a", True),
        ("1", None, "b", True),
        ("2", None, None, True),
        ("1", "1", None, True),
    ]
    own = {"handler.py": HANDLER, "json.py": "raise ImportError('a module of the function')"}
    assert started(one, own, OWN="c")[1] is False


def test_a_worker_has_the_python_path_of_its_function_and_not_that_of_this_process(started):
    handler = "import os\nimport library\ndef handler(event, context):\n    return os.environ.get('PYTHONPATH')\n"
    layer = {"library.py": ""}
    for own in ({}, {"json.py": ""}):  # forked, and started by Python
        code = {"handler.py": handler, **own}
        assert [started(layer, code, **set_)[0] for set_ in ({}, {"PYTHONPATH": "/opt"})] == [None, "/opt"]


class FunctionError(Exception):
    """An exception whose module is not `builtins`."""


@pytest.mark.parametrize(
    "error",
    [
        FunctionError("plain"),
        FunctionError("with: colon"),
        FunctionError("one: two\nthree: four"),
        KeyError("a"),
        ValueError(),
    ],
)
def test_an_exception_is_reported_by_its_class_with_its_message_and_stack_trace(monkeypatch, error):
    def invoke(worker, event):
        try:
            raise error from OSError("first")
        except Exception as raised:  # noqa: BLE001 - as the emulator's worker does it
            return {"status": "error", "error": str(raised), "trace": traceback.format_exc()}

    def execute(function, event, request_id):
        lambda_runtime.Worker.invoke(None, event)
        return {"body": {"errorType": "Runtime.HandlerError"}, "error": True}

    monkeypatch.setattr(lambda_runtime.Worker, "invoke", invoke)
    monkeypatch.setattr(lambda_svc, "_execute_function_warm", execute)
    report_exceptions()
    body = lambda_svc._execute_function_warm({}, {}, "request")["body"]
    assert "in invoke" in "".join(body.pop("stackTrace"))
    assert body == {"errorType": type(error).__name__, "errorMessage": str(error), "requestId": "request"}


def test_a_function_whose_process_has_died_is_reported_as_lambda_does(monkeypatch):
    died = {"status": "error", "error": "Worker process died"}

    def execute(function, event, request_id):
        response = lambda_runtime.Worker.invoke(None, event)
        return {"body": {"errorMessage": response["error"], "errorType": "Runtime.HandlerError"}, "error": True}

    monkeypatch.setattr(lambda_runtime.Worker, "invoke", lambda worker, event: died)
    monkeypatch.setattr(lambda_svc, "_execute_function_warm", execute)
    report_exceptions()
    assert lambda_svc._execute_function_warm({}, {}, "request")["body"] == {
        "errorType": "Runtime.ExitError",
        "errorMessage": "RequestId: request Error: Runtime exited without providing a reason",
    }


@pytest.mark.parametrize("folder", ["lambdas", "glue_jobs"])
def test_what_modules_read_while_they_are_imported_decides_which_server_forks(folder, tmp_path):
    programs = [str(path) for path in (ROOT / folder).rglob("*.py")]
    source = """
import json, os, sys
class Environment(type(os.environ)):
    def __getitem__(self, name):
        read.add(name)
        return super().__getitem__(name)
read, os.environ.__class__ = set(), Environment
from slackwater.local import fork_program
fork_program.import_modules(sys.argv[2:], ["pandas"])
assert not (reason := fork_program.unsafe(sys.argv[1])), reason
json.dump(sorted(read), sys.stdout)
"""
    environment = {name: os.environ[name] for name in ("PATH", "HOME")} | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", source, str(tmp_path), *programs]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    read = json.loads(done.stdout)
    assert "HOME" in read
    if folder == "lambdas":
        assert [name for name in read if not name.startswith(lambda_workers._READ_AT_IMPORT)] == []
    else:
        assert set(read) & set(spark._VARIABLES_OF_ONE_JOB) <= {"HOME", "PYTHONPATH"}


@pytest.fixture
def workers(monkeypatch):
    """The emulator's pool of workers, without processes, and at most two that start."""
    monkeypatch.setattr(lambda_runtime, "_workers", {})
    for name in ("acquire_worker", "release_worker"):
        monkeypatch.setattr(lambda_svc, name, getattr(lambda_runtime, name))
    monkeypatch.setattr(lambda_workers, "_START_SECONDS", 0.3)
    limit_starting_workers(2)

    def acquire(name):
        config = {"Runtime": f"python{PYTHON}", "FunctionArn": f"arn:aws:lambda:us-east-1:000000000000:function:{name}"}
        return lambda_svc.acquire_worker(name, config, b"", qualifier="$LATEST")

    return acquire


def test_an_invocation_waits_for_a_worker_that_starts(workers):
    first, second = workers("fetch"), workers("fetch")
    assert (first[1], second[1]) == ("spawn", "spawn")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(workers, "fetch")
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        lambda_svc.release_worker(second[0])
        assert waiting.result(5) == (second[0], "reused")


def test_workers_that_have_started_do_not_count(workers):
    for _ in range(2):
        lambda_svc.release_worker(workers("fetch")[0])
        assert workers("fetch")[1] == "reused"
    assert [workers("list")[1] for _ in range(2)] == ["spawn", "spawn"]


def test_a_worker_that_failed_does_not_count(workers):
    for _ in range(2):
        workers("fetch")
        lambda_runtime._workers.clear()  # as the emulator does, without a release
    began = time.monotonic()
    assert [workers("fetch")[1] for _ in range(2)] == ["spawn", "spawn"]
    assert time.monotonic() - began < lambda_workers._START_SECONDS


def test_an_invocation_that_a_starting_worker_waits_for_gets_a_worker_in_the_end(workers):
    assert [workers("fetch")[1] for _ in range(3)] == ["spawn", "spawn", "spawn"]


@pytest.mark.parametrize(("runtime", "architecture"), [("python3.99", ARCHITECTURE), (f"python{PYTHON}", OTHER)])
def test_a_function_whose_layer_is_for_another_python_or_processor_fails_with_the_remedy(runtime, architecture):
    layers = [{"Arn": "layer"}]
    function = {"FunctionName": "list-files", "Runtime": runtime, "Architectures": [architecture], "Layers": layers}
    with pytest.raises(CloudError, match=rf"list-files needs {runtime} on {architecture}.*slackwater deploy"):
        check_layers_load(function)
    check_layers_load({**function, "Layers": []})
    check_layers_load({**function, "Runtime": "nodejs22.x"})
    check_layers_load({**function, "Runtime": f"python{PYTHON}", "Architectures": [ARCHITECTURE]})


def test_layers_have_separate_folders_and_a_broken_layer_leaves_none(tmp_path):
    layers = Unpacked(tmp_path)
    first, second = (unpacked_layer(zipped({"python/a.py": source}), layers) for source in ("A = 1\n", "A = 2\n"))
    assert first != second
    with pytest.raises(zipfile.BadZipFile):
        unpacked_layer(b"no zip", layers)
    assert len(list(tmp_path.iterdir())) == 2
