"""Starts, finds and stops the local cloud of a project."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
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

_START_SECONDS = 60
_STOP_SECONDS = 30
_ANSWER_SECONDS = 2
_BACKLOG = 512
_PORTS = range(20000, 28000)
"""Below the ports that systems give to outgoing connections, so that a stopped cloud finds its port free again."""
_TAIL_LINES = 15


@dataclass(frozen=True)
class LocalCloud:
    """A local cloud that answers."""

    endpoint: str
    pid: int
    region: str
    account: str
    started_at: str
    """UTC, ISO 8601."""
    ready: bool = True

    def environment(self) -> dict[str, str]:
        """Return the variables that send AWS SDKs, the AWS CLI and the CDK to this cloud, and what is deployed to it.

        Partners of a laptop are on the laptop: functions may reach them there.
        """
        return layout.environment(self.endpoint, self.region) | {"SLACKWATER_SET": "outbound_allow=127.0.0.1,localhost"}


def up(root: Path, *, port: int | None = None) -> LocalCloud:
    """Start the local cloud of the project in `root`, or return the one that runs.

    Without `port` it takes the one it had before, since deployed addresses hold it, or else a free one. Raises
    `InputError` when the port is taken, or the cloud already runs on another; `CloudError` with the end of its log when
    it does not start. An interruption leaves nothing running.
    """
    place = layout.Layout(root.resolve())
    running = status(root)
    if running is not None:
        if port is not None and urlsplit(running.endpoint).port != port:
            raise InputError(f"the local cloud already runs on {running.endpoint}: stop it first, with local down")
        return running
    place.base.mkdir(parents=True, exist_ok=True)
    previous = _remembered(place)
    with _listener(place, port, urlsplit(previous).port if previous else None) as listener:
        endpoint = f"http://{layout.HOST}:{listener.getsockname()[1]}"
        with _server(place, listener) as pid:
            cloud = _wait(place, pid, endpoint)
            place.endpoint_file.write_text(_document(cloud), encoding="utf-8")
    return cloud


def down(root: Path) -> bool:
    """Stop the local cloud in order, its state saved. Return whether there was one. Raises `CloudError` if it stays."""
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
    """Return the local cloud of the project in `root`, if it runs and answers."""
    previous = _remembered(layout.Layout(root.resolve()))
    return None if previous is None else _answer(previous, root)


def _remembered(place: layout.Layout) -> str | None:
    """Return the endpoint of the cloud that was started last."""
    if not place.endpoint_file.exists():
        return None
    try:
        return str(json.loads(place.endpoint_file.read_text(encoding="utf-8"))["endpoint"])
    except (ValueError, KeyError, TypeError) as error:
        raise CloudError(f"{place.endpoint_file} cannot be read: delete it, and start the local cloud again") from error


def _listener(place: layout.Layout, asked: int | None, previous: int | None) -> socket.socket:
    """Return a listening socket on the port that was asked for, else the previous one, else a free one."""
    if port := asked or previous:
        try:
            return socket.create_server((layout.HOST, port), backlog=_BACKLOG)
        except OSError as error:
            why = "" if asked else ", which the addresses of what is deployed hold,"
            reason = os.strerror(error.errno or 0)
            raise InputError(f"port {port}{why} cannot be used: {reason}. Stop what listens there") from error
    start = zlib.crc32(str(place.root).encode()) % len(_PORTS)
    for port in [*_PORTS[start:], *_PORTS[:start]]:
        with suppress(OSError):
            return socket.create_server((layout.HOST, port), backlog=_BACKLOG)
    return socket.create_server((layout.HOST, 0), backlog=_BACKLOG)


def _answer(endpoint: str, root: Path) -> LocalCloud | None:
    """Return the cloud that answers at `endpoint`, if it is the one of `root`: another may have taken its port."""
    try:
        with urllib.request.urlopen(f"{endpoint}{layout.STATUS_PATH}", timeout=_ANSWER_SECONDS) as response:  # noqa: S310
            facts = json.load(response)
    except (OSError, ValueError):
        return None
    if not isinstance(facts, dict) or facts.pop("root", None) != str(root.resolve()):
        return None
    return LocalCloud(**facts)


@contextmanager
def _server(place: layout.Layout, listener: socket.socket) -> Iterator[int]:
    """Start the server, which outlives this process; end it again if what follows fails or is interrupted."""
    listener.set_inheritable(True)
    place.log.touch()
    command = [sys.executable, "-m", "slackwater.local.server"]
    pid = os.posix_spawn(
        sys.executable,
        [*command, "--root", str(place.root), "--listener", str(listener.fileno())],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(place.log), os.O_WRONLY | os.O_APPEND, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    try:
        yield pid
    except BaseException:
        if _alive(pid):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise


def _wait(place: layout.Layout, pid: int, endpoint: str) -> LocalCloud:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if cloud := _answer(endpoint, place.root):
            return cloud
        if not _alive(pid):
            raise CloudError(f"the local cloud did not start; the end of {place.log}:\n{_tail(place)}")
        time.sleep(0.05)
    raise CloudError(f"no answer within {_START_SECONDS} s; the end of {place.log}:\n{_tail(place)}")


def _tail(place: layout.Layout) -> str:
    return "\n".join(place.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:])


def _document(cloud: LocalCloud) -> str:
    facts = {"endpoint": cloud.endpoint, "pid": cloud.pid, "region": cloud.region, "account": cloud.account}
    return json.dumps(facts, indent=2) + "\n"


def _alive(pid: int) -> bool:
    """Whether a process runs; one that this process started and that has ended is taken off the list."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
