"""CSV files for the benchmark `pull`: flights of one day, and events with six columns."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import cycle
from pathlib import Path

from examples.nyc_flights import feed
from slackwater.sources.definition import Source

DAY = date(2013, 3, 8)
# Columns whose values differ from one copy of the flights to the next.
_DELAY, _FLIGHT = 5, 10
_COUNTRIES = ("DE", "ES", "FR", "GB", "IT", "NL", "PL", "US")
_EVENT_BYTES = 76
_UTC = re.compile(r"(?<=:[0-9]{2}\.[0-9]{3})Z|(?<=:[0-9]{2})Z")

EVENTS = Source.model_validate(
    {
        "source": "events",
        "timestamp": {"field": "at"},
        "fields": {
            "event_id": "string",
            "at": "timestamp",
            "campaign": "string",
            "country": "string",
            "clicks": "int64",
            "cost": "double",
        },
        "pull": {"url": "https://partner.example/out", "listing": "json", "files": "{date}", "format": "csv"},
    }
)


def write_flights(path: Path, megabytes: int, *, in_order: bool) -> int:
    """Write the flights of one day again and again, with small differences; return the number of rows."""
    header, *lines = "".join(feed.flights_files(DAY).values()).splitlines(keepends=True)
    flights = [line.rstrip("\n").split(",") for line in lines if line != header]
    rows = megabytes * 1_000_000 // (sum(map(len, lines)) // len(lines))
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(header)
        for number, flight in zip(range(rows), cycle(flights), strict=False):
            hour = number * 24 // rows if in_order else number % 24
            file.write(_line(flight, number // len(flights), hour))
    return rows


def _line(flight: Sequence[str], time: int, hour: int) -> str:
    delay = flight[_DELAY] if flight[_DELAY] == "NA" else f"{int(flight[_DELAY]) + time % 10}"
    before, between = ",".join(flight[:_DELAY]), ",".join(flight[_DELAY + 1 : _FLIGHT])
    after = ",".join(flight[_FLIGHT + 1 : -1])
    return f"{before},{delay},{between},{int(flight[_FLIGHT]) + time},{after},{DAY}T{hour:02d}:00:00Z\n"


def write_events(path: Path, megabytes: int) -> int:
    """Write events at random times of one day, in milliseconds; return the number of rows."""
    rows, generator = megabytes * 1_000_000 // _EVENT_BYTES, random.Random(path.name)  # noqa: S311 - no secrets
    midnight = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write("event_id,at,campaign,country,clicks,cost\n")
        for number in range(rows):
            time = midnight + timedelta(milliseconds=generator.randrange(86_400_000))
            at = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            campaign, country = f"campaign-{generator.randrange(200):03d}", generator.choice(_COUNTRIES)
            clicks, cost = generator.randrange(20), generator.randrange(100_000) / 100
            event_id = f"{number:08d}-{generator.getrandbits(64):016x}"
            file.write(f"{event_id},{at},{campaign},{country},{clicks},{cost}\n")
    return rows


def remove_offsets(path: Path, target: Path, *, accepted: int) -> None:
    """Copy a file; all rows but the first `accepted` ones lose the Z of their timestamps, and so are rejected."""
    with path.open(encoding="utf-8", newline="") as file, target.open("w", encoding="utf-8", newline="") as copy:
        for number, line in enumerate(file):
            copy.write(line if number <= accepted else _UTC.sub("", line))
