"""Stored events by the windows of five minutes of their hour: in the metadata of each raw object.

With `by` in the `counts` of a source, the events of each value are counted by themselves.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.errors import ObjectInvalid
from slackwater.receiver.parsing.count_keys import key_numbers
from slackwater.sources.counts import ALL, column_of
from slackwater.sources.event_schema import EVENT_TIME
from slackwater.state.facts import BINS, HOUR, Histogram, added

WINDOWS = "windows"
"""The key of the metadata: 12 numbers, separated by commas."""
BY_VALUE = "windows-by-value"
"""The key of the metadata of a source with `by`: a digest of the keys, and 12 numbers for each of them."""
_BIN_US = HOUR // BINS // timedelta(microseconds=1)


def bin_numbers(timestamps: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return for each timestamp, microseconds, in which five minutes since 1970 it is; null for null."""
    microseconds = timestamps.cast(pa.int64())
    quotients = pc.divide(microseconds, _BIN_US)
    # Integer division of Arrow rounds towards zero, and timestamps may be before 1970. Floating point has too few
    # digits for microseconds after the year 2255.
    is_above = pc.greater(pc.multiply(quotients, _BIN_US), microseconds)
    return pc.subtract(quotients, is_above.cast(pa.int64()))


def keyed_bins(events: pa.Table, keys: tuple[str, ...]) -> pa.ChunkedArray:
    """Return for each event its `bin_numbers`, times the number of keys, plus its `key_numbers`."""
    numbers = bin_numbers(events[EVENT_TIME])
    return numbers if len(keys) == 1 else pc.add(pc.multiply(numbers, len(keys)), key_numbers(events, keys))


def columns_of(keys: tuple[str, ...]) -> list[str]:
    """Return the columns that `keyed_bins` reads, of those that an object has."""
    column = column_of(keys)
    return [EVENT_TIME, *([column[0]] if column else [])]


def hourly_bins(events: pa.Table, keys: tuple[str, ...]) -> list[Histogram]:
    """Return the number of events in each of the 12 windows of each UTC hour that has any, in order."""
    hours: dict[int, dict[str, list[int]]] = {}
    counts = pc.value_counts(keyed_bins(events, keys))
    for keyed, count in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
        number, key = divmod(keyed, len(keys))
        hour, window = divmod(number, BINS)
        hours.setdefault(hour, {each: [0] * BINS for each in keys})[keys[key]][window] = count
    return [{key: tuple(numbers) for key, numbers in hours[hour].items()} for hour in sorted(hours)]


def windows_metadata(bins: Histogram) -> dict[str, str]:
    """Return the metadata of an object with these events: with 8 values at most 1.2 of the 2 KB that S3 allows."""
    metadata = {WINDOWS: _joined(added([bins], (ALL,))[ALL])}
    if ALL not in bins:
        numbers = _joined(number for numbers in bins.values() for number in numbers)
        metadata[BY_VALUE] = f"{_digest(tuple(bins))}:{numbers}"
    return metadata


def read_windows(metadata: Mapping[str, str], keys: tuple[str, ...]) -> Histogram | None:
    """Return the events by window and key from the metadata of an object.

    None if it was written before metadata had them, or while the source had other keys.
    """
    digest, _, numbers = metadata.get(BY_VALUE, "").partition(":")
    if keys == (ALL,):
        digest, numbers = _digest(keys), metadata.get(WINDOWS, "")
    found = numbers.split(",")
    if digest != _digest(keys) or len(found) != BINS * len(keys) or not all(map(str.isdecimal, found)):
        return None
    counts = list(map(int, found))
    return {key: tuple(counts[BINS * index : BINS * (index + 1)]) for index, key in enumerate(keys)}


def windows_in(file: io.IOBase, keys: tuple[str, ...], *, uri: str) -> Histogram:
    """Return the events by window and key of an object of raw events, from the columns.

    Only one row group is in memory. Raises `ObjectInvalid`, with `uri`, if the receiver has not written `file`.
    """
    bins = added([], keys)
    try:
        with pq.ParquetFile(file) as parquet:
            for group in range(parquet.num_row_groups):
                # An object that was written before the source had the field has no such column.
                events = parquet.read_row_group(group, columns=columns_of(keys), use_threads=False)
                bins = added([bins, *hourly_bins(events, keys)], keys)
    except (pa.ArrowException, OSError, KeyError) as error:  # OSError: a damaged page
        raise ObjectInvalid(
            f"{uri} has no timestamps ({error}): it was not written by the receiver (remove it)"
        ) from error
    return bins


def _joined(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _digest(keys: tuple[str, ...]) -> str:
    return hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:8]
