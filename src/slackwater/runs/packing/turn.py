"""Which days of a source a call looks at, besides those of the last weeks: each day has its turn.

The work of a call does not depend on the age of the source, and nothing is stored about what was looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from slackwater.runs.period import start_of
from slackwater.sources.definition import Source
from slackwater.sources.partitions import Partition, source_partition, source_prefix
from slackwater.storage import ObjectStore, split_uri

_DAY = timedelta(days=1)
# Days of a call, of those of ten years: events with wrong times may have any date.
_DAYS, _WINDOW = 2, 3653 * _DAY


def days_in_turn(
    source: Source, now: datetime, last: datetime, *, store: ObjectStore, raw_bucket: str
) -> Iterator[datetime]:
    """Yield up to two of the UTC days from the first one of the source to `last`: other ones in each hour.

    Raises `CloudError` if the source cannot be listed.
    """
    prefix = source_prefix(raw_bucket, source.source)
    objects = store.list(prefix, start_after=f"{prefix}date={last - _WINDOW:%Y-%m-%d}")
    first = next((found[1] for item in objects if (found := source_partition(split_uri(item.uri)[1]))), None)
    if first is None or (first_day := start_of(Partition(first.date, "00"))) > last:
        return
    # The smallest power of two that is not less than the number of days. It rarely changes, so no day is left out.
    cycle = 1 << (last - first_day).days.bit_length()
    position = int(now.timestamp()) // 3600 * _DAYS
    for number in range(position, position + _DAYS):
        day = first_day + (number - first_day.toordinal()) % cycle * _DAY
        if day <= last:
            yield day
