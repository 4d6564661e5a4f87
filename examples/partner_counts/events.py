"""Print the events of yesterday that a partner sends, as NDJSON: `python events.py clicks`, or `orders`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta

_PRODUCTS = ("chair", "lamp", "table")


def events(source: str, day: date) -> Iterator[dict[str, object]]:
    """Yield the events of a source on a day of UTC: some in each hour, also in the first and the last one."""
    start = datetime.combine(day, time(), UTC)
    for number in range(24 * (5 if source == "clicks" else 2)):
        at = start + timedelta(hours=number % 24, minutes=7 * number % 60)
        event: dict[str, object] = {
            "id": f"{source}-{day}-{number}",
            "product": _PRODUCTS[number % 3],
            "at": at.isoformat(),
        }
        yield event if source == "clicks" else {**event, "cents": 1000 + 50 * number}


if __name__ == "__main__":
    for each in events(sys.argv[1], datetime.now(UTC).date() - timedelta(days=1)):
        sys.stdout.write(json.dumps(each) + "\n")
