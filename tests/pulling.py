"""Pulls over fakes, with the calls that the state machine makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from slackwater.errors import SlackwaterError
from slackwater.receiver.pull.fetch import FileFetcher
from slackwater.receiver.pull.fetch_result import FetchResult
from slackwater.receiver.pull.file_cache import FileEntry
from slackwater.receiver.pull.plan import WorkItem, plan_pull
from slackwater.receiver.pull.rejects_reader import RejectsReader
from slackwater.receiver.pull.stale_objects import StaleObjects
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.runs.inputs.consistent_listing import consistent_listing
from slackwater.sources.definition import Source
from tests.fakes_receiver import Clock, Crash, Fuse, MemoryConnector, MemoryFileCache, MemoryStore, a_source
from tests.fakes_state import MemoryState
from tests.reading import read_parquet

SOURCE = a_source()
HEADER = "id,count,size,good,day,at\n"
TODAY = date(2013, 3, 12)
FIRST, SECOND, THIRD = (f"things-2013-03-{day}.csv" for day in (10, 11, 12))


def row(name: str, at: str = "2013-03-11T12:00:00Z") -> str:
    return f"{name},1,2.5,true,2013-03-11,{at}\n"


def csv_of(*rows: str) -> bytes:
    return (HEADER + "".join(rows)).encode()


@dataclass(frozen=True, kw_only=True)
class _RawWriter(RawWriter):
    written: Callable[[], object]

    def write_files(self, *arguments: Any, **origin: Any) -> None:
        super().write_files(*arguments, **origin)
        self.written()


def crash() -> None:
    raise Crash("the commit fails")


class Setup:
    """A pull over fakes."""

    def __init__(self, files: dict[str, bytes] | None = None, source: Source = SOURCE) -> None:
        self.source = source
        self.fuse = Fuse()
        self.clock = Clock()
        self.store = MemoryStore(self.fuse, self.clock)
        self.cache = MemoryFileCache(self.fuse)
        self.state = MemoryState(self.fuse)
        self.partner = MemoryConnector(files)
        self.pulls = 0
        self.before_commit: Callable[[], object] = lambda: None
        """Called when the objects of a file are written and do not count yet."""

    def copy(self) -> Setup:
        """Return a setup with the same files, objects and records, which are immutable, in containers of its own."""
        copied = Setup(self.partner.files, self.source)
        copied.pulls, copied.clock.time = self.pulls, self.clock.time
        copied.store.objects |= self.store.objects
        copied.store.modified |= self.store.modified
        copied.cache.saved_entries |= self.cache.saved_entries
        copied.cache.saved_contents |= self.cache.saved_contents
        return copied

    def plan(self, as_of: date | None = TODAY, source: Source | None = None):
        return plan_pull(source or self.source, as_of=as_of, partner=self.partner, cache=self.cache, now=self.clock())

    def fail_after_the_commit(self, error: BaseException) -> None:
        """Raise the error at the first write after the next commit."""
        save = self.cache.save

        def fail(*records):
            self.cache.save = save
            raise error

        def commit(*records):
            save(*records)
            if len(records) > 1:
                self.cache.save = fail

        self.cache.save = commit

    def fetch(
        self, item: WorkItem, using: Callable[[Any], Any] = lambda port: port, source: Source | None = None
    ) -> FetchResult:
        """Fetch one file; `using` wraps a store or a cache for the process."""
        self.pulls += 1
        return FileFetcher(
            source=source or self.source,
            partner=self.partner,
            cache=using(self.cache),
            raw_writer=_RawWriter(store=using(self.store), raw_bucket="raw", written=self.before_commit),
            now=self.clock,
            owner=f"pull-{self.pulls}",
            put_rejected=using(self.state).put_rejected,
        ).fetch(item)

    def pull(
        self,
        as_of: date | None = TODAY,
        using: Callable[[Any], Any] = lambda port: port,
        source: Source | None = None,
    ) -> dict[str, str]:
        """Pull like the state machine: a file that fails does not stop the others."""
        states = {}
        for item in self.plan(as_of, source).items:
            try:
                states[item.path] = self.fetch(item, using, source).state
            except SlackwaterError:
                states[item.path] = "failed"
        return states

    def remove_stale(self, using: Callable[[Any], Any] = lambda port: port) -> tuple[int, int]:
        """Delete stale objects, as the weekly function does. Return how many were deleted, and have no record."""
        objects = StaleObjects(
            store=using(self.store),
            cache=using(self.cache),
            raw_bucket="raw",
            exchange_bucket="x",
            update_table=lambda *_: None,
            now=self.clock,
        )
        removal = objects.remove([self.source.source], limit=timedelta(minutes=13))
        return removal.deleted, removal.unrecorded

    def committed(self) -> list[str]:
        """Return the URIs of the objects that readers see."""
        objects = list(self.store.list(f"s3://raw/raw/source={self.source.source}/"))
        return [item.uri for item in consistent_listing(self.source, lambda: objects, files=self.cache).objects]

    def ids(self) -> list[str]:
        """Return the ids of the events that readers see."""
        tables = [read_parquet(self.store.get(uri)) for uri in self.committed()]
        return sorted(name for table in tables for name in table["id"].to_pylist())

    def entry(self, path: str) -> FileEntry:
        entry = self.cache.get(self.source.source, path)
        assert entry is not None
        return entry

    def reject_records(self) -> list[dict[str, object]]:
        """Return the rejected events that are shown, in the order of their objects."""
        reader = RejectsReader(store=self.store, files=self.cache, raw_bucket="raw")
        uris = sorted(item.uri for item in reader.objects(self.source.source))
        bodies = [self.store.get(uri).decode() for uri in uris]
        return [json.loads(line) for body in bodies for line in body.split("\n") if line]
