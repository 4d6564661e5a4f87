"""The cost of planning, freezing, checking, fetching and cleaning, with millions of files in the file cache.

The records of old files are generated when they are read, so a request that reads more than it needs is noticed.
"""

from __future__ import annotations

import gc
import hashlib
import io
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.objects import S3ObjectStore
from slackwater.project.project import Project
from slackwater.receiver.connectors.connector import Download, ListedFile
from slackwater.receiver.pull.fetch import FileFetcher
from slackwater.receiver.pull.fetch_result import FetchState
from slackwater.receiver.pull.file_cache import Content, ContentVersion, FileEntry, FileState
from slackwater.receiver.pull.plan import plan_pull
from slackwater.receiver.pull.stale_objects import StaleObjects
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.period import day_of
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.partitions import ROWS, Partition
from tests.fakes_receiver import Clock, committed_uris
from tests.fakes_runs import NO_FOREIGN_TABLES, DictRunTable
from tests.fakes_state import MemoryState
from tests.soak.aws import (
    TABLE,
    Faults,
    Item,
    Key,
    MemoryDynamoDB,
    MemoryS3,
    Meter,
    S3Object,
    StoredItem,
    seeded,
)
from tests.soak.partner import BASE, INTERVAL, body_of, date_of
from tests.soak.run import cost, quick_and_deterministic
from tests.soak.year import PIPELINE

SIZES = (10_000, 1_000_000, 10_000_000)
NOW = datetime(2013, 3, 12, 12, tzinfo=UTC)
YESTERDAY = date(2013, 3, 11)
MAX_ITEMS = 10_000
"""Items that the requests of one operation may return together."""


