"""Count the events of objects without duplicates: of several events with one id in an hour, the first one received."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.errors import ObjectInvalid
from slackwater.receiver.writing.duplicate_ids import duplicate_rows
from slackwater.receiver.writing.windows import columns_of, keyed_bins
from slackwater.runs.packing.event_reader import EventReader
from slackwater.runs.periods.read_parts import PartReader
from slackwater.state.facts import Histogram, Part, added
from slackwater.storage import StoredObject

_READERS = 16


def distinct_bins(
    reader: PartReader, source: str, id_column: str, hour: datetime, parts: Sequence[Part], *, keys: tuple[str, ...]
) -> Histogram:
    """Return the events of the objects of a UTC hour by these keys; each id counts in the window of its first event.

    The first one is in the object that was written first, and of those in the one with the first name. Events without
    an id all count. Raises `CloudError`, `ObjectInvalid`.
    """
    counted = added((part.bins for part in parts), keys)
    if len(parts) <= 1:
        return counted
    bins = {key: list(numbers) for key, numbers in counted.items()}
    first_bin = int(hour.timestamp()) // 300
    ordered = sorted(parts, key=lambda part: (part.written, part.name))

    events, members = EventReader(reader.store), reader.members(source, hour)

    def read(part: Part) -> list[pa.Table]:
        uri = reader.uri(source, hour, part.name)
        item = members.get(uri) or StoredObject(uri, part.bytes, "", part.written)
        return list(_ids(events, item, id_column, keys))

    def blocks() -> Iterator[pa.Table]:
        with ThreadPoolExecutor(_READERS) as pool:
            # So many objects at a time are in memory, not all.
            for start in range(0, len(ordered), _READERS):
                for tables in pool.map(read, ordered[start : start + _READERS]):
                    yield from tables

    with tempfile.TemporaryDirectory(prefix="ids-") as folder:
        for duplicates in duplicate_rows(blocks(), Path(folder)):
            for counted in duplicates["bin"].value_counts().to_pylist():
                number, key = divmod(counted["values"], len(keys))
                bins[keys[key]][number - first_bin] -= counted["counts"]
    return {key: tuple(numbers) for key, numbers in bins.items()}


def _ids(reader: EventReader, item: StoredObject, id_column: str, keys: tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield the ids of an object with the `keyed_bins` of each; without those of events that have none."""
    try:
        for table in reader.blocks(item, {id_column, *columns_of(keys)}):
            # An object that was written before the source had ids has no column.
            if id_column not in table.column_names:
                return
            ids = table[id_column].cast(pa.string())
            yield pa.table({"id": ids, "bin": keyed_bins(table, keys)}).filter(pc.is_valid(ids))
    except (pa.ArrowException, KeyError) as error:
        raise ObjectInvalid(
            f"{item.uri} is not readable ({error}): it was not written by the receiver (remove it)"
        ) from error
