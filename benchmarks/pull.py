"""Pull: bring a large CSV file into partitions, compared with only converting the same file to Parquet.

- `pull` is what the function does with a file, without the network: `FileFetcher.fetch` from a local file to a folder.
- `convert` is the shortest way with Arrow, block by block: `pyarrow.csv.open_csv` into `ParquetWriter`.

Each run is a process of its own on one core with one Arrow thread; its peak memory is reported.
"""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv
from rich.console import Console
from rich.table import Table

from benchmarks import data
from examples.nyc_flights import feed
from slackwater.receiver.partners.partner import Download
from slackwater.receiver.pull.fetch import FileFetcher
from slackwater.receiver.pull.file_cache import Content, FileDecision, FileEntry
from slackwater.receiver.pull.plan import WorkItem
from slackwater.receiver.pull.records import next_revision
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.sources.partitions import Partition
from slackwater.storage import split_uri

MEGABYTES = 1_000
_NOW = datetime(2013, 3, 9, 12, tzinfo=UTC)
_TARGET, _MEMORY = 0.6, 1_769
"""The target: this share of the speed of `convert`, within the memory of a function in MB."""
_CHUNK = 2**20
_DAY = date(2013, 3, 8)
_DELAY, _FLIGHT = 5, 10
"""Columns whose values differ from one copy of the flights to the next."""


class _FilePartner:
    """A partner with one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fetch(self, name: str, into: BinaryIO) -> Download:
        digest = hashlib.sha256()
        with self._path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                into.write(chunk)
        into.flush()
        return Download(sha256=digest.hexdigest(), size=self._path.stat().st_size, etag=None)


class _FolderStore:
    """An object store in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put_new_file(self, uri: str, path: Path, *, metadata: Mapping[str, str] | None = None) -> bool:
        assert metadata is None or metadata["rows"]
        bucket, key = split_uri(uri)
        target = self._folder / bucket / key
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        return True


class _Cache:
    """A file cache in memory, for one source and one pull at a time."""

    def __init__(self) -> None:
        self._entries: dict[str, FileEntry] = {}
        self._contents: dict[str, Content] = {}

    def entries(self, source: str, paths: Iterable[str]) -> list[FileEntry]:
        return [self._entries[path] for path in paths if path in self._entries]

    def contents(self, source: str, ids: Iterable[str]) -> list[Content]:
        return [self._contents[id_] for id_ in ids if id_ in self._contents]

    def save(self, *records: FileEntry | Content) -> None:
        for record in records:
            if isinstance(record, FileEntry):
                self._entries[record.path] = next_revision(record)
            else:
                self._contents[record.id] = next_revision(record)


class _NoPartitions:
    def register(self, source: str, partitions: Iterable[Partition]) -> None:
        pass


def run(rounds: int, *, megabytes: int = MEGABYTES) -> dict[str, Any]:
    """Return the MB/s of both candidates, by round and as a median, their peak MB, and the ratio of their speeds."""
    runs: dict[str, list[dict[str, float]]] = {"pull": [], "pull, in order": [], "convert": []}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        spread, in_order = (Path(folder) / name for name in ("spread.csv", "in-order.csv"))
        rows = _write_flights(spread, megabytes, in_order=False)
        _write_flights(in_order, megabytes, in_order=True)
        for _ in range(rounds):
            runs["pull"].append(_measured("pull", spread))
            runs["pull, in order"].append(_measured("pull", in_order))
            runs["convert"].append(_measured("convert", spread))
        size = spread.stat().st_size
    speeds = {name: [size / 1e6 / run["seconds"] for run in rounds_] for name, rounds_ in runs.items()}
    ratios = [ours / theirs for ours, theirs in zip(speeds["pull"], speeds["convert"], strict=True)]
    return {
        "bytes": size,
        "rows": rows,
        "rounds": speeds,
        "megabytes_per_second": {name: median(speeds_) for name, speeds_ in speeds.items()},
        "peak_megabytes": {name: max(run["peak"] for run in rounds_) for name, rounds_ in runs.items()},
        "ratio": median(ratios),
    }


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print what `run` returned."""
    table = Table(title=f"A CSV file of {result['bytes'] / 1e6:,.0f} MB, {result['rows']:,} rows of 24 hours")
    for column in ("", "MB/s", "slowest", "fastest", "peak MB"):
        table.add_column(column, justify="right" if column else "left")
    for name, speed in result["megabytes_per_second"].items():
        rounds, peak = result["rounds"][name], result["peak_megabytes"][name]
        table.add_row(name, f"{speed:.0f}", f"{min(rounds):.0f}", f"{max(rounds):.0f}", f"{peak:,.0f}")
    console.print(table)
    console.print(f"pull / convert: {result['ratio']:.2f} (target: at least {_TARGET}, in {_MEMORY:,} MB)")


def _write_flights(path: Path, megabytes: int, *, in_order: bool) -> int:
    """Write the flights of one day again and again, with small differences; return the number of rows."""
    header, *lines = "".join(feed.flights_files(_DAY).values()).splitlines(keepends=True)
    flights = [line.rstrip("\n").split(",") for line in lines if line != header]
    rows = megabytes * 1_000_000 // (sum(map(len, lines)) // len(lines))
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(header)
        for number, flight in zip(range(rows), cycle(flights), strict=False):
            hour = number * 24 // rows if in_order else number % 24
            file.write(_line(flight, number // len(flights), hour))
    return rows


def _line(flight: Sequence[str], time: int, hour: int) -> str:
    delay = flight[_DELAY] if flight[_DELAY] == "NA" else f"{int(flight[_DELAY]) + time % 10}"
    before, between = ",".join(flight[:_DELAY]), ",".join(flight[_DELAY + 1 : _FLIGHT])
    after = ",".join(flight[_FLIGHT + 1 : -1])
    return f"{before},{delay},{between},{int(flight[_FLIGHT]) + time},{after},{_DAY}T{hour:02d}:00:00Z\n"


def _measured(candidate: str, path: Path) -> dict[str, float]:
    """Run one candidate in a process of its own; return its seconds and its peak MB."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=path.parent) as folder:
        command = [sys.executable, "-m", "benchmarks.pull", candidate, str(path), folder]
        process = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(process.stdout)
    return result


def _pull(path: Path, folder: Path) -> None:
    fetcher = FileFetcher(
        source=data.source(),
        partner=_FilePartner(path),
        cache=_Cache(),
        raw_writer=RawWriter(store=_FolderStore(folder), partitions=_NoPartitions(), raw_bucket="raw"),
        now=lambda: _NOW,
        owner="benchmark",
    )
    fetched = fetcher.fetch(WorkItem(path=path.name, decision=FileDecision.NEW, listed=None))
    assert (fetched.state, fetched.rejected) == ("stored", 0), fetched


def _convert(path: Path, folder: Path) -> None:
    options = {
        "read_options": arrow_csv.ReadOptions(use_threads=False),
        "convert_options": arrow_csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True),
    }
    with (
        arrow_csv.open_csv(path, **options) as reader,
        pq.ParquetWriter(folder / "all.parquet", reader.schema) as writer,
    ):
        for batch in reader:
            writer.write_batch(batch)


def _peak() -> float:
    """Return the peak memory of this process in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # On macOS in bytes.


def main() -> None:
    """Run one candidate in this process and print its measurements."""
    candidate, path, folder = sys.argv[1:]
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    start = time.perf_counter()
    {"pull": _pull, "convert": _convert}[candidate](Path(path), Path(folder))
    print(json.dumps({"seconds": time.perf_counter() - start, "peak": _peak()}))


if __name__ == "__main__":
    main()
