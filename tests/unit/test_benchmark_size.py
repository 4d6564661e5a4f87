"""The generated days of `benchmarks.size`, and what it measures of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import httpx
import pytest

from benchmarks.cloud import used
from benchmarks.size_data import DAY, HOURS, csv_files, served, write_day, write_late

EVENTS, LATE = 48_010, 2_400


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_day(folder, EVENTS)
    return folder


def _one(query: str) -> tuple[int, ...]:
    [row] = duckdb.sql(query).fetchall()
    return row


def test_a_day_has_the_events_in_equal_files_of_one_hour_each(files: Path) -> None:
    per_file = duckdb.sql(
        f'SELECT count(*), min("at"[:13]), max("at"[:13]) FROM read_csv(\'{files}/*.csv\', all_varchar = true, '
        "filename = true) GROUP BY filename ORDER BY filename"
    ).fetchall()

    assert sum(rows for rows, _, _ in per_file) == EVENTS
    assert {rows for rows, _, _ in per_file} == {EVENTS // HOURS, EVENTS // HOURS + 1}
    assert [(first, last) for _, first, last in per_file] == [(f"{DAY}T{hour:02d}",) * 2 for hour in range(HOURS)]


def test_a_day_has_all_groups_and_some_missing_and_broken_values(files: Path) -> None:
    events, campaigns, countries, broken, no_clicks, no_cost = _one(
        "SELECT count(*), count(DISTINCT campaign), count(DISTINCT country), count(*) FILTER (WHERE clicks < 0), "
        f"count(*) FILTER (WHERE clicks IS NULL), count(*) FILTER (WHERE cost IS NULL) FROM {csv_files(files)}"
    )

    assert (events, campaigns, countries) == (EVENTS, 1000, 30)
    assert 0.001 < broken / EVENTS < 0.003
    assert 0.004 < no_clicks / EVENTS < 0.006
    assert 0.009 < no_cost / EVENTS < 0.011


def test_sums_are_equal_in_any_order_of_the_rows(files: Path) -> None:
    exact, of_floats = _one(f"SELECT sum(cost::DECIMAL(18, 6)), sum(cost) FROM {csv_files(files)}")

    assert float(exact) == of_floats


def test_the_same_seed_makes_the_same_files_and_late_data_has_other_events(files: Path, tmp_path: Path) -> None:
    write_day(tmp_path, EVENTS)
    assert all((tmp_path / path.name).read_bytes() == path.read_bytes() for path in files.glob("*.csv"))

    assert write_late(tmp_path, LATE) == (tmp_path / f"clicks-{DAY}-late.csv").stat().st_size
    late = csv_files(tmp_path).replace("-*", "-late")
    rows, hours = _one(f'SELECT count(*), count(DISTINCT hour("at")) FROM {late}')
    assert (rows, hours) == (LATE, HOURS)
    assert _one(f"SELECT count(*) FROM (FROM {late} INTERSECT FROM {csv_files(files)})") == (0,)


def test_the_server_lists_and_serves_the_files(files: Path) -> None:
    with served(files) as port:
        url = f"http://127.0.0.1:{port}/clicks"
        listed = {entry["name"]: entry["size"] for entry in httpx.get(url).json()}
        content = httpx.get(f"{url}/clicks-{DAY}-07.csv").content
        missing = httpx.get(f"{url}/none.csv").status_code

    assert listed == {path.name: path.stat().st_size for path in files.glob("*.csv")}
    assert content == (files / f"clicks-{DAY}-07.csv").read_bytes()
    assert missing == 404


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_usage_counts_processes_that_have_ended() -> None:
    program = "import time\nwhile time.process_time() < 0.2: pass\n"

    result, usage = used(os.getpid(), lambda: subprocess.run([sys.executable, "-c", program], check=True).returncode)

    assert result == 0
    assert usage.cpu >= 0.2
    assert usage.peaks["other"] > 1_000_000
