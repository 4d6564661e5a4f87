"""The files of the local cloud, its status, and its checkpoints."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ministack.core import persistence
from ministack.services import lambda_svc

from slackwater.errors import CloudError
from slackwater.local import cloud, emulator
from slackwater.local.checkpoint import Checkpointer
from slackwater.local.layout import Layout, environment

pytestmark = pytest.mark.unit


def test_the_error_without_a_cloud_names_the_remedy(tmp_path):
    assert cloud.status(tmp_path) is None
    assert not cloud.down(tmp_path)


def test_a_cloud_whose_process_has_ended_is_reported(tmp_path):
    files = Layout(tmp_path)
    files.base.mkdir()
    files.endpoint_file.write_text(json.dumps({"endpoint": "http://127.0.0.1:9", "pid": 1}))
    assert cloud.status(tmp_path) is None
    assert not cloud.down(tmp_path)


def test_a_cloud_that_cannot_start_shows_the_end_of_its_log(tmp_path, monkeypatch):
    (tmp_path / "ministack").mkdir()
    (tmp_path / "ministack" / "__init__.py").write_text("raise RuntimeError('no emulator today')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(CloudError, match=r"(?s)did not start.*no emulator today"):
        cloud.up(tmp_path)
    assert cloud.status(tmp_path) is None


def test_an_interrupted_start_leaves_no_process(tmp_path):
    program = (  # a shell that runs in the background has its children ignore interruptions
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pathlib import Path; from slackwater.local import cloud; cloud.up(Path(sys.argv[1]))"
    )
    (tmp_path / "ministack").mkdir()
    (tmp_path / "ministack" / "__init__.py").write_text("import time; time.sleep(60)")
    slow = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", program, str(tmp_path)]
    starting = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=slow)
    log = tmp_path / ".slackwater" / "cloud.log"
    deadline = time.monotonic() + 30
    while not log.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    starting.send_signal(signal.SIGINT)
    assert starting.wait(30) != 0
    assert not (tmp_path / ".slackwater" / "cloud.json").exists()
    listed = subprocess.run(["ps", "-eo", "stat,args"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in listed.splitlines() if str(tmp_path) in line and not line.startswith("Z")]


def test_an_interruption_while_the_process_is_being_started_ends_it(tmp_path, monkeypatch):
    spawn, started = os.posix_spawn, []

    def spawn_and_interrupt(*arguments, **options):
        started.append(spawn(*arguments, **options))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    monkeypatch.setattr(os, "posix_spawn", spawn_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        cloud.up(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "null"])
def test_the_error_of_an_unreadable_endpoint_file_names_the_remedy(tmp_path, content):
    files = Layout(tmp_path)
    files.base.mkdir()
    files.endpoint_file.write_text(content)
    with pytest.raises(CloudError, match="delete it"):
        cloud.status(tmp_path)


def test_the_environment_names_endpoint_credentials_and_region():
    assert environment("http://127.0.0.1:1") == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_DISABLE_HOST_PREFIX_INJECTION": "true",
    }


def test_a_deployment_to_a_local_cloud_names_the_python_and_the_processor_of_this_machine(monkeypatch):
    monkeypatch.setattr("slackwater.local.layout.PYTHON", "3.12")
    monkeypatch.setattr("slackwater.local.layout.ARCHITECTURE", "arm64")
    started = cloud.LocalCloud("http://127.0.0.1:1", pid=1, region="us-east-1", account="0", started_at="")
    words = started.environment()["SLACKWATER_SET"].split()
    assert {"lambda_python=3.12", "spark_python=3.12", "architecture=arm64", "airflow_environment=local"} < set(words)


def states(monkeypatch, **services):
    """Give the emulator services with these states."""
    monkeypatch.setattr("slackwater.local.emulator.service_states", lambda: services)


def test_only_changed_states_are_saved(tmp_path, monkeypatch):
    kept, changing = {"a": 1}, {"layers": b"one"}
    states(monkeypatch, kept=lambda: kept, changing=lambda: changing, unused=lambda: None)
    checkpointer = Checkpointer(tmp_path, busy=lambda: False)
    assert set(checkpointer.snapshot()) == {"kept", "changing"}
    checkpointer.save(checkpointer.snapshot())
    assert checkpointer.snapshot() == {}
    for layers in (b"two", b"one" * 100_000, b"two" * 100_000):
        changing["layers"] = layers
        assert list(checkpointer.snapshot()) == ["changing"]
        checkpointer.save(checkpointer.snapshot())
    assert checkpointer.snapshot() == {}
    assert list(checkpointer._files) == [layers]  # it keeps nothing of earlier states in memory


def test_a_state_that_changes_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    states_to_return = iter([RuntimeError("dictionary changed size during iteration"), {"a": 1}])

    def get_state():
        state = next(states_to_return)
        if isinstance(state, Exception):
            raise state
        return state

    states(monkeypatch, busy=get_state)
    [document] = Checkpointer(tmp_path, busy=lambda: False).snapshot().values()
    assert json.loads(document)["payload"] == {"a": 1}


@pytest.fixture
def end(monkeypatch):
    """What the emulator calls at its end; a test may register checkpointers."""
    calls = []
    monkeypatch.setattr(emulator, "save_at_the_end", calls.append)
    monkeypatch.setattr(persistence, "_json_object_hook", persistence._json_object_hook)
    monkeypatch.setattr(lambda_svc, "_prune_orphan_code_blobs", lambda_svc._prune_orphan_code_blobs)
    return calls


def test_code_that_the_last_saved_state_names_stays_until_the_end(tmp_path, monkeypatch, end):
    monkeypatch.setattr(lambda_svc, "CODE_BLOB_DIR", str(tmp_path / "lambda-blobs"))
    states(monkeypatch, **{"lambda": lambda_svc.get_state})
    checkpointer = Checkpointer(tmp_path, busy=lambda: False)
    checkpointer.register()
    lambda_svc._functions["f"] = {"code_zip": b"first"}
    try:
        checkpointer.save(checkpointer.snapshot())
        lambda_svc._functions["f"]["code_zip"] = b"second"
        checkpointer.snapshot()  # and a kill before it is saved
        [saved] = re.findall(r'"code_blob_ref": "(\w+)"', (tmp_path / "lambda.json").read_text())
        assert lambda_svc._read_code_blob(saved) == b"first"
        end[-1]()
        assert [path.read_bytes() for path in (tmp_path / "lambda-blobs").iterdir()] == [b"second"]
    finally:
        lambda_svc._functions.clear()


class Held(dict):
    """Documents that cannot be read before they are released."""

    def __init__(self, documents):
        super().__init__(documents)
        self.read, self.released = threading.Event(), threading.Event()

    def items(self):
        self.read.set()
        assert self.released.wait(10)
        return super().items()


@pytest.mark.parametrize("running", [True, False])
def test_a_checkpoint_that_is_late_does_not_replace_the_last_save(tmp_path, monkeypatch, end, running):
    state = {"a": 1}
    states(monkeypatch, changing=lambda: state)
    checkpointer = Checkpointer(tmp_path, busy=lambda: False)
    checkpointer.register()
    checkpointer.save(checkpointer.snapshot())
    state["a"] = 2
    late = Held(checkpointer.snapshot())
    state["a"] = 1
    with ThreadPoolExecutor() as pool:
        if running:
            saving = pool.submit(checkpointer.save, late)
            assert late.read.wait(10)
            last = pool.submit(end[-1])
            with pytest.raises(TimeoutError):
                last.result(0.05)
            late.released.set()
        else:
            end[-1]()
            late.released.set()
            saving = last = pool.submit(checkpointer.save, late)
        saving.result(10), last.result(10)
    assert json.loads((tmp_path / "changing.json").read_text())["payload"] == {"a": 1}


@pytest.mark.parametrize("large", [b"", b"\x00\xff" * 40_000])
def test_the_emulator_loads_a_saved_state(tmp_path, monkeypatch, end, large):
    state = {"applications": [], "blob": b"\x00\xff", "layers": [{"zip": large}, {"zip": bytes(large)}]}
    states(monkeypatch, emr_serverless=lambda: state)
    monkeypatch.setattr(persistence, "PERSIST_STATE", True)
    monkeypatch.setattr(persistence, "STATE_DIR", str(tmp_path))
    checkpointer = Checkpointer(tmp_path, busy=lambda: False)
    checkpointer.register()
    checkpointer.save(checkpointer.snapshot())
    assert (tmp_path / "emr_serverless.json").stat().st_size < 1000
    assert len(list((tmp_path / "bytes").glob("*"))) == bool(large)

    Checkpointer(tmp_path, busy=lambda: False).register()
    assert persistence.load_state("emr_serverless") == state
    state["layers"] = []
    end[-1]()  # no document names the file of the layers any more
    assert persistence.load_state("emr_serverless") == state
    assert list((tmp_path / "bytes").glob("*")) == []
