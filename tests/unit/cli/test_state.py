"""`slackwater state`: the states of hours as a heat map and as JSON."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from slackwater.client.verdicts import Verdicts
from slackwater.project.project import Project
from slackwater.sources.counts import ALL
from slackwater.state.facts import HOUR, Part
from slackwater.state.fold import fold, periods_with
from slackwater.state.reports import new_report
from tests.fakes_cli import Terminal, a_client, use_client
from tests.fakes_receiver import a_source
from tests.fakes_runs import DictRunTable, DictStore
from tests.fakes_state import MemoryPeriods, MemoryVerdicts

pytestmark = pytest.mark.unit

START = datetime(2026, 1, 1, tzinfo=UTC)


def stored(table: MemoryPeriods, source, start: datetime, *, sent: dict[int, int], has: int, hours: int = 1) -> None:
    """Store the state of the period that begins then, whose events are all in its first window."""
    at = start + timedelta(hours=hours)
    counts = {start + timedelta(minutes=minute): count for minute, count in sent.items()}
    memory = MemoryPeriods()
    memory.put_report(new_report(source, as_of=at, through=at, counts=counts, principal="push:acme"))
    [period] = periods_with(source, [start])
    facts = dict(memory.all_facts(source.source, period.hours))
    facts[start] = facts[start]._replace(parts=(Part("a", {ALL: (has, *[0] * 11)}, 1, START),))
    state = fold(period, facts, memory.coverage(source.source), distinct=None)
    table.put_state(state._replace(version=1))


@pytest.fixture
def client(monkeypatch):
    """Clicks by five minutes, and rates by day."""
    clicks = a_source(source="clicks", counts={"window": "5m"}, pull=None)
    rates = a_source(source="rates", counts={"window": "day"}, timestamp={"field": "at", "timezone": "UTC"}, pull=None)
    other = a_source(source="other", pull=None)
    project = Project(sources={"clicks": clicks, "rates": rates, "other": other}, pipelines={})
    table = MemoryPeriods()
    stored(table, clicks, START, sent={0: 1000}, has=1000)
    stored(table, clicks, START + HOUR, sent={0: 1000, 35: 80, 40: 8}, has=1000)
    stored(table, clicks, START + 2 * HOUR, sent={0: 1}, has=3)
    stored(table, rates, START, sent={0: 5}, has=5, hours=24)
    client = with_verdicts(project, period_table=table)
    use_client(monkeypatch, client)
    return client


def with_verdicts(project, **resources):
    """A client of the project whose verdicts are in memory."""
    deployment = SimpleNamespace(state_table="state", await_inputs_function="")
    verdicts = Verdicts(
        project=project,
        table=MemoryVerdicts(),
        runs=DictRunTable(),
        store=DictStore(),
        wake=lambda *_: None,
        principal=lambda: "arn:aws:iam::1:user/ana",
        now=lambda: START + timedelta(hours=9),
    )
    return a_client(project, deployment=deployment, verdicts=verdicts, **resources)


def shown(printed_by, monkeypatch, *arguments: str) -> str:
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    printed_by("state", *arguments)
    # Without colours.
    return re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())


def test_each_hour_is_a_sign(client, printed_by, monkeypatch):
    lines = shown(printed_by, monkeypatch, "--from", "2026-01-01", "--to", "2026-01-02").splitlines()
    clicks, rates = lines[: lines.index("")], lines[lines.index("") + 1 :]
    assert clicks == [
        "clicks      00    06    12    18",
        "2026-01-01  █▁▲·····················",
        "2026-01-02  ························",
        "short, sent 2,089, stored 2,003, rejected 0, missing 88, surplus 2, no counts for 45 of 48 hours",
        "  2026-01-01 01:00 short, missing 88 (01:35: 80, 01:40: 8)",
        "  2026-01-01 02:00 surplus, surplus 2",
    ]
    assert rates[:3] == ["rates", "2026-01-01  █", "2026-01-02  ·"]
    assert lines[-1] == "█ complete  ▁ short  ▲ surplus  · unknown"


def test_each_value_has_signs_of_its_own(monkeypatch, printed_by, document_of):
    counts = {"window": "5m", "by": "id", "values": ["EU", "US"]}
    clicks, table = a_source(source="clicks", counts=counts, pull=None), MemoryPeriods()
    at = START + HOUR
    sent = {START: {"id=EU": 3, "id=US": 9}}
    report = new_report(clicks, as_of=at, through=at, counts=sent, principal="push:acme")
    table.put_report(report)
    bins = {"id=EU": (4, *[0] * 11), "id=US": (2, *[0] * 11), "id=": (0,) * 12}
    table.put_parts("clicks", {START: [Part("a", bins, 1, START)]})
    [period] = periods_with(clicks, [START])
    facts = table.all_facts("clicks", period.hours)
    table.put_state(fold(period, facts, table.coverage("clicks"), distinct=None)._replace(version=1))
    project = Project(sources={"clicks": clicks}, pipelines={})
    use_client(monkeypatch, with_verdicts(project, period_table=table))
    days = ("--from", "2026-01-01", "--to", "2026-01-01")
    [document] = document_of("state", *days)
    [found] = document["periods"]
    assert [(value["value"], value["state"], value["missing"]) for value in found["values"]] == [
        ("EU", "surplus", 0),
        ("US", "short", 7),
        ("other", "complete", 0),
    ]
    assert [window["value"] for window in found["windows"][:4]] == ["EU", "US", "other", "EU"]
    assert shown(printed_by, monkeypatch, *days).splitlines()[:10] == [
        "clicks      00    06    12    18",
        f"2026-01-01  ▁{'·' * 23}",
        "EU          00    06    12    18",
        f"2026-01-01  ▲{'·' * 23}",
        "US          00    06    12    18",
        f"2026-01-01  ▁{'·' * 23}",
        "other       00    06    12    18",
        f"2026-01-01  █{'·' * 23}",
        "short, sent 12, stored 6, rejected 0, missing 7, surplus 1, no counts for 23 of 24 hours",
        "  2026-01-01 00:00 short, missing 7, surplus 1 (00:00 US: 7)",
    ]


def test_output_in_a_pipe_is_the_numbers(client, document_of):
    [document] = document_of("state", "clicks", "--from", "2026-01-01", "--to", "2026-01-01")
    assert (document["source"], document["state"], document["total"]["missing"]) == ("clicks", "short", 88)
    assert [(period["state"], period["sent"], period["stored"]) for period in document["periods"]] == [
        ("complete", 1000, 1000),
        ("short", 1088, 1000),
        ("surplus", 1, 3),
    ]
    assert "files" not in document["periods"][0]
    json.dumps(document)


def test_what_cannot_be_shown_is_named(client, printed_by):
    assert "source 'other' takes no counts: add `counts:" in printed_by("state", "other", code=2).err
    assert (
        "--from: 2026-01-02 to 2026-01-01"
        in printed_by("state", "--from", "2026-01-02", "--to", "2026-01-01", code=2).err
    )


def test_a_project_without_counts_says_how_to_add_them(monkeypatch, printed_by):
    project = Project(sources={"other": a_source(source="other", pull=None)}, pipelines={})
    client = with_verdicts(project, period_table=MemoryPeriods())
    use_client(monkeypatch, client)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert "no source of the project has counts" in printed_by("state").err


@pytest.fixture
def failed(client):
    """Hours of three sources have failed; one passes again."""
    client.verdict("clicks", "fail", reason="bots", hour="2026-01-01T00")
    client.verdict("clicks", "fail", reason="bots", hour="2026-01-01T05")
    client.verdict("clicks", "pass", reason="no bots", hour="2026-01-01T05")
    client.verdict("rates", "fail", reason="in cents", date="2026-01-01")
    client.verdict("other", "fail", reason="twice", hour=START + 3 * HOUR)


def test_hours_that_have_failed_have_a_sign_and_a_reason(failed, printed_by, monkeypatch):
    lines = shown(printed_by, monkeypatch, "--from", "2026-01-01", "--to", "2026-01-01").splitlines()
    assert lines[1] == "2026-01-01  ✗▁▲·····················"
    by = "by arn:aws:iam::1:user/ana since 2026-01-01 09:00 UTC"
    assert lines[5] == f"  clicks 2026-01-01 00:00 UTC: fail, {by}: bots"
    assert lines[lines.index("rates") + 1] == "2026-01-01  ✗"
    assert f"  rates 2026-01-01 00:00 UTC and 9 more hours: fail, {by}: in cents" in lines
    assert lines[-3:-1] == ["other", f"  other 2026-01-01 03:00 UTC: fail, {by}: twice"]
    assert lines[-1] == "█ complete  ▁ short  ▲ surplus  · unknown  ✗ failed"


def test_a_pipe_gets_the_verdicts(failed, document_of):
    clicks, _, other = document_of("state", "--from", "2026-01-01", "--to", "2026-01-01")
    [failed] = clicks["failed"]
    [verdict] = failed["verdicts"]
    assert (failed["source"], failed["hour"], verdict["quality"]) == ("clicks", "2026-01-01T00", "fail")
    assert (verdict["reason"], verdict["principal"]) == ("bots", "arn:aws:iam::1:user/ana")
    assert (other["source"], [item["hour"] for item in other["failed"]]) == ("other", ["2026-01-01T03"])


def test_a_source_without_counts_shows_what_has_failed(client, printed_by, monkeypatch):
    client.verdict("other", "fail", reason="twice", hour="2026-01-01T03")
    lines = shown(printed_by, monkeypatch, "other", "--from", "2026-01-01", "--to", "2026-01-01").splitlines()
    assert [line.partition(":")[0] for line in lines] == ["other", "  other 2026-01-01 03"]
