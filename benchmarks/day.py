"""Day: one day of the example on the local cloud, compared with plain PySpark scripts.

- `plain` is `day_script.py`, from the start of its driver to its end: it joins, aggregates and writes the same day into
  an Iceberg table, in one Spark session. It freezes no inputs, checks nothing, stores no Arrow files, records nothing.
- `checked` is the same script with the checks of the pipeline: its rules for rows, keys, and the number of rows.
- `cold` is `slackwater run --force` from its start to its end, when no driver waits.
- `warm` is the same directly after it: the local cloud has kept the driver.

All use both cores. Their rounds are interleaved. The first round is not counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cloud import DAY, EXAMPLE, ROOT, deployed, script, timed
from slackwater import Client

PIPELINE = "daily_delays"
_SCRIPT = Path(__file__).with_name("day_script.py")
_PEERS = ("plain", "checked")
_TARGETS = {"warm": 8.0, "cold": 12.0, "orchestration": 0.5, "cold / checked": 1.3}


def run(rounds: int) -> dict[str, Any]:
    """Return the seconds of each candidate, by round and as a median, and the ratios to the plain script."""
    seconds: dict[str, list[float]] = {"plain": [], "checked": [], "cold": [], "warm": [], "orchestration": []}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, deployed(Path(folder), EXAMPLE) as client:
        table = f"warehouse.{client.connection.deployment.warehouse_database}.plain"
        plain, checked = (script(client, Path(folder), _SCRIPT, [table, *checks]) for checks in ((), ("checks",)))
        # The first round compiles Python modules and creates both tables.
        for _ in range(rounds + 1):
            seconds["plain"].append(timed(plain))
            seconds["checked"].append(timed(checked))
            cold, orchestration = _run_day()
            warm, _ = _run_day()
            _stop_drivers(client)
            for name, value in (("cold", cold), ("warm", warm), ("orchestration", orchestration)):
                seconds[name].append(value)
    counted = {name: times[1:] for name, times in seconds.items()}
    medians = {name: median(times) for name, times in counted.items()}
    ratios = {f"{name} / {peer}": medians[name] / medians[peer] for name in ("cold", "warm") for peer in _PEERS}
    return {"rounds": counted, "seconds": medians, "ratios": ratios}


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print what `run` returned."""
    table = Table(title=f"A day of {PIPELINE}, seconds")
    for column in ("", "median", "fastest", "slowest", "target"):
        table.add_column(column, justify="right" if column else "left")
    for name, seconds in result["seconds"].items():
        rounds, target = result["rounds"][name], _TARGETS.get(name)
        row = (f"{value:.1f}" for value in (seconds, min(rounds), max(rounds)))
        table.add_row(name, *row, f"at most {target}" if target else "")
    console.print(table)
    for name, ratio in result["ratios"].items():
        target = f" (target: at most {_TARGETS[name]})" if name in _TARGETS else ""
        console.print(f"{name}: {ratio:.2f}{target}")


def _run_day() -> tuple[float, float]:
    """Run the day. Return the seconds of the whole command, and those of its orchestration."""
    command = [sys.executable, "-m", "slackwater.cli", "run", PIPELINE, "--date", DAY, "--force", "--json"]
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(f"the day failed: {done.stderr}")
    return seconds, json.loads(done.stdout)["seconds"]["orchestration"]


def _stop_drivers(client: Client) -> None:
    """Stop the application: the driver of the last job ends, and the next job starts cold."""
    emr, id_ = client.connection.clients("emr-serverless"), client.connection.deployment.application_id
    emr.stop_application(applicationId=id_)
    time.sleep(3)
