"""The program of a fork server: `fork_program.py CONTROL SPACES`; `slackwater.local.fork_server` starts it.

For each request on the socket `CONTROL` it imports what the requested program imports, and forks a process that runs
the program. The process looks as if Python had just started it: environment, arguments, `sys.path`, standard streams,
`__main__`; only the modules that the programs before it have imported are loaded already. They come from `PYTHONPATH`
and from the installed packages.

This file imports Python's own modules only, because each module that it imports is loaded in every program. `SPACES`
give space to the arguments that `ps` shows for a process.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import gc
import io
import json
import os
import select
import signal
import socket
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

_REQUEST_BYTES = 1 << 20
_STREAMS = 3
_SET_SIGNAL_AT_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG
# The position, after the name of the process in `/proc/self/stat`, of the first and the last address of its arguments.
_ARGUMENTS_START = 45
# A thread of pyarrow's allocator, which stops it before a fork and starts it again.
_SAFE_THREADS = {"jemalloc_bg_thd"}
_ENVIRONMENT = dict(os.environ)


@dataclass
class Child:
    """A process that was forked and has not been reaped."""

    pid: int
    pidfd: int
    status: socket.socket
    """The cloud sends signals here, and receives the exit code."""
    input: int | None
    """Standard input of a process that is killed, with its group, when the other end is closed."""
    killed: bool = False

    def kill(self) -> None:
        """Kill it, and its process group if it has one of its own."""
        self.killed = True
        if self.input is not None:
            with suppress(ProcessLookupError):  # it has no group yet
                os.killpg(self.pid, signal.SIGKILL)
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close its descriptors."""
        self.status.close()
        os.close(self.pidfd)
        if self.input is not None:
            os.close(self.input)


def main() -> None:
    """Serve requests until `CONTROL` is closed and all processes have ended."""
    del sys.path[0]  # the folder of this file
    libraries = python_path()
    path = [entry for entry in sys.path if entry not in libraries]
    os.close(os.pidfd_open(os.getpid()))  # where this is not permitted, there is no fork server
    if request := Server(socket.socket(fileno=int(sys.argv[1]))).serve():  # in a child
        run(request, path)


class Server:
    """Forks a process for each request."""

    def __init__(self, control: socket.socket) -> None:
        self._control: socket.socket | None = control
        self._children: list[Child] = []

    def serve(self) -> dict[str, Any] | None:
        """Serve until there is nothing more to do, and return None; in a child, return its request."""
        while self._control or self._children:
            poller = select.poll()
            if self._control:
                poller.register(self._control, select.POLLIN)
            for child in self._children:
                poller.register(child.pidfd, select.POLLIN)
                poller.register(child.status, select.POLLIN)
                if child.input is not None and not child.killed:
                    poller.register(child.input, 0)  # reports only that the other end is closed
            ready = {descriptor for descriptor, _ in poller.poll()}
            self._attend(ready)
            if self._control and self._control.fileno() in ready and (request := self._accept(self._control)):
                return request
        return None

    def _attend(self, ready: set[int]) -> None:
        """Reap children that have ended; signal or kill those for which that is wanted."""
        for child in list(self._children):
            if child.pidfd in ready:
                code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
                # As `slackwater.local.emr.spark` reports a signal that it has not sent itself.
                shown = 128 - code if code < 0 and child.input is not None and not child.killed else code
                _send(child.status, {"code": shown})
                child.close()
                self._children.remove(child)
                continue
            if child.input in ready and not child.killed:
                child.kill()
            if child.status.fileno() in ready:
                signals = b""
                with suppress(ConnectionResetError):
                    signals = child.status.recv(64)
                for number in signals:
                    os.kill(child.pid, number)
                if not signals and not child.killed:  # the cloud has ended
                    child.kill()

    def _accept(self, control: socket.socket) -> dict[str, Any] | None:
        """Read one request and fork its process. Return the request in the child, else None."""
        message, descriptors = b"", list[int]()
        with suppress(ConnectionResetError):
            message, descriptors, _, _ = socket.recv_fds(control, _REQUEST_BYTES, _STREAMS + 1)
        if len(descriptors) > _STREAMS:
            return self._fork(json.loads(message), socket.socket(fileno=descriptors[0]), descriptors[1:])
        if not message:
            control.close()
            self._control = None
        # Otherwise this process cannot open more descriptors. Without an answer, the cloud replaces it.
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def _fork(self, request: dict[str, Any], status: socket.socket, streams: list[int]) -> dict[str, Any] | None:
        """Fork the requested process. Return the request in the child, else None."""
        pid = pidfd = 0
        try:
            import_modules(request["imports"], request["modules"])
            if not (refusal := unsafe(request["folder"])):
                pid, pidfd = fork()
        except OSError as error:  # of the system: it must not end the processes that run
            refusal = str(error) or type(error).__name__
        if refusal:
            _send(status, {"refused": refusal})
            status.close()
        elif pid:
            self._children.append(Child(pid, pidfd, status, streams.pop(0) if request["guarded"] else None))
            _send(status, {"pid": pid})
        else:
            self._leave(status, streams, guarded=request["guarded"])
            return request
        for descriptor in streams:
            os.close(descriptor)
        return None

    def _leave(self, status: socket.socket, streams: Sequence[int], *, guarded: bool) -> None:
        """In a child: keep nothing of the server, and take over the standard streams."""
        if guarded:
            os.setsid()
        for child in self._children:
            child.close()
        for connection in filter(None, (self._control, status)):
            connection.close()
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)


