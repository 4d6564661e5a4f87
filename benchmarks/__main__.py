"""Measure the receiver on one core, and the exchange, days, pipelines and late data on two.

python -m benchmarks [--json] [--rounds N] [--megabytes N] [--events N ...] [--only PART]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from benchmarks import arrival, check, day, exchange, freeze, hop, late, pipeline, pull, push, size, state

PARTS = {
    "exchange": exchange,
    "hop": hop,
    "day": day,
    "pipeline": pipeline,
    "size": size,
    "late": late,
    "arrival": arrival,
    "check": check,
    "freeze": freeze,
    "push": push,
    "pull": pull,
    "state": state,
}
_TWO_CORES = ("exchange", "hop", "day", "pipeline", "size", "late", "arrival", "pull")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure receiver, exchange, day and pipelines."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the median counts")
    parser.add_argument("--megabytes", type=int, default=pull.MEGABYTES, help="size of the file to pull")
    parser.add_argument("--events", type=int, nargs="+", default=size.EVENTS, help="events of the days of `size`")
    parser.add_argument("--only", choices=PARTS, help="measure only this part")
    options = parser.parse_args()
    machine = _machine()
    sizes = {"pull": {"megabytes": options.megabytes}, "size": {"events": options.events}}
    names = [options.only] if options.only else list(PARTS)
    results = {}
    # A process cannot have more cores again, so the parts with two come first.
    for name in names:
        if name not in _TWO_CORES:
            _keep_to_one_core()
        results[name] = PARTS[name].run(options.rounds, **sizes.get(name, {}))
    if options.json:
        print(json.dumps({"machine": machine, **results}))
        return
    console = Console()
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()))
    for name, result in results.items():
        PARTS[name].show(result, console)


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _keep_to_one_core() -> None:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


if __name__ == "__main__":
    main()
