"""`slackwater counts`: what a source has sent in each hour, as a table and as JSON."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from slackwater.cli.commands.counts import _time
from slackwater.project.project import Project
from slackwater.runs.inputs.manifest import InputObject
from slackwater.runs.inputs.source_counts import CountsReader
from slackwater.sources.counts import ALL
from slackwater.state.facts import HOUR, Part, RejectedEvents
from slackwater.state.fold import fold, periods_with
from slackwater.state.reports import new_report
from tests.fakes_cli import Terminal, a_client, use_client
from tests.fakes_receiver import MemoryFileCache, a_source
from tests.fakes_state import MemoryPeriods, MemoryState

pytestmark = pytest.mark.unit

START = datetime(2026, 1, 1, tzinfo=UTC)


class Inputs:
    """The objects of a source."""

    def __init__(self, rows: dict[int, int]) -> None:
        self.rows = rows

    def of_source(self, source, partitions):
        assert len(partitions) == 24
        return [
            InputObject(
                uri=f"s3://raw/{hour}",
                source=source,
                date="2026-01-01",
                hour=f"{hour:02d}",
                etag="e",
                bytes=1,
                rows=rows,
                arrived=START,
            )
            for hour, rows in self.rows.items()
        ]


@pytest.fixture
def counted(monkeypatch):
    """Two hours with reports: one is short, one complete; a third one is reported in part."""
    source = a_source(source="clicks", counts={"window": "5m"}, pull=None)
    project = Project(sources={"clicks": source}, pipelines={})
    state = MemoryState()
    windows = {START + timedelta(minutes=5 * number): 100 for number in range(26)}
    at = START + timedelta(minutes=130)
    state.put_report(new_report(source, as_of=at, through=at, counts=windows, principal="push:acme"))
    state.put_rejected("clicks", {START: RejectedEvents("b", {ALL: (100,) + (0,) * 11})})
    reader = CountsReader(project=project, state=state, files=MemoryFileCache())
    settings = type("Settings", (), {"state_table": "state"})()
    client = a_client(project, deployment=settings, counts_reader=reader, inputs=Inputs({0: 1_012, 1: 1_200, 2: 1}))
    use_client(monkeypatch, client)
    return project


@pytest.fixture
def command(counted, tmp_path):
    (tmp_path / "sources").mkdir()
    definition = counted.sources["clicks"].model_dump(mode="json", by_alias=True, exclude_defaults=True)
    definition["counts"] = {"window": "5m"}
    (tmp_path / "sources" / "clicks.yaml").write_text(json.dumps(definition))
    return ("counts", "clicks", "--date", "2026-01-01", "--project", str(tmp_path))


def test_a_terminal_shows_a_table_with_the_totals(command, printed_by, monkeypatch):
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("TERM", "dumb")
    printed_by(*command)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines[0].split() == [
        "from",
        "state",
        "sent",
        "stored",
        "rejected",
        "missing",
        "windows",
        "without",
        "counts",
    ]
    assert lines[2].split() == ["00:00", "short", "1200", "1012", "100", "88"]
    assert lines[3].split() == ["01:00", "complete", "1200", "1200", "0"]
    assert lines[4].split() == ["02:00", "unknown", "200", "1", "0", *["02:10,", "02:15,", "02:20", "and", "7", "more"]]
    total = "clicks 2026-01-01 (UTC): short, sent 2,400, stored 2,212, rejected 100, missing 88, no counts for 22 of 24"
    assert lines[-1] == f"{total} hours"


def test_a_pipe_gets_json(command, printed_by, document_of):
    document = document_of(*command)
    assert json.loads(printed_by(*command).out) == document
    assert (document["state"], document["total"]["missing"]) == ("short", 88)
    short = document["periods"][0]
    assert (short["state"], short["sent"], short["stored"], short["rejected"]) == ("short", 1200, 1012, 100)
    assert short["windows"][1] == {"start": "2026-01-01T00:05:00Z", "value": None, "sent": 100, "known": True}
    assert document["periods"][2]["windows"][2] == {
        "start": "2026-01-01T02:10:00Z",
        "value": None,
        "sent": None,
        "known": False,
    }


def test_hours_of_other_timezones_have_their_offset():

    november = datetime(2026, 11, 1, 5, 0, tzinfo=UTC)
    zone = ZoneInfo("America/New_York")
    assert [_time(november + number * HOUR, zone) for number in range(2)] == ["01:00 -0400", "01:00 -0500"]


def test_a_source_without_counts_says_how_to_add_them(command, printed_by, monkeypatch, tmp_path):
    project = Project(sources={"clicks": a_source(source="clicks")}, pipelines={})
    settings = type("Settings", (), {"state_table": "state"})()
    use_client(monkeypatch, a_client(project, deployment=settings, counts_reader=None, inputs=None))
    shown = printed_by(*command, code=2)
    assert "takes no counts: add `counts: {window: 1h}` to sources/clicks.yaml" in shown.err


def test_an_older_deployment_stores_no_counts(command, printed_by, monkeypatch, counted):
    settings = type("Settings", (), {"state_table": ""})()
    use_client(monkeypatch, a_client(counted, deployment=settings))
    assert "stores no counts: run slackwater deploy" in printed_by(*command, code=1).err


def test_each_value_has_a_row_below_its_hour(command, counted, printed_by, document_of, monkeypatch):
    source = a_source(source="clicks", counts={"window": "5m", "by": "id", "values": ["EU", "US"]}, pull=None)
    project, table, at = Project(sources={"clicks": source}, pipelines={}), MemoryPeriods(), START + HOUR
    sent = {START: {"id=EU": 7, "id=US": 9, "id=": 0}}
    table.put_report(new_report(source, as_of=at, through=at, counts=sent, principal="push:acme"))
    bins = {"id=EU": (7, *[0] * 11), "id=US": (2, *[0] * 11), "id=": (0,) * 12}
    table.put_parts("clicks", {START: [Part("a", bins, 1, START)]})
    [period] = periods_with(source, [START])
    facts = table.all_facts("clicks", [START])
    table.put_state(fold(period, facts, table.coverage("clicks"), distinct=None)._replace(version=1))
    reader = CountsReader(project=project, state=table, files=MemoryFileCache())
    settings = type("Settings", (), {"state_table": "state"})()
    use_client(monkeypatch, a_client(project, deployment=settings, counts_reader=reader, inputs=Inputs({0: 9})))
    [first, *_] = document_of(*command)["periods"]
    assert (first["state"], first["missing"]) == ("short", 7)
    assert [(value["value"], value["stored"], value["state"]) for value in first["values"]] == [
        ("EU", 7, "complete"),
        ("US", 2, "short"),
        ("other", 0, "complete"),
    ]
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("TERM", "dumb")
    printed_by(*command)
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines[0][:7] == ["from", "value", "state", "sent", "stored", "rejected", "missing"]
    assert lines[2:6] == [
        ["00:00", "short", "16", "9", "0", "7"],
        ["EU", "complete", "7", "7", "0"],
        ["US", "short", "9", "2", "0", "7"],
        ["other", "complete", "0", "0", "0"],
    ]
