"""Count the events of objects without duplicates: of several events with one id in an hour, the first one received."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.errors import ObjectInvalid
from slackwater.receiver.writing.duplicate_ids import duplicate_rows
from slackwater.receiver.writing.windows import bin_numbers
from slackwater.runs.periods.read_parts import PartReader, open_object
from slackwater.sources.event_schema import EVENT_TIME
from slackwater.state.facts import BINS, Part

_READERS = 16


def distinct_bins(
    reader: PartReader, source: str, id_column: str, hour: datetime, parts: Sequence[Part]
) -> tuple[int, ...]:
    """Return the events of the objects of a UTC hour by five minutes; each id counts in the window of its first event.

    The first one is in the object that was written first, and of those in the one with the first name. Events without
    an id all count. Raises `CloudError`, `ObjectInvalid`.
    """
    bins = [sum(counts) for counts in zip(*(part.bins for part in parts), strict=True)] or [0] * BINS
    if len(parts) <= 1:
        return tuple(bins)
    first_bin = int(hour.timestamp()) // 300
    ordered = sorted(parts, key=lambda part: (part.written, part.name))

    def read(part: Part) -> list[pa.Table]:
        return list(_ids(reader, reader.uri(source, hour, part.name), part, id_column, first_bin))

    def blocks() -> Iterator[pa.Table]:
        with ThreadPoolExecutor(_READERS) as pool:
            # So many objects at a time are in memory, not all.
            for start in range(0, len(ordered), _READERS):
                for tables in pool.map(read, ordered[start : start + _READERS]):
                    yield from tables

    with tempfile.TemporaryDirectory(prefix="ids-") as folder:
        for duplicates in duplicate_rows(blocks(), Path(folder)):
            for counted in duplicates["bin"].value_counts().to_pylist():
                bins[counted["values"]] -= counted["counts"]
    return tuple(bins)


def _ids(reader: PartReader, uri: str, part: Part, id_column: str, first_bin: int) -> Iterator[pa.Table]:
    """Yield the ids of an object with the window of each; without those of events that have none."""
    try:
        with open_object(reader.store, uri, part.bytes) as file, pq.ParquetFile(file) as parquet:
            # An object that was written before the source had ids has no column.
            if id_column not in parquet.schema_arrow.names:
                return
            for group in range(parquet.num_row_groups):
                table = parquet.read_row_group(group, columns=[id_column, EVENT_TIME], use_threads=False)
                number = pc.subtract(bin_numbers(table[EVENT_TIME]), first_bin)
                ids = table[id_column].cast(pa.string())
                yield pa.table({"id": ids, "bin": number}).filter(pc.is_valid(ids))
    except (pa.ArrowException, KeyError) as error:
        raise ObjectInvalid(
            f"{uri} is not readable ({error}): it was not written by the receiver (remove it)"
        ) from error
