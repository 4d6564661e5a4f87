"""Run the generated year and return its figures."""

from __future__ import annotations

import gc
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.pauses import record_pauses
from tests.soak.account import LastRead
from tests.soak.aws import Meter
from tests.soak.partner import INTERVAL
from tests.soak.year import PAUSE, START, Year

_MB = 2**20


def soak(
    *,
    days: int,
    seed: int,
    interval: timedelta = INTERVAL,
    on_day: Callable[[int, Year], object] = lambda day, year: None,
) -> dict[str, Any]:
    """Run the generated time, check the account each week and at the end, and return the figures.

    Each day, a day is frozen too. Raises `AssertionError` when an event is lost or counted twice, by readers or by
    the metrics.
    """
    started, year = time.monotonic(), Year(days=days, seed=seed, interval=interval)
    months = list[dict[str, Any]]()
    figures: dict[str, Any] = {"days": days, "seed": seed}
    with quick_and_deterministic(), without_garbage_collection():
        costs = list[dict[str, float]]()
        frozen = list[dict[str, float]]()
        for day in range(1, days + 1):
            while year.clock() < START + timedelta(days=day):
                year.faults.throttled = 0.02 if year.random.random() < 0.05 else 0.0005
                year.meter.reset()
                year.pull_with_faults()
                costs.append(cost(year.meter))
                year.go_to(year.clock() + PAUSE * year.random.uniform(0.8, 1.2))
            year.give_up_old_files()
            with without_faults(year):
                if day > 1:
                    year.meter.reset()
                    date = (year.clock() - timedelta(days=2)).date()
                    manifest = year.freeze(date)
                    frozen.append(cost(year.meter))
                    assert manifest.rows == year.account.events_of(date), date
                if day % 7 == 0:
                    year.remove_stale()
                if day % 28 == 0:
                    year.account.check(now=year.clock())
                elif day % 7 == 0:
                    year.account.check(now=year.clock(), since=(year.clock() - timedelta(days=21)).date())
            if day % 30 == 0:
                months.append({"month": len(months) + 1, **month(costs, frozen, year)})
                costs, frozen = [], []
            # The records of a year are no garbage: do not look through them again and again.
            gc.collect()
            gc.freeze()
            on_day(day, year)
        figures["pulls without faults at the end"] = year.finish()
        assert year.counted == year.dynamodb.committed, "a counter differs from what was committed"
        figures["counted"] = year.counted.model_dump()
        figures["account"] = year.account.check(
            now=year.clock(), last_read=LastRead(year.definition, since=year.last_date - timedelta(days=2))
        )
    figures |= {
        "files": sum(year.partner.done[name] for name in ("new", "late")),
        "partner": dict(sorted(year.partner.done.items())),
        "happened": dict(sorted(year.done.items())),
        "pulls": year.pulls,
        "attempts": year.attempts,
        "accounts": year.account.checks,
        "landing": {"objects": len(year.s3.landed), "MB": round(year.s3.landed_bytes / _MB, 1)},
        "raw MB": round(year.s3.stored_bytes / _MB, 1),
        "months": months,
        "peak RSS MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "seconds": round(time.monotonic() - started, 1),
    }
    return figures


def check_costs(figures: Mapping[str, Any]) -> None:
    """Raise `AssertionError` when a pull costs more in the last month than in the second one."""
    first, last = figures["months"][1]["a pull"], figures["months"][-1]["a pull"]
    for name in ("requests", "read units", "items returned"):
        assert last[name] <= 1.3 * first[name], f"{name} of a pull: {first[name]} in month 2, now {last[name]}"


def cost(meter: Meter) -> dict[str, float]:
    """Return what the requests since the last reset have cost."""
    counts = meter.counts
    return {
        "requests": meter.requests,
        "read units": counts["read_units"],
        "write units": counts["write_units"],
        "items returned": counts["items"],
        "objects listed": counts["listed"],
        "largest answer kB": round(meter.largest / 1024, 1),
    }


def month(costs: Sequence[dict[str, float]], frozen: Sequence[dict[str, float]], year: Year) -> dict[str, Any]:
    """Return the median cost of a pull and of freezing a day; deployments and outages change single ones."""
    return {
        "a pull": {name: median(cost[name] for cost in costs) for name in costs[0]},
        "largest answer of all pulls kB": max(cost["largest answer kB"] for cost in costs),
        "freezing a day": {name: median(cost[name] for cost in frozen) for name in frozen[0]},
        "items in the table": len(year.dynamodb.table),
        "RSS MB": int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // _MB,
    }


@contextmanager
def without_faults(year: Year) -> Iterator[None]:
    """Let all requests in the block succeed."""
    outages, throttled = year.faults.outages, year.faults.throttled
    year.faults.outages, year.faults.throttled = {}, 0
    try:
        yield
    finally:
        year.faults.outages, year.faults.throttled = outages, throttled


class OneAfterTheOther:
    """In place of a pool of threads: the order of writes, and with it the year, depends on the seed only."""

    def __init__(self, max_workers: int) -> None:
        self.map = map

    def __enter__(self) -> OneAfterTheOther:
        return self

    def __exit__(self, *_: object) -> None:
        return


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Leave the collection of garbage to the caller."""
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


@contextmanager
def quick_and_deterministic() -> Iterator[None]:
    """Write objects in one order, do not wait, and keep temporary files in memory if the machine can."""
    threads, memory = (pa.cpu_count(), pa.io_thread_count()), Path("/dev/shm")
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with (
        patch("slackwater.receiver.writing.raw_writer.ThreadPoolExecutor", OneAfterTheOther),
        patch("slackwater.runs.inputs.listing.ThreadPoolExecutor", OneAfterTheOther),
        pytest.MonkeyPatch.context() as monkeypatch,
        patch.object(tempfile, "tempdir", str(memory) if memory.is_dir() else tempfile.gettempdir()),
    ):
        record_pauses(monkeypatch, "slackwater.aws.dynamodb.requests", "slackwater.aws.objects")
        try:
            yield
        finally:
            pa.set_cpu_count(threads[0])
            pa.set_io_thread_count(threads[1])
