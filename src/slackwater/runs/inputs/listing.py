"""The inputs of a day's run: the objects of its hours, with the events that count and the files they come from."""

from __future__ import annotations

import io
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

from msgspec import structs

from slackwater.errors import DayChanged, ObjectInvalid
from slackwater.project.project import Project
from slackwater.receiver.pull.file_cache import FileCache
from slackwater.runs.inputs.consistent_listing import ConsistentListing, consistent_listing
from slackwater.runs.inputs.foreign_tables import ForeignTables
from slackwater.runs.inputs.manifest import InputManifest, InputObject, PackedHour
from slackwater.runs.inputs.packed_hours import known_indexes, listed_hours
from slackwater.runs.inputs.partition_objects import objects_of_partitions
from slackwater.runs.inputs.table_inputs import published_periods
from slackwater.runs.packing.index import folder_of
from slackwater.runs.period import HOUR, Period, partition_of
from slackwater.runs.table import RunTable
from slackwater.sources.partitions import FILE, ROWS, Partition, named_rows, partition_prefix, partition_value
from slackwater.storage import ObjectFile, ObjectStore, StoredObject

if TYPE_CHECKING:
    import pyarrow as pa

# Threads that list sources, and then read bodies of objects, and metadata of those whose names have no rows.
_READERS = 16
# Total size of the objects whose ids are read at the same time, which bounds the memory of a Lambda function. A larger
# object is read alone, one row group at a time.
_MAX_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class DayListing:
    """The objects of one of several days that were listed together."""

    at: datetime
    """When the listing began, UTC."""
    sources: Mapping[str, ConsistentListing]
    """By source, in order of URI. A source whose files kept changing is missing."""


