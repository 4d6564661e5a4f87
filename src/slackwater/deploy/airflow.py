"""Runs Airflow on this machine, from its own virtual environment, with the project's DAGs and the local cloud."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from slackwater.client.workspace import Workspace
from slackwater.errors import CloudError, InputError
from slackwater.project.installation import cache_folder, deployed_files, is_clone
from slackwater.project.project import Project
from slackwater.project.schedule import schedule_json

_HOST = "127.0.0.1"
_START_SECONDS = 240
_STOP_SECONDS = 30
_LOG_LINES = 15
_PASSWORDS = "simple_auth_manager_passwords.json.generated"
# The executor of Airflow 3.0.6 may start a task before the scheduler has committed that it is queued. Then the attempt
# is lost, or the run never ends. Later versions start tasks as this class does: apache/airflow#56010.
_EXECUTOR = """
from airflow.executors.local_executor import LocalExecutor


class CommittedLocalExecutor(LocalExecutor):
    def queue_workload(self, workload, session=None):
        self.queued_tasks[workload.ti.key] = workload

    def _process_workloads(self, workloads):
        for workload in workloads:
            del self.queued_tasks[workload.ti.key]
            self.running.add(workload.ti.key)
            self.activity_queue.put(workload)
            with self._unread_messages:
                self._unread_messages.value += 1
            self._check_workers()
"""

# Airflow's scheduler ends after a conflict in its database, such as with a task that is cleared while it is scheduled.
# A deployment has a supervisor that starts it again; `airflow standalone` does not.
_STANDALONE = """
import subprocess
import sys
import threading
import time

from airflow.__main__ import main
from airflow.cli.commands import standalone_command


class SupervisedCommand(standalone_command.SubCommand):
    is_stopped = False

    def run(self):
        while not self.is_stopped:
            command = ["airflow", *self.command]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.env)
            threading.Thread(target=self.read, args=[self.process.stdout], daemon=True).start()
            self.process.wait()
            time.sleep(1)

    def read(self, output):
        for line in output:
            self.parent.output_queue.append((self.name, line))

    def stop(self):
        self.is_stopped = True
        super().stop()


standalone_command.SubCommand = SupervisedCommand
sys.argv = ["airflow", "standalone"]
main()
"""


@dataclass(frozen=True, kw_only=True)
class AirflowHome:
    """The folder in which an Airflow keeps its database, logs, password and `schedule.json`."""

    folder: Path
    program: Path
    """Airflow's command line."""
    dags: Path
    """The folder of the DAG files."""

    @property
    def schedule(self) -> Path:
        """Path of `schedule.json`."""
        return self.folder / "schedule.json"

    @property
    def log(self) -> Path:
        """The output of all processes of Airflow."""
        return self.folder / "airflow.log"

    @property
    def api(self) -> Path:
        """URL and login of the REST API while Airflow runs: the local cloud reads them (`slackwater.local.layout`)."""
        return self.folder / "api.json"

    @property
    def password(self) -> str:
        """The generated password of the user `admin`; empty if Airflow signs in everybody."""
        file = self.folder / _PASSWORDS
        return str(json.loads(file.read_text(encoding="utf-8"))["admin"]) if file.exists() else ""

    def write_schedule(self, project: Project) -> None:
        """Write the `schedule.json` of a project, which the DAGs are made from."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.schedule.write_text(schedule_json(project), encoding="utf-8")

    def environment(self, url: str, *, prefix: str, cloud: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of Airflow's processes.

        `url` is that of the user interface, `prefix` the beginning of the state machines' ARNs, and `cloud` the
        variables of the local cloud. A variable of Airflow that is set already, such as AIRFLOW__CORE__PARALLELISM,
        keeps its value.
        """
        settings = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__SLACKWATER__SCHEDULE": str(self.schedule),
            "AIRFLOW__SLACKWATER__STATE_MACHINE_PREFIX": prefix,
        }
        fixed = {
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW__API__HOST": _HOST,
            "AIRFLOW__API__PORT": url.rpartition(":")[2],
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            # Airflow starts its components by name.
            "PATH": f"{self.program.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        return {**settings, **os.environ, **cloud, **fixed}


def airflow_home(workspace: Workspace) -> AirflowHome:
    """Return the folder of a workspace's Airflow. Raises `InputError` if Airflow is not installed."""
    files = deployed_files()
    return AirflowHome(folder=workspace.state / "airflow", program=airflow_program(files), dags=files / "mwaa_dags")


def airflow_program(files: Path) -> Path:
    """Return Airflow's command line for a folder of deployed files. Raises `InputError` if it is not installed."""
    folder = files / ".venv-airflow" if is_clone(files) else cache_folder(files) / "airflow"
    program = folder / "bin" / "airflow"
    if not program.exists():
        lock = files / "requirements" / "airflow.txt"
        pip = f"python3.11 -m venv {shlex.quote(str(folder))} && {shlex.quote(str(folder / 'bin' / 'pip'))} install"
        # The lock names all packages. pip 22.3, which Python 3.11.0 has, takes the extras of others for unpinned ones.
        remedy = "make .venv-airflow/.ready" if is_clone(files) else f"{pip} --no-deps -r {shlex.quote(str(lock))}"
        raise InputError(f"Airflow is not installed (it needs Python 3.11 or 3.12): {remedy}")
    return program


def free_url(port: int | None) -> str:
    """Return a URL on this machine with that port, or a free one. Raises `InputError` if the port is in use."""
    try:
        with socket.create_server((_HOST, port or 0)) as free:
            return f"http://{_HOST}:{free.getsockname()[1]}"
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise InputError(f"--port: {port} cannot be used: {reason}. Stop the process that uses it") from error


@contextmanager
def started(home: AirflowHome, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run all processes of Airflow until the block ends, however it ends. The block begins when Airflow is ready.

    Raises `CloudError` with the end of Airflow's output if it does not start.
    """
    config = home.folder / "config"  # Airflow imports modules from it
    config.mkdir(exist_ok=True)
    (config / "slackwater_executor.py").write_text(_EXECUTOR, encoding="utf-8")
    standalone = home.folder / "standalone.py"
    standalone.write_text(_STANDALONE, encoding="utf-8")
    executor = {"AIRFLOW__CORE__EXECUTOR": "slackwater_executor.CommittedLocalExecutor"}
    with home.log.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603
            [str(home.program.parent / "python"), str(standalone)],
            cwd=home.folder,
            env={**executor, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process only, which then stops the whole group
        )
    try:
        url = environment["AIRFLOW__API__BASE_URL"]
        _wait_until_ready(process, home.log, url)
        home.api.touch(mode=0o600)
        home.api.write_text(json.dumps({"url": url, "user": "admin", "password": home.password}), encoding="utf-8")
        yield process
    finally:
        home.api.unlink(missing_ok=True)
        _stop(process)


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path, url: str) -> None:
    """Wait for the user interface. Raises `CloudError` with the end of Airflow's output if it does not start."""
    opener, end = urllib.request.build_opener(urllib.request.ProxyHandler({})), time.monotonic() + _START_SECONDS
    while True:
        with suppress(OSError), opener.open(f"{url}/api/v2/version", timeout=2):
            return
        if process.poll() is not None or time.monotonic() > end:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
            raise CloudError("\n".join([f"Airflow has not started; the end of {log}:", *lines]))
        time.sleep(0.5)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the group of processes: as Ctrl-C does, and what is left after some time, or a second Ctrl-C, at once."""
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
