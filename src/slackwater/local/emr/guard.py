"""Runs a command for as long as whoever started it lives: `python guard.py COMMAND...`.

The starter makes it the leader of a process group and holds the other end of its standard input. When that
closes, because the starter let go of it or was killed, the whole group is killed: a job whose cloud is gone must not
publish anything later.
"""

import os
import signal
import subprocess
import sys
import threading


def _kill_all_at_end_of_input() -> None:
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run the command and return its exit code, 128 + N when signal N ended it."""
    threading.Thread(target=_kill_all_at_end_of_input, daemon=True).start()
    code = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, check=False).returncode  # noqa: S603
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
