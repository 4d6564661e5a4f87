"""Check: find the late days of one pipeline with 1,000 sources, 7 days and 24 hours each, in several timezones.

The check runs as in its Lambda function, over stores in memory, in a process of its own. Each request waits as long as
one to S3 or DynamoDB usually takes, and is counted; its price is that of us-east-1. One object of each day is late, and
each source has a year of older objects.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from slackwater.late.check.checker import Checker
from slackwater.late.decision import DecisionRule
from slackwater.pipeline.definition import Late, Pipeline, Publish, StepUse
from slackwater.project.project import Project
from slackwater.runs.inputs.foreign_tables import ForeignTables
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.inputs.manifest import InputManifest, InputObject
from slackwater.runs.inputs.source_counts import CountsReader
from slackwater.runs.period import HOUR, day_of, partition_of
from slackwater.runs.pipeline_records import ArrivalHistory, RerunUsage
from slackwater.runs.record import DayRecord, Publication, PublishedRun, Run, RunRecord, RunState
from slackwater.sources.definition import Source
from slackwater.sources.partitions import Partition, object_name, object_uri
from slackwater.storage import StoredObject

SOURCES, DAYS, HOURS = 1_000, 7, 24
TIMEZONES = ("UTC", "America/New_York", "Asia/Kathmandu")
_SECONDS, _MEGABYTES, _USD = 60.0, 512, 0.05
# Of the deployed function (`infra/stacks/late.py`), which has a whole vCPU, as the check has here.
_FUNCTION_MEGABYTES = 1769
_USD_PER_LAMBDA_GB_SECOND = 0.0000166667
# Of us-east-1, on-demand, 2026-11-23: `AmazonS3` and `AmazonDynamoDB` in AWS's price list (docs/cost.md).
_USD_PER_1000_S3_LISTS = _USD_PER_1000_S3_PUTS = 0.005
_USD_PER_1000_S3_GETS = 0.0004
_USD_PER_MILLION_DYNAMODB_READS, _USD_PER_MILLION_DYNAMODB_WRITES = 0.125, 0.625
_LATENCY = 0.015
"""Seconds of one request: S3 and DynamoDB usually answer a function of the same region within 5 to 30 ms."""
_TODAY = date(2013, 3, 20)
_NOW = datetime(2013, 3, 20, 17, tzinfo=UTC)
_OLDEST = datetime(2012, 3, 20, tzinfo=UTC)
_LATE_HOUR = 12
_ARRIVED = datetime(2013, 3, 19, tzinfo=UTC)
_PAGE = 1_000
"""Objects that one LIST request returns."""
_RUN_ID = "0" * 32


class _Requests:
    """Waits for each request, and counts it."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self._lock = threading.Lock()

    def send(self, name: str) -> None:
        with self._lock:
            self.count[name] += 1
        time.sleep(_LATENCY)


