"""Check: find the late days of one pipeline with 1,000 sources, 7 days and 24 hours each, in several timezones.

And the late hours of 100 hourly pipelines with one source and 168 hours each, one check for each pipeline.

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
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from statistics import median
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.check_fakes import ARRIVED, NoExecutions, NoFiles, PublishedTable, Requests
from slackwater.late.check.checker import Checker
from slackwater.late.decision import DecisionRule
from slackwater.pipeline.definition import Late, Pipeline, Publish, Schedule, StepUse
from slackwater.project.project import Project
from slackwater.runs.inputs.foreign_tables import ForeignTables
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.inputs.manifest import InputManifest, InputObject
from slackwater.runs.inputs.source_counts import CountsReader
from slackwater.runs.period import HOUR, partition_of, period_of, shifted
from slackwater.runs.record import DayRecord, Publication, PublishedRun, Run
from slackwater.sources.definition import Source
from slackwater.sources.partitions import Partition, object_name, object_uri
from slackwater.storage import StoredObject

SOURCES, DAYS, HOURS = 1_000, 7, 24
TIMEZONES = ("UTC", "America/New_York", "Asia/Kathmandu")
HOURLY_PIPELINES, WINDOW_HOURS = 100, 168
_CHECKED = 10
"""Hourly pipelines that are checked. Their requests and prices are multiplied."""
_HOURLY = "hours"
"""The case of hourly pipelines, beside the timezones."""
_SECONDS, _MEGABYTES, _USD = 60.0, 512, 0.05
# Of the deployed function (`infra/stacks/late.py`), which has a whole vCPU, as the check has here.
_FUNCTION_MEGABYTES = 1769
_USD_PER_LAMBDA_GB_SECOND = 0.0000166667
# Of us-east-1, on-demand, 2026-11-23: `AmazonS3` and `AmazonDynamoDB` in AWS's price list (docs/cost.md).
_USD_PER_1000_S3_LISTS = _USD_PER_1000_S3_PUTS = 0.005
_USD_PER_1000_S3_GETS = 0.0004
_USD_PER_MILLION_DYNAMODB_READS, _USD_PER_MILLION_DYNAMODB_WRITES = 0.125, 0.625
_TODAY = date(2013, 3, 20)
_NOW = datetime(2013, 3, 20, 17, tzinfo=UTC)
_OLDEST = datetime(2012, 3, 20, tzinfo=UTC)
_LATE_HOUR = 12
_PAGE = 1_000
"""Objects that one LIST request returns."""
_RUN_ID = "0" * 32


class _Store:
    """An `ObjectStore` that computes the raw objects from their names, and holds the manifests."""

    def __init__(self, requests: Requests) -> None:
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


def _object(source: str, partition: Partition, batch: int = 0) -> StoredObject:
    uri = object_uri("raw", source, partition, object_name(f"{batch:032x}", 100))
    return StoredObject(uri, 10_000, "0" * 32, ARRIVED)


def _objects_under(prefix: str, start_after: str) -> Iterator[StoredObject]:
    """Yield the objects of a source after a URI: one for each hour, and of the first source a late one each day."""
    match = re.fullmatch(r"s3://raw/raw/source=(\w+)/", prefix)
    start = re.fullmatch(r".*/date=([\d-]+)/hour=(\d\d)", start_after)
    if not match:
        raise AssertionError(f"the check lists {prefix}, not a source")
    hour = datetime.fromisoformat(f"{start[1]}T{start[2]}:00+00:00") if start else _OLDEST
    while hour < _NOW:
        yield _object(match[1], partition_of(hour))
        if match[1].startswith(("s0000", "h")) and hour.hour == _LATE_HOUR:
            yield _object(match[1], partition_of(hour), batch=1)
        hour += HOUR


def _source(name: str) -> Source:
    content = {"source": name, "timestamp": {"field": "at"}, "fields": {"at": "timestamp"}, "push": {}}
    return Source.model_validate(content)


def _project(timezone: str) -> Project:
    source = _source("s0000")
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


def _hourly_project() -> Project:
    names = [f"h{index:03}" for index in range(_CHECKED)]
    pipelines = {
        f"of_{name}": Pipeline(
            pipeline=f"of_{name}",
            period="hour",
            sources=(name,),
            steps={"rows": StepUse(step="select", depends_on=(name,))},
            publish=Publish(step="rows", key=("date", "hour")),
            schedule=Schedule(process="10 * * * *"),
            late=Late(window_hours=WINDOW_HOURS),
        )
        for name in names
    }
    return Project(sources={name: _source(name) for name in names}, pipelines=pipelines)


def _published(date_: str, pipeline: str = "all", objects: int = SOURCES * HOURS) -> DayRecord:
    run = Run(
        pipeline=pipeline,
        date=date_,
        run_id=_RUN_ID,
        attempt=1,
        correlation_id="c",
        manifest=f"s3://exchange/manifests/{pipeline}/{date_}/m.json",
        prefix=f"s3://exchange/runs/{pipeline}/{date_}/{_RUN_ID}/1/",
        files=objects,
        rows=0,
        bytes=0,
    )
    publication = Publication(table="t", snapshot_id="1", rows=1, replaced=0, seconds=1)
    return DayRecord(
        pipeline=pipeline,
        date=date_,
        attempts=1,
        version=1,
        published=PublishedRun(run=run, publication=publication, at=ARRIVED),
        notified_attempt=1,
    )


def _manifest(date_: str, sources: Iterator[str], timezone: str, pipeline: str = "all") -> InputManifest:
    partitions = list(period_of(date_, timezone).partitions())
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
    return InputManifest(pipeline=pipeline, date=date_, frozen_at=ARRIVED, objects=tuple(objects))


def run(rounds: int) -> dict[str, Any]:
    """Check `rounds` times in each timezone, and the hourly pipelines, each time in a process of its own.

    Returns the medians, and the requests of one check, by timezone. Of the hourly pipelines, the seconds are those of
    the longest check, and the requests and the price those of all.
    """
    results: dict[str, list[dict[str, Any]]] = {case: [] for case in (*TIMEZONES, _HOURLY)}
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
    table = Table(
        title=f"check: {SOURCES:,} sources, {DAYS} days, {HOURS} hours: {result['objects']:,} objects; "
        f"{_HOURLY}: {HOURLY_PIPELINES} pipelines, {WINDOW_HOURS} hours"
    )
    for column in ("", *result["timezones"], "target"):
        table.add_column(column, justify="left" if not column else "right")
    medians = list(result["timezones"].values())
    for name, digits in (("seconds", 1), ("megabytes", 0), ("usd", 4)):
        table.add_row(name, *(f"{each[name]:.{digits}f}" for each in medians), f"{result['targets'][name]:g}")
    for name in medians[0]["requests"]:
        table.add_row(f"{name} requests", *(f"{each['requests'].get(name, 0):,}" for each in medians))
    console.print(table)


def _checked(project: Project, pipeline: str, periods: Sequence[str], late: Sequence[str], requests: Requests) -> float:
    """Check a pipeline that has published these periods; return the seconds. Raises if other ones than `late` are."""
    definition, store = project.pipelines[pipeline], _Store(requests)
    objects = len(definition.sources) * (HOURS if definition.period == "day" else 1)
    days = {name: _published(name, pipeline, objects) for name in periods}
    for name, record in days.items():
        assert record.published
        manifest = _manifest(name, iter(definition.sources), definition.timezone, pipeline)
        store.add(record.published.run.manifest, msgspec.json.encode(manifest))
    table: Any = PublishedTable(requests, days)
    files: Any = NoFiles()
    stores: Any = store
    tables: Any = None
    executions: Any = NoExecutions()
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
        verdicts=None,
        exchange_bucket="exchange",
        now=lambda: _NOW,
    )
    start = time.perf_counter()
    report = checker.check(pipeline=pipeline, as_of=None)
    checker.save(report, execution="arn:execution:e")
    seconds = time.perf_counter() - start
    found = [day.date for day in report.days if day.rule is DecisionRule.GROWN]
    if found != late:
        raise AssertionError(f"late periods {found}, expected {late}")
    return seconds


def check_once(case: str) -> dict[str, Any]:
    """Check once in this process, in a timezone or all hourly pipelines; return seconds, requests, price and memory."""
    requests = Requests()
    if case == _HOURLY:
        project, hours = (
            _hourly_project(),
            [shifted(f"{_NOW:%Y-%m-%dT%H}", -back) for back in range(WINDOW_HOURS, 0, -1)],
        )
        late = [name for name in hours if name.endswith(f"T{_LATE_HOUR}")]
        seconds = [_checked(project, name, hours, late, requests) for name in project.pipelines]
    else:
        dates = [(_TODAY - timedelta(days=back)).isoformat() for back in range(DAYS, 0, -1)]
        seconds = [_checked(_project(case), "all", dates, dates, requests)]
    times = HOURLY_PIPELINES // _CHECKED if case == _HOURLY else 1
    count = Counter({name: times * number for name, number in requests.count.items()})
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
        "Lambda": times * sum(seconds) * _FUNCTION_MEGABYTES / 1024 * _USD_PER_LAMBDA_GB_SECOND,
    }
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": max(seconds), "megabytes": megabytes, "requests": dict(count), "usd": usd}


if __name__ == "__main__":
    print(json.dumps(check_once(sys.argv[1])))
