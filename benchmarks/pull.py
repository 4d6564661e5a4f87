"""Pull: bring a large CSV file into partitions, compared with only converting the same file to Parquet.

- `pull` is what the function does with a file, without the network: `FileFetcher.fetch` from a local file to a folder.
- `convert` is the shortest way with Arrow, block by block: `pyarrow.csv.open_csv` into `ParquetWriter`.
- `rejected` is `pull` of the same rows, of which all but the first have no offset in their timestamps, and so are
  stored one by one under `sideline/`. Without the first one, the file is rejected as a whole.

Each run is a process of its own on one core with one Arrow thread; its processor seconds and its peak memory are
reported, because seconds also depend on what else the machine does. Then several files are
pulled by one, two and four such processes at a time, on all cores.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv
from rich.console import Console
from rich.table import Table

from benchmarks import data
from benchmarks.pull_files import EVENTS, remove_offsets, write_events, write_flights
from slackwater.receiver.connectors.connector import Download
from slackwater.receiver.pull.fetch import FileFetcher
from slackwater.receiver.pull.file_cache import Content, FileEntry
from slackwater.receiver.pull.plan import FileDecision, WorkItem
from slackwater.receiver.pull.records import next_revision
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.storage import split_uri

MEGABYTES = 1_000
_NOW = datetime(2013, 3, 9, 12, tzinfo=UTC)
_TARGET, _MEMORY = 0.8, 1_769
"""The target: this share of the speed of `convert`, within the memory of a function in MB."""
_REJECTED_TARGET = 2.0
"""The target: rejected rows take at most so many times the time of accepted ones."""
_CHUNK = 2**20
_FILES, _FUNCTIONS = 8, (1, 2, 4)
_CANDIDATES = {
    "pull": ("pull", "spread"),
    "in order": ("pull", "in-order"),
    "rejected": ("pull", "spread-rejected"),
    "rejected as a whole": ("pull", "spread-whole"),
    "convert": ("convert", "spread"),
    "events": ("pull", "events"),
    "events, rejected": ("pull", "events-rejected"),
    "convert, events": ("convert", "events"),
}
"""What is done with which file."""


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


def run(rounds: int, *, megabytes: int = MEGABYTES) -> dict[str, Any]:
    """Return the MB per processor second of all candidates, by round and as a median, peak MB, and ratios of times."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in _CANDIDATES}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        rows = write_flights(folder / "spread.csv", megabytes, in_order=False)
        write_flights(folder / "in-order.csv", megabytes, in_order=True)
        write_events(folder / "events.csv", megabytes)
        for file in ("spread", "events"):
            remove_offsets(folder / f"{file}.csv", folder / f"{file}-rejected.csv", accepted=1)
        remove_offsets(folder / "spread.csv", folder / "spread-whole.csv", accepted=0)
        for _ in range(rounds):
            for candidate, (kind, file) in _CANDIDATES.items():
                runs[candidate].append(_measured(kind, folder / f"{file}.csv"))
        size = (folder / "spread.csv").stat().st_size
        many = _pull_many(folder, max(1, megabytes // 20))
    speeds = {name: [run["bytes"] / 1e6 / run["seconds"] for run in rounds_] for name, rounds_ in runs.items()}

    def ratio(candidate: str, peer: str) -> float:
        pairs = zip(runs[candidate], runs[peer], strict=True)
        return median(ours["seconds"] / theirs["seconds"] for ours, theirs in pairs)

    return {
        "bytes": size,
        "rows": rows,
        "rounds": speeds,
        "megabytes_per_second": {name: median(speeds_) for name, speeds_ in speeds.items()},
        "peak_megabytes": {name: max(run["peak"] for run in rounds_) for name, rounds_ in runs.items()},
        "ratio": ratio("convert", "pull"),
        "ratio_of_events": ratio("convert, events", "events"),
        "rejected": ratio("rejected", "pull"),
        "rejected_events": ratio("events, rejected", "events"),
        "many": many,
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
    console.print(
        f"pull / convert: {result['ratio']:.2f} for flights, {result['ratio_of_events']:.2f} for events "
        f"(target: at least {_TARGET}, in {_MEMORY:,} MB)"
    )
    console.print(
        f"time of rejected / accepted rows: {result['rejected']:.2f} for flights, {result['rejected_events']:.2f} for "
        f"events (target: at most {_REJECTED_TARGET})"
    )
    for functions, many in result["many"].items():
        console.print(
            f"{_FILES} files of events, {functions} at a time: {many['megabytes_per_second']:.0f} MB/s, "
            f"{many['cpu_seconds']:.2f} processor seconds for each file"
        )


def _pull_many(folder: Path, megabytes: int) -> dict[int, dict[str, float]]:
    """Pull files with several functions at a time, which are warm; return MB/s and processor seconds by number."""
    files = [folder / f"many-{number}.csv" for number in range(_FILES)]
    for path in files:
        write_events(path, megabytes)
    results = {}
    for functions in _FUNCTIONS:
        with ProcessPoolExecutor(functions, mp_context=get_context("spawn")) as pool:
            list(pool.map(_warm_up, [files[0]] * functions))
            start = time.perf_counter()
            processor = list(pool.map(_pull_one, files))
            seconds = time.perf_counter() - start
        results[functions] = {
            "megabytes_per_second": sum(path.stat().st_size for path in files) / 1e6 / seconds,
            "cpu_seconds": sum(processor) / _FILES,
        }
    return results


def _warm_up(path: Path) -> None:
    """Let a process import and use all modules; long enough that each process of a pool gets one call."""
    end = time.perf_counter() + 3
    _pull_one(path)
    time.sleep(max(0.0, end - time.perf_counter()))


def _pull_one(path: Path) -> float:
    """Pull one file; return the processor seconds."""
    _use_one_thread()
    start = time.process_time()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=path.parent) as folder:
        _pull(path, Path(folder))
    return time.process_time() - start


def _measured(candidate: str, path: Path) -> dict[str, float]:
    """Run one candidate in a process of its own; return its processor seconds and its peak MB."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=path.parent) as folder:
        command = [sys.executable, "-m", "benchmarks.pull", candidate, str(path), folder]
        process = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(process.stdout)
    return result


def _pull(path: Path, folder: Path) -> None:
    fetcher = FileFetcher(
        source=EVENTS if path.name.startswith(("events", "many")) else data.source(),
        partner=_FilePartner(path),
        cache=_Cache(),
        raw_writer=RawWriter(store=_FolderStore(folder), raw_bucket="raw"),
        now=lambda: _NOW,
        owner="benchmark",
        put_rejected=lambda *_: None,
    )
    fetched = fetcher.fetch(WorkItem(path=path.name, decision=FileDecision.NEW, listed=None))
    rejected = path.stem.endswith(("rejected", "whole"))
    assert (fetched.state, fetched.rejected > 0) == ("stored", rejected), fetched
    assert fetched.rows > 1 or (rejected and fetched.rows == path.stem.endswith("rejected")), fetched


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


def _use_one_thread() -> None:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def main() -> None:
    """Run one candidate in this process, on one core, and print its measurements."""
    candidate, path, folder = sys.argv[1:]
    _use_one_thread()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    start = time.process_time()
    {"pull": _pull, "convert": _convert}[candidate](Path(path), Path(folder))
    seconds, size = time.process_time() - start, Path(path).stat().st_size
    print(json.dumps({"seconds": seconds, "bytes": size, "peak": _peak()}))


if __name__ == "__main__":
    main()
