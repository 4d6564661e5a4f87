"""Read the facts about raw objects: how many events each has in each five minutes of its hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from threading import Lock

from slackwater.errors import SlackwaterError
from slackwater.receiver.writing.windows import columns_of, hourly_bins, read_windows, windows_in
from slackwater.runs.inputs.partition_objects import objects_of_partitions
from slackwater.runs.packing.event_reader import EventReader, open_object
from slackwater.runs.packing.index import KEPT, members_of, read_index
from slackwater.runs.period import start_of
from slackwater.sources.partitions import Partition, object_uri, partition_prefix, source_partition
from slackwater.state.facts import Part
from slackwater.storage import ObjectStore, StoredObject, split_uri

_SUFFIX = ".parquet"


@dataclass(frozen=True)
class PartReader:
    """Reads the objects of the raw bucket."""

    store: ObjectStore
    raw_bucket: str

    def hour_reader(self, source: str, hour: datetime, members: Mapping[str, StoredObject] | None = None) -> HourReader:
        """Return a reader of the objects of a UTC hour.

        `members` are those of the packed objects of the hour, by URI: the reader sends no request about the objects of
        these. Without `members` it reads the index when it needs it: of an object that is missing, or was written more
        than `KEPT` after the beginning of the hour.
        """
        return HourReader(self, source, hour, members)

    def members(self, source: str, hour: datetime) -> Mapping[str, StoredObject]:
        """Return the members of the packed objects of an hour by their URIs. Raises `ObjectInvalid`, `CloudError`."""
        return members_of(read_index(self.store, partition_prefix(self.raw_bucket, source, _partition(hour))))

    def list(self, source: str, hours: list[datetime]) -> dict[datetime, list[StoredObject]]:
        """Return the objects in the partitions of these UTC hours, also those that are members of packed objects.

        Raises `ObjectInvalid`, `CloudError`.
        """
        found: dict[datetime, list[StoredObject]] = {hour: [] for hour in hours}
        partitions = {_partition(hour) for hour in hours}
        for stored in objects_of_partitions(source, partitions, store=self.store, raw_bucket=self.raw_bucket):
            if place := place_of(split_uri(stored.uri)[1]):
                found[place[1]].append(stored)
        return found

    def uri(self, source: str, hour: datetime, name: str) -> str:
        """Return the URI of an object."""
        return object_uri(self.raw_bucket, source, _partition(hour), name)


class HourReader:
    """Reads the objects of one UTC hour of a source; several threads may use it.

    It reads the index of the hour at most once, and each packed object once. If the index is replaced in the meantime,
    the packed objects of the former one stay for `KEPT`, and so do the objects that become members.
    """

    def __init__(
        self, parts: PartReader, source: str, hour: datetime, members: Mapping[str, StoredObject] | None
    ) -> None:
        self._parts, self._source, self.hour, self._members = parts, source, hour, members
        self._events, self._lock = EventReader(parts.store), Lock()
        self._failed: dict[str, SlackwaterError] = {}
        """By the URIs of packed objects."""

    def read(self, name: str, keys: tuple[str, ...]) -> Part | None:
        """Return the events of an object by `keys`, from its metadata; None if there is no object of this name.

        Of a member, and of an object whose metadata does not have its events by these keys, the columns are read.
        Raises `CloudError`, and `ObjectInvalid` for an object that the receiver has not written.
        """
        uri = self._parts.uri(self._source, self.hour, name)
        if member := (self._members or {}).get(uri):
            return self._read_member(member, name, keys)
        head = self._parts.store.head(uri)
        # A batch may be sent again after the object of a member was deleted: the packed object has its first rows.
        if head is None or head.modified > self.hour + KEPT:
            if member := self._all_members().get(uri):
                return self._read_member(member, name, keys)
            if head is None:
                return None
        bins = read_windows(head.metadata, keys)
        if bins is None:
            with open_object(self._parts.store, uri, head.size) as file:
                bins = windows_in(file, keys, uri=uri)
        return Part(name, bins, head.size, head.modified)

    def _all_members(self) -> Mapping[str, StoredObject]:
        # Threads that need the index wait for the one that reads it.
        with self._lock:
            if self._members is None:
                self._members = self._parts.members(self._source, self.hour)
            return self._members

    def _read_member(self, member: StoredObject, name: str, keys: tuple[str, ...]) -> Part:
        uri = member.packed.uri if member.packed else member.uri
        # A damaged packed object is not read again for each member.
        if error := self._failed.get(uri):
            raise error.with_traceback(None)  # it would grow with each member
        try:
            (events,) = self._events.blocks(member, columns_of(keys))
        except SlackwaterError as error:
            self._failed[uri] = error
            raise
        (bins,) = hourly_bins(events, keys)  # an object has the events of one hour
        return Part(name, bins, member.size, member.modified)


def place_of(key: str) -> tuple[str, datetime, str] | None:
    """Return source, UTC hour and name of an object of a partition; None for any other key."""
    found = source_partition(key)
    if found is None or not key.endswith(_SUFFIX):
        return None
    source, partition = found
    return source, start_of(partition), name_of(key)


def name_of(uri: str) -> str:
    """Return the name of an object in its partition, from its URI or its key."""
    return uri.rpartition("/")[2].removesuffix(_SUFFIX)


def _partition(hour: datetime) -> Partition:
    date, _, of_day = hour.isoformat()[:13].partition("T")
    return Partition(date, of_day)
