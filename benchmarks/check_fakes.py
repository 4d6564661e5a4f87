"""What the benchmark of a check reads instead of AWS: each request waits, and is counted."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from slackwater.runs.pipeline_records import ArrivalHistory, RerunUsage
from slackwater.runs.record import DayRecord, RunRecord, RunState

LATENCY = 0.015
"""Seconds of one request: S3 and DynamoDB usually answer a function of the same region within 5 to 30 ms."""
ARRIVED = datetime(2013, 3, 19, tzinfo=UTC)
"""When all objects were written and all runs have started."""


class Requests:
    """Waits for each request, and counts it."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self._lock = threading.Lock()

    def send(self, name: str) -> None:
        with self._lock:
            self.count[name] += 1
        time.sleep(LATENCY)


class PublishedTable:
    """A `RunTable` whose days of the window are all published."""

    def __init__(self, requests: Requests, days: Mapping[str, DayRecord]) -> None:
        self._requests, self._days = requests, days

    def day(self, pipeline: str, date: str) -> DayRecord:
        self._requests.send("read")
        return self._days.get(date, DayRecord(pipeline=pipeline, date=date))

    def days(self, *_: object, **__: object) -> list[DayRecord]:
        self._requests.send("read")
        return list(self._days.values())

    def run(self, pipeline: str, date: str, attempt: int) -> RunRecord | None:
        self._requests.send("read")
        published = self._days[date].published
        if published is None:
            return None
        return RunRecord(run=published.run, state=RunState.PUBLISHED, execution="e", started_at=ARRIVED)

    def runs_between(self, pipeline: str, first: str, last: str) -> list[RunRecord]:
        return [run for date in sorted(self._days) if (run := self.run(pipeline, date, 1))]

    def rerun_usage(self, pipeline: str, date: str) -> RerunUsage:
        self._requests.send("read")
        return RerunUsage(pipeline=pipeline, date=date)

    def save_rerun_usage(self, _: object) -> None:
        self._requests.send("write")

    def save(self, _: object) -> None:
        self._requests.send("write")

    def first_published(self, _: str) -> str:
        self._requests.send("read")
        return min(self._days)

    def notifications_due(self, _: str, *, before: str) -> Iterator[str]:
        self._requests.send("read")
        return iter(())

    def record_late_day(self, *_: object, **__: object) -> None:
        self._requests.send("write")

    def late_days(self, _: str, *, first: str = "", last: str) -> list[object]:
        self._requests.send("read")
        return []

    def held(self, _: str) -> Iterator[str]:
        self._requests.send("read")
        return iter(())

    def arrival_history(self, pipeline: str) -> ArrivalHistory:
        self._requests.send("read")
        return ArrivalHistory(pipeline=pipeline)

    def save_arrival_history(self, _: object) -> None:
        self._requests.send("write")


class NoFiles:
    """A `FileCache` of pushed sources: no object belongs to a pulled file."""

    def contents(self, source: str, ids: object) -> list[Any]:
        return []


class NoExecutions:
    def is_running(self, execution: str) -> bool:
        return False
