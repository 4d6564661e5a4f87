"""Convert whole columns of timestamps between UTC and the local time of a timezone.

Arrow's own conversions (`assume_timezone`, `local_timestamp`, casts that name a timezone) read the system's timezone
files, which Lambda's image does not have. Python's `zoneinfo` can read the package tzdata instead. It converts single
timestamps, so it is called once for each distinct hour of a column, and Arrow adds the offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.sources.event_schema import TIMESTAMP

# Arrow's type of local times: timestamps without a timezone.
LOCAL_TIMESTAMP = pa.timestamp("us")
_MICROSECOND = timedelta(microseconds=1)
_LAST_OF_HOUR = timedelta(hours=1) - _MICROSECOND


def to_utc(local_times: pa.Array, timezone: ZoneInfo) -> pa.Array:
    """Convert local times to UTC timestamps; null in an hour in which the offset changes, even if only partly.

    Results may lie outside the years 1 to 9999.
    """

    def offset_of_hour(hour: datetime) -> int | None:
        # `fold` 0 and 1 are the two meanings of a local time that occurs twice, or of one that is skipped.
        ends = (hour, hour + _LAST_OF_HOUR)
        return _single_offset({end.replace(tzinfo=timezone, fold=fold).utcoffset() for end in ends for fold in (0, 1)})

    offsets = _map_distinct(pc.floor_temporal(local_times, unit="hour"), offset_of_hour)
    return pc.subtract(local_times.cast(pa.int64()), offsets).cast(TIMESTAMP)


def to_local_time(timestamps: pa.Array, timezone: ZoneInfo) -> pa.Array:
    """Convert UTC timestamps to local times; null where the local time is outside the years 1 to 9999."""

    def offset_at(utc: datetime) -> timedelta | None:
        try:
            return utc.replace(tzinfo=UTC).astimezone(timezone).utcoffset()
        except OverflowError:
            return None

    utc_times = timestamps.cast(pa.int64()).cast(LOCAL_TIMESTAMP)
    hours = pc.floor_temporal(utc_times, unit="hour")
    offsets = _map_distinct(hours, lambda hour: _single_offset({offset_at(hour), offset_at(hour + _LAST_OF_HOUR)}))
    # Timestamps in an hour in which the offset changes are converted one by one.
    ambiguous = pc.and_(utc_times.is_valid(), offsets.is_null())
    if pc.any(ambiguous).as_py():
        single = _map_distinct(utc_times.filter(ambiguous), lambda utc: _single_offset({offset_at(utc)}))
        offsets = pc.replace_with_mask(offsets, ambiguous, single)
    return pc.add(utc_times.cast(pa.int64()), offsets).cast(LOCAL_TIMESTAMP)


def _single_offset(offsets: set[timedelta | None]) -> int | None:
    """Return the offset in microseconds if there is exactly one, else None."""
    offset, *others = offsets
    return None if others or offset is None else offset // _MICROSECOND


def _map_distinct(times: pa.Array, function: Callable[[datetime], int | None]) -> pa.Array:
    """Return the result of `function` for each time; it is called once for each distinct one."""
    encoded = times.dictionary_encode()
    return pa.array(map(function, encoded.dictionary.to_pylist()), pa.int64()).take(encoded.indices)
