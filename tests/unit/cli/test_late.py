"""`slackwater late`: what it lists, and what its decisions print."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slackwater.cli.main import run
from slackwater.project import load_definitions
from tests.fakes_check import PIPELINE, five_days
from tests.fakes_cli import a_client, use_client
from tests.unit.late.test_holds import DAY, NOON, decisions

pytestmark = pytest.mark.unit

PROJECT = ["--project", "examples/nyc_flights"]


@pytest.fixture
def world(monkeypatch):
    world = five_days()
    project = load_definitions(Path("examples/nyc_flights"))
    use_client(
        monkeypatch, a_client(project, run_table=world.table, hold_decisions=decisions(world), checker=world.checker)
    )
    return world


@pytest.mark.parametrize("words", [["late"], ["late", PIPELINE], ["late", "list"], ["late", "list", PIPELINE]])
def test_days_on_hold_are_listed_with_rule_and_reason(world, capsys, words):
    world.store.delete([NOON])
    world.check()
    assert run([*words, *PROJECT]) == 0
    heading, day, total = capsys.readouterr().out.splitlines()
    assert heading.split() == ["pipeline", "date", "since", "rule", "reason"]
    assert day.startswith(f"{PIPELINE}  {DAY}  2013-03-13 18:00:00+00:00  vanished  flights has lost 1 object")
    assert total.startswith("1 day on hold: slackwater late release | reject")


def test_the_document_has_the_whole_hold(world, capsys):
    world.store.delete([NOON])
    world.check()
    assert run(["late", "--json", *PROJECT]) == 0
    (day,) = json.loads(capsys.readouterr().out)["days"]
    assert (day["pipeline"], day["date"], day["rule"], len(day["inputs"])) == (PIPELINE, DAY, "vanished", 64)


def test_without_days_on_hold_nothing_is_listed(world, capsys):
    assert run(["late", *PROJECT]) == 0
    assert capsys.readouterr().out == "no day is on hold\n"


def test_a_reject_prints_what_stays(world, capsys):
    world.store.delete([NOON])
    world.check()
    assert run(["late", "reject", PIPELINE, "--date", DAY, "--reason", "wrong", "--json", *PROJECT]) == 0
    assert json.loads(capsys.readouterr().out)["resolution"]["action"] == "rejected"
    assert run(["late", "reject", PIPELINE, "--date", DAY, "--reason", "wrong", *PROJECT]) == 2
    assert "is not on hold: slackwater late lists the days on hold" in capsys.readouterr().err


def test_an_unknown_pipeline_is_refused(world, capsys):
    assert run(["late", "dialy_delays", *PROJECT]) == 2
    assert "no pipeline 'dialy_delays'" in capsys.readouterr().err


def test_days_before_the_window_are_listed_with_how_to_process_them(world, capsys):
    world.time = datetime(2013, 3, 20, 18, tzinfo=UTC)
    assert run(["late", "--older", PIPELINE, *PROJECT]) == 0
    assert capsys.readouterr().out == "no day before the window has late data\n"
    world.add("flights", DAY, "20", name="late", rows=500)
    world.table.record_late_day(PIPELINE, DAY, at=world.time, keys=["k"])
    assert run(["late", "--older", PIPELINE, *PROJECT]) == 0
    heading, day, *_, total = capsys.readouterr().out.splitlines()
    assert heading.split() == ["pipeline", "date", "since", "rule", "reason"]
    assert day.startswith(f"{PIPELINE}  {DAY}  2013-03-20 18:00:00+00:00  grown  flights grew by 500 rows")
    assert total == "1 day before the window: slackwater run PIPELINE --date DATE processes one"


def test_the_document_of_older_days_has_their_numbers(world, capsys):
    world.time = datetime(2013, 3, 20, 18, tzinfo=UTC)
    world.add("flights", DAY, "20", name="late", rows=500)
    assert run(["late", "--older", PIPELINE, "--from", DAY, "--to", DAY, "--json", *PROJECT]) == 0
    document = json.loads(capsys.readouterr().out)
    [day] = document["days"]
    assert (day["date"], day["rule"], day["figures"]["late_rows"]) == (DAY, "grown", 500)
    assert (day["since"], day["new_objects"], document["unchecked"]) == (None, 0, 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", DAY], "--from and --to: use them with --older"),
        (["--older", "--from", DAY], "--from and --to need the name of one pipeline"),
        (["--older", PIPELINE, "--from", "soon"], "--from"),
    ],
)
def test_a_range_needs_one_pipeline_and_dates(world, capsys, words, message):
    assert run(["late", *words, *PROJECT]) == 2
    assert message in capsys.readouterr().err
