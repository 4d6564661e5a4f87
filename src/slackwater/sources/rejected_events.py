"""Where rejected events are, and what was sent of them again; the metadata of their objects.

Checks read these without pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

_HOURS = "hours"
"""The key of the metadata: `2013-03-10T20=3,2013-03-10T21=1`, hours in UTC with the number of events."""
# S3 limits the metadata of an object to 2 KB.
_MOST_HOURS = 75
STORED = ".stored"
"""The ending of the object that says that the accepted events of a redrive are stored. It has the metadata of
`hours_metadata` with them."""
_REDRIVE = re.compile(r"/redriven/(?P<day>source=[^/]+/date=[^/]+)/(?P<batch>[^/]+)-\d{4}\.[a-z]+$")


def rejects_prefix(bucket: str, source: str, date: str = "") -> str:
    """Return the URI prefix of a source's rejected events of one day (`2013-03-10`), or of all days without a date."""
    return f"s3://{bucket}/sideline/source={source}/{f'date={date}/' if date else ''}"


def redrives_prefix(bucket: str, source: str, date: str = "", batch_id: str = "") -> str:
    """Return the URI prefix of what was sent again of a source, of a UTC day of first receipt, or of one batch."""
    day = f"date={date}/" if date else ""
    return f"s3://{bucket}/redriven/source={source}/{day}{f'{batch_id}-' if batch_id else ''}"


def redriven_from(uri: str) -> str:
    """Return the URI of the rejected events from an object below `redrives_prefix`."""
    return _REDRIVE.sub(r"/sideline/\g<day>/\g<batch>.jsonl", uri)


def hours_metadata(hours: Mapping[str, int]) -> dict[str, str]:
    """Return the metadata with the latest 75 of the hours, such as `2013-03-10T20`; empty without any."""
    latest = sorted(hours)[-_MOST_HOURS:]
    return {_HOURS: ",".join(f"{hour}={hours[hour]}" for hour in latest)} if latest else {}


def read_hours(metadata: Mapping[str, str]) -> dict[datetime, int]:
    """Return the number of rejected events by the start of their hour, UTC."""
    pairs = (pair.split("=") for pair in metadata.get(_HOURS, "").split(",") if pair)
    return {datetime.strptime(hour, "%Y-%m-%dT%H").replace(tzinfo=UTC): int(count) for hour, count in pairs}
