"""Runs of the pipeline `staged_delays`: two parallel stages, and one that reads both. Their drivers are killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import DATES, LATE, Cloud

*PARALLEL, LAST = "checked_flights", "hourly_weather", "delays_by_carrier"
"""The stages of `staged_delays`; the first two run in parallel."""
KILLED = {DATES[0]: "checked_flights", LATE: "hourly_weather"}
"""By day: the stage whose driver is killed in each run of the day but the last one."""
FINISHED = {day: next(stage for stage in PARALLEL if stage != killed) for day, killed in KILLED.items()}
"""By day: the stage that the first attempt has finished."""


def recover(cloud: Cloud) -> dict[str, Any]:
    """Run both days, which overlap, and kill drivers; return the results by day.

    The late day loses one driver and starts once more by itself. The first day loses a second one after that, and is
    then started by hand. A driver is stopped when it starts, and killed when the other stage has finished.
    """
    first = DATES[0]
    missing, gone = {first: 2, LATE: 1}, set[int]()

    def lose_drivers() -> bool:
        done = set(jobs(cloud))
        for day, stage in KILLED.items():
            drivers = signal_drivers(signal.SIGSTOP, day, stage) - gone if missing[day] else set()
            if drivers and (job_name(day, FINISHED[day]), "SUCCESS") in done:
                gone.update(drivers, signal_drivers(signal.SIGKILL, day, stage))
                missing[day] -= 1
        return not any(missing.values())

    running = {first: cloud.process("run", "staged_delays", "--date", first, "--json")}
    # Two jobs run at the same time here. If both were stopped, neither of the other stages could finish.
    wait_for(lambda: lose_drivers() or (job_name(first, FINISHED[first]), "SUCCESS") in jobs(cloud))
    running[LATE] = cloud.process("run", "staged_delays", "--date", LATE, "--json")
    wait_for(lose_drivers, 300)
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


def signal_drivers(number: int, day: str, stage: str) -> set[int]:
    """Send a signal to the processes of a job of `staged_delays`; return their ids.

    `SIGKILL` has the effect of a lost worker.
    """
    sent = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode()
            if f"--stage\0{stage}\0" in command and "staged_delays" in command and f'"{day}"' in command:
                os.kill(int(folder.name), number)
                sent.add(int(folder.name))
        except OSError:  # the process has ended
            continue
    return sent


def wait_for(condition: Callable[[], bool], seconds: int = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not true after {seconds} s"
        time.sleep(0.2)
