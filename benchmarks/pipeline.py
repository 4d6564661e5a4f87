"""Pipeline: five steps over one day on the local cloud, as compiled and in separate Spark jobs, beside plain PySpark.

- `chain` is five steps that read each other, in one Spark job, as compiled. `chain, 5 jobs` is the same with
  `exchange: true` after each step.
- `diamond` is five steps of which two read the first one, and one joins these two. `diamond, 5 jobs` runs each step in
  a job, these two in parallel.
- `plain` is `pipeline_script.py`: the chain in one Spark session, from the start of its driver to its end.

The Spark seconds of a run are those in which any of its jobs runs, with the start of Spark; orchestration is the rest
of the run. No driver waits for a job. Rounds are interleaved; the first one is not counted.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.cloud import DAY, EXAMPLE, SOURCES, deployed, script, timed
from slackwater import Client

CHAIN = """
timezone: America/New_York
sources: [flights, weather]
steps:
  departed: {step: filter, depends_on: [flights], with: {where: dep_time IS NOT NULL}}
  observed:
    step: join
    depends_on: [departed, weather]
    with: {keys: [origin, time_hour], how: left, take: [wind_speed, precip]}
  latest:
    step: deduplicate
    depends_on: [observed]
    with: {keys: [carrier, flight, time_hour], order_by: [dep_time]}
  rated:
    step: sql
    depends_on: [latest]
    with: {query: "SELECT *, CAST(dep_delay > 15 AS INT) AS late FROM latest"}
  result:
    step: aggregate
    depends_on: [rated]
    with:
      group_by: [origin, carrier]
      measures:
        flights: {function: count}
        late_share: {function: mean, column: late}
        dep_delay_p90: {function: quantile, column: dep_delay, q: 0.9}
        wind_speed_mean: {function: mean, column: wind_speed}
publish: {step: result, key: [date, origin, carrier]}
"""
DIAMOND = """
timezone: America/New_York
sources: [flights]
steps:
  departed: {step: filter, depends_on: [flights], with: {where: dep_time IS NOT NULL}}
  by_carrier:
    step: aggregate
    depends_on: [departed]
    with: {group_by: [origin, carrier], measures: {flights: {function: count}}}
  by_origin:
    step: aggregate
    depends_on: [departed]
    with: {group_by: [origin], measures: {of_origin: {function: count}}}
  compared:
    step: join
    depends_on: [by_carrier, by_origin]
    with: {keys: [origin], how: left}
  result:
    step: sql
    depends_on: [compared]
    with: {query: "SELECT *, flights / of_origin AS share FROM compared"}
