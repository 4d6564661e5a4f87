"""Kills processes of a local cloud at random moments: workers of functions, and drivers of Spark jobs."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Self

from slackwater.local import cloud as local_cloud
from tests.conftest import Cloud

WORKERS, DRIVERS, JOBS = "/ministack-lambda-", "/.slackwater/emr/", "job_program.py"
"""What the working directories of processes contain, and the program that each job has a process of."""


class RandomKills:
    """While it is open, kills the drivers of a share of the jobs, and workers when `kill_worker` is called.

    How many die depends on what is done, and not on how long that takes.
    """

    def __init__(self, cloud: Cloud, *, seed: int, share_of_jobs: float) -> None:
        self.killed = Counter[str]()
        status = local_cloud.status(cloud.root)
        assert status
        self._server, self._share = status.pid, share_of_jobs
        self._chance, self._ended = random.Random(seed), threading.Event()  # noqa: S311
        self._thread = threading.Thread(target=self._kill_drivers)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def kill_worker(self) -> None:
        """Kill a worker within half a second, in which the caller goes on."""
        threading.Timer(self._chance.uniform(0, 0.5), self._kill, ("worker", WORKERS)).start()

    def _kill_drivers(self) -> None:
        seen = set[int]()
        while not self._ended.wait(0.5):
            new = {pid for pid, (_, command) in processes_of(self._server).items() if JOBS in command} - seen
            seen |= new
            # At most one job runs at a time here. It takes 2 s or longer.
            is_chosen = new and self._chance.random() < self._share
            if is_chosen and not self._ended.wait(self._chance.uniform(0, 5)):
                self._kill("driver", DRIVERS)

    def _kill(self, kind: str, folder: str) -> None:
        found = [pid for pid, (where, _) in processes_of(self._server).items() if folder in where]
        with suppress(ProcessLookupError, IndexError):  # it has just ended, or there is none
            os.kill(self._chance.choice(found), signal.SIGKILL)
            self.killed[kind] += 1


def processes_of(server: int) -> dict[int, tuple[str, str]]:
    """Return the working directory and the command of each process that a process has started, directly or not."""
    parents, found = dict[int, int](), dict[int, tuple[str, str]]()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found[int(path.name)] = (str((path / "cwd").readlink()), command)

    def is_ours(pid: int) -> bool:
        while pid in parents and pid != server:
            pid = parents[pid]
        return pid == server

    return {pid: process for pid, process in found.items() if is_ours(pid)}
