"""Events for the benchmarks: the flights that left New York on one day, repeated until there are enough."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from examples.nyc_flights import feed
from slackwater.sources.definition import Source
from slackwater.sources.fields import FieldType

EVENTS, BATCH, HOURS = 100_000, 10_000, 24
_DAY = date(2013, 3, 8)
_DEFINITION = Path(feed.__file__).parent / "sources" / "flights.yaml"
_NUMBERS = {FieldType.INT64: int, FieldType.DOUBLE: float}


def source() -> Source:
    """Return the source `flights` of the example, changed to accept pushed events."""
    definition = yaml.safe_load(_DEFINITION.read_text(encoding="utf-8"))
    return Source.model_validate({**definition, "push": {"max_events": BATCH}})


def bodies(*, in_order: bool) -> list[bytes]:
    """Return the events of one day as NDJSON batches: in order of hour, or with events of all hours in each batch."""
    events = [json.dumps(event, separators=(",", ":")) for event in _events(in_order=in_order)]
    return ["".join(f"{event}\n" for event in events[n : n + BATCH]).encode() for n in range(0, EVENTS, BATCH)]


def _events(*, in_order: bool) -> Iterator[dict[str, Any]]:
    flights = list(_flights())
    for number in range(EVENTS):
        repetition, index = divmod(number, len(flights))
        event = flights[index]
        hour = number * HOURS // EVENTS if in_order else number % HOURS
        delay = event["dep_delay"]
        yield event | {
            "flight": event["flight"] + repetition,
            "dep_delay": None if delay is None else delay + repetition % 10,
            "time_hour": f"{_DAY}T{hour:02d}:00:00Z",
        }


def _flights() -> Iterator[dict[str, Any]]:
    """Yield the real flights of the day, with numbers as JSON numbers and null for missing values."""
    converters = {name: _NUMBERS.get(type_, str) for name, type_ in source().columns.items()}
    for content in feed.flights_files(_DAY).values():
        for row in csv.DictReader(io.StringIO(content)):
            yield {name: None if value == "NA" else converters[name](value) for name, value in row.items()}
