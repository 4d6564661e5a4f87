"""`slackwater airflow`: Airflow's processes are started with the right settings, and none stays behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from slackwater.cli.main import run
from slackwater.deploy import airflow
from slackwater.errors import CloudError, InputError
from slackwater.local import cloud
from slackwater.local.cloud import LocalCloud
from slackwater.local.layout import Layout
from tests.example_project import EXAMPLE

pytestmark = pytest.mark.unit

# Like Airflow: it starts a component in a process of its own, writes the password, and serves its API.
STANDALONE = """#!{python}
import json, os, pathlib, subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Api(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/api/v2/version" else 404)
        self.end_headers()
    def log_message(self, *_): pass

assert sys.argv[1:] == [f"{{os.environ['AIRFLOW_HOME']}}/standalone.py"]
component = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
home = pathlib.Path(os.environ["AIRFLOW_HOME"])
(home / "component.pid").write_text(str(component.pid))
(home / "environment.json").write_text(json.dumps(dict(os.environ)))
(home / "simple_auth_manager_passwords.json.generated").write_text('{{"admin": "secret"}}')
server = HTTPServer(("127.0.0.1", int(os.environ["AIRFLOW__API__PORT"])), Api)
try:
    {body}
except KeyboardInterrupt:
    print("stopped in order", flush=True)
"""


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """A clone's folder in which Airflow is not installed."""
    folder = tmp_path / "clone"
    (folder / "mwaa_dags").mkdir(parents=True)
    monkeypatch.setattr(airflow, "deployed_files", lambda: folder)
    return folder


def install(files: Path, body: str = "server.serve_forever()") -> Path:
    """Install a program that behaves like Airflow; return its path."""
    program = files / ".venv-airflow" / "bin" / "airflow"
    program.parent.mkdir(parents=True)
    program.touch()
    # It runs a script of ours.
    python = program.parent / "python"
    python.write_text(STANDALONE.format(python=sys.executable, body=body))
    python.chmod(0o755)
    return program


@pytest.fixture
def project(tmp_path) -> Path:
    """A copy of the example's definitions, beside which Airflow keeps its home."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "cdk.json").write_text(json.dumps({"context": {"slackwater:prefix": "tides"}}))
    for name in ("sources", "pipelines"):
        (folder / name).symlink_to(EXAMPLE / name)
    return folder


@pytest.fixture
def local_cloud(monkeypatch) -> LocalCloud:
    found = LocalCloud("http://127.0.0.1:20001", 1, "eu-central-1", "123456789012", "2013-03-09T00:00:00Z")
    monkeypatch.setattr(cloud, "status", lambda root: found)
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" if Path("/proc").exists() else True


def assert_ended(pid: int) -> None:
    """Wait some seconds for the end of a process."""
    end = time.monotonic() + 5
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(pid)


def test_without_airflow_the_message_is_one_line_with_the_command_that_installs_it(files, project, printed_by):
    error = printed_by("airflow", "up", "--project", str(project), code=2).err
    assert error == "error: Airflow is not installed (it needs Python 3.11 or 3.12): make .venv-airflow/.ready\n"


def test_without_a_clone_it_is_installed_into_the_cache_from_the_lock(tmp_path, monkeypatch):
    monkeypatch.setenv("SLACKWATER_CACHE", str(tmp_path / "my cache"))
    files = tmp_path / "_deployed"
    with pytest.raises(InputError) as caught:
        airflow.airflow_program(files)
    folder = tmp_path / "my cache" / "airflow"
    assert str(caught.value).endswith(
        f": python3.11 -m venv '{folder}' && '{folder}/bin/pip' install --no-deps -r {files}/requirements/airflow.txt"
    )


def test_without_the_local_cloud_the_message_names_the_command(files, project, monkeypatch, capsys):
    install(files)
    monkeypatch.setattr(cloud, "status", lambda root: None)
    assert run(["airflow", "up", "--project", str(project)]) == 1
    assert "the local cloud does not run: slackwater local up" in capsys.readouterr().err


def test_airflow_gets_the_projects_schedule_and_the_local_cloud(files, project, local_cloud, monkeypatch, printed_by):
    install(files, body="server.handle_request()")  # it ends after the first answer
    monkeypatch.setenv("AIRFLOW__CORE__PARALLELISM", "2")
    shown = printed_by("airflow", "up", "--project", str(project), code=1)
    home = project / ".slackwater" / "airflow"
    environment = json.loads((home / "environment.json").read_text())
    url = environment["AIRFLOW__API__BASE_URL"]
    assert url.startswith("http://127.0.0.1:")
    assert f"Airflow runs at {url}" in shown.out
    assert "user admin, password secret" in shown.out
    assert "Airflow has ended with exit code 0" in shown.err
    expected = {
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__CORE__DAGS_FOLDER": str(files / "mwaa_dags"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__SLACKWATER__STATE_MACHINE_PREFIX": "arn:aws:states:eu-central-1:123456789012:stateMachine:tides-",
        "AWS_ENDPOINT_URL": local_cloud.endpoint,
    }
    assert {name: environment[name] for name in expected} == expected
    tasks = json.loads((home / "schedule.json").read_text())["tasks"]
    assert {"daily_delays", "flights"} <= {task["subject"] for task in tasks}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_every_process_has_ended_after_ctrl_c_or_kill(files, tmp_path, number):
    program = install(files)
    home = airflow.AirflowHome(folder=tmp_path, program=program, dags=files / "mwaa_dags")
    environment = home.environment(airflow.free_url(None), prefix="", cloud={})
    previous = signal.signal(number, signal.default_int_handler)
    try:
        with airflow.started(home, environment) as process:
            os.kill(os.getpid(), number)
            pytest.fail("the signal has not interrupted the block")
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(number, previous)
    assert process.returncode == 0
    assert home.log.read_text() == "stopped in order\n"
    assert_ended(int((tmp_path / "component.pid").read_text()))


def test_the_local_cloud_finds_airflow_while_it_runs(files, tmp_path):
    project = tmp_path / "project"
    home = airflow.AirflowHome(folder=project / ".slackwater" / "airflow", program=install(files), dags=files)
    home.folder.mkdir(parents=True)
    environment = home.environment(airflow.free_url(None), prefix="", cloud={})
    with airflow.started(home, environment):
        file = Layout(project).airflow
        url = environment["AIRFLOW__API__BASE_URL"]
        assert json.loads(file.read_text()) == {"url": url, "user": "admin", "password": "secret"}
        assert file.stat().st_mode & 0o777 == 0o600
    assert not file.exists()


def test_a_second_ctrl_c_stops_processes_that_do_not_end(files, tmp_path, monkeypatch):
    program = install(files, body="import signal; signal.signal(2, signal.SIG_IGN); server.serve_forever()")
    home = airflow.AirflowHome(folder=tmp_path, program=program, dags=files / "mwaa_dags")
    environment = home.environment(airflow.free_url(None), prefix="", cloud={})
    try:
        with airflow.started(home, environment) as process:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    except KeyboardInterrupt:
        pass
    assert process.returncode == -signal.SIGKILL
    assert_ended(int((tmp_path / "component.pid").read_text()))


def test_a_failed_start_shows_the_end_of_the_log(files, tmp_path):
    program = install(files, body="sys.exit('no such table: dag')")
    home = airflow.AirflowHome(folder=tmp_path, program=program, dags=files / "mwaa_dags")
    with (
        pytest.raises(CloudError, match=r"Airflow has not started; the end of .*airflow.log:\nno such table: dag"),
        airflow.started(home, home.environment(airflow.free_url(None), prefix="", cloud={})),
    ):
        pytest.fail("the block has begun")


def test_a_port_in_use_is_named(files, project, local_cloud, capsys):
    install(files)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert run(["airflow", "up", "--project", str(project), "--port", str(port)]) == 2
    assert f"--port: {port} cannot be used: Address already in use" in capsys.readouterr().err
