"""Programs that are started by a fork behave as programs that Python has just started."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slackwater.local import fork_server
from slackwater.local.fork_server import ForkServers, Program
from tests.fakes_local import end_fork_servers

pytestmark = [pytest.mark.unit, pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process is forked")]

SHOW = """
import json, os, sys, tempfile, threading
import library
def annotated(argument: 1 + 1): ...
state = {
    "argv": sys.argv,
    "cwd": os.getcwd(),
    "environment": dict(os.environ),
    "path": sys.path,
    "main": [__name__, __file__, __spec__, vars(sys.modules["__main__"]) is globals()],
    "input": sys.stdin.readline(),
    "streams": [(s.encoding, s.errors, s.line_buffering, s.write_through) for s in (sys.stdin, sys.stdout, sys.stderr)],
    "flags": list(sys.flags),
    "signals": [str(signal) for signal in map(__import__("signal").getsignal, (2, 15, 17))],
    "descriptors": len(os.listdir("/proc/self/fd")),
    "seekable": [stream.seekable() for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "threads": threading.active_count(),
    "annotations": str(annotated.__annotations__),
    "temporary": tempfile.gettempdir(),
    "library": library.__file__,
    "command": open("/proc/self/cmdline").read().rstrip(chr(0)),
}
json.dump(state, sys.stdout)
"""

STARTS_ANOTHER = "import subprocess, time\nprint(subprocess.Popen(['sleep', '60']).pid, flush=True)\ntime.sleep(60)"
LIBRARY = """
import os, tempfile
tempfile.gettempdir()
READ = os.environ.get("READ_AT_IMPORT")
state = []
"""


class Programs:
    """Starts programs in both ways."""

    def __init__(self, root: Path) -> None:
        self.root, self.servers, self.processes = root, ForkServers(), []
        self.library = root / "library"
        self.library.mkdir()
        (self.library / "library.py").write_text(LIBRARY)

    def program(self, source: str, *arguments: str, name: str = "program", **environment: str) -> Program:
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        script = folder / "program.py"
        script.write_text(source)
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.library), **environment}
        return Program(script, arguments, variables, folder, [script], folder)

    def fork(self, program: Program, *, output=None, **variables: str):
        return self.start(program, self.library, variables, output)

    def start(self, program: Program, library: Path, variables: dict[str, str], output=None):
        process = self.servers.start(program, libraries=[str(library)], variables=variables, output=output)
        self.processes += [process] if process else []
        return process

    def pids(self) -> list[int]:
        return [server.process.pid for server in self.servers._servers.values()]


@pytest.fixture
def programs(tmp_path):
    programs = Programs(tmp_path)
    yield programs
    for process in programs.processes:
        process.kill()
        process.wait(10)
        for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
            stream.close()
    end_fork_servers(programs.servers)


def ended(pid: int, seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z" and os.getppid() != pid:
            return True
        time.sleep(0.01)
    return False


def descriptors(server: int, seconds: float = 5) -> set[int]:
    """Return the open files of a server with one process, once it has nothing to do."""
    deadline = time.monotonic() + seconds
    # Standard streams, the socket for requests, and two for the process.
    while len(numbers := {int(path.name) for path in Path(f"/proc/{server}/fd").iterdir()}) != 6:
        assert time.monotonic() < deadline, numbers
        time.sleep(0.01)
    return numbers


def written(log: Path, seconds: float = 10) -> str:
    """Return the first line of a log, once it is there."""
    deadline = time.monotonic() + seconds
    while not (content := log.read_text()).endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return content


def test_a_forked_program_is_in_the_same_state_as_one_that_python_starts(programs):
    program = programs.program(SHOW, "an argument", "ä", OWN="1", UNUSUAL="ä\n=", TMPDIR=str(programs.root))
    ended = programs.fork(programs.program("import library\nlibrary.state.append(1)", name="other"))
    assert ended.wait(10) == 0
    with (programs.root / "log").open("wb") as output:
        other = programs.program("import library, time; time.sleep(60)", name="other")
        running = [programs.fork(other), programs.fork(other, output=output)]
    forked = programs.fork(program)
    forked.stdin.write("hello\n")
    states = [json.loads(forked.stdout.read())]
    assert (forked.wait(10), forked.stderr.read()) == (0, "")
    usual = subprocess.run(
        [sys.executable, program.script, *program.arguments],
        env=program.environment, cwd=program.cwd, input="hello\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    states.append(json.loads(usual.stdout))
    assert states[0] == states[1]
    assert forked.pid not in programs.pids()
    assert [process.poll() for process in running] == [None, None]


@pytest.mark.parametrize("path", ["", ":", "{0}:", ":./own:{0}", "{0}:{0}/:/usr"])
def test_a_forked_program_has_the_path_that_python_makes_of_a_pythonpath(programs, path):
    path = path.format(programs.library)
    program = programs.program("import sys\nprint(sys.path)", PYTHONPATH=path)._replace(cwd=programs.root)
    command = [sys.executable, program.script]
    usual = subprocess.check_output(command, env=program.environment, cwd=program.cwd, text=True)
    for variables in ({}, {"PYTHONPATH": path}):
        started = programs.start(program, programs.root / "layer", variables)
        assert started.stdout.read() == usual


def test_modules_that_a_program_imports_later_are_imported_before_the_fork_if_they_are_installed(programs):
    source = "import sys\nprint('library' in sys.modules, 'missing_module' in sys.modules)"
    for modules, printed in ([], "False False\n"), (["missing_module", "library"], "True False\n"):
        program = programs.program(source)._replace(modules=modules)
        assert programs.fork(program).stdout.read() == printed


def test_processes_have_different_random_numbers(programs):
    source = "import random, numpy.random\nprint(random.random(), numpy.random.random())"
    printed = [programs.fork(programs.program(source)).stdout.read().split() for _ in range(2)]
    assert len({number for numbers in printed for number in numbers}) == 4


def test_processes_share_nothing_that_one_of_them_changes(programs):
    source = "import library, os\nlibrary.state.append(1)\nos.environ['X'] = '1'\nos.chdir('/')\nimport colorsys\n"
    for _ in range(2):
        check = "import sys, os, library\nassert not library.state and 'colorsys' not in sys.modules, 1\n"
        assert (
            programs.fork(programs.program(check + "assert 'X' not in os.environ and os.getcwd() != '/'\n")).wait(10)
            == 0
        )
        changing = programs.program(source, name="changing")
        # What a program imports later is not imported before.
        assert programs.fork(changing._replace(imports=[])).wait(10) == 0
    assert len(programs.pids()) == 1


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('why')", 1),
        ("import atexit, os; atexit.register(os._exit, 7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import missing_module", 1),
        ("def f():\n    raise ValueError('no')\nf()", 1),
        ("x = (", 1),
    ],
)
def test_exit_codes_and_errors_are_those_of_python(programs, source, code):
    program = programs.program(source)
    forked = programs.fork(program)
    command = [sys.executable, program.script]
    usual = subprocess.run(command, env=program.environment, capture_output=True, text=True, check=False)
    assert forked.wait(10) == usual.returncode == code
    assert forked.stderr.read() == usual.stderr


def test_a_process_can_be_polled_waited_for_and_ended(programs):
    sleeping = programs.program("import time; time.sleep(60)")
    first, second = programs.fork(sleeping), programs.fork(sleeping)
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.05)
    assert first.poll() is None
    first.terminate()
    assert first.wait(10) == first.poll() == -signal.SIGTERM
    first.kill()  # it has ended
    assert second.poll() is None
    second.kill()
    assert second.wait(10) == -signal.SIGKILL


def test_a_process_reads_events_that_are_larger_than_a_pipe(programs):
    process = programs.fork(programs.program("import sys\nprint(len(sys.stdin.readline()))"))
    process.stdin.write("é" * 3_000_000 + "\n")
    assert process.stdout.readline() == "3000001\n"
    assert process.wait(10) == 0


def test_a_guarded_process_and_its_children_are_killed_when_its_input_is_closed(programs, tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = programs.fork(programs.program(STARTS_ANOTHER), output=output)
    other = int(written(log))
    assert os.getsid(process.pid) == process.pid
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(10) == -signal.SIGKILL
    assert ended(other)


def test_a_guarded_process_that_gets_a_signal_has_the_exit_code_of_a_shell(programs, tmp_path):
    with (tmp_path / "log").open("wb") as output:
        process = programs.fork(programs.program("import os; os.abort()"), output=output)
    assert process.wait(10) == 128 + signal.SIGABRT
    process.stdin.close()


def test_a_server_that_dies_takes_its_processes_along_and_is_started_again(programs):
    sleeping = programs.program("import time\nprint(flush=True)\ntime.sleep(60)")
    process = programs.fork(sleeping)
    process.stdout.readline()
    [server] = programs.pids()
    os.kill(server, signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL
    assert ended(process.pid)
    again = programs.fork(sleeping)
    assert again.poll() is None
    assert programs.pids() != [server]


def test_a_server_that_does_not_answer_is_replaced_and_ends_after_its_processes(programs, monkeypatch):
    process = programs.fork(programs.program("print(input())"))
    [first] = programs.pids()
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setattr(fork_server, "_START_SECONDS", 0.05)
    replaced = ForkServers._remove

    def replace(*arguments):
        monkeypatch.undo()  # the next server takes longer to start
        replaced(*arguments)

    monkeypatch.setattr(ForkServers, "_remove", replace)
    assert programs.fork(programs.program("", name="other")).wait(10) == 0
    os.kill(first, signal.SIGCONT)
    assert first not in programs.pids()
    process.stdin.write("still there\n")
    assert process.stdout.read() == "still there\n"
    assert process.wait(10) == 0
    assert ended(first)


FAILING = """
import os, sys
sys.path[0] = {folder!r}
import fork_program
def fails_in(calls, function):
    def call(*arguments):
        calls.pop(0) or fail()
        return function(*arguments)
    return call
def fail():
    raise BlockingIOError
os.fork = fails_in({forks}, os.fork)
os.pidfd_open = fails_in({opened}, os.pidfd_open)
fork_program.main()
"""


def test_an_error_of_the_system_ends_neither_the_server_nor_its_processes(programs, monkeypatch, tmp_path):
    failing = tmp_path / "failing.py"
    folder = str(fork_server.PROGRAM.parent)
    # The server opens its own descriptor first, to see whether it may.
    failing.write_text(FAILING.format(folder=folder, forks=[1, 0, 1, 1], opened=[1, 1, 0, 1]))
    monkeypatch.setattr(fork_server, "PROGRAM", failing)
    process = programs.fork(programs.program("print(input())"))
    [server] = programs.pids()
    other = programs.program("", name="other")
    assert programs.fork(other._replace(folder=tmp_path / "removed")) is None
    assert programs.fork(other) is None  # there is no memory for a process
    assert programs.fork(other) is None  # there is none for the descriptor of the process
    assert Path(f"/proc/{server}/task/{server}/children").read_text().split() == [str(process.pid)]
    assert descriptors(server)
    assert programs.fork(other).wait(10) == 0
    assert programs.pids() == [server]
    process.stdin.write("still there\n")
    assert process.stdout.read() == "still there\n"


def test_a_server_that_can_open_no_more_files_is_replaced_and_ends_after_its_processes(programs):
    process = programs.fork(programs.program("print(input())"))
    [first] = programs.pids()
    limit = sorted(set(range(100)) - descriptors(first))[2]  # there is space for two of four
    resource.prlimit(first, resource.RLIMIT_NOFILE, (limit, limit))
    assert programs.fork(programs.program("", name="other")).wait(10) == 0
    assert first not in programs.pids()
    process.stdin.write("still there\n")
    assert process.stdout.read() == "still there\n"
    assert process.wait(10) == 0
    assert ended(first)


@pytest.mark.parametrize("killed", [True, False])
def test_nothing_is_left_of_a_cloud_that_has_ended(programs, tmp_path, killed):
    source = f"""
import os, sys
from pathlib import Path
from slackwater.local.fork_server import ForkServers, Program
root = Path({str(tmp_path)!r})
(root / "worker.py").write_text("import time; time.sleep(60)")
(root / "job.py").write_text({STARTS_ANOTHER!r})
servers, job_output = ForkServers(), open(root / "log", "wb")
processes = []
for script, output in ((root / "worker.py", None), (root / "job.py", job_output)):
    start = Program(script, [], dict(os.environ), root, [], root / "library")
    processes.append(servers.start(start, libraries=["/nowhere"], variables={{}}, output=output))
print(*(process.pid for process in processes), *(s.process.pid for s in servers._servers.values()), flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cloud:
        pids = [int(pid) for pid in cloud.stdout.readline().split()]
        pids.append(int(written(tmp_path / "log")))
        if killed:
            cloud.kill()
    assert len(pids) == 4
    assert all(ended(pid) for pid in pids)


@pytest.mark.parametrize(
    "library",
    [
        "import os\nos.environ['ADDED'] = '1'\n",
        "import threading, time\nthreading.Thread(target=time.sleep, args=[60], daemon=True).start()\n",
    ],
)
def test_no_process_is_forked_when_an_import_has_changed_what_a_fork_does_not_copy(programs, library):
    (programs.library / "library.py").write_text(library)
    assert programs.fork(programs.program("import library")) is None


def test_no_process_is_forked_for_a_program_with_a_module_that_has_been_imported_from_elsewhere(programs):
    program = programs.program("import library")
    (program.folder / "library.py").touch()
    assert programs.fork(program) is None
    assert programs.fork(programs.program("import library", name="other")).wait(10) == 0


def test_other_libraries_and_other_variables_have_another_server(programs, tmp_path):
    source = "import library; print(library.READ, library.__file__)"
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "library.py").write_text("READ = 'newer'\n")
    printed = []
    for folder, value in ((programs.library, "1"), (programs.library, "2"), (newer, "2")):
        program = programs.program(source, PYTHONPATH=str(folder))
        process = programs.start(program, folder, {"READ_AT_IMPORT": value})
        printed.append(process.stdout.read())
    old = programs.library / "library.py"
    assert printed == [f"1 {old}\n", f"2 {old}\n", f"newer {newer / 'library.py'}\n"]
    assert len(programs.pids()) == 3


def test_a_server_that_is_no_longer_used_ends_after_its_processes(programs, monkeypatch):
    monkeypatch.setattr(fork_server, "_MAX_SERVERS", 1)
    process = programs.fork(programs.program("print(input())"))
    [first] = programs.pids()
    assert programs.fork(programs.program("", name="other"), OTHER="1").wait(10) == 0
    assert first not in programs.pids()
    process.stdin.write("still there\n")
    assert process.stdout.read() == "still there\n"
    assert process.wait(10) == 0
    assert ended(first)


@pytest.mark.parametrize("program", ["raise SystemExit(1)", FAILING])
def test_a_server_that_cannot_start_is_not_tried_again(programs, monkeypatch, tmp_path, program):
    broken = tmp_path / "broken.py"
    broken.write_text(program.format(folder=str(fork_server.PROGRAM.parent), forks=[1], opened=[0]))
    monkeypatch.setattr(fork_server, "PROGRAM", broken)
    assert programs.fork(programs.program("")) is None
    monkeypatch.undo()
    assert programs.fork(programs.program("")) is None
    assert programs.pids() == []
