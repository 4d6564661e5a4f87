"""Workers of Lambda functions: layers are unpacked once and shared, and few workers start at a time."""

from __future__ import annotations

import io
import site
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from ministack.core import lambda_runtime
from ministack.services import lambda_svc

from slackwater.errors import CloudError
from slackwater.local import lambda_workers
from slackwater.local.lambda_workers import check_layers_load, limit_starting_workers, shared_layer
from slackwater.local.layout import ARCHITECTURE, PYTHON

pytestmark = pytest.mark.unit

OTHER = {"x86_64": "arm64", "arm64": "x86_64"}[ARCHITECTURE]


def zipped(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, source in files.items():
            archive.writestr(name, source)
    return content.getvalue()


def test_a_layer_is_unpacked_once_and_comes_first_on_a_workers_path(tmp_path, monkeypatch):
    layer = zipped({"python/some_module.py": "VALUE = 1\n"})
    stub = shared_layer(layer, tmp_path / "layers")
    (unpacked,) = (tmp_path / "layers").iterdir()
    module = unpacked / "python" / "some_module.py"
    written = module.stat().st_mtime_ns
    assert shared_layer(layer, tmp_path / "layers") == stub
    assert module.stat().st_mtime_ns == written
    with zipfile.ZipFile(io.BytesIO(stub)) as archive:
        archive.extractall(tmp_path / "worker")
    monkeypatch.setattr(sys, "path", list(sys.path))
    (packages,) = (tmp_path / "worker" / "python" / "lib").glob("*/site-packages")
    site.addsitedir(str(packages))
    assert sys.path[0] == str(unpacked / "python")


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
    first, second = (shared_layer(zipped({"python/a.py": source}), tmp_path) for source in ("A = 1\n", "A = 2\n"))
    assert first != second
    with pytest.raises(zipfile.BadZipFile):
        shared_layer(b"no zip", tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
