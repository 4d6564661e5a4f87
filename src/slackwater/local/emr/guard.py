"""Runs a command and kills it when its starter is gone: `python guard.py COMMAND...`.

The starter makes it the leader of a process group and holds the other end of its standard input. When that end closes,
because the starter stops the job or was killed, the guard kills the whole group: a job must not publish anything after
its cloud is gone. It is a program of its own, without imports of the library, so that it starts quickly.
"""

import os
import signal
import subprocess
import sys
import threading


def _kill_group_at_end_of_input() -> None:
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run the command. Return its exit code, or 128 + N when signal N ended it."""
    threading.Thread(target=_kill_group_at_end_of_input, daemon=True).start()
    # A pipe that stays open: Spark's Python gateway ends at the end of its input.
    with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE) as process:  # noqa: S603
        code = process.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
