"""Rejected events by the time in them: for the counts of their source, and for the ledger of late data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.writing.windows import bin_numbers
from slackwater.sources.rejected_events import hours_metadata
from slackwater.state.facts import BINS, HOUR, RejectedEvents
from slackwater.state.reports import AHEAD, MAX_AGE

_BIN = HOUR / BINS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What Python's datetime can hold.
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC) - _EPOCH, datetime.max.replace(tzinfo=UTC) - _EPOCH


def count_bins(timestamps: pa.ChunkedArray) -> Counter[int | None]:
    """Return the number of events by five minutes since 1970; None has those without a timestamp."""
    counts = pc.value_counts(bin_numbers(timestamps))
    return Counter(dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)))


def metadata_of(bins: Mapping[int | None, int]) -> dict[str, str]:
    """Return the metadata of an object with the rejected events that `count_bins` has counted."""
    hours = Counter[str]()
    for number, count in bins.items():
        if number is not None and _FIRST <= number * _BIN <= _LAST:
            hours[(_EPOCH + number * _BIN).isoformat()[:13]] += count
    return hours_metadata(hours)


def rejected_by_hour(
    bins: Counter[int | None], *, origin: str, received_at: datetime
) -> dict[datetime, RejectedEvents]:
    """Return the rejected events of a batch or file, received at `received_at`, by the UTC hour of their timestamps.

    Events without a timestamp, or with one of a time that no report may name, are `unplaced` in the hour of receipt.
    """
    hours: dict[datetime, list[int]] = {}
    unplaced = 0
    for number, count in bins.items():
        if number is None or not -MAX_AGE <= (start := number * _BIN) - (received_at - _EPOCH) <= AHEAD:
            unplaced += count
            continue
        hour, position = divmod(start, HOUR)
        hours.setdefault(_EPOCH + hour * HOUR, [0] * BINS)[position // _BIN] += count
    if unplaced:
        hours.setdefault(received_at.astimezone(UTC).replace(minute=0, second=0, microsecond=0), [0] * BINS)
    received = received_at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return {
        hour: RejectedEvents(origin, tuple(counts), unplaced if hour == received else 0)
        for hour, counts in hours.items()
    }
