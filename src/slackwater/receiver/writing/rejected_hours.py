"""Rejected events by the time in them: for the counts of their source, and for the ledger of late data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa

from slackwater.receiver.parsing.count_keys import KEY_NUMBER
from slackwater.receiver.writing.windows import bin_numbers
from slackwater.sources.event_schema import EVENT_TIME
from slackwater.sources.rejected_events import hours_metadata
from slackwater.state.facts import BINS, HOUR, RejectedEvents
from slackwater.state.reports import AHEAD, MAX_AGE

_BIN = HOUR / BINS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What Python's datetime can hold.
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC) - _EPOCH, datetime.max.replace(tzinfo=UTC) - _EPOCH


RejectedBins = Counter[tuple[int | None, int | None]]
"""Rejected events by five minutes since 1970, and by the position of their key in `Counts.keys`: each is None if it is
not readable."""


def count_bins(rejections: pa.Table) -> RejectedBins:
    """Return the number of rejected events, which are as in `CheckedEvents`."""
    numbers = pa.table({"number": bin_numbers(rejections[EVENT_TIME]), "key": rejections[KEY_NUMBER]})
    counts = numbers.group_by(["number", "key"], use_threads=False).aggregate([([], "count_all")]).to_pylist()
    return Counter({(row["number"], row["key"]): row["count_all"] for row in counts})


def metadata_of(bins: Mapping[tuple[int | None, int | None], int]) -> dict[str, str]:
    """Return the metadata of an object with the rejected events that `count_bins` has counted."""
    hours = Counter[str]()
    for (number, _), count in bins.items():
        if number is not None and _FIRST <= number * _BIN <= _LAST:
            hours[(_EPOCH + number * _BIN).isoformat()[:13]] += count
    return hours_metadata(hours)


def rejected_by_hour(
    bins: RejectedBins, keys: tuple[str, ...], *, origin: str, received_at: datetime
) -> dict[datetime, RejectedEvents]:
    """Return the rejected events of a batch or file, received at `received_at`, by the UTC hour of their timestamps.

    Events without a timestamp, or with one of a time that no report may name, are `unplaced` in the hour of receipt;
    so are those whose value is not readable, because it may be any of those of `keys`.
    """
    hours: dict[datetime, list[list[int]]] = {}
    unplaced = 0
    for (number, key), count in bins.items():
        if number is None or key is None or not -MAX_AGE <= (start := number * _BIN) - (received_at - _EPOCH) <= AHEAD:
            unplaced += count
            continue
        hour, position = divmod(start, HOUR)
        hours.setdefault(_EPOCH + hour * HOUR, _empty(keys))[key][position // _BIN] += count
    received = received_at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if unplaced:
        hours.setdefault(received, _empty(keys))
    return {
        hour: RejectedEvents(
            origin, dict(zip(keys, map(tuple, counts), strict=True)), unplaced if hour == received else 0
        )
        for hour, counts in hours.items()
    }


def _empty(keys: tuple[str, ...]) -> list[list[int]]:
    return [[0] * BINS for _ in keys]
