"""Generate clicks: `python events.py 2024-03-31T12` prints those of an hour of UTC as NDJSON, `now` those of now."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

PAGES = ("home", "search", "product", "basket")
CLICKS = 60
"""Clicks of an hour."""


def clicks(start: datetime, *, first: int = 0, count: int = CLICKS) -> Iterator[dict[str, object]]:
    """Yield the clicks of an hour, from number `first` on; each number has the same click every time."""
    for number in range(first, first + count):
        yield {
            "id": f"{start:%Y-%m-%dT%H}-{number}",
            "at": (start + timedelta(seconds=53 * number % 3600)).isoformat(),
            "page": PAGES[7 * number % 11 % len(PAGES)],
            "seconds": 5 + 17 * number % 90,
        }


def clicks_at(at: datetime, *, first: int, count: int) -> Iterator[dict[str, object]]:
    """Yield clicks of one instant, from number `first` on."""
    for click in clicks(at, first=first, count=count):
        yield {**click, "at": at.isoformat()}


if __name__ == "__main__":
    now = datetime.now(UTC)
    events = (
        clicks_at(now, first=int(now.timestamp()), count=20)
        if sys.argv[1] == "now"
        else clicks(datetime.fromisoformat(f"{sys.argv[1]}:00:00").replace(tzinfo=UTC))
    )
    for each in events:
        sys.stdout.write(json.dumps(each) + "\n")
