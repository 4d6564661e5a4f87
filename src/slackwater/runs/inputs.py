"""What a day's run would read now: the objects of its hours, each with its rows and its file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from urllib.parse import unquote

from slackwater.errors import CloudError, DayChanged
from slackwater.project import Project
from slackwater.receiver.deliver import FILE, ROWS
from slackwater.receiver.file_cache import FileCache, FileEntry, Version, unsettled_objects
from slackwater.receiver.partition import object_uri, source_prefix
from slackwater.runs.day import Day
from slackwater.runs.manifest import InputManifest, InputObject
from slackwater.storage import ObjectStore, StoredObject

_LISTINGS = 5
"""How often the inputs are listed at most, when files are being taken meanwhile."""
_READERS = 16
"""Metadata requests at once; listings of a day are read one after the other."""


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
        one since.

        Raises `DayChanged` when files of a source keep changing meanwhile, and `CloudError` for an object that the
        receiver has not written.
        """
        frozen_at, before = self.now(), {item.uri: item for item in known}
        sources = sorted(self.project.pipeline(pipeline).sources)
        listed = [found for source in sources for found in self._settled_objects(source, day)]
        with ThreadPoolExecutor(_READERS) as pool:
            objects = pool.map(lambda item: self._input_object(item, before.get(item.found.uri)), listed)
            ordered = sorted(objects, key=lambda item: item.uri)
        return InputManifest(pipeline=pipeline, date=day.date.isoformat(), frozen_at=frozen_at, objects=tuple(ordered))

    def last_arrival(self, source: str, day: Day) -> datetime | None:
        """Return when the newest object of the source's day was written, if there is one."""
        return max((found.modified for found in self._objects(source, day)), default=None)

    def _settled_objects(self, source: str, day: Day) -> list[_Listed]:
        """List the source's objects but for files half replaced. Raises `DayChanged` if that never rests."""
        if self.project.source(source).pull is None:
            return [_Listed(found) for found in self._objects(source, day)]
        entries = self.files.entries(source)
        for _ in range(_LISTINGS):
            listed, before = list(self._objects(source, day)), entries
            entries = self.files.entries(source)
            if _contents(entries) == _contents(before):
                unsettled = unsettled_objects(entries, bucket=self.raw_bucket)
                files = self._files(entries, day)
                return [_Listed(found, files.get(found.uri, ())) for found in listed if found.uri not in unsettled]
        raise DayChanged(f"files of {source} kept changing while the inputs of {day.date} were listed")

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


def _contents(entries: Iterable[FileEntry]) -> dict[str, tuple[Version | None, ...]]:
    """Return what of each file decides over its objects: a lease, or a new time of taking, changes none of them."""
    found = {entry.path: (entry.version, entry.writing, *entry.superseded) for entry in entries}
    return {path: versions for path, versions in found.items() if any(versions)}


def _file(listed: _Listed, named: str | None) -> str | None:
    """Return the file that the object is of: the one that was named as such, unless only others have its content."""
    return listed.files[0] if listed.files and named not in listed.files else named


def _distinct(values: Iterable[str]) -> list[str]:
    return sorted(set(values))


def _part(uri: str, key: str) -> str:
    """Return the value of `key=value` in an address of a partition."""
    return next((part.removeprefix(f"{key}=") for part in uri.split("/") if part.startswith(f"{key}=")), "")
