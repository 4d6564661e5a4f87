"""Size: days of 10 thousand to 100 million events on the local cloud, compared with a plain PySpark script and DuckDB.

Each size has a local cloud of its own, in which a day of 10,000 events was processed first, so that its functions and
its driver have started. The day is pulled as 24 CSV files; a pipeline checks its rows and groups them.

- `run` is the command's time for a run of the day; each round after the first one repeats it with `--force`. `freeze`,
  `Spark work` and `publish` are parts of it.
- `plain` is `size_script.py` as a job of the same application, in the same driver, from its request to its end. Its
  rounds and those of `run` are interleaved.
- `DuckDB, raw` reads the objects of the pull as the emulator has stored them; `DuckDB, CSV` reads the files themselves.
  Both check and group the rows and write a Parquet file, in a process of their own. The rows of `run` and `plain` must
  equal those of the second one, and those of the run also after the late data.
- `late pull` is one more file of 1 % of the events; then the day runs again, and its two versions are compared.

Processor time, memory and bytes are those of the processes of the local cloud, without this one. Memory is the largest
resident memory of one process, sampled.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.cloud import ROOT, Usage, job, local_cloud, used
from benchmarks.size_data import DAY, HOURS, csv_files, served, write_day, write_late
from slackwater import Client
from slackwater.client.days.runs import RunHandle
from slackwater.local import cloud, layout

EVENTS = (10_000, 1_000_000, 10_000_000)
SOURCE, PIPELINE = "clicks", "clicks_by_campaign"
_PROJECT = Path(__file__).with_name("size_project")
_SCRIPT = Path(__file__).with_name("size_script.py")
_FIRST_DAY, _FIRST_EVENTS = "2026-03-01", 10_000
_LATE_SHARE = 100
_PORT = "8714"
_PLAIN = "plain"
_COLUMNS = ["campaign", "country", "events", "clicks", "cost", "dearest"]
_QUERY = f"SELECT {', '.join(_COLUMNS)} FROM {PIPELINE} WHERE date = '{DAY}'"  # noqa: S608
_LARGE = 10_000_000
_MOST_PLAIN, _MOST_GROWTH = 1.15, 1.2
_T = TypeVar("_T")


def run(rounds: int, *, events: Sequence[int] = EVENTS) -> dict[str, Any]:
    """Return what each step used, for each number of events. Raises `RuntimeError` if published rows are wrong."""
    return {"sizes": [_measure(number, rounds) for number in sorted(events)]}


def _measure(events: int, rounds: int) -> dict[str, Any]:
    late, steps = max(1, events // _LATE_SHARE), defaultdict[str, list[Usage]](list)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, _deployed(Path(name)) as client:
        folder, files = Path(name), Path(name) / "files"
        size = write_day(files, events)
        steps["pull"].append(_used(folder, lambda: _pull(client, DAY, events, HOURS))[1])
        plain = _plain(client, DAY)
        for number in range(rounds):
            raw_bytes = _run(steps, "", client, folder, force=number > 0)
            steps["plain"].append(_used(folder, plain)[1])
        objects = next(layout.Layout(folder).objects.glob(f"*/*/raw/source={SOURCE}/date={DAY}"))
        steps["DuckDB, raw"].append(_in_duckdb(f"read_parquet('{objects}/*/*.parquet')", folder / "raw.parquet"))
        steps["DuckDB, CSV"].append(_in_duckdb(csv_files(files), folder / "csv.parquet"))
        for table in (PIPELINE, _PLAIN):
            _check_rows(client, table, folder / "csv.parquet")
        late_size = write_late(files, late)
        steps["late pull"].append(_used(folder, lambda: _pull(client, DAY, late, 1))[1])
        _run(steps, "late ", client, folder, force=False)
        steps["comparison"].append(_used(folder, lambda: client.compare(PIPELINE, DAY))[1])
        steps["query"].append(_used(folder, lambda: client.query(_QUERY).rows)[1])
        _in_duckdb(csv_files(files), folder / "csv.parquet")
        _check_rows(client, PIPELINE, folder / "csv.parquet")
    return {
        "events": events,
        "bytes": {"CSV": size, "raw": raw_bytes, "late CSV": late_size},
        "steps": {step: [asdict(usage) for usage in usages] for step, usages in steps.items()},
    }


@contextmanager
def _deployed(folder: Path) -> Iterator[Client]:
    """Deploy the project to a local cloud that has processed a small day, and serve its files from `folder/files`."""
    project, files = folder / "project", folder / "files"
    shutil.copytree(_PROJECT, project)
    write_day(files, _FIRST_EVENTS, day=_FIRST_DAY)
    with served(files) as port:
        definition = project / "sources" / f"{SOURCE}.yaml"
        definition.write_text(definition.read_text(encoding="utf-8").replace(_PORT, str(port)), encoding="utf-8")
        with local_cloud(folder, project, {}) as client:
            _pull(client, _FIRST_DAY, _FIRST_EVENTS, HOURS)
            client.run(PIPELINE, _FIRST_DAY).wait()
            _plain(client, _FIRST_DAY)()
            yield client


def _used(folder: Path, call: Callable[[], _T]) -> tuple[_T, Usage]:
    running = cloud.status(folder)
    if running is None:
        raise RuntimeError(f"the local cloud has stopped: see {layout.Layout(folder).log}")
    return used(running.pid, call)


def _pull(client: Client, day: str, events: int, files: int) -> None:
    totals = client.pull(SOURCE, as_of=day)
    if (totals["rows"], totals["stored"], totals["rejected"]) != (events, files, 0):
        raise RuntimeError(f"not all events were stored: {totals}")


def _plain(client: Client, day: str) -> Callable[[], None]:
    table = f"warehouse.{client.connection.deployment.warehouse_database}.{_PLAIN}"
    return job(client, _SCRIPT, day, SOURCE, [table])


def _run(steps: dict[str, list[Usage]], prefix: str, client: Client, folder: Path, *, force: bool) -> int:
    """Run the day, and add what it and its parts have used to `steps`. Return the bytes of its inputs."""
    handle, usage = _used(folder, lambda: _waited(client.run(PIPELINE, DAY, force=force)))
    seconds, publication = handle.result.seconds, handle.result.publication
    [freeze] = (state.seconds for state in handle.view().states if state.name == "Freeze inputs")
    steps[f"{prefix}freeze"].append(Usage(seconds=freeze))
    steps[f"{prefix}run"].append(replace(usage, seconds=seconds.total))
    steps[f"{prefix}Spark work"].append(Usage(seconds=seconds.spark_work or 0))
    steps[f"{prefix}publish"].append(Usage(seconds=publication.seconds))
    return handle.result.run.bytes


def _waited(handle: RunHandle) -> RunHandle:
    handle.wait()
    return handle


def _in_duckdb(events: str, result: Path) -> Usage:
    """Compute the day from `events`, a table function of DuckDB, in another process."""
    command = [sys.executable, "-m", "benchmarks.size_data", events, str(result)]
    process = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return Usage(**json.loads(process.stdout))


def _check_rows(client: Client, table: str, expected: Path) -> None:
    """Raise `RuntimeError` if the day's rows of a table differ from those that DuckDB computed from the files."""
    published = client.warehouse.published(table)
    assert published is not None
    day = published.to_table(filter=pc.field("date") == date.fromisoformat(DAY), columns=_COLUMNS)
    rows, known = (sorted(table.to_pylist(), key=_key) for table in (day, pq.read_table(expected, columns=_COLUMNS)))
    if rows != known:
        raise RuntimeError(f"{len(rows)} rows of {table} differ from DuckDB's {len(known)}")


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["campaign"], row["country"]


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print what `run` returned."""
    for size in result["sizes"]:
        _show_size(size, console)
    _show_memory(result["sizes"], console)
    by_events = {size["events"]: _seconds(size) for size in result["sizes"]}
    for events, seconds in by_events.items():
        target = f" (target: at most {_MOST_PLAIN})" if events >= _LARGE else ""
        console.print(f"{events:,} events: run / plain {seconds['run'] / seconds['plain']:.2f}{target}")
    if largest := by_events.get(10 * _LARGE):
        for step in ("pull", "run", "plain"):
            growth = largest[step] / 10 / by_events[_LARGE][step] if _LARGE in by_events else float("nan")
            console.print(f"{step}, seconds per million events at 100 / 10 million: {growth:.2f} ({_MOST_GROWTH})")


def _seconds(size: Mapping[str, Any]) -> dict[str, float]:
    return {step: median(usage["seconds"] for usage in usages) for step, usages in size["steps"].items()}


def _show_size(size: Mapping[str, Any], console: Console) -> None:
    megabytes = {name: bytes_ / 1e6 for name, bytes_ in size["bytes"].items()}
    described = ", ".join(f"{value:,.1f} MB {name}" for name, value in megabytes.items())
    table = Table(title=f"{size['events']:,} events: {described}")
    columns = ("", "seconds", "s/million", "CPU s", "of it emulator", "S3 read MB", "S3 written MB", "disk written MB")
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    for step, usages in size["steps"].items():
        seconds = median(usage["seconds"] for usage in usages)
        cells = [f"{seconds:.2f}", f"{seconds / size['events'] * 1e6:.2f}"]
        for key in ("cpu", "emulator_cpu"):
            value = median(usage[key] for usage in usages)
            cells.append(f"{value:,.1f}" if value else "")
        for key in ("s3_read", "s3_written", "spark_written"):
            value = median(usage[key] for usage in usages) / 1e6
            cells.append(f"{value:,.1f}" if value else "")
        table.add_row(step, *cells)
    console.print(table)
    console.print(f"pull: {megabytes['CSV'] / _seconds(size)['pull']:.1f} MB/s")


def _show_memory(sizes: Sequence[Mapping[str, Any]], console: Console) -> None:
    table = Table(title="Largest memory of a process, MB")
    peaks: dict[str, dict[int, int]] = defaultdict(dict)
    for size in sizes:
        for usages in size["steps"].values():
            for kind, peak in ((kind, peak) for usage in usages for kind, peak in usage["peaks"].items()):
                peaks[kind][size["events"]] = max(peaks[kind].get(size["events"], 0), peak)
    table.add_column("")
    for size in sizes:
        table.add_column(f"{size['events']:,}", justify="right")
    for kind, by_events in sorted(peaks.items()):
        table.add_row(kind, *(f"{by_events.get(size['events'], 0) / 1e6:,.0f}" for size in sizes))
    console.print(table)