publish: {step: result, key: [date, origin, carrier]}
"""
_PIPELINES = {"chain": "chain", "chain_jobs": "chain, 5 jobs", "diamond": "diamond", "diamond_jobs": "diamond, 5 jobs"}
_SCRIPT = Path(__file__).with_name("pipeline_script.py")
_USD_PER_1000_TRANSITIONS = 0.025
"""Step Functions, standard workflows, us-east-1, 22 November 2026."""
_RATIO, _ORCHESTRATION = 1.3, 0.5
"""Targets: Spark seconds of the chain by those of the script, and seconds."""


def run(rounds: int) -> dict[str, Any]:
    """Return for each pipeline its jobs, transitions and seconds, and the seconds of the script."""
    plain: list[float] = []
    spark: dict[str, list[float]] = {name: [] for name in _PIPELINES}
    orchestration: dict[str, list[float]] = {name: [] for name in _PIPELINES}
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder, project = Path(scratch), _project(Path(scratch, "project"))
        with deployed(folder, project) as client:
            table = f"warehouse.{client.connection.deployment.warehouse_database}.plain"
            run_script = script(client, folder, _SCRIPT, [table])
            # The first round compiles Python modules and creates the tables.
            for _ in range(rounds + 1):
                plain.append(timed(run_script))
                results = {name: client.run(name, DAY, force=True).wait() for name in _PIPELINES}
                for name, result in results.items():
                    seconds = result.seconds
                    orchestration[name].append(seconds.orchestration or 0)
                    spark[name].append(seconds.total - (seconds.orchestration or 0))
            _require_equal(client, "chain", "chain_jobs")
            _require_equal(client, "diamond", "diamond_jobs")
            entered = {name: _entered(client, result.execution) for name, result in results.items()}
    script_seconds = median(plain[1:])
    return {
        "plain": {"seconds": script_seconds, "rounds": plain[1:]},
        "pipelines": {
            name: {
                "jobs": sum(state.startswith("Run ") and "parallel" not in state for state in entered[name]),
                "transitions": len(entered[name]),
                "usd_per_1000_runs": len(entered[name]) * _USD_PER_1000_TRANSITIONS,
                "spark": median(spark[name][1:]),
                "orchestration": median(orchestration[name][1:]),
                "rounds": {"spark": spark[name][1:], "orchestration": orchestration[name][1:]},
            }
            for name in _PIPELINES
        },
        "ratios": {name: median(spark[name][1:]) / script_seconds for name in ("chain", "chain_jobs")},
    }


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print what `run` returned."""
    table = Table(title=f"Five steps over {DAY}, seconds; the price is for 1,000 runs")
    for column in ("", "jobs", "transitions", "USD", "Spark", "orchestration"):
        table.add_column(column, justify="right" if column else "left")
    plain = result["plain"]["seconds"]
    table.add_row("plain", "1", "", "", f"{plain:.1f}", "")
    for name, title in _PIPELINES.items():
        row = result["pipelines"][name]
        seconds = (f"{row['spark']:.1f}", f"{row['orchestration']:.1f}")
        table.add_row(title, str(row["jobs"]), str(row["transitions"]), f"{row['usd_per_1000_runs']:.3f}", *seconds)
    console.print(table)
    # The script computes the chain, not the diamond.
    for name, ratio in result["ratios"].items():
        target = f" (target: at most {_RATIO})" if name == "chain" else ""
        console.print(f"{_PIPELINES[name]} / plain: {ratio:.2f}{target}")
    worst = max(row["orchestration"] for row in result["pipelines"].values())
    console.print(f"orchestration: at most {worst:.1f} s (target: at most {_ORCHESTRATION} s)")


def _project(folder: Path) -> Path:
    """Write the project of all pipelines, and return its folder."""
    (folder / "pipelines").mkdir(parents=True)
    (folder / "sources").mkdir()
    for source in SOURCES:
        shutil.copy(EXAMPLE / "sources" / f"{source}.yaml", folder / "sources")
    for name, text in {"chain": CHAIN, "diamond": DIAMOND}.items():
        definition = yaml.safe_load(text)
        _write(folder, name, definition)
        for step, use in definition["steps"].items():
            use["exchange"] = step != definition["publish"]["step"]
        _write(folder, f"{name}_jobs", definition)
    return folder


def _write(folder: Path, name: str, definition: dict[str, Any]) -> None:
    content = yaml.safe_dump({"pipeline": name, **definition}, sort_keys=False)
    (folder / "pipelines" / f"{name}.yaml").write_text(content, encoding="utf-8")


def _require_equal(client: Client, one: str, other: str) -> None:
    """Raise `RuntimeError` if two pipelines have published different rows."""
    query = "SELECT origin, carrier, flights FROM {} ORDER BY ALL"
    rows = [client.query(query.format(name)).rows for name in (one, other)]
    if rows[0] != rows[1] or not rows[0]:
        raise RuntimeError(f"{one} and {other} have published different rows")


def _entered(client: Client, execution: str) -> list[str]:
    """Return the names of the states that an execution has entered: each one is a transition that AWS bills."""
    pages = client.connection.clients("stepfunctions").get_paginator("get_execution_history")
    events = (event for page in pages.paginate(executionArn=execution) for event in page["events"])
    return [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]
