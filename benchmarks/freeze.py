"""Freeze: list the inputs of a day with 14,400 new objects, and write the input manifest.

The listing runs as in its Lambda function, over a store and a file cache in memory. Each request waits as long as one
to S3 or DynamoDB usually takes, and is counted. The objects are those of pushed batches, with names as they are written
now and with names without rows, as earlier versions wrote them, and those of files with 24 hours each.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from slackwater.receiver.pull.file_cache import Content, ContentVersion
from slackwater.runs.inputs.manifest import store_manifest
from slackwater.runs.period import day_of
from slackwater.sources.definition import Source
from slackwater.sources.partitions import Partition, object_name, object_uri
from slackwater.storage import StoredObject
from tests.fakes_runs import listing_of

OBJECTS, HOURS, ROWS = 14_400, 24, 1_000
_SECONDS = 3.0
_LATENCY = 0.015
"""Seconds of one request: S3 and DynamoDB usually answer a function of the same region within 5 to 30 ms."""
_PAGE, _BATCH = 1_000, 100
"""Objects that one LIST request returns, and items that one BatchGetItem reads."""
_DAY = "2013-03-10"
_ARRIVED = datetime(2013, 3, 11, tzinfo=UTC)


class _Requests:
    """Waits for each request, and counts it."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self._lock = threading.Lock()

    def send(self, name: str, number: int = 1) -> None:
        with self._lock:
            self.count[name] += number
        time.sleep(_LATENCY * number)


class _Store:
    """An `ObjectStore` of the raw objects of one day."""

    def __init__(self, requests: _Requests, uris: Iterable[str]) -> None:
        self._requests = requests
        self._objects = [StoredObject(uri, 10_000, "0" * 32, _ARRIVED) for uri in sorted(uris)]

    def put(self, uri: str, body: bytes) -> None:
        self._requests.send("PUT")

    def metadata(self, uri: str) -> Mapping[str, str]:
        self._requests.send("HEAD")
        return {"rows": str(ROWS)}

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[StoredObject]:
        first = bisect_right(self._objects, start_after, key=lambda item: item.uri)
        for number, item in enumerate(self._objects[first:]):
            if number % _PAGE == 0:
                self._requests.send("LIST")
            yield item


class _Files:
    """A `FileCache` of these contents."""

    def __init__(self, requests: _Requests, contents: Iterable[Content]) -> None:
        self._requests, self._contents = requests, {content.id: content for content in contents}

    def contents(self, source: str, ids: Iterable[str]) -> list[Content]:
        wanted = list(ids)
        self._requests.send("BatchGetItem", -(-len(wanted) // _BATCH))
        return [self._contents[name] for name in wanted]


def _partitions() -> list[Partition]:
    return [Partition(_DAY, f"{hour:02}") for hour in range(HOURS)]


def _pushed(*, has_rows: bool) -> list[str]:
    """Return the URIs of pushed batches, each with one hour."""
    partitions, names = _partitions(), [f"{number:032x}" for number in range(OBJECTS)]
    if has_rows:
        names = [object_name(name, ROWS) for name in names]
    return [object_uri("raw", "events", partitions[number % HOURS], name) for number, name in enumerate(names)]


def _pulled() -> list[Content]:
    """Return the contents of files with rows in each hour of the day."""
    version = ContentVersion(definition="0" * 12, partitions=tuple(_partitions()), rows=ROWS * HOURS, attempt="1" * 12)
    contents = []
    for number in range(OBJECTS // HOURS):
        content, path = Content(source="events", id=f"{number:032x}", received_at=_ARRIVED), f"{number}.csv"
        contents.append(content.with_file(path, version, is_new=True, at=_ARRIVED))
    return contents


def freeze_once(uris: Iterable[str], contents: Iterable[Content] = ()) -> dict[str, Any]:
    """List the day and write its manifest once, and return the seconds and the requests."""
    requests = _Requests()
    store: Any = _Store(requests, uris)
    files: Any = _Files(requests, contents)
    source = Source.model_validate(
        {"source": "events", "timestamp": {"field": "at"}, "fields": {"at": "timestamp"}, "push": {}}
    )
    inputs = listing_of(source, store=store, files=files, now=lambda: _ARRIVED)
    start, processor = time.perf_counter(), time.process_time()
    manifest = inputs.manifest("all", day_of(date.fromisoformat(_DAY), "UTC"))
    store_manifest(store, f"s3://exchange/manifests/{manifest.digest}.json", manifest)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    if (len(manifest.objects), manifest.rows) != (OBJECTS, OBJECTS * ROWS):
        raise AssertionError(f"{len(manifest.objects)} objects with {manifest.rows} rows")
    return {"seconds": seconds, "processor": processor, "requests": dict(requests.count)}


def run(rounds: int) -> dict[str, Any]:
    """Freeze `rounds` times for each kind of objects, and return the medians, and the requests of one freeze."""
    contents = _pulled()
    cases: dict[str, tuple[list[str], list[Content]]] = {
        "pushed": (_pushed(has_rows=True), []),
        "pushed, names without rows": (_pushed(has_rows=False), []),
        "pulled": (
            [
                object_uri("raw", "events", partition, object_name(f"{each.id}-{'1' * 12}", ROWS))
                for each in contents
                for partition in _partitions()
            ],
            contents,
        ),
    }
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            results[name].append(freeze_once(*case))
    return {
        "objects": OBJECTS,
        "target": _SECONDS,
        "cases": {
            name: {
                **{key: median(item[key] for item in done) for key in ("seconds", "processor")},
                "requests": done[-1]["requests"],
            }
            for name, done in results.items()
        },
    }


def show(result: dict[str, Any], console: Console) -> None:
    """Print what a freeze took, with its target."""
    table = Table(title=f"freeze: {result['objects']:,} new objects (target {result['target']:g} s)")
    for column in ("", "seconds", "processor s", "LIST", "HEAD", "BatchGetItem"):
        table.add_column(column, justify="left" if not column else "right")
    for name, case in result["cases"].items():
        counts = (f"{case['requests'].get(kind, 0):,}" for kind in ("LIST", "HEAD", "BatchGetItem"))
        table.add_row(name, f"{case['seconds']:.2f}", f"{case['processor']:.2f}", *counts)
    console.print(table)
