"""Runs of the pipeline `staged_delays`: two parallel stages, and one that reads both. Their drivers are killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import DATES, LATE, Cloud

*PARALLEL, LAST = "checked_flights", "hourly_weather", "delays_by_carrier"
"""The stages of `staged_delays`; the first two run in parallel."""
KILLED = {DATES[0]: "checked_flights", LATE: "hourly_weather"}
"""By day: the stage whose driver is killed in each run of the day but the last one."""


def recover(cloud: Cloud) -> dict[str, Any]:
    """Run both days at the same time, and kill drivers; return the results by day.

    The late day loses one driver and starts once more by itself. The first day loses a second one after that, and is
    then started by hand.
    """
    running = {day: cloud.process("run", "staged_delays", "--date", day, "--json") for day in KILLED}
    stopped: set[str] = set()

    def are_stopped() -> bool:
        stopped.update(day for day, stage in KILLED.items() if signal_driver(signal.SIGSTOP, day, stage))
        return stopped == set(KILLED)

    wait_for(are_stopped)
    # The driver dies when the other stage has finished.
    others = {
        (job_name(day, other), "SUCCESS") for day, stage in KILLED.items() for other in PARALLEL if other != stage
    }
    wait_for(lambda: others <= set(jobs(cloud)))
    for day, stage in KILLED.items():
        signal_driver(signal.SIGKILL, day, stage)
    first = DATES[0]
    wait_for(lambda: Counter(name for name, _ in jobs(cloud))[job_name(first, KILLED[first])] == 2)
    wait_for(lambda: signal_driver(signal.SIGKILL, first, KILLED[first]))
    running[first].communicate(timeout=300)
    assert running[first].returncode == 1
    by_hand = cloud.json_of_process("run", "staged_delays", "--date", first)
    output, errors = running[LATE].communicate(timeout=300)
    assert running[LATE].returncode == 0, errors
    return {first: by_hand, LATE: json.loads(output)}


def job_name(day: str, stage: str) -> str:
    return f"staged_delays {day} {stage}"


def jobs(cloud: Cloud) -> list[tuple[str, str]]:
    """Return the names and the states of the jobs of the pipeline `staged_delays`."""
    return [(job["name"], job["state"]) for job in cloud.jobs() if job["name"].startswith("staged_delays ")]


def signal_driver(number: int, day: str, stage: str) -> bool:
    """Send a signal to the processes of a job of `staged_delays`; return whether there were any.

    `SIGKILL` has the effect of a lost worker.
    """
    sent = False
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode()
        except OSError:  # the process has ended
            continue
        if f"--stage\0{stage}\0" in command and "staged_delays" in command and f'"{day}"' in command:
            os.kill(int(folder.name), number)
            sent = True
    return sent


def wait_for(condition: Callable[[], bool], seconds: int = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not true after {seconds} s"
        time.sleep(0.2)
