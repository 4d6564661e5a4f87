"""What a day's run would read now: the objects of its hours, each with the rows that count and its file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from slackwater.errors import CloudError
from slackwater.project import Project
from slackwater.receiver.pull.file_cache import FileCache, FileEntry
from slackwater.receiver.writing.raw_writer import FILE, ROWS
from slackwater.runs.consistent_listing import consistent_listing
from slackwater.runs.day import Day
from slackwater.runs.duplicates import read_ids, without_duplicates
from slackwater.runs.manifest import InputManifest, InputObject
from slackwater.sources.partitions import object_uri, source_prefix
from slackwater.storage import ObjectStore, StoredObject

_READERS = 16
"""Requests at once, for metadata and for ids; listings of a day are read one after the other."""
_BYTES = 64 * 2**20
"""Of objects that are in memory at once, to read their ids; a larger one is so alone."""


class _Listed(NamedTuple):
    """One object, and the partner's files that have its content now, by name: several may have the same content."""

    found: StoredObject
    files: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class InputListing:
    """Lists what the raw bucket holds of a pipeline's days."""

    project: Project
    store: ObjectStore
    files: FileCache
    raw_bucket: str
    now: Callable[[], datetime]

    def manifest(self, pipeline: str, day: Day, *, known: Iterable[InputObject] = ()) -> InputManifest:
        """List the day's objects; of those that are as in `known`, the rows are not asked for again.

        Which file an object is of is asked again: its content may have been two files', and the first of them another
        one since. Of a source with an id column, objects that hold nothing but copies are left out; a partition that
        holds something else than `known` has the ids of all its objects read, so one with copies has that every time.

        Raises `DayChanged` when files of a source keep changing meanwhile, and `CloudError` for an object that the
        receiver has not written.
        """
        frozen_at, before = self.now(), {item.uri: item for item in known}
        sources = sorted(self.project.pipeline(pipeline).sources)
        with ThreadPoolExecutor(_READERS) as pool:
            objects = [found for source in sources for found in self._counting(source, day, before, pool)]
        ordered = sorted(objects, key=lambda item: item.uri)
        return InputManifest(pipeline=pipeline, date=day.date.isoformat(), frozen_at=frozen_at, objects=tuple(ordered))

    def last_arrival(self, source: str, day: Day) -> datetime | None:
        """Return when the newest object of the source's day was written, if there is one."""
        return max((found.modified for found in self._objects(source, day)), default=None)

    def _counting(
        self, source: str, day: Day, known: Mapping[str, InputObject], pool: ThreadPoolExecutor
    ) -> Iterator[InputObject]:
        """Return the source's objects, each with the rows that count, without those in which none does."""
        listed = self._settled_objects(source, day)
        objects = pool.map(lambda item: self._input_object(item, known.get(item.found.uri)), listed)
        column = self.project.source(source).id_column
        if column is None:
            return objects

        def ids(wanted: Sequence[InputObject]) -> list[pa.ChunkedArray]:
            def read(item: InputObject) -> pa.ChunkedArray:
                return read_ids(self.store.get(item.uri), column, uri=item.uri)

            return [found for load in _loads(wanted) for found in pool.map(read, load)]

        return without_duplicates(objects, known=(item for item in known.values() if item.source == source), ids=ids)

    def _settled_objects(self, source: str, day: Day) -> list[_Listed]:
        found = consistent_listing(
            self.project.source(source),
            lambda: self._objects(source, day),
            files=self.files,
            bucket=self.raw_bucket,
        )
        files = self._files(found.entries, day)
        return [_Listed(item, files.get(item.uri, ())) for item in found.objects]

    def _files(self, entries: Iterable[FileEntry], day: Day) -> dict[str, list[str]]:
        """Return, by address, the files whose content the day's objects are."""
        wanted, found = set(day.partitions()), dict[str, list[str]]()
        for entry in sorted(entries, key=lambda entry: entry.path):
            if version := entry.version:
                for partition in wanted.intersection(version.partitions):
                    uri = object_uri(self.raw_bucket, entry.source, partition, version.hash_in(partition))
                    found.setdefault(uri, []).append(entry.path)
        return found

    def _objects(self, source: str, day: Day) -> Iterator[StoredObject]:
        wanted = set(day.partitions())
        for utc_date in _distinct(partition.date for partition in wanted):
            prefix = f"{source_prefix(self.raw_bucket, source)}date={utc_date}/"
            hours = {partition.hour for partition in wanted if partition.date == utc_date}
            for found in self.store.list(prefix):
                if _part(found.uri, "hour") in hours and found.uri.endswith(".parquet"):
                    yield found

    def _input_object(self, listed: _Listed, known: InputObject | None) -> InputObject:
        found = listed.found
        if known and known.etag == found.etag and known.bytes == found.size:
            file = _file(listed, known.file)
            return known if known.file == file else known.model_copy(update={"file": file})
        metadata = self.store.metadata(found.uri)
        rows, file = metadata.get(ROWS, ""), metadata.get(FILE)
        if not rows.isdecimal():
            raise CloudError(f"{found.uri} does not say how many events it holds: it was not written by the receiver")
        return InputObject(
            uri=found.uri,
            source=_part(found.uri, "source"),
            date=_part(found.uri, "date"),
            hour=_part(found.uri, "hour"),
            etag=found.etag,
            bytes=found.size,
            rows=int(rows),
            arrived=found.modified,
            file=_file(listed, unquote(file) if file else None),
        )


def _file(listed: _Listed, named: str | None) -> str | None:
    """Return the file that the object is of: the one that was named as such, unless only others have its content."""
    return listed.files[0] if listed.files and named not in listed.files else named


def _loads(objects: Iterable[InputObject]) -> Iterator[list[InputObject]]:
    """Put the objects into groups, each of which may be in memory at once."""
    load, size = list[InputObject](), 0
    for item in objects:
        if load and size + item.bytes > _BYTES:
            yield load
            load, size = [], 0
        load.append(item)
        size += item.bytes
    if load:
        yield load


def _distinct(values: Iterable[str]) -> list[str]:
    return sorted(set(values))


def _part(uri: str, key: str) -> str:
    """Return the value of `key=value` in an address of a partition."""
    return next((part.removeprefix(f"{key}=") for part in uri.split("/") if part.startswith(f"{key}=")), "")