def import_modules(programs: Sequence[str], modules: Sequence[str]) -> None:
    """Import what these Python files import at their top level, and these modules."""
    for name, members in (*chain.from_iterable(map(imported, programs)), *((name, []) for name in modules)):
        # A module that cannot be imported here fails in the program, too, where somebody sees it.
        try:
            __import__(name, fromlist=members)
        except (Exception, SystemExit):  # noqa: BLE001, S112 - any error of the imported code
            continue


def imported(program: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules that a Python file imports at its top level, each with the names imported from it."""
    try:
        with open(program, "rb") as file:  # noqa: PTH123 - pathlib would be one more module
            statements = ast.parse(file.read()).body
    except (OSError, SyntaxError, ValueError):  # as above
        return
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from ((alias.name, []) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            yield statement.module, [alias.name for alias in statement.names]


def unsafe(folder: str) -> str:
    """Return why a fork would not behave as a new process; empty if it would.

    `folder` is that from which the program imports modules of its own.
    """
    present = {name.partition(".")[0] for name in sys.modules}
    if own := present.intersection(name.partition(".")[0] for name in os.listdir(folder)):  # noqa: PTH208
        return f"the program has modules of its own: {', '.join(sorted(own))}"
    if dict(os.environ) != _ENVIRONMENT:
        return "an imported module has changed the environment"
    if threads := [name for name in _other_threads() if name not in _SAFE_THREADS]:
        return f"an imported module has started threads: {', '.join(threads)}"
    return ""


def _other_threads() -> list[str]:
    tasks = [task for task in os.listdir("/proc/self/task") if task != str(os.getpid())]  # noqa: PTH208
    names = []
    for task in tasks:
        with suppress(OSError), open(f"/proc/self/task/{task}/comm", encoding="utf-8") as file:  # noqa: PTH123
            names.append(file.read().strip())  # an error: it has ended
    return names


def fork() -> tuple[int, int]:
    """Fork as `os.fork`; the child dies with this process. Return also a descriptor for the end of the child."""
    parent, libc = os.getpid(), ctypes.CDLL(None)
    gc.freeze()  # so that the child's collector does not write to, and thereby copy, the memory that both share
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about other threads: `unsafe` looks at them
        pid = os.fork()
    if pid == 0:
        libc.prctl(_SET_SIGNAL_AT_PARENTS_DEATH, signal.SIGKILL)
        if os.getppid() != parent:  # it died before that call
            os.kill(os.getpid(), signal.SIGKILL)
        return 0, 0
    try:
        return pid, os.pidfd_open(pid)
    except OSError:  # the cloud starts the program in the ordinary way
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def run(request: dict[str, Any], path: Sequence[str]) -> None:
    """Run the requested program as `__main__`; `path` ends its `sys.path`."""
    script: str = request["script"]
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if "LC_CTYPE" in _ENVIRONMENT:  # Python sets it itself where no locale is set
        os.environ.setdefault("LC_CTYPE", _ENVIRONMENT["LC_CTYPE"])
    sys.path[:] = [os.path.dirname(script), *dict.fromkeys([*python_path(), *path])]  # noqa: PTH120
    sys.argv[:] = [script, *request["arguments"]]
    _show_command([sys.executable, *sys.argv])
    for descriptor, (name, mode) in enumerate([("stdin", "rb"), ("stdout", "wb"), ("stderr", "wb")]):
        stream = _reopen(getattr(sys, name), descriptor, mode)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _forget()
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    vars(module).update(__file__=script, __builtins__=builtins)
    with open(script, "rb") as file:  # noqa: PTH123
        source = file.read()
    try:
        exec(compile(source, script, "exec", dont_inherit=True), vars(module))  # noqa: S102 - the process is for this
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - as Python does it, but without the frames of this file
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


def python_path() -> list[str]:
    """Return the folders of `PYTHONPATH` as Python puts them on its path: an empty one is the working directory."""
    variable = os.environ.get("PYTHONPATH")
    return [os.path.abspath(entry) for entry in variable.split(os.pathsep)] if variable else []  # noqa: PTH100


def _show_command(command: Sequence[str]) -> None:
    """Let `ps` show this command, as far as there is space where the system keeps the arguments of the server."""
    with open("/proc/self/stat", encoding="utf-8") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    start, end = (int(field) for field in fields[_ARGUMENTS_START : _ARGUMENTS_START + 2])
    shown = "\0".join(command).encode(errors="surrogateescape")[: end - start - 1]
    ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)


def _forget() -> None:
    """Undo what imported modules keep of the server's environment or chance."""
    if "tempfile" in sys.modules:
        vars(sys.modules["tempfile"])["tempdir"] = None
    if "numpy.random" in sys.modules:  # Python's own `random` does this itself
        sys.modules["numpy.random"].seed()


def _reopen(stream: Any, descriptor: int, mode: str) -> io.TextIOWrapper:
    """Return a stream for a descriptor with the settings of `stream`, and with buffers that fit what it is now."""
    binary = open(descriptor, mode, 0 if stream.write_through else -1, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        binary,
        encoding=stream.encoding,
        errors=stream.errors,
        newline=None if descriptor == 0 else "\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _send(status: socket.socket, message: dict[str, Any]) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # nobody waits for it
        status.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
