"""Stored events by the windows of five minutes of their hour: in the metadata of each raw object."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.errors import ObjectInvalid
from slackwater.sources.event_schema import EVENT_TIME
from slackwater.state.facts import BINS, HOUR

WINDOWS = "windows"
"""The key of the metadata: 12 numbers, separated by commas."""
_BIN_US = HOUR // BINS // timedelta(microseconds=1)


def bin_numbers(timestamps: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return for each timestamp, microseconds, in which five minutes since 1970 it is; null for null."""
    microseconds = timestamps.cast(pa.int64())
    quotients = pc.divide(microseconds, _BIN_US)
    # Integer division of Arrow rounds towards zero, and timestamps may be before 1970. Floating point has too few
    # digits for microseconds after the year 2255.
    is_above = pc.greater(pc.multiply(quotients, _BIN_US), microseconds)
    return pc.subtract(quotients, is_above.cast(pa.int64()))


def hour_bins(timestamps: pa.ChunkedArray) -> tuple[int, ...]:
    """Return the number of events in each of the 12 windows of their hour; all timestamps are of one UTC hour."""
    bins, counts = [0] * BINS, pc.value_counts(bin_numbers(timestamps))
    for number, count in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
        bins[number % BINS] += count
    return tuple(bins)


def windows_metadata(bins: tuple[int, ...]) -> dict[str, str]:
    """Return the metadata of an object with these events: at most 160 bytes of the 2 KB that S3 allows."""
    return {WINDOWS: ",".join(map(str, bins))}


def read_windows(metadata: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return the events by window from the metadata of an object; None if it was written before metadata had them."""
    numbers = metadata.get(WINDOWS, "").split(",")
    return tuple(map(int, numbers)) if len(numbers) == BINS and all(map(str.isdecimal, numbers)) else None


def windows_in(file: io.IOBase, *, uri: str) -> tuple[int, ...]:
    """Return the events by window of an object of raw events, from the column of their timestamps.

    Only one row group is in memory. Raises `ObjectInvalid`, with `uri`, if the receiver has not written `file`.
    """
    bins = [0] * BINS
    try:
        with pq.ParquetFile(file) as parquet:
            for group in range(parquet.num_row_groups):
                times = parquet.read_row_group(group, columns=[EVENT_TIME], use_threads=False)[EVENT_TIME]
                bins = [before + more for before, more in zip(bins, hour_bins(times), strict=True)]
    except (pa.ArrowException, KeyError) as error:
        raise ObjectInvalid(
            f"{uri} has no timestamps ({error}): it was not written by the receiver (remove it)"
        ) from error
    return tuple(bins)
