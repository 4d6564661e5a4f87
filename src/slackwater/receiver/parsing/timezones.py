"""Whole columns of moments set to the clock of a zone, and back.

Python's `zoneinfo` is asked once for each hour that occurs: Arrow would look for the system's zone files, which
Lambda's image does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.sources.event_schema import TIMESTAMP

CLOCK = pa.timestamp("us")
"""What a clock shows: a moment without a zone."""
_MICROSECOND = timedelta(microseconds=1)
_TO_THE_END = timedelta(hours=1) - _MICROSECOND


def moments_at(clocks: pa.Array, zone: ZoneInfo) -> pa.Array:
    """Return the moments at which the zone's clock shows that; null in an hour in which the clock is changed.

    They may lie just outside of the years 1 to 9999.
    """

    def offset(hour: datetime) -> int | None:
        ends = (hour, hour + _TO_THE_END)
        return _only({end.replace(tzinfo=zone, fold=fold).utcoffset() for end in ends for fold in (0, 1)})

    offsets = _looked_up(pc.floor_temporal(clocks, unit="hour"), offset)
    return pc.subtract(clocks.cast(pa.int64()), offsets).cast(TIMESTAMP)


def clocks_at(moments: pa.Array, zone: ZoneInfo) -> pa.Array:
    """Return what the zone's clock shows at those moments; null where that is no day of the years 1 to 9999."""

    def offset(moment: datetime) -> timedelta | None:
        try:
            return moment.replace(tzinfo=UTC).astimezone(zone).utcoffset()
        except OverflowError:
            return None

    utc = moments.cast(pa.int64()).cast(CLOCK)
    hours = pc.floor_temporal(utc, unit="hour")
    offsets = _looked_up(hours, lambda hour: _only({offset(hour), offset(hour + _TO_THE_END)}))
    changing = pc.and_(utc.is_valid(), offsets.is_null())
    if pc.any(changing).as_py():
        each = _looked_up(utc.filter(changing), lambda moment: _only({offset(moment)}))
        offsets = pc.replace_with_mask(offsets, changing, each)
    return pc.add(utc.cast(pa.int64()), offsets).cast(CLOCK)


def _only(offsets: set[timedelta | None]) -> int | None:
    """Return the one offset in microseconds, or None when there are several, or none."""
    found, *more = offsets
    return None if more or found is None else found // _MICROSECOND


def _looked_up(clocks: pa.Array, offset: Callable[[datetime], int | None]) -> pa.Array:
    encoded = clocks.dictionary_encode()
    return pa.array(map(offset, encoded.dictionary.to_pylist()), pa.int64()).take(encoded.indices)