@dataclass(frozen=True, kw_only=True)
class InputListing:
    """Lists the raw objects of a pipeline's days."""

    project: Project
    store: ObjectStore
    files: FileCache
    table: RunTable
    foreign: ForeignTables
    raw_bucket: str
    now: Callable[[], datetime]

    def list_days(self, pipeline: str, days: Sequence[Period]) -> list[DayListing]:
        """List the objects of several days, in order of date, with one listing for each source of the pipeline.

        A source whose files keep changing during the listing is left out. Raises `CloudError` if S3 or the file cache
        fails.
        """

        def read(source: str) -> ConsistentListing | None:
            list_objects = partial(objects_of_partitions, source, hours, store=self.store, raw_bucket=self.raw_bucket)
            try:
                return consistent_listing(self.project.source(source), list_objects, files=self.files)
            except DayChanged:
                return None

        def of_day(day: Period) -> DayListing:
            # The last hour may end after the day: the offsets of some timezones are not whole hours.
            first, after = partition_of(day.start), partition_of(day.end - timedelta.resolution + HOUR)
            sources = {}
            for source, listing in listed:
                uris = (partition_prefix(self.raw_bucket, source, hour) for hour in (first, after))
                start, end = (bisect_left(listing.objects, uri, key=lambda item: item.uri) for uri in uris)
                sources[source] = listing._replace(objects=listing.objects[start:end])
            return DayListing(at=at, sources=sources)

        at, names = self.now(), sorted(self.project.pipeline(pipeline).sources)
        hours = {hour for day in days for hour in day.partitions()}
        with ThreadPoolExecutor(_READERS) as pool:
            listed = [(name, each) for name, each in zip(names, pool.map(read, names), strict=True) if each]
        return [of_day(day) for day in days]

    def manifest(
        self,
        pipeline: str,
        day: Period,
        *,
        known: InputManifest | None = None,
        listed: DayListing | None = None,
        unread: Collection[str] = (),
    ) -> InputManifest:
        """List the inputs of the pipeline's day, and return them as an input manifest, which is not stored yet.

        `known` is an earlier manifest of the day: the metadata of an unchanged object is not read again, and neither is
        the index of an unchanged packed hour. The file that an object belongs to is looked up again, because two files
        may have shared its content and one of them may have changed since. For a source with an id column, the ids of a
        partition are read only when its objects differ from `known`, and objects that hold only duplicates are left
        out. So are those of files that the partner has removed, unless the pipeline keeps them. The sources of
        `listed`, a listing of the day, are not listed again. Tables whose names are in `unread` are left out if they
        cannot be read.

        Raises `DayChanged` when files of a source keep changing during the listing, `ObjectInvalid` for an object that
        the receiver has not written, `InputError` as `published_periods` does, and what `ForeignTables.inputs` raises.
        """
        frozen_at, definition = listed.at if listed else self.now(), self.project.pipeline(pipeline)
        sources, hours = sorted(definition.sources), {*day.partitions()}
        known = known or InputManifest(pipeline=pipeline, date=day.name, frozen_at=frozen_at, objects=())
        known_of, indexes = known.by_source(), known_indexes(known.packed)

        def listing_of(source: str) -> ConsistentListing:
            if listed and source in listed.sources:
                return listed.sources[source]
            list_objects = partial(
                objects_of_partitions,
                source,
                hours,
                store=self.store,
                raw_bucket=self.raw_bucket,
                known_indexes=indexes,
            )
            # Packed hours have only pushed batches.
            known_uris = [item.uri for item in known_of.get(source, ()) if folder_of(item.uri) not in known.packed]
            return consistent_listing(self.project.source(source), list_objects, files=self.files, known=known_uris)

        with ThreadPoolExecutor(_READERS) as pool:
            # All sources are listed first, in parallel; what is read of their objects uses the same threads afterwards.
            listings = list(pool.map(listing_of, sources))
            left_out: dict[str, Literal["hold", "drop"]] = {}
            for number, (source, listing) in enumerate(zip(sources, listings, strict=True)):
                on_removed = definition.on_removed(self.project.source(source))
                if listing.removed and on_removed != "keep":
                    listings[number], removed = _without_removed(listing, known_of.get(source, ()))
                    left_out |= dict.fromkeys(removed, on_removed)
            objects, packed = list[InputObject](), dict[str, PackedHour]()
            for source, listing in zip(sources, listings, strict=True):
                found = listed_hours(listing.objects, known.packed)
                packed |= found.packed
                unchanged = [item for folder in found.unchanged for item in known.of_folder(folder)]
                known_objects = known_of.get(source, ())
                if unchanged:
                    known_objects = tuple(item for item in known_objects if folder_of(item.uri) not in found.unchanged)
                changed = listing._replace(objects=found.others)
                objects += [*unchanged, *self._inputs(source, changed, known_objects, pool)]
        objects += published_periods(definition, day, table=self.table, pipelines=self.project.pipelines, unread=unread)
        known_tables = {item.uri: item for item in known.objects if item.tag is not None}
        objects += self.foreign.inputs(definition, day, known_tables, unread=unread)
        return InputManifest(
            pipeline=pipeline,
            date=day.name,
            frozen_at=frozen_at,
            objects=tuple(sorted(objects, key=lambda item: item.uri)),
            left_out=left_out,
            packed=packed,
        )

    def of_source(
        self,
        source: str,
        partitions: Collection[Partition],
        *,
        keeps_removed: bool = False,
        reads_ids: bool = True,
    ) -> list[InputObject]:
        """List the objects of a source in these partitions, with the number of events that count.

        Those of files that the partner has removed do not count, unless with `keeps_removed`. Without `reads_ids`,
        duplicates count, which takes no reading of the objects.

        Raises `DayChanged` when files of the source keep changing during the listing, `ObjectInvalid`, `CloudError`.
        """
        list_objects = partial(
            objects_of_partitions, source, set(partitions), store=self.store, raw_bucket=self.raw_bucket
        )
        listing = consistent_listing(self.project.source(source), list_objects, files=self.files)
        kept = [item for item in listing.objects if keeps_removed or not listing.is_removed(item.uri)]
        with ThreadPoolExecutor(_READERS) as pool:
            return list(self._inputs(source, listing._replace(objects=kept), (), pool, reads_ids=reads_ids))

    def arrivals(self, source: str, day: Period) -> list[datetime]:
        """Return when each object of the source's day was written, UTC."""
        hours = {*day.partitions()}
        listed = objects_of_partitions(source, hours, store=self.store, raw_bucket=self.raw_bucket)
        return [item.modified for item in listed]

    def _inputs(
        self,
        source: str,
        listing: ConsistentListing,
        known_of_source: Sequence[InputObject],
        pool: ThreadPoolExecutor,
        *,
        reads_ids: bool = True,
    ) -> Iterator[InputObject]:
        """Yield the source's objects with the number of events that count. The caller keeps `pool` open meanwhile."""
        known = {item.uri: item for item in known_of_source}
        column = self.project.source(source).id_column

        def is_named(stored: StoredObject) -> bool:
            if stored.packed is not None or named_rows(stored.uri) is not None:
                return True
            same = known.get(stored.uri)
            return same is not None and same.identity == (stored.uri, stored.etag, stored.size)

        # Threads are for waiting only: with each of many objects, they would take most of the time.
        others = [stored.uri for stored in listing.objects if not is_named(stored)]
        recorded = dict(zip(others, pool.map(lambda uri: _recorded(self.store, uri), others), strict=True))

        def input_object(stored: StoredObject) -> InputObject:
            item = _input_object(stored, listing.files_of(stored.uri), known.get(stored.uri), recorded.get(stored.uri))
            first = listing.first_received_at(stored.uri) if column else None
            return item if item.first_received_at == first else structs.replace(item, first_received_at=first)

        objects = map(input_object, listing.objects)
        if column is None or not reads_ids:
            return objects
        # It imports pyarrow: a quarter of the processor time that a function needs to start.
        from slackwater.runs.inputs.duplicates import ids_in, packed_ids, without_duplicates  # noqa: PLC0415
        from slackwater.runs.packing.event_reader import EventReader  # noqa: PLC0415

        members = {stored.uri: stored for stored in listing.objects if stored.packed}
        reader = EventReader(self.store)

        def read(item: InputObject) -> Iterable[pa.Array]:
            if item.uri in members:
                return packed_ids(reader, members[item.uri], column)
            if item.bytes > _MAX_BYTES:
                return ids_in(ObjectFile(self.store, item.uri, size=item.bytes), column, uri=item.uri)
            return list(ids_in(io.BytesIO(self.store.get(item.uri)), column, uri=item.uri))

        def read_ids(items: Sequence[InputObject]) -> Iterator[Iterable[pa.Array]]:
            for group in memory_groups(items):
                # Threads are for waiting only: a packed object is read once, for all of its members.
                is_packed = all(item.uri in members for item in group)
                yield from map(read, group) if is_packed else pool.map(read, group)

        return without_duplicates(objects, known=known_of_source, read_ids=read_ids, receipt=listing.receipt)


