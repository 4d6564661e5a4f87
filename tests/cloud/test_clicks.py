"""The scenario of hours and the running day: every row that it publishes equals one of DuckDB over its events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from examples.clicks.scenario import DATE, LATE, LATE_HOUR
from slackwater.local import cloud as local_cloud
from tests.conftest import ROOT

# It has a cloud of its own, in which about 14 Spark jobs run.
pytestmark = [pytest.mark.cloud, pytest.mark.long, pytest.mark.timeout(900)]

BY_PAGE = "page, count(*), sum(seconds)::BIGINT"
HOURLY = f"SELECT utc::DATE::VARCHAR, hour(utc), {BY_PAGE}"
DAILY = f"SELECT day::VARCHAR, {BY_PAGE}, count(DISTINCT date_trunc('hour', utc))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("clicks")


@pytest.fixture(scope="module")
def played(folder) -> dict[str, Any]:
    documents, root = folder / "documents.json", folder / "run"
    command = [sys.executable, "-m", "examples.clicks.scenario", "--json", str(documents), "--folder", str(root)]
    environment = {**os.environ, "CDK_VALIDATION": "false"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=840
        )
    finally:
        local_cloud.down(root)
    assert done.returncode == 0, done.stdout + done.stderr
    return {**json.loads(documents.read_text()), "out": done.stdout}


@pytest.fixture(scope="module")
def duck(folder, played):
    """Compute rows from the events in files, each id once: `utc` is their time, and `day` the date in Berlin."""

    def rows(pattern: str, select: str, where: str = "true") -> list[list[Any]]:
        columns = "{id: 'VARCHAR', \"at\": 'TIMESTAMPTZ', page: 'VARCHAR', seconds: 'BIGINT'}"
        files = f"read_json('{folder}/run/events/{pattern}.ndjson', columns={columns})"
        local = "timezone('UTC', \"at\") AS utc, timezone('Europe/Berlin', \"at\")::DATE AS day"
        events = f"(SELECT DISTINCT *, {local} FROM {files})"
        query = f"{select} FROM {events} WHERE {where} GROUP BY ALL ORDER BY ALL"
        return [list(row) for row in duckdb.sql(query).fetchall()]

    return rows


@pytest.mark.parametrize(("part", "pattern"), [("published", "of-*"), ("late", "[ol]*")])
def test_hours_and_their_day_have_the_events_that_were_sent_by_then(played, duck, part, pattern):
    assert played[part]["hours"] == duck(pattern, HOURLY)
    assert played[part]["days"] == duck(pattern, DAILY, f"day = '{DATE}'")


def test_late_clicks_run_their_hour_and_the_day_again_and_nothing_else(played):
    late = played["late"]
    reruns = {
        name: {day["date"]: day["rule"] for day in late[name]["check"]["days"] if day["decision"] == "rerun"}
        for name in ("hourly", "daily")
    }
    assert reruns == {"hourly": {LATE_HOUR: "grown"}, "daily": {DATE: "grown"}}
    clicks = [sum(row[2] for row in played[part]["days"]) for part in ("published", "late")]
    assert clicks[1] - clicks[0] == LATE


def test_the_open_day_is_published_again_only_when_there_are_new_clicks(played, duck):
    today = played["today"]
    assert today["outcomes"] == ["published", "published", "unchanged"]
    after = [duck(f"today-[{digits}]", f"SELECT {BY_PAGE}") for digits in ("0", "01", "01")]
    assert today["versions"] == after
    [provisional] = today["provisional"]
    assert provisional["date"] == today["date"]
    assert f"provisional, through {provisional['through'][11:16]} UTC" in played["out"]
