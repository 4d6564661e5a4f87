"""Starts, finds and stops the local cloud of a project."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from slackwater.errors import CloudError, InputError
from slackwater.local import layout
from slackwater.project.installation import make_state_folder

_START_SECONDS = 60
_STOP_SECONDS = 30  # the emulator saves its whole state first
_RESPONSE_SECONDS = 2
_BACKLOG = 512  # connections that wait while the server starts or is busy
# Below the ports of outgoing connections (Linux: from 32768, macOS: from 49152), so that none of them takes the port of
# a stopped cloud.
_PORTS = range(20000, 28000)
_LOG_LINES = 15


@dataclass(frozen=True)
class LocalCloud:
    """A running local cloud."""

    endpoint: str
    pid: int
    region: str
    account: str
    started_at: str
    """UTC, ISO 8601."""
    ready: bool = True

    def environment(self) -> dict[str, str]:
        """Return the variables that direct AWS SDKs, the AWS CLI, the CDK and deployed functions to this cloud.

        A deployment to this cloud names the Python and the processor of this machine. Functions may reach partners on
        this machine, which production functions may not.
        """
        settings = {
            "outbound_allow": "127.0.0.1,localhost",
            "lambda_python": layout.PYTHON,
            "spark_python": layout.PYTHON,
            "architecture": layout.ARCHITECTURE,
            "airflow_environment": layout.AIRFLOW,
        }
        return layout.environment(self.endpoint, self.region) | {
            "SLACKWATER_SET": " ".join(f"{name}={value}" for name, value in settings.items())
        }


def up(root: Path, *, port: int | None = None) -> LocalCloud:
    """Start the local cloud of the project in `root`, or return the running one.

    Without `port` it uses the port of the last start, which deployed URLs contain, or a free one. Raises `InputError`
    when the port is in use or the cloud already runs on another port; `CloudError` with the end of its log when it does
    not start. When the call is interrupted, no process stays behind.
    """
    files = layout.Layout(root.resolve())
    running = status(root)
    if running is not None:
        if port is not None and urlsplit(running.endpoint).port != port:
            raise InputError(f"the local cloud already runs on {running.endpoint}: stop it first with `local down`")
        return running
    make_state_folder(files.root)
    files.log.touch()
    with _listen(files, port) as listener:
        endpoint = f"http://{layout.HOST}:{listener.getsockname()[1]}"
        pid = None
        try:
            with _interruptions_held():
                pid = _spawn_server(files, listener)
            cloud = _wait_for_status(files, pid, endpoint)
            last_start = {name: getattr(cloud, name) for name in ("endpoint", "pid", "region", "account")}
            files.endpoint_file.write_text(json.dumps(last_start, indent=2) + "\n", encoding="utf-8")
        except BaseException:
            if pid and _alive(pid):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise
    return cloud


def down(root: Path) -> bool:
    """Save the state of the local cloud and stop it. Return whether it ran. Raises `CloudError` if it does not stop."""
    cloud = status(root)
    if cloud is None:
        return False
    os.kill(cloud.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while _alive(cloud.pid):
        if time.monotonic() > deadline:
            raise CloudError(f"the local cloud (process {cloud.pid}) has not stopped within {_STOP_SECONDS} s")
        time.sleep(0.05)
    return True


def status(root: Path) -> LocalCloud | None:
    """Return the local cloud of the project in `root` if it runs. Raises `CloudError` for a broken `cloud.json`."""
    files = layout.Layout(root.resolve())
    endpoint = _last_endpoint(files)
    return _request_status(endpoint, files) if endpoint else None


def save(endpoint: str) -> None:
    """Have the local cloud at `endpoint`, of any project, write to disk all that it has answered.

    Nothing happens if it does not run, and if something else answers.
    """
    with suppress(OSError):
        urllib.request.urlopen(f"{endpoint}{layout.SAVE_PATH}", timeout=_STOP_SECONDS).close()  # noqa: S310


def _last_endpoint(files: layout.Layout) -> str | None:
    """Return the endpoint of the last start; None before the first. Raises `CloudError` for a broken `cloud.json`."""
    if not files.endpoint_file.exists():
        return None
    try:
        return str(json.loads(files.endpoint_file.read_text(encoding="utf-8"))["endpoint"])
    except (ValueError, KeyError, TypeError) as error:
        raise CloudError(f"{files.endpoint_file} cannot be read: delete it and start the local cloud again") from error


def _listen(files: layout.Layout, requested_port: int | None) -> socket.socket:
    """Return a socket that listens on the requested port, else on that of the last start, else on a free one."""
    if port := requested_port or urlsplit(_last_endpoint(files) or "").port:
        try:
            return socket.create_server((layout.HOST, port), backlog=_BACKLOG)
        except OSError as error:
            purpose = "" if requested_port else ", which the URLs of the deployment contain,"
            reason = os.strerror(error.errno or 0)
            raise InputError(f"port {port}{purpose} cannot be used: {reason}. Stop the process that uses it") from error
    # The search starts at a port that depends on the project's folder, so that projects rarely compete for one.
    start = zlib.crc32(str(files.root).encode()) % len(_PORTS)
    for port in [*_PORTS[start:], *_PORTS[:start]]:
        with suppress(OSError):
            return socket.create_server((layout.HOST, port), backlog=_BACKLOG)
    return socket.create_server((layout.HOST, 0), backlog=_BACKLOG)


@contextmanager
def _interruptions_held() -> Iterator[None]:
    """Raise an interruption only at the end: before, the id of a process that has just been started would be lost."""
    if threading.current_thread() is not threading.main_thread():
        yield  # it is never interrupted
        return
    held: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            signal.raise_signal(signal.SIGINT)


def _spawn_server(files: layout.Layout, listener: socket.socket) -> int:
    """Start the server, which outlives this process. Return its process id."""
    listener.set_inheritable(True)
    command = [sys.executable, "-m", "slackwater.local.server"]
    return os.posix_spawn(
        sys.executable,
        [*command, "--root", str(files.root), "--listener", str(listener.fileno())],
        os.environ,
        file_actions=[  # no standard input; standard output and standard error are appended to the log
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(files.log), os.O_WRONLY | os.O_APPEND, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,  # Ctrl-C in the terminal must not end the cloud
    )


def _wait_for_status(files: layout.Layout, pid: int, endpoint: str) -> LocalCloud:
    """Return the cloud once it answers. Raises `CloudError`, with the end of its log, if it does not start."""
    deadline, problem = time.monotonic() + _START_SECONDS, f"the local cloud has not started within {_START_SECONDS} s"
    while time.monotonic() < deadline:
        if cloud := _request_status(endpoint, files):
            return cloud
        if not _alive(pid):
            problem = "the local cloud did not start"
            break
        time.sleep(0.05)
    log = files.log.read_text(encoding="utf-8", errors="replace").splitlines()
    raise CloudError("\n".join([f"{problem}; the end of {files.log}:", *log[-_LOG_LINES:]]))


def _request_status(endpoint: str, files: layout.Layout) -> LocalCloud | None:
    """Return the cloud at `endpoint`; None when nothing answers there, or the cloud of another project."""
    try:
        url = f"{endpoint}{layout.STATUS_PATH}"
        with urllib.request.urlopen(url, timeout=_RESPONSE_SECONDS) as response:  # noqa: S310
            document = json.load(response)
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.pop("root", None) != str(files.root):
        return None
    return LocalCloud(**document)


def _alive(pid: int) -> bool:
    """Return whether a process runs."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # a child that has ended stays a zombie until then
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
