"""`slackwater verdict`: what it stores, prints and refuses, whom it wakes, and what `why` and `state` show then."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest

from slackwater.client.verdicts import Verdicts
from slackwater.errors import AccessDenied, InputError
from slackwater.late.check.dry_run import without_writes
from slackwater.pipeline.table_inputs import TableInput
from slackwater.pipeline.when import When
from slackwater.state.facts import HOUR
from slackwater.state.verdicts import Subject
from tests.example_project import PROJECT
from tests.fakes_check import PIPELINE, World
from tests.fakes_cli import Terminal, use_client
from tests.unit.cli.test_why import connect
from tests.unit.runs.test_source_counts import DATE, START
from tests.unit.runs.test_waits import END, with_definition

pytestmark = pytest.mark.unit

ANA = "arn:aws:iam::1:user/ana"
SINCE = f"by {ANA} since 2013-03-09 09:00 UTC"
FAIL = ("flights", "fail", "--hour", "2013-03-08T06", "--reason", "bots")


@pytest.fixture
def world() -> World:
    """A published day four hours after its end, of a pipeline whose runs wait for good flights."""
    world = with_definition(World(), when=When.model_validate({"quality": {"flights": "pass"}}))
    world.time = END + 4 * HOUR
    world.add("flights", DATE, "06")
    return world


@pytest.fixture
def woken():
    return []


@pytest.fixture
def client(monkeypatch, world, woken):
    client = connect(monkeypatch, world, await_inputs_function="f")
    vars(client).update(run_table=world.table, store=world.store)
    vars(client)["verdicts"] = Verdicts(
        project=world.project,
        table=world.verdicts,
        runs=world.table,
        store=world.store,
        wake=lambda subject, periods, at: woken.append((*subject, periods, at, len(world.verdicts.stored))),
        principal=lambda: ANA,
        now=world.now,
    )
    return client


@pytest.fixture
def verdict(client, printed_by):
    return lambda *arguments, code=0: printed_by("verdict", *arguments, *PROJECT, code=code)


def test_a_verdict_is_stored_before_the_runs_that_obey_it_are_woken(verdict, world, woken):
    out = verdict(*FAIL).out
    assert out == (
        f"flights 2013-03-08 06:00 UTC: fail, {SINCE}: bots\n"
        "  read by daily_delays: their published days are checked (late.on_invalid)\n"
        "  waiting runs of daily_delays obey it (when.quality)\n"
    )
    assert woken == [("source", "flights", ["2013-03-08T06"], world.time, 1)]
    [stored] = world.verdicts.stored.values()
    assert (stored.of, stored.name, stored.period, stored.version) == ("source", "flights", "2013-03-08T06", None)
    assert (stored.quality, stored.reason, stored.principal, stored.at) == ("fail", "bots", ANA, world.time)


def test_a_later_pass_clears_it_whatever_the_clock_says(verdict, client, world):
    verdict(*FAIL)
    assert [item.period for item in client.failed_periods(first=DATE, last=DATE)] == ["2013-03-08T06"]
    world.time -= timedelta(minutes=5)  # another computer
    verdict("flights", "pass", "--hour", "2013-03-08T06", "--reason", "no bots")
    assert client.failed_periods(first=DATE, last=DATE) == []
    world.time += timedelta(minutes=1)
    verdict(*FAIL)
    assert len(client.failed_periods(first=DATE, last=DATE)) == 1
    assert len(world.verdicts.stored) == 3


def test_a_day_of_a_source_is_its_hours(verdict, client):
    out = verdict("weather", "fail", "--date", DATE, "--reason", "in Kelvin").out
    assert client.project.source("weather").pull_timezone == "UTC"
    assert out.startswith(f"weather 2013-03-08 00:00 UTC and 23 more hours: fail, {SINCE}: in Kelvin\n")
    assert "waiting runs of no pipeline obey it (when.quality)" in out
    assert [item.period for item in client.failed_periods("weather", first=DATE, last=DATE)][23] == "2013-03-08T23"


def test_a_verdict_about_a_day_is_about_its_published_version(verdict, client, world, woken):
    assert (
        "has published nothing for 2013-03-08" in verdict(PIPELINE, "fail", "--date", DATE, "--reason", "x", code=2).err
    )
    world.publish(DATE)
    out = verdict(PIPELINE, "fail", "--date", DATE, "--reason", "half of it").out
    assert out.startswith(f"{PIPELINE} 2013-03-08, version 1: fail, {SINCE}: half of it\n")
    [failed] = client.failed_periods(PIPELINE, first=DATE, last=DATE)
    assert (failed.period, failed.version) == (DATE, 1)
    assert woken == []  # nobody obeys it
    world.publish(DATE, force=True)
    assert client.failed_periods(PIPELINE, first=DATE, last=DATE) == []


def test_a_verdict_about_a_day_wakes_the_pipelines_that_obey_it(verdict, client, world, woken):
    world.publish(DATE)
    weekly = world.project.pipelines[PIPELINE].model_copy(
        update={
            "pipeline": "weekly", "sources": (), "tables": {"days": TableInput(table=PIPELINE)},
            "when": When.model_validate({"quality": {"days": "pass"}}),
        }
    )  # fmt: skip
    project = world.project.model_copy(update={"pipelines": {**world.project.pipelines, "weekly": weekly}})
    vars(client)["verdicts"] = replace(client.verdicts, project=project)
    out = verdict(PIPELINE, "fail", "--date", DATE, "--reason", "x").out
    assert out.endswith(
        "  read by weekly: their published days are checked (late.on_invalid)\n"
        "  waiting runs of weekly obey it (when.quality)\n"
    )
    assert woken == [("pipeline", PIPELINE, [DATE], world.time, 1)]


def test_runs_that_cannot_be_woken_are_named(verdict, client, world):
    def refuse(*_):
        raise AccessDenied("could not evaluate waiting runs: AccessDenied")

    vars(client)["verdicts"] = replace(client.verdicts, wake=refuse)
    assert (
        "runs that wait look at it within 15 minutes, and published days at the next daily check: could not"
        in verdict(*FAIL).err
    )
    assert len(world.verdicts.stored) == 1


def test_a_pipe_gets_a_document(verdict, document_of):
    document = document_of("verdict", *FAIL, *PROJECT)
    [given] = document["verdicts"]
    assert given.pop("id")
    assert given == {
        "source": "flights", "hour": "2013-03-08T06", "quality": "fail", "reason": "bots", "principal": ANA,
        "at": "2013-03-09T09:00:00+00:00",
    }  # fmt: skip
    assert (document["read_by"], document["obeyed_by"], document["note"]) == ([PIPELINE], [PIPELINE], "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flights", "fail", "--reason", "x"], "--hour, --date: give one of them"),
        (["flights", "fail", "--reason", "x", "--hour", "2013-03-08T06", "--date", DATE], "give one of them"),
        (["flights", "fail", "--reason", "x", "--hour", "2013-03-08T24"], "'2013-03-08T24' is not a UTC hour such as"),
        (["flights", "fail", "--reason", "x", "--hour", "2013-03-08 06:00"], "is not a UTC hour such as 2026-01-01T15"),
        (["flights", "fail", "--reason", "x", "--hour", "2013-03-10T06"], "hour: 2013-03-10T06 has not begun, UTC"),
        (["flights", "fail", "--reason", "x", "--hour", "2011-03-10T06"], "more than 400 days ago"),
        (["flights", "fail", "--reason", " ", "--hour", "2013-03-08T06"], "reason: it is empty: say why"),
        (["flights", "fail", "--reason", "x" * 1001, "--hour", "2013-03-08T06"], "use at most 1,000"),
        (["flights", "maybe", "--reason", "x", "--hour", "2013-03-08T06"], "'maybe' is not one of"),
        ([PIPELINE, "fail", "--reason", "x", "--hour", "2013-03-08T06"], "is a pipeline, which publishes days"),
        (["nothing", "fail", "--reason", "x", "--date", DATE], "no source or pipeline 'nothing' in this project"),
        (["flights", "fail", "--reason", "x", "--date", "2013-02-30"], "'2013-02-30' is not a date"),
    ],
)
def test_what_cannot_be_right_is_refused_and_nothing_is_stored(verdict, world, arguments, message):
    assert message in verdict(*arguments, code=2).err
    assert world.verdicts.stored == {}


def test_an_hour_is_an_instant_with_an_offset(client):
    with pytest.raises(InputError, match="is not a UTC hour"):
        client.verdict("flights", "fail", reason="x", hour=datetime(2013, 3, 8, 6))
    given = client.verdict("flights", "fail", reason="x", hour=START)
    assert given.verdicts[0].period == "2013-03-08T05"


def test_a_program_gives_one_of_two_verdicts(client):
    with pytest.raises(InputError, match="quality: 'bad' is neither fail nor pass"):
        client.verdict("flights", "bad", reason="x", hour=START)


def test_the_runs_of_a_day_show_what_has_failed_in_its_published_version(verdict, world, printed_by, document_of):
    world.publish(DATE)
    runs = ("runs", PIPELINE, "--date", DATE, *PROJECT)
    assert [run["failed"] for run in document_of(*runs)["runs"]] == [[]]
    verdict(*FAIL)
    line = f"{DATE}, attempt 1: failed data: flights 2013-03-08 06:00 UTC: fail, {SINCE}: bots\n"
    assert line in printed_by(*runs).out
    world.publish(DATE, force=True)
    first, second = document_of(*runs)["runs"]
    assert (first["failed"], [given["hour"] for given in second["failed"]]) == ([], ["2013-03-08T06"])


def test_why_shows_what_has_failed(verdict, world, printed_by, document_of):
    world.publish(DATE)
    verdict(*FAIL)
    verdict("flights", "fail", "--hour", "2013-03-08T07", "--reason", "more bots")  # it has read none of this hour
    verdict(PIPELINE, "fail", "--date", DATE, "--reason", "half of it")
    out = printed_by("why", PIPELINE, "--date", DATE, *PROJECT).out
    assert (
        f"  failed data   this version: {PIPELINE} 2013-03-08, version 1: fail, {SINCE}: half of it\n"
        f"                this version: flights 2013-03-08 06:00 UTC: fail, {SINCE}: bots\n"
        f"                flights: flights 2013-03-08 07:00 UTC: fail, {SINCE}: more bots\n"
    ) in out
    names = [item["name"] for item in document_of("why", PIPELINE, "--date", DATE, *PROJECT)["failed"]]
    assert names == ["this version", "flights"]


def test_why_says_that_a_run_waits_for_quality_after_its_inputs(verdict, client, world, printed_by):
    with_definition(
        world, when=When.model_validate({"inputs": {"weather": {"newer_than": "1h"}}, "quality": {"flights": "pass"}})
    )
    vars(client)["dry_checker"] = without_writes(world.checker)
    verdict(*FAIL)
    out = printed_by("why", PIPELINE, "--date", DATE, *PROJECT).out
    assert "weather: it has no data\n                flights: flights 2013-03-08 06:00 UTC: fail, by" in out


def test_state_shows_days_of_a_pipeline_that_have_failed(verdict, world, monkeypatch, printed_by):
    world.publish(DATE)
    verdict(PIPELINE, "fail", "--date", DATE, "--reason", "half of it")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    for date in (DATE, "2013-03-07"):
        err = printed_by("state", PIPELINE, "--from", date, "--to", date, *PROJECT).err
    assert f"{PIPELINE}\n" in terminal.getvalue()
    assert f"2013-03-08, version 1: {PIPELINE} 2013-03-08, version 1: fail, by" in terminal.getvalue()
    assert f"{PIPELINE}: no day from 2013-03-07 to 2013-03-07 has failed by a verdict" in err


def test_an_older_deployment_stores_no_verdicts(client, monkeypatch, verdict, printed_by):
    vars(client)["settings"] = SimpleNamespace(state_table="")
    use_client(monkeypatch, client)
    assert "run slackwater deploy" in verdict(*FAIL, code=1).err


def test_a_pipeline_with_the_name_of_a_source_has_the_days(client, world):
    flights = world.project.pipelines[PIPELINE].model_copy(update={"pipeline": "flights"})
    project = world.project.model_copy(update={"pipelines": {"flights": flights}})
    vars(client)["verdicts"] = replace(client.verdicts, project=project)
    assert client.verdicts.subjects("flights") == [Subject("source", "flights"), Subject("pipeline", "flights")]
    with pytest.raises(InputError, match="has published nothing"):
        client.verdict("flights", "fail", reason="x", date=DATE)
    assert client.verdict("flights", "fail", reason="x", hour=START).verdicts[0].of == "source"


def test_a_verdict_travels_to_the_days_that_have_read_the_hour(verdict, world, monkeypatch, printed_by, document_of):
    world.publish(DATE)
    verdict(*FAIL)
    [flights, daily] = document_of("state", "--from", DATE, "--to", DATE, *PROJECT)
    assert (flights["source"], flights["failed"][0]["hour"]) == ("flights", "2013-03-08T06")
    [day] = daily["failed"]
    assert (day["pipeline"], day["date"], day["version"], day["verdicts"][0]["hour"]) == (
        PIPELINE, DATE, 1, "2013-03-08T06"
    )  # fmt: skip
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    printed_by("state", PIPELINE, "--from", DATE, "--to", DATE, *PROJECT)
    assert f"2013-03-08, version 1: flights 2013-03-08 06:00 UTC: fail, {SINCE}: bots" in terminal.getvalue()