def _without_removed(listing: ConsistentListing, known: Iterable[InputObject]) -> tuple[ConsistentListing, list[str]]:
    """Return a source's listing without the objects of removed files, and their URIs.

    With these are the `known` objects of former contents of such files.
    """
    removed = {item.uri for item in listing.objects if listing.is_removed(item.uri)}
    kept = [item for item in listing.objects if item.uri not in removed]
    files = {path for uri in removed for path in listing.files_of(uri)}
    # A file may have got another content before it was removed.
    former = {item.uri for item in known if item.file in files} - {item.uri for item in kept}
    return listing._replace(objects=kept), [*sorted(removed), *sorted(former)]


def _input_object(
    stored: StoredObject, files: Sequence[str], known: InputObject | None, recorded: tuple[int, str | None] | None
) -> InputObject:
    """Return the input object of a stored object.

    Its rows and its file come from `known` if the object is unchanged. Otherwise its name has the rows; if it was
    written before names had them, `recorded` are rows and file in its metadata. `files` are the paths of the files that
    have the object's content now. If the file is not one of them, the first of them replaces it.
    """

    def current_file(file: str | None) -> str | None:
        return files[0] if files and file not in files else file

    if known and known.identity == (stored.uri, stored.etag, stored.size):
        file = current_file(known.file)
        return known if known.file == file else structs.replace(known, file=file)
    rows, file = recorded or (stored.packed.rows if stored.packed else named_rows(stored.uri), None)
    source, date, hour = _folder_values(stored.uri.rpartition("/")[0])
    return InputObject(
        uri=stored.uri,
        source=source,
        date=date,
        hour=hour,
        etag=stored.etag,
        bytes=stored.size,
        rows=rows or 0,
        arrived=stored.modified,
        file=current_file(file),
    )


@lru_cache(maxsize=1024)
def _folder_values(folder: str) -> tuple[str, str, str]:
    return partition_value(folder, "source"), partition_value(folder, "date"), partition_value(folder, "hour")


def stored_rows(store: ObjectStore, uri: str) -> int:
    """Return the number of events in an object, from its name or else its metadata. Raises `ObjectInvalid`."""
    rows = named_rows(uri)
    return _recorded(store, uri)[0] if rows is None else rows


def _recorded(store: ObjectStore, uri: str) -> tuple[int, str | None]:
    """Return the number of events and the file in the metadata of an object. Raises `ObjectInvalid`."""
    metadata = store.metadata(uri)
    rows, file = metadata.get(ROWS, ""), metadata.get(FILE)
    if not rows.isdecimal():
        raise ObjectInvalid(
            f"{uri} does not say how many events it holds: it was not written by the receiver (remove it)"
        )
    # Metadata in S3 is ASCII, so the receiver has percent-encoded the path.
    return int(rows), unquote(file) if file else None


def memory_groups(objects: Iterable[InputObject]) -> Iterator[list[InputObject]]:
    """Split the objects into consecutive groups, each small enough for its bodies to be in memory together."""
    group, size = list[InputObject](), 0
    for item in objects:
        if group and size + item.bytes > _MAX_BYTES:
            yield group
            group, size = [], 0
        group.append(item)
        size += item.bytes
    if group:
        yield group