class _Store:
    """An `ObjectStore` that computes the raw objects from their names, and holds the manifests."""

    def __init__(self, requests: _Requests) -> None:
        self._requests, self._objects = requests, dict[str, bytes]()

    def put(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> None:
        self._requests.send("PUT")
        self._objects[uri] = body

    def add(self, uri: str, body: bytes) -> None:
        """Store an object without a request."""
        self._objects[uri] = body

    def get(self, uri: str) -> bytes:
        self._requests.send("GET")
        return self._objects[uri]

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[StoredObject]:
        self._requests.send("LIST")
        for number, item in enumerate(_objects_under(prefix, start_after)):
            if number and number % _PAGE == 0:
                self._requests.send("LIST")
            yield item


class _Table:
    """A `RunTable` whose days of the window are all published."""

    def __init__(self, requests: _Requests, days: Mapping[str, DayRecord]) -> None:
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
        return RunRecord(run=published.run, state=RunState.PUBLISHED, execution="e", started_at=_ARRIVED)

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


class _NoFiles:
    """A `FileCache` of pushed sources: no object belongs to a pulled file."""

    def contents(self, source: str, ids: object) -> list[Any]:
        return []


class _NoExecutions:
    def is_running(self, execution: str) -> bool:
        return False


def _object(source: str, partition: Partition, batch: int = 0) -> StoredObject:
    uri = object_uri("raw", source, partition, object_name(f"{batch:032x}", 100))
    return StoredObject(uri, 10_000, "0" * 32, _ARRIVED)


def _objects_under(prefix: str, start_after: str) -> Iterator[StoredObject]:
    """Yield the objects of a source after a URI: one for each hour, and of the first source a late one each day."""
    match = re.fullmatch(r"s3://raw/raw/source=(\w+)/", prefix)
    start = re.fullmatch(r".*/date=([\d-]+)/hour=(\d\d)", start_after)
    if not match:
        raise AssertionError(f"the check lists {prefix}, not a source")
    hour = datetime.fromisoformat(f"{start[1]}T{start[2]}:00+00:00") if start else _OLDEST
    while hour < _NOW:
        yield _object(match[1], partition_of(hour))
        if match[1] == "s0000" and hour.hour == _LATE_HOUR:
            yield _object(match[1], partition_of(hour), batch=1)
        hour += HOUR


def _project(timezone: str) -> Project:
    source = Source.model_validate(
        {"source": "s0000", "timestamp": {"field": "at"}, "fields": {"at": "timestamp"}, "push": {}}
    )
    sources = {f"s{index:04}": source.model_copy(update={"source": f"s{index:04}"}) for index in range(SOURCES)}
    pipeline = Pipeline(
        pipeline="all",
        timezone=timezone,
        sources=tuple(sources),
        steps={"rows": StepUse(step="select", depends_on=("s0000",))},
        publish=Publish(step="rows", key=("date",)),
        late=Late(window_days=DAYS),
    )
    return Project(sources=sources, pipelines={"all": pipeline})


def _published(date_: str) -> DayRecord:
    run = Run(
        pipeline="all",
        date=date_,
        run_id=_RUN_ID,
        attempt=1,
        correlation_id="c",
        manifest=f"s3://exchange/manifests/all/{date_}/m.json",
        prefix=f"s3://exchange/runs/all/{date_}/{_RUN_ID}/1/",
        files=SOURCES * HOURS,
        rows=0,
        bytes=0,
    )
    publication = Publication(table="t", snapshot_id="1", rows=1, replaced=0, seconds=1)
    return DayRecord(
        pipeline="all",
        date=date_,
        attempts=1,
        version=1,
        published=PublishedRun(run=run, publication=publication, at=_ARRIVED),
        notified_attempt=1,
    )


def _manifest(date_: str, sources: Iterator[str], timezone: str) -> InputManifest:
    partitions = list(day_of(date.fromisoformat(date_), timezone).partitions())
    objects = (
        InputObject(
            uri=item.uri,
            source=source,
            date=partition.date,
            hour=partition.hour,
            etag=item.etag,
            bytes=item.size,
            rows=100,
            arrived=item.modified,
        )
        for source in sources
        for partition in partitions
        for item in [_object(source, partition)]
    )
    return InputManifest(pipeline="all", date=date_, frozen_at=_ARRIVED, objects=tuple(objects))


def run(rounds: int) -> dict[str, Any]:
    """Check `rounds` times in each timezone, each time in a process of its own.

    Returns the medians, and the requests of one check, by timezone.
    """
    results: dict[str, list[dict[str, Any]]] = {timezone: [] for timezone in TIMEZONES}
    for _ in range(rounds):
        for timezone, done in results.items():
            command = [sys.executable, "-m", "benchmarks.check", timezone]
            done.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return {
        "objects": SOURCES * DAYS * HOURS,
        "targets": {"seconds": _SECONDS, "megabytes": _MEGABYTES, "usd": _USD},
        "timezones": {
            timezone: {
                "seconds": median(item["seconds"] for item in done),
                "megabytes": median(item["megabytes"] for item in done),
                "usd": median(sum(item["usd"].values()) for item in done),
                "usd_parts": done[-1]["usd"],
                "requests": done[-1]["requests"],
            }
            for timezone, done in results.items()
        },
    }


def show(result: dict[str, Any], console: Console) -> None:
    """Print what a check took, needed and cost, with its targets."""
    table = Table(title=f"check: {SOURCES:,} sources, {DAYS} days, {HOURS} hours: {result['objects']:,} objects")
    for column in ("", *result["timezones"], "target"):
        table.add_column(column, justify="left" if not column else "right")
    medians = list(result["timezones"].values())
    for name, digits in (("seconds", 1), ("megabytes", 0), ("usd", 4)):
        table.add_row(name, *(f"{each[name]:.{digits}f}" for each in medians), f"{result['targets'][name]:g}")
    for name in medians[0]["requests"]:
        table.add_row(f"{name} requests", *(f"{each['requests'][name]:,}" for each in medians))
    console.print(table)


def check_once(timezone: str) -> dict[str, Any]:
    """Check the window once in this process, and return its seconds, requests, price and peak memory."""
    requests, project = _Requests(), _project(timezone)
    store = _Store(requests)
    dates = [(_TODAY - timedelta(days=back)).isoformat() for back in range(DAYS, 0, -1)]
    days = {name: _published(name) for name in dates}
    for name, record in days.items():
        assert record.published
        manifest = _manifest(name, iter(project.sources), timezone)
        store.add(record.published.run.manifest, manifest.model_dump_json().encode())
    table: Any = _Table(requests, days)
    files: Any = _NoFiles()
    stores: Any = store
    tables: Any = None
    executions: Any = _NoExecutions()
    inputs = InputListing(
        project=project,
        store=stores,
        files=files,
        table=table,
        foreign=ForeignTables(tables, stores),
        raw_bucket="raw",
        now=lambda: _NOW,
    )
    checker = Checker(
        project=project,
        inputs=inputs,
        counts=CountsReader(project=project, state=tables, files=files),
        table=table,
        executions=executions,
        store=stores,
        exchange_bucket="exchange",
        now=lambda: _NOW,
    )
    start = time.perf_counter()
    report = checker.check(pipeline="all", as_of=None)
    checker.save(report, execution="arn:execution:e")
    seconds = time.perf_counter() - start
    late = [day.date for day in report.days if day.rule is DecisionRule.GROWN]
    if late != dates or _TODAY.isoformat() != report.as_of:
        raise AssertionError(f"late days {late}, expected {dates}")
    count = requests.count
    usd = {
        "S3": (
            count["LIST"] * _USD_PER_1000_S3_LISTS
            + count["GET"] * _USD_PER_1000_S3_GETS
            + count["PUT"] * _USD_PER_1000_S3_PUTS
        )
        / 1000,
        "DynamoDB": (
            count["read"] * _USD_PER_MILLION_DYNAMODB_READS + count["write"] * _USD_PER_MILLION_DYNAMODB_WRITES
        )
        / 10**6,
        "Lambda": seconds * _FUNCTION_MEGABYTES / 1024 * _USD_PER_LAMBDA_GB_SECOND,
    }
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "megabytes": megabytes, "requests": dict(count), "usd": usd}


if __name__ == "__main__":
    print(json.dumps(check_once(sys.argv[1])))
