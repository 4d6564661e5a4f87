"""Push: a body's way through the receiver, beside mere reading of the same bytes and beside dlt.

- `push` is all that the function does for a body but the network: `Receiver.receive` over a store in memory.
- `read` is `pyarrow.json.read_json` of the same bytes, its types inferred, its table thrown away.
- `dlt` is `dlt_events.py`.

One core, one thread; the rounds of all are interleaved, so that what else the machine does hits all alike.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyarrow import json as arrow_json
from rich.console import Console
from rich.table import Table

from benchmarks import data
from slackwater.receiver import deliver, receive
from slackwater.receiver.push.receive import Receiver
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.sources.partitions import Partition

_ROOT = Path(__file__).parents[1]
_DLT = _ROOT / ".venv-bench" / "bin" / "python"
_NOW = datetime(2013, 3, 9, 12, tzinfo=UTC)
_SOURCE = data.source()
_NDJSON = "application/x-ndjson"
_PARTS = {
    "decode": (receive, "decode"),
    "check": (receive, "check_events"),
    "stamp": (receive, "stamp"),
    "split": (receive, "split"),
    "encode": (deliver, "encode"),
}
_TARGETS = {"push / read": 0.4, "push / dlt": 5.0}


class _Store:
    """Keeps what is put, at no cost."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put_new(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> bool:
        assert metadata
        return self.objects.setdefault(uri, body) is body


class _NoPartitions:
    def register(self, source: str, partitions: Iterable[Partition]) -> None:
        pass


def run(rounds: int) -> dict[str, Any]:
    """Return events per second of all that is compared: each round's and their medians, and the ratios."""
    spread, in_order = data.bodies(in_order=False), data.bodies(in_order=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        events = Path(folder) / "events.ndjson"
        events.write_bytes(b"".join(spread))
        timed: dict[str, Callable[[], float]] = {
            "push": lambda: _timed(lambda: _push(spread)),
            "push, in order": lambda: _timed(lambda: _push(in_order)),
            "read": lambda: _timed(lambda: _read(spread)),
            "dlt": lambda: _dlt(events)["seconds"],
        }
        _push(spread[:1])
        seconds: dict[str, list[float]] = {name: [] for name in timed}
        for _ in range(rounds):
            for name, measure in timed.items():
                seconds[name].append(measure())
    rates = {name: data.EVENTS / median(found) for name, found in seconds.items()}
    return {
        "events": data.EVENTS,
        "batch": data.BATCH,
        "bytes_per_event": sum(map(len, spread)) / data.EVENTS,
        "rounds": {name: [data.EVENTS / one for one in found] for name, found in seconds.items()},
        "events_per_second": rates,
        "ratios": {name: _ratio(seconds, *name.split(" / ")) for name in _TARGETS},
        "microseconds_per_event": _parts(spread, rounds),
        "dlt": _dlt_version(),
    }


def _ratio(seconds: Mapping[str, list[float]], one: str, other: str) -> float:
    """Return the median of each round's ratio of speeds: what slows one of a round down slows the other down, too."""
    return median(others / ones for ones, others in zip(seconds[one], seconds[other], strict=True))


def show(found: Mapping[str, Any], console: Console) -> None:
    """Print what `run` returned."""
    table = Table(
        title=f"{found['events']:,} events of {found['bytes_per_event']:.0f} bytes, {found['batch']:,} a body"
    )
    for column in ("", "events/s", "slowest", "fastest"):
        table.add_column(column, justify="right" if column else "left")
    for name, rate in found["events_per_second"].items():
        each = found["rounds"][name]
        table.add_row(name, f"{rate:,.0f}", f"{min(each):,.0f}", f"{max(each):,.0f}")
    console.print(table)
    for name, ratio in found["ratios"].items():
        console.print(f"{name}: {ratio:.2f} (at least {_TARGETS[name]} is asked for)")
    parts = Table(title="Where the time of push goes")
    parts.add_column("part")
    parts.add_column("µs an event", justify="right")
    for name, microseconds in found["microseconds_per_event"].items():
        parts.add_row(name, f"{microseconds:.2f}")
    console.print(parts)


def _push(bodies: Iterable[bytes]) -> None:
    store = _Store()
    delivery = RawWriter(store=store, partitions=_NoPartitions(), raw_bucket="raw")
    receiver = Receiver(delivery=delivery, now=lambda: _NOW)
    for body in bodies:
        answer = receiver.receive(
            body, source=_SOURCE, content_type=_NDJSON, content_encoding=None, origin="push:benchmark"
        )
        assert answer.accepted == data.BATCH, answer
    assert store.objects


def _read(bodies: Iterable[bytes]) -> None:
    for body in bodies:
        table = arrow_json.read_json(pa.BufferReader(body), read_options=arrow_json.ReadOptions(use_threads=False))
        assert table.num_rows == data.BATCH


def _dlt(events: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="dlt-") as folder:
        words = [_DLT, _ROOT / "benchmarks" / "dlt_events.py", events, folder]
        done = subprocess.run(words, check=True, capture_output=True, text=True, cwd=folder)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["events"] == data.EVENTS, found
    return found


def _dlt_version() -> str:
    words = [_DLT, "-c", "from importlib.metadata import version; print(version('dlt'))"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _parts(bodies: list[bytes], rounds: int) -> dict[str, float]:
    """Return the microseconds per event that each part of push takes while all of it runs."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        seconds = dict.fromkeys(_PARTS, 0.0)
        with ExitStack() as patched:
            for name, (module, function) in _PARTS.items():
                patched.enter_context(
                    patch.object(module, function, _clocked(getattr(module, function), name, seconds))
                )
            whole = _timed(lambda: _push(bodies))
        for name, spent in {**seconds, "the rest": whole - sum(seconds.values())}.items():
            found.setdefault(name, []).append(spent)
    return {name: median(times) / data.EVENTS * 1e6 for name, times in found.items()}


def _clocked(function: Callable[..., Any], name: str, seconds: dict[str, float]) -> Callable[..., Any]:
    @wraps(function)
    def clocked(*words: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*words, **named)
        finally:
            seconds[name] += time.perf_counter() - start

    return clocked
