"""Read the facts about raw objects: how many events each has in each five minutes of its hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

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

    def read(self, source: str, hour: datetime, name: str, keys: tuple[str, ...]) -> Part | None:
        """Return what an object of a partition holds by `keys`, from its metadata; None if there is none.

        Of an object whose metadata does not have its events by these keys, the columns are read. Raises `CloudError`,
        and `ObjectInvalid` for an object that the receiver has not written.
        """
        uri = self.uri(source, hour, name)
        head = self.store.head(uri)
        # A batch may be sent again after the object of a member was deleted: the packed object has its first rows.
        if head is None or head.modified > hour + KEPT:
            if member := self.members(source, hour).get(uri):
                return self._read_member(member, name, keys)
            if head is None:
                return None
        bins = read_windows(head.metadata, keys)
        if bins is None:
            with open_object(self.store, uri, head.size) as file:
                bins = windows_in(file, keys, uri=uri)
        return Part(name, bins, head.size, head.modified)

    @cached_property
    def _events(self) -> EventReader:
        return EventReader(self.store)

    def _read_member(self, member: StoredObject, name: str, keys: tuple[str, ...]) -> Part:
        (events,) = self._events.blocks(member, columns_of(keys))
        (bins,) = hourly_bins(events, keys)  # an object has the events of one hour
        return Part(name, bins, member.size, member.modified)

    def members(self, source: str, hour: datetime) -> Mapping[str, StoredObject]:
        """Return the members of the packed objects of an hour by their URIs. Raises `ObjectInvalid`, `CloudError`."""
        return members_of(read_index(self.store, partition_prefix(self.raw_bucket, source, _partition(hour))))

    def list(self, source: str, hours: list[datetime]) -> dict[datetime, list[str]]:
        """Return the names of the objects in the partitions of these UTC hours."""
        found: dict[datetime, list[str]] = {hour: [] for hour in hours}
        partitions = {_partition(hour) for hour in hours}
        for stored in objects_of_partitions(source, partitions, store=self.store, raw_bucket=self.raw_bucket):
            if place := place_of(split_uri(stored.uri)[1]):
                found[place[1]].append(place[2])
        return found

    def uri(self, source: str, hour: datetime, name: str) -> str:
        """Return the URI of an object."""
        return object_uri(self.raw_bucket, source, _partition(hour), name)


def place_of(key: str) -> tuple[str, datetime, str] | None:
    """Return source, UTC hour and name of an object of a partition; None for any other key."""
    found = source_partition(key)
    if found is None or not key.endswith(_SUFFIX):
        return None
    source, partition = found
    return source, start_of(partition), key.rpartition("/")[2].removesuffix(_SUFFIX)


def _partition(hour: datetime) -> Partition:
    date, _, of_day = hour.isoformat()[:13].partition("T")
    return Partition(date, of_day)
