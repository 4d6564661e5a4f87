"""Commands name a provisional version, and until when it has events."""

from __future__ import annotations

import sys
from datetime import timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest

from slackwater.client import day_client
from slackwater.client.verdicts import Verdicts
from slackwater.late.check.dry_run import without_writes
from tests.example_project import PROJECT
from tests.fakes_check import NOW, PIPELINE
from tests.fakes_cli import Terminal, a_client, use_client
from tests.fakes_state import MemoryPeriods, MemoryVerdicts
from tests.fakes_waits import MemoryWaits
from tests.unit.runs.test_live import DAY, END, LiveWorld

pytestmark = pytest.mark.unit

MARK = "provisional, through 18:05 UTC"


@pytest.fixture
def world() -> LiveWorld:
    """Two provisional versions of the open day."""
    world = LiveWorld()
    for count, hour in enumerate(("12", "17")):
        world.time = NOW + timedelta(minutes=5 * count)
        world.add("flights", DAY, hour)
        world.run(live=True)
    return world


@pytest.fixture
def client(world, monkeypatch):
    verdicts = Verdicts(
        project=world.project,
        table=MemoryVerdicts(),
        runs=world.table,
        store=world.store,
        wake=lambda *_: None,
        principal=lambda: "arn:aws:iam::1:user/ana",
        now=world.now,
    )
    table = pa.table({"date": [DAY], "flights": [20]})
    client = a_client(
        world.project,
        deployment=SimpleNamespace(schedule="eventbridge", collect_minutes=5, state_table=""),
        dry_checker=without_writes(world.checker),
        wait_table=MemoryWaits(),
        run_table=world.table,
        store=world.store,
        period_table=MemoryPeriods(),
        verdicts=verdicts,
        warehouse=SimpleNamespace(published=lambda *_, **__: table, tags=lambda _: frozenset()),
        file_cache=world.files,
    )
    monkeypatch.setattr(day_client, "utc_now", lambda: world.time)
    use_client(monkeypatch, client)
    return client


def test_runs_marks_provisional_versions_and_says_until_when_the_latest_has_events(client, printed_by, document_of):
    shown = printed_by("runs", PIPELINE, "--from", DAY, *PROJECT).out
    assert shown.count("provisional") == 3
    assert f"{DAY}, attempt 2: {MARK}" in shown
    first, second = document_of("runs", PIPELINE, "--from", DAY, *PROJECT)["runs"]
    assert (first["provisional"], first["through"], first["reasons"]) == (True, "2013-03-13T18:00:00Z", ["live"])
    assert second["through"] == "2013-03-13T18:05:00Z"


def test_runs_of_a_finished_day_are_published(client, world, document_of, printed_by):
    world.time = END
    world.run()
    _, last = document_of("runs", PIPELINE, "--from", DAY, *PROJECT)["runs"]
    assert (last["state"], last["provisional"], last["through"], last["reasons"]) == (
        "published",
        False,
        None,
        ["first"],
    )
    assert MARK not in printed_by("runs", PIPELINE, "--from", DAY, *PROJECT).out


def test_why_names_the_version_in_the_table(client, printed_by, document_of):
    shown = printed_by("why", PIPELINE, "--date", DAY, *PROJECT).out
    assert f"in the table  version 2, 2013-03-13 18:05 UTC, 3 rows, {MARK}" in shown
    assert "published     nothing" in shown
    document = document_of("why", PIPELINE, "--date", DAY, *PROJECT)
    assert (document["published"], document["provisional"]["attempt"]) == (None, 2)
    assert document["decision"]["rule"] == "current"


def test_a_query_notes_which_of_its_days_are_provisional(client, printed_by, document_of, world):
    sql = f"SELECT * FROM {PIPELINE}"
    assert f"{PIPELINE} {DAY}: {MARK}" in printed_by("query", sql, *PROJECT).err
    document = document_of("query", sql, *PROJECT)
    assert [(day["date"], day["through"]) for day in document["provisional"]] == [(DAY, "2013-03-13T18:05:00Z")]
    assert "provisional" not in document_of("query", "SELECT 1", *PROJECT)
    world.time = END
    world.run()
    assert "provisional" not in document_of("query", sql, *PROJECT)


def test_state_lists_provisional_days(client, printed_by, document_of, monkeypatch):
    client.connection.deployment.state_table = "state"
    arguments = ("state", PIPELINE, "--from", DAY, "--to", DAY, *PROJECT)
    [document] = document_of(*arguments)
    assert [day["date"] for day in document["provisional"]] == [DAY]
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    printed_by(*arguments)
    assert f"{PIPELINE} {DAY}: {MARK}" in terminal.getvalue()


def test_history_has_the_latest_provisional_version_only(client, document_of, world):
    versions = document_of("history", PIPELINE, "--date", DAY, *PROJECT)["versions"]
    assert [(version["version"], version["status"]) for version in versions] == [(2, "provisional")]
    world.time = END
    world.run()
    versions = document_of("history", PIPELINE, "--date", DAY, *PROJECT)["versions"]
    assert [version["status"] for version in versions] == ["published"]
