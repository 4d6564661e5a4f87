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
KILLED = {DATES[0]: "checked_flights", LATE: LAST}
"""By day: the stage whose driver is killed in each run of the day but the last one."""
FINISHED = {DATES[0]: ["hourly_weather"], LATE: PARALLEL}
"""By day: the stages that the first attempt has finished."""


def recover(cloud: Cloud) -> dict[str, Any]:
    """Run both days, which overlap, and kill drivers; return the results by day.

    The late day loses the driver that publishes it, and starts once more by itself. The first day loses two drivers,
    and is then started by hand. Its drivers are stopped when they start, and killed when the other stage has finished.
    """
    first, missing, gone = DATES[0], {DATES[0]: 2, LATE: 1}, set[int]()

    def finished() -> bool:
        return all((job_name(first, stage), "SUCCESS") in jobs(cloud) for stage in FINISHED[first])

    def lose_drivers() -> bool:
        drivers = signal_drivers(signal.SIGSTOP, first, KILLED[first]) - gone if missing[first] else set()
        if drivers and finished():
            gone.update(drivers, signal_drivers(signal.SIGKILL, first, KILLED[first]))
            missing[first] -= 1
        if missing[LATE] and stores_rows(cloud, LATE, attempt=1):
            assert signal_drivers(signal.SIGKILL, LATE, LAST), "the driver has published the day before it was killed"
            missing[LATE] -= 1
        return not any(missing.values())

    running = {first: cloud.process("run", "staged_delays", "--date", first, "--json")}
    # Two jobs run at the same time here, and the stopped driver is one of them: the first day's other stage must not
    # wait for the jobs of the late day.
    wait_for(lambda: lose_drivers() or finished())
    running[LATE] = cloud.process("run", "staged_delays", "--date", LATE, "--json")
    wait_for(lose_drivers, 300)
    running[first].communicate(timeout=300)
    assert running[first].returncode == 1
    by_hand = cloud.json("run", "staged_delays", "--date", first)
    output, errors = running[LATE].communicate(timeout=300)
    assert running[LATE].returncode == 0, errors
    return {first: by_hand, LATE: json.loads(output)}


def stores_rows(cloud: Cloud, day: str, *, attempt: int) -> bool:
    """Return whether an attempt of a day has stored the rows of the last stage, which it publishes next."""
    bucket, prefix = cloud.outputs()["ExchangeBucket"], f"runs/staged_delays/{day}/"
    listed = cloud.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return any(item["Key"].endswith(f"/{attempt}/{LAST}/reference.json") for item in listed)


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
