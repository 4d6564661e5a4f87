"""Starts Python programs by a fork of a process that has imported their modules already.

A function's worker and the Python program of a Spark job spend half a second of processor time on imports. A fork
server is a process that imports each module once and then forks itself for every program (`fork_program`). What it
starts is a process of its own and behaves as that of a `subprocess.Popen`.

A fork server belongs to one set of libraries, which are folders that never change (a layer or an archive, unpacked
below a name from its digest), and to the variables that modules read while they are imported. So a program gets exactly
the modules that it would import itself. Where that is not certain (`fork_program.unsafe`), there is no fork.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

PROGRAM = Path(__file__).with_name("fork_program.py")
# Each holds 60 to 160 MB, which its processes share.
_MAX_SERVERS = 6
# The first request imports all modules; a machine may be busy.
_START_SECONDS = 120
# Bytes of the arguments of a process that `ps` shows.
_SHOWN_BYTES = 8000
# Bytes. A socket transfers more at once, but not much more.
_MAX_REQUEST = 100_000


class Program(NamedTuple):
    """A Python program to start."""

    script: Path
    arguments: Sequence[str]
    environment: Mapping[str, str]
    cwd: Path
    imports: Sequence[Path]
    """Python files. What they import at their top level is imported before the fork."""
    folder: Path
    """Where the program has modules of its own."""
    modules: Sequence[str] = ()
    """More modules to import before the fork, if they are installed."""


class ForkRefused(Exception):
    """A program cannot be started by a fork."""


class ForkedProcess:
    """A process that a fork server has started, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, status: socket.socket, stdin: int, outputs: Sequence[int]) -> None:
        """`stdin` and `outputs` are our ends of pipes; without outputs, standard input is binary."""
        self.pid = pid
        self.stdin: IO[Any] = os.fdopen(stdin, "wb", -1 if outputs else 0)
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        if outputs:
            self.stdin = io.TextIOWrapper(self.stdin, encoding="locale", line_buffering=True, write_through=True)
            self.stdout, self.stderr = (os.fdopen(descriptor, encoding="locale") for descriptor in outputs)
        self.returncode: int | None = None
        self._status, self._ended = status, threading.Event()
        self._sending = threading.Lock()  # so that nothing is sent through a descriptor that is used again
        threading.Thread(target=self._watch, name=f"forked-{pid}", daemon=True).start()

    def _watch(self) -> None:
        # Without a code, the fork server was killed, and the process with it.
        code = _read_answer(self._status).get("code", -signal.SIGKILL)
        self.returncode = code
        self._ended.set()
        with self._sending:
            self._status.close()

    def poll(self) -> int | None:
        """Return the exit code, which is -N after signal N, or None while the process runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        if not self._ended.wait(timeout) or self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        with self._sending, suppress(OSError):  # it has ended
            self._status.sendall(bytes([number]))

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


_Key = tuple[tuple[str, ...], frozenset[tuple[str, str]]]
Process = subprocess.Popen[bytes] | ForkedProcess


class ForkServer:
    """A process that forks programs."""

    def __init__(self, libraries: Sequence[str], variables: Mapping[str, str]) -> None:
        self.forked = False
        """Whether it has started a program."""
        self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Other entries are relative to the working directory of each program.
        path = [*libraries, *filter(os.path.isabs, variables.get("PYTHONPATH", "").split(os.pathsep))]
        # A fork does not copy threads, and OpenBLAS would start some.
        environment = {**variables, "PYTHONPATH": os.pathsep.join(path), "OPENBLAS_NUM_THREADS": "1"}
        with control:
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, str(PROGRAM), str(control.fileno()), " " * _SHOWN_BYTES],
                cwd="/",
                env=environment,
                pass_fds=[control.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def start(self, program: Program, output: IO[bytes] | None) -> ForkedProcess:
        """Start a program as `ForkServers.start` does.

        Raises `ForkRefused`, and `OSError` when this server has ended or does not answer.
        """
        message = _request(program, guarded=output is not None)
        with ExitStack() as ours, ExitStack() as theirs:
            status, remote = socket.socketpair()
            ours.enter_context(status)
            theirs.enter_context(remote)
            stdin, writer = _pipe(theirs, ours)
            pipes = [] if output else [_pipe(ours, theirs), _pipe(ours, theirs)]
            outputs = [output.fileno()] * 2 if output else [writing for _, writing in pipes]
            status.settimeout(_START_SECONDS)
            socket.send_fds(self._control, [message], [remote.fileno(), stdin, *outputs])
            theirs.close()
            answer = _read_answer(status)
            if "refused" in answer:
                raise ForkRefused(answer["refused"])
            if "pid" not in answer:
                raise ConnectionResetError("the fork server has ended")
            status.settimeout(None)
            ours.pop_all()  # they belong to the process now
        self.forked = True
        return ForkedProcess(answer["pid"], status, writer, [reading for reading, _ in pipes])

    def close(self) -> None:
        """Accept no more programs. The process ends when those that run have ended."""
        self._control.close()


class ForkServers:
    """Fork servers for the libraries that programs need. They end with this process, and so do all programs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By libraries and variables; the one that was not used for the longest time first.
        self._servers: dict[_Key, ForkServer] = {}
        self._unusable: set[_Key] = set()
        self._closed: list[ForkServer] = []

    def start(
        self,
        program: Program,
        *,
        libraries: Sequence[str],
        variables: Mapping[str, str],
        output: IO[bytes] | None = None,
    ) -> ForkedProcess | None:
        """Start a program by a fork; return None if it has to be started in the ordinary way.

        `libraries` are the folders from which it imports first, with contents that never change; `variables` are those
        of its environment that modules may read while they are imported. With `output`, the file for standard output
        and standard error, the process leads a session of its own, and is killed with its group when its standard input
        is closed; without, it has three pipes for text.
        """
        key = (tuple(libraries), frozenset(variables.items()))
        while server := self._server(key):
            try:
                return server.start(program, output)
            except ForkRefused:
                return None
            except OSError:
                self._remove(key, server)
        return None

    def _server(self, key: _Key) -> ForkServer | None:
        """Return the server for a key, which is started if there is none; None if it cannot be."""
        with self._lock:
            if key in self._unusable or not key[0] or sys.platform != "linux":
                return None
            server = self._servers.pop(key, None) or ForkServer(key[0], dict(key[1]))
            self._servers[key] = server
            while len(self._servers) > _MAX_SERVERS:
                self._close(self._servers.pop(next(iter(self._servers))))
            return server

    def _remove(self, key: _Key, server: ForkServer) -> None:
        """Replace a server that has ended or does not answer; not if it never worked."""
        if not server.forked:  # otherwise, what it has started would end with it
            server.process.kill()
        with self._lock:
            if self._servers.get(key) is server:
                del self._servers[key]
                self._close(server)
            if not server.forked:
                self._unusable.add(key)

    def _close(self, server: ForkServer) -> None:
        server.close()
        self._closed = [closed for closed in [*self._closed, server] if closed.process.poll() is None]


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Return the ends of a pipe, which these stacks close."""
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing


def _request(program: Program, *, guarded: bool) -> bytes:
    request = {
        **{name: str(getattr(program, name)) for name in ("script", "cwd", "folder")},
        "arguments": list(program.arguments),
        "environment": dict(program.environment),
        "imports": [str(path) for path in program.imports],
        "modules": list(program.modules),
        "guarded": guarded,
    }
    message = json.dumps(request).encode()
    if len(message) > _MAX_REQUEST:
        raise ForkRefused(f"environment and arguments have {len(message)} bytes")
    return message


def _read_answer(status: socket.socket) -> dict[str, Any]:
    """Return the next message of a fork server, which is one line of JSON; empty if there is none."""
    line = b""
    while not line.endswith(b"\n"):
        try:
            byte = status.recv(1)
        except ConnectionResetError:
            byte = b""
        if not byte:
            return {}
        line += byte
    answer: dict[str, Any] = json.loads(line)
    return answer
