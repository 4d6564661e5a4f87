"""Pack the small objects of hours, and delete the objects of members three days later.

What readers see does not change: the members of packed objects are listed with the names, sizes and times that they
had. Three writes follow each other, and a process may end between any two of them:

1. The packed objects are written. Nobody reads them yet; without the next write they are deleted after some days.
2. The index of the hour is written, if it is still the one that was read. From here on readers use the packed objects.
3. The objects of the members are deleted `KEPT` later: a run reads those that it has found for hours at most.

Late objects of a packed hour stay beside it until there are enough of them to pack the hour again. A member that
readers do not see any more, because a pull has replaced its file, leads to new packed objects without it.

An hour that has not ended is packed too, if a pipeline publishes it meanwhile: each time has a packed object of its
own, and the finished hour joins them.

Files are pulled again, and hours are packed by request, whatever their age. So each call also looks at the packed hours
of two days of the source, in turn: the work of a call does not depend on the age of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import NamedTuple

from slackwater.errors import DayChanged, ObjectInvalid, SlackwaterError
from slackwater.receiver.pull.file_cache import FileCache
from slackwater.runs.inputs.consistent_listing import ConsistentListing, consistent_listing
from slackwater.runs.inputs.partition_objects import all_of_partitions, objects_of_partitions
from slackwater.runs.packing.index import ENDING, INDEX, KEPT, PackedObject, format_index, members_of, read_index
from slackwater.runs.packing.turn import days_in_turn
from slackwater.runs.packing.write_packed import PackedWriter
from slackwater.runs.period import HOUR, partition_of, start_of
from slackwater.sources.definition import Source
from slackwater.sources.partitions import (
    Partition,
    UpdateTable,
    named_rows,
    object_partition,
    partition_prefix,
    version_of,
)
from slackwater.storage import ObjectStore, StoredObject

_DAY = timedelta(days=1)
# An hour is packed an hour after its end: most of its events have arrived.
_WAIT = HOUR
# Days before today whose hours are packed. A file of a pull may be as late as its look-back window is long.
_WINDOW = 35 * _DAY
# Requests for indexes at the same time.
_READERS = 16
# A pulled file may change until it has left the look-back window. Its date may be that of the day after the one on
# which it was fetched.
_MARGIN = 2 * _DAY
# Larger objects are read as fast as packed ones.
_MAX_MEMBER_BYTES = 8 * 2**20
# A packed object of so many bytes is not written again for late objects.
_FULL_BYTES = 32 * 2**20


class Packing(NamedTuple):
    """What was done for a source."""

    packed: int = 0
    """Objects whose rows are in new packed objects."""
    deleted: int = 0
    """Objects that nobody reads any more."""
    failed: dict[str, str] = {}
    """By date and hour: why it could not be packed."""


@dataclass(frozen=True, kw_only=True)
class HourPacker:
    """Packs the hours of sources with `pack`, and maintains those that are packed."""

    store: ObjectStore
    files: FileCache
    raw_bucket: str
    update_table: UpdateTable
    now: Callable[[], datetime]
    writer: PackedWriter = field(init=False)

    def __post_init__(self) -> None:
        """Write with the same clock."""
        object.__setattr__(self, "writer", PackedWriter(store=self.store, now=self.now))

    def pack(self, source: Source, *, limit: timedelta) -> Packing:
        """Pack the finished hours of the window, the newest day first, until `limit` has passed.

        The next call continues: what is packed is not packed again. An hour that fails does not stop the others.
        Hours before the window, and those of a source without `pack`, are not packed for the first time. If they are
        packed, they are looked at in turn: with a call an hour, each within as many hours as the source has days.

        Raises `CloudError` if the source cannot be listed.
        """
        started, ends_at = self.now(), self.now() + limit
        newest, total = started - _WAIT - HOUR, Packing()
        last_day = newest.replace(hour=0, minute=0, second=0, microsecond=0)
        day, look_back = last_day, source.pull.lookback_days * _DAY if source.pull else timedelta()
        window = started - _WINDOW - look_back
        # Members are deleted if their hour was packed just before it has left the window.
        while source.pack and day > window - KEPT - _DAY and self.now() < ends_at:
            hours = _hours_of(day, newest)
            if day <= window:
                hours = self._packed_of(source, hours)
            total = _total([total, self._day(source, hours, ends_at)])
            day -= _DAY
        for day in days_in_turn(source, started, last_day, store=self.store, raw_bucket=self.raw_bucket):
            if self.now() < ends_at:
                packed = self._packed_of(source, _hours_of(day, newest))
                total = _total([total, self._day(source, packed, ends_at, reads_indexes=source.pull is not None)])
        return total

    def pack_open(self, source: Source, *, limit: timedelta) -> Packing:
        """Pack the present hour, and the one before while `pack` waits for its last events, until `limit` has passed.

        Raises `CloudError` if the source cannot be listed.
        """
        present = self.now().replace(minute=0, second=0, microsecond=0)
        hours = [hour for hour in (present - HOUR, present) if self.now() < hour + HOUR + _WAIT]
        return self.pack_hours(source, hours, limit=limit)

    def pack_hours(self, source: Source, hours: Iterable[datetime], *, limit: timedelta) -> Packing:
        """Pack these hours, which are in order, until `limit` has passed; none of a source without `pack`.

        Raises `CloudError` if the source cannot be listed.
        """
        if source.pack is None:
            return Packing()
        ends_at = self.now() + limit
        days = groupby(map(partition_of, hours), key=lambda hour: hour.date)
        return _total(self._day(source, [*found], ends_at) for _, found in days)

    def _packed_of(self, source: Source, hours: Iterable[Partition]) -> list[Partition]:
        """Return those of the hours that have an index. Nothing is listed: other hours may have many objects."""
        uris = {hour: f"{partition_prefix(self.raw_bucket, source.source, hour)}{INDEX}" for hour in hours}
        with ThreadPoolExecutor(_READERS) as pool:
            return [hour for hour, head in zip(uris, pool.map(self.store.head, uris.values()), strict=True) if head]

    def _day(
        self, source: Source, hours: Sequence[Partition], ends_at: datetime, *, reads_indexes: bool = False
    ) -> Packing:
        """Pack hours of one day.

        With `reads_indexes`, the hours are packed ones, and each index is read: a pull may have replaced members.
        """
        stored = all_of_partitions(source.source, set(hours), store=self.store, raw_bucket=self.raw_bucket)
        by_hour = {hour: [*items] for hour, items in groupby(stored, key=lambda item: object_partition(item.uri))}
        wanted = {hour for hour, items in by_hour.items() if reads_indexes or self._is_due(source, items)}
        if not wanted:
            return Packing()
        try:
            list_objects = partial(
                objects_of_partitions, source.source, wanted, store=self.store, raw_bucket=self.raw_bucket
            )
            listing = consistent_listing(source, list_objects, files=self.files)
        except DayChanged:
            return Packing()  # files are being pulled: the next call packs the day, or the next one in turn
        except ObjectInvalid as error:
            if len(hours) == 1:
                return Packing(failed={"T".join(hours[0]): str(error)})
            return _total(self._day(source, [hour], ends_at, reads_indexes=reads_indexes) for hour in hours)
        seen = {hour: [*items] for hour, items in groupby(listing.objects, key=lambda item: object_partition(item.uri))}
        packed, unused, failed = dict[Partition, int | None](), dict[Partition, list[str]](), dict[str, str]()
        for hour in sorted(wanted):
            if self.now() >= ends_at:
                break
            try:
                index = next((item for item in by_hour[hour] if item.uri.endswith(INDEX)), None)
                packed[hour] = self._pack(source, hour, listing._replace(objects=seen.get(hour, [])), index)
                unused[hour] = self._unused(source, hour, by_hour[hour])
            except (SlackwaterError, OSError) as error:  # the disk is full
                failed["T".join(hour)] = str(error)
        # One commit for all hours. Also for those of which objects are deleted: a table that still has them, because it
        # missed a change, can be read again.
        if changed := [hour for hour in packed if packed[hour] is not None or unused.get(hour)]:
            self.update_table(source.source, changed)
        deleted = 0
        for hour, uris in unused.items():
            try:
                self.store.delete(uris)
                deleted += len(uris)
            except SlackwaterError as error:
                failed["T".join(hour)] = str(error)
        return Packing(sum(filter(None, packed.values())), deleted, failed)

    def _is_due(self, source: Source, items: Sequence[StoredObject]) -> bool:
        """Return whether anything may have to be done: a packed hour to which nothing has come is only listed."""
        packed = sum(item.uri.endswith(ENDING) for item in items)
        has_index = any(item.uri.endswith(INDEX) for item in items)
        others = len(items) - packed - has_index
        if has_index:
            return others > 0 or packed > 1
        return source.pack is not None and (others > source.pack.max_objects or packed > 0)

    def _pack(
        self, source: Source, hour: Partition, listing: ConsistentListing, index: StoredObject | None
    ) -> int | None:
        """Pack an hour if it has too many small objects; return the number of objects in new packed objects.

        None if there was nothing to do. `index` is what was listed of the index, before it is read: it is replaced only
        if that is still the same.
        """
        folder = partition_prefix(self.raw_bucket, source.source, hour)
        before = read_index(self.store, folder) if index else ()
        replaced = self._replaced(source, before, seen={item.uri for item in listing.objects})
        stale = [each for each in before if any(item.uri in replaced for item in each.members)]
        new = [item for item in listing.objects if self._is_packable(source, listing, item)]
        closes_at = start_of(hour) + HOUR + _WAIT
        is_open = self.now() < closes_at
        early = [each for each in before if each.packed_at < closes_at and each.size < _FULL_BYTES]
        is_split = len(early) > 1 and not is_open
        if not stale and not is_split and (source.pack is None or len(new) <= source.pack.max_objects):
            return None
        # The objects of an open hour are not written again each time.
        full = [each for each in before if each not in stale and (is_open or each.size >= _FULL_BYTES)]
        again = [item for each in before if each not in full for item in each.members if item.uri not in replaced]
        # If another process has packed the hour since it was listed, objects are in both, and the index is not written.
        by_uri = {item.uri: item for item in (*new, *again)}
        members = [by_uri[uri] for uri in sorted(by_uri)]
        body = format_index([*full, *self.writer.write(folder, members)])
        if index:
            is_written = self.store.put_if_match(f"{folder}{INDEX}", body, etag=index.etag, metadata={})
        else:
            is_written = self.store.put_new(f"{folder}{INDEX}", body)
        # Otherwise another process was faster, or this one has written it, and the answer was lost.
        return len(members) if is_written else 0

    def _replaced(self, source: Source, packed: Iterable[PackedObject], *, seen: Collection[str]) -> set[str]:
        """Return the URIs of members of pulled files that readers have not seen for `KEPT`: runs may have them."""
        unseen = {uri: found[0] for uri in members_of(packed) if uri not in seen and (found := version_of(uri))}
        # If the record of a content was lost, its rows may count: they stay.
        contents = self.files.contents(source.source, set(unseen.values()))
        kept_since = self.now() - KEPT
        old = {each.id for each in contents if each.changed_at is None or each.changed_at < kept_since}
        return {uri for uri, content in unseen.items() if content in old}

    def _is_packable(self, source: Source, listing: ConsistentListing, item: StoredObject) -> bool:
        """Return whether an object may become a member: it is small, and its file does not change any more."""
        if item.packed or item.size > _MAX_MEMBER_BYTES or named_rows(item.uri) is None:
            return False
        if version_of(item.uri) is None:
            return True
        # Without `pull` now, its files cannot change.
        look_back = source.pull.lookback_days * _DAY + _MARGIN if source.pull else timedelta()
        has_changed = listing.is_removed(item.uri) or listing.first_received_at(item.uri) is not None
        return not has_changed and item.modified < self.now() - look_back

    def _unused(self, source: Source, hour: Partition, stored: Sequence[StoredObject]) -> list[str]:
        """Return the URIs of what is stored of an hour and nobody reads any more."""
        folder, kept_since = partition_prefix(self.raw_bucket, source.source, hour), self.now() - KEPT
        packed = read_index(self.store, folder)
        old = members_of(each for each in packed if each.packed_at < kept_since)
        unused = [item for item in stored if item.uri in old and item.modified < kept_since]
        if unused:
            self._check(packed, {item.uri for item in unused})
        needed = {each.uri for each in packed}
        others = [item for item in stored if item.uri.endswith(ENDING) and item.uri not in needed]
        # After the index was read: if it was replaced since, this is the time of the later one.
        head = self.store.head(f"{folder}{INDEX}") if others else None
        if head is None or head.modified < kept_since:
            unused += [item for item in others if item.modified < kept_since]
        return [item.uri for item in unused]

    def _check(self, packed: Iterable[PackedObject], uris: set[str]) -> None:
        """Raise `ObjectInvalid` if the packed objects with the rows of these members are not as they were written."""
        for each in packed:
            head = self.store.head(each.uri)
            is_same = head is not None and (head.etag, head.size) == (each.etag, each.size)
            if not is_same and any(item.uri in uris for item in each.members):
                raise ObjectInvalid(
                    f"{each.uri} is not as it was written: restore its first version (the bucket is versioned); no "
                    "object of its members is deleted until then"
                )


def _total(done: Iterable[Packing]) -> Packing:
    packed, deleted, failed = 0, 0, dict[str, str]()
    for each in done:
        packed, deleted, failed = packed + each.packed, deleted + each.deleted, {**failed, **each.failed}
    return Packing(packed, deleted, failed)


def _hours_of(day: datetime, newest: datetime) -> list[Partition]:
    """Return the hours of a day that begin at `newest` or before."""
    hours = (day + number * HOUR for number in range(24))
    return [partition_of(hour) for hour in hours if hour <= newest]
