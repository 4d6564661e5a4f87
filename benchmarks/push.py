"""Push: receive bodies of events, compared with only reading the same bytes and with dlt.

- `push` is what the function does with a body, without the network: `Receiver.receive` with a store in memory.
- `read` is `pyarrow.json.read_json` of the same bytes, with inferred types; its table is discarded.
- `dlt` is `dlt_events.py`.

All use one core and one thread. Their rounds are interleaved, so that other load on the machine slows all of them down.
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
from slackwater.errors import ObjectMissing
from slackwater.receiver.push import receive
from slackwater.receiver.push.body import Body, Limits
from slackwater.receiver.push.receive import Receiver
from slackwater.receiver.writing import raw_writer
from slackwater.receiver.writing.raw_writer import RawWriter

_ROOT = Path(__file__).parents[1]
_DLT = _ROOT / ".venv-bench" / "bin" / "python"
_NOW = datetime(2013, 3, 9, 12, tzinfo=UTC)
_SOURCE = data.source()
_NDJSON = "application/x-ndjson"
_PHASES = {
    "decode": (Body, "events"),
    "check": (receive, "check_events"),
    "hours": (receive, "event_hours"),
    "split by hour": (receive, "split_by_hour"),
    "add metadata": (receive, "add_metadata"),
    "encode": (raw_writer, "encode_parquet"),
}
"""The function of each phase, and the module that calls it or its class."""
_TARGETS = {"push / read": 0.4, "push / dlt": 5.0}


class _Store:
    """An object store in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put_new(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> bool:
        return self.objects.setdefault(uri, body) is body

    def get(self, uri: str) -> bytes:
        if uri not in self.objects:
            raise ObjectMissing(uri)
        return self.objects[uri]


def run(rounds: int) -> dict[str, Any]:
    """Return the events per second of each candidate, by round and as a median, and the ratios of their speeds."""
    spread, in_order = data.bodies(in_order=False), data.bodies(in_order=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        events = Path(folder) / "events.ndjson"
        events.write_bytes(b"".join(spread))
        candidates: dict[str, Callable[[], float]] = {
            "push": lambda: _timed(lambda: _push(spread)),
            "push, in order": lambda: _timed(lambda: _push(in_order)),
            "read": lambda: _timed(lambda: _read(spread)),
            "dlt": lambda: _dlt(events)["seconds"],
        }
        _push(spread[:1])
        seconds: dict[str, list[float]] = {name: [] for name in candidates}
        for _ in range(rounds):
            for name, measure in candidates.items():
                seconds[name].append(measure())
    rates = {name: data.EVENTS / median(times) for name, times in seconds.items()}
    return {
        "events": data.EVENTS,
        "batch": data.BATCH,
        "bytes_per_event": sum(map(len, spread)) / data.EVENTS,
        "rounds": {name: [data.EVENTS / time for time in times] for name, times in seconds.items()},
        "events_per_second": rates,
        "ratios": {name: _ratio(seconds, *name.split(" / ")) for name in _TARGETS},
        "microseconds_per_event": _phases(spread, rounds),
        "dlt": _dlt_version(),
    }


def _ratio(seconds: Mapping[str, list[float]], candidate: str, reference: str) -> float:
    """Return the median over the rounds of the ratio of speeds."""
    return median(theirs / ours for ours, theirs in zip(seconds[candidate], seconds[reference], strict=True))


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print what `run` returned."""
    table = Table(
        title=f"{result['events']:,} events of {result['bytes_per_event']:.0f} bytes, {result['batch']:,} a body"
    )
    for column in ("", "events/s", "slowest", "fastest"):
        table.add_column(column, justify="right" if column else "left")
    for name, rate in result["events_per_second"].items():
        rounds = result["rounds"][name]
        table.add_row(name, f"{rate:,.0f}", f"{min(rounds):,.0f}", f"{max(rounds):,.0f}")
    console.print(table)
    for name, ratio in result["ratios"].items():
        console.print(f"{name}: {ratio:.2f} (target: at least {_TARGETS[name]})")
    phases = Table(title="Time of each phase of push")
    phases.add_column("phase")
    phases.add_column("µs per event", justify="right")
    for name, microseconds in result["microseconds_per_event"].items():
        phases.add_row(name, f"{microseconds:.2f}")
    console.print(phases)


def _push(bodies: Iterable[bytes]) -> None:
    store = _Store()
    writer = RawWriter(store=store, raw_bucket="raw")
    receiver = Receiver(raw_writer=writer, now=lambda: _NOW, put_rejected=lambda *_: None)
    for body in bodies:
        pushed = Body(
            content=body, content_type=_NDJSON, content_encoding=None, origin="push:benchmark", limits=Limits()
        )
        result = receiver.store(receiver.check(pushed, _SOURCE))
        assert result.accepted == data.BATCH, result
    assert store.objects


def _read(bodies: Iterable[bytes]) -> None:
    for body in bodies:
        table = arrow_json.read_json(pa.BufferReader(body), read_options=arrow_json.ReadOptions(use_threads=False))
        assert table.num_rows == data.BATCH


def _dlt(events: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="dlt-") as folder:
        command = [_DLT, _ROOT / "benchmarks" / "dlt_events.py", events, folder]
        process = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    result: dict[str, Any] = json.loads(process.stdout)
    assert result["events"] == data.EVENTS, result
    return result


def _dlt_version() -> str:
    command = [_DLT, "-c", "from importlib.metadata import version; print(version('dlt'))"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _phases(bodies: list[bytes], rounds: int) -> dict[str, float]:
    """Return the microseconds per event of each phase of push, while all phases run."""
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        seconds = dict.fromkeys(_PHASES, 0.0)
        with ExitStack() as patches:
            for name, (module, function) in _PHASES.items():
                patches.enter_context(
                    patch.object(module, function, _measured(getattr(module, function), name, seconds))
                )
            total = _timed(lambda: _push(bodies))
        for name, time_of_phase in {**seconds, "the rest": total - sum(seconds.values())}.items():
            times.setdefault(name, []).append(time_of_phase)
    return {name: median(values) / data.EVENTS * 1e6 for name, values in times.items()}


def _measured(function: Callable[..., Any], name: str, seconds: dict[str, float]) -> Callable[..., Any]:
    """Return the function, which then adds its run time to `seconds[name]`."""

    @wraps(function)
    def measured(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[name] += time.perf_counter() - start

    return measured