class OldFiles:
    """Files that were stored every five minutes until now: the latest is number 1."""

    def __init__(self, number: int) -> None:
        self.number = number

    def path(self, number: int) -> str:
        return f"things-{NOW - number * INTERVAL:%Y-%m-%d-%H%M}.csv"

    def number_of(self, path: str) -> int | None:
        """Return the number of a file, or None if it is not one of them."""
        try:
            at = datetime.strptime(path, "things-%Y-%m-%d-%H%M.csv").replace(tzinfo=UTC)
        except ValueError:
            return None
        number = (NOW - at) // INTERVAL
        return number if 0 < number <= self.number else None

    def of_date(self, day: date) -> list[int]:
        """Return the numbers of a day's files."""
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
        last, first = ((NOW - at) // INTERVAL for at in (midnight, midnight + timedelta(days=1)))
        return list(range(max(1, first + 1), min(self.number, last) + 1))

    def listed(self, number: int) -> ListedFile:
        return ListedFile(name=self.path(number), size=100, etag=f"{number:08x}")

    def entry(self, number: int) -> FileEntry:
        path = self.path(number)
        return FileEntry(
            source="things",
            path=path,
            dated_pattern=f"things-{date_of(path)}-*.csv",
            state=FileState.STORED,
            etag=f"{number:08x}",
            size=100,
            content=f"{number:032x}",
            landing_uri=f"s3://raw/landing/source=things/{number:064x}/{path}",
            rows=3,
            stored_at=NOW - number * INTERVAL,
        )

    def content(self, number: int) -> Content:
        at = NOW - number * INTERVAL
        partition = Partition(at.strftime("%Y-%m-%d"), at.strftime("%H"))
        version = ContentVersion(definition=BASE.digest, partitions=(partition,), rows=3, attempt=f"{number:012x}")
        content = Content(source="things", id=f"{number:032x}", received_at=at)
        return content.with_file(self.path(number), version, is_new=True, at=at)


class LargeDynamoDB(MemoryDynamoDB):
    """A table with generated items of old files, until they are written again."""

    def __init__(self, files: OldFiles, clock: Clock, meter: Meter) -> None:
        super().__init__(clock, seeded(0), Faults(clock, seeded(0)), meter)
        self.files = files
        self.put_items = list[Item]()

    def stored(self, key: Key) -> StoredItem | None:
        if key in self.table:
            return self.table[key]
        partition, sort = key
        if partition == "things":
            number = self.files.number_of(sort)
            return self._generated(self.files.entry(number)) if number else None
        number = int(sort, 16)
        return self._generated(self.files.content(number)) if 0 < number <= self.files.number else None

    def batch_get_item(self, **request: Any) -> dict[str, Any]:
        return self._bounded(super().batch_get_item(**request))

    def query(self, **request: Any) -> dict[str, Any]:
        return self._bounded(super().query(**request))

    def _bounded(self, answer: dict[str, Any]) -> dict[str, Any]:
        assert self.meter.counts["items"] <= MAX_ITEMS, "an operation reads the whole file cache"
        return answer

    def _after(self, index: str, partition: str, last: str | None, start: Any) -> Iterator[StoredItem]:
        if index == "dated":
            day = date.fromisoformat(partition.removeprefix("things#things-")[:10])
            for number in reversed(self.files.of_date(day)):
                if ("things", self.files.path(number)) not in self.table:
                    yield self._generated(self.files.entry(number))
        yield from super()._after(index, partition, last, start)

    def _write(self, put: tuple[Key, StoredItem | None, StoredItem], *, factor: int) -> None:
        key, before, after = put
        # A generated item is in no index.
        super()._write((key, before if key in self.table else None, after), factor=factor)

    def _generated(self, record: FileEntry | Content) -> StoredItem:
        return self.compact(item_of(record))


def item_of(record: FileEntry | Content) -> Item:
    """Return the item that the file cache writes for a record."""
    items = list[Item]()

    class Client:
        def put_item(self, **put: Any) -> None:
            items.append(put["Item"])

    DynamoFileCache(Client(), TABLE).save(record)
    return items[0]


class LargeConnector:
    """A partner that lists old files, some new ones, and one with another content."""

    def __init__(self, files: OldFiles) -> None:
        self.files = files
        self.changed, self.new = files.path(300), [f"things-{YESTERDAY}-12{number:02}-b.csv" for number in range(12)]
        self.body = body_of([])

    def list(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        others = [ListedFile(name=name, size=1, etag="new") for name in (self.changed, *self.new)]
        old = (self.files.listed(number) for day in days for number in self.files.of_date(day))
        return [*(file for file in old if file.name != self.changed), *others]

    def fetch(self, name: str, into: BinaryIO) -> Download:
        into.write(self.body.data)
        into.flush()
        digest = hashlib.sha256(self.body.data).hexdigest()
        return Download(sha256=digest, size=len(self.body.data), etag="new")


def large_caches(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Return the cost of each operation by number of recorded files. Raises `AssertionError` when it grows."""
    # Tracing never stops again: in Python before 3.13.2 that may crash while a thread of Arrow ends (gh-128679).
    tracemalloc.start()
    with quick_and_deterministic():
        operation_costs(SIZES[0])  # what the first call of each function keeps for later ones is not measured
        costs = {size: operation_costs(size) for size in sizes}
    first = costs[sizes[0]]
    for size, operations in costs.items():
        for name, figures in operations.items():
            for what, value in figures.items():
                # Garbage that is not yet collected adds some 100 kB; one entry of each file would add far more.
                most = first[name][what] + (1_024 if what == "peak memory kB" else 0)
                assert value <= most, f"{name} with {size:,} recorded files: {what} {value}, not {first[name][what]}"
    return {f"{size:,} files": operations for size, operations in costs.items()}


def operation_costs(number: int) -> dict[str, dict[str, float]]:
    """Return the cost of each operation with this number of recorded files."""
    clock, meter, files = Clock(NOW), Meter(), OldFiles(number)
    dynamodb = LargeDynamoDB(files, clock, meter)
    s3 = MemoryS3(clock, Faults(clock, seeded(0)), meter)
    for old in files.of_date(YESTERDAY):
        add_object(s3, files, old)
    cache, store, partner = DynamoFileCache(dynamodb, TABLE), S3ObjectStore(s3), LargeConnector(files)
    project = Project(sources={"things": BASE.source}, pipelines={"totals": PIPELINE})
    inputs = InputListing(
        project=project,
        store=store,
        files=cache,
        table=DictRunTable(),
        foreign=NO_FOREIGN_TABLES,
        raw_bucket="raw",
        now=clock,
    )
    fetcher = FileFetcher(
        source=BASE.source,
        partner=partner,
        cache=cache,
        raw_writer=RawWriter(store=store, raw_bucket="raw"),
        now=clock,
        owner="pull",
        put_rejected=MemoryState().put_rejected,
    )
    day, costs = day_of(YESTERDAY, "UTC"), dict[str, dict[str, float]]()

    def measured(name: str, work: Callable[[], Any]) -> Any:
        meter.reset()
        gc.collect()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        answer = work()
        costs[name] = {**cost(meter), "peak memory kB": (tracemalloc.get_traced_memory()[1] - before) // 1024}
        return answer

    plan = measured("planning", lambda: plan_pull(BASE.source, as_of=None, partner=partner, cache=cache, now=NOW))
    assert {item.path for item in plan.items} == {partner.changed, *partner.new}
    manifest = measured("freezing", lambda: inputs.manifest("totals", day))
    assert len(manifest.objects) == len(files.of_date(YESTERDAY))
    checked = measured("checking", lambda: inputs.manifest("totals", day, known=manifest))
    assert checked.digest == manifest.digest
    (item,) = (item for item in plan.items if item.path == partner.changed)
    result = measured("fetching", lambda: fetcher.fetch(item))
    assert result.state is FetchState.STORED
    clock.pass_by(days=4)
    objects = StaleObjects(
        store=store, cache=cache, raw_bucket="raw", exchange_bucket="x", update_table=lambda *_: None, now=clock
    )
    removal = measured("cleaning", lambda: objects.remove([BASE.source.source], limit=timedelta(minutes=13)))
    assert removal.deleted == 1
    assert not any(f"/{300:032x}-" in key for key in s3.keys("raw/"))
    return costs


def add_object(s3: MemoryS3, files: OldFiles, number: int) -> None:
    """Add the object of an old file, with the rows of its own."""
    content = files.content(number)
    assert content.committed
    body = io.BytesIO()
    pq.write_table(pa.table({"id": [f"{number}-{row}" for row in range(3)]}), body)
    (uri,) = committed_uris(content)
    folder, _, name = uri.removeprefix("s3://raw/").removesuffix(".parquet").rpartition("/")
    s3.folders.setdefault(folder, {})[f"{name}-3.parquet"] = S3Object(
        body.getvalue(), len(body.getvalue()), f"{number:032x}", NOW - number * INTERVAL, {ROWS: "3"}
    )
