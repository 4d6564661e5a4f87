"""The line about what the sources of a run have sent, in the run's record, on screens, in messages and on pages."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from slackwater.cli.commands import run as run_command
from slackwater.cli.main import run
from slackwater.client.days.runs import RunResult, RunSeconds
from slackwater.late.changes.choose_versions import published_version
from slackwater.late.report.document import change_document
from slackwater.late.report.message import compose
from slackwater.late.report.page import report_page
from slackwater.runs.rollback import rollback_record
from slackwater.sources.counts import ALL, Counts
from slackwater.state.completeness import SourceCounts
from slackwater.state.facts import HOUR, RejectedEvents
from slackwater.state.reports import new_report
from tests.example_project import PROJECT
from tests.fakes_check import PIPELINE, PUBLICATION, World
from tests.fakes_cli import a_client, use_client
from tests.fakes_comparison import comparison, version

pytestmark = pytest.mark.unit

DATE = "2013-03-08"
START = datetime(2013, 3, 8, 5, tzinfo=UTC)
LINE = "flights: sent 1,000, stored 990, rejected 5, missing 5"


def counted_world(sent: int = 1_000, *, stored: int = 990, rejected: int = 5) -> World:
    """A day of which the partner of flights has reported each hour."""
    world = World()
    flights = world.project.sources["flights"].model_copy(update={"counts": Counts(window="1h")})
    world.project = world.project.model_copy(update={"sources": {**world.project.sources, "flights": flights}})
    report_flights(world, sent)
    world.state.put_rejected("flights", {START + HOUR: RejectedEvents("b", {ALL: (rejected,) + (0,) * 11})})
    world.add("flights", DATE, "06", rows=stored)
    return world


def report_flights(world: World, sent: int, *, hours: int = 0) -> None:
    """Report the events of the second hour of the day, and none of the others; `hours` later than before."""
    at = START + (24 + hours) * HOUR
    counts = {START: 0, START + HOUR: sent}
    source = world.project.sources["flights"]
    world.state.put_report(new_report(source, as_of=at, through=at, counts=counts, principal="push:acme"))


def test_a_run_records_what_its_sources_had_sent():
    world = counted_world()
    world.freeze(DATE)
    [counts] = world.table.run(PIPELINE, DATE, 1).counts
    assert f"{counts.source}: {counts.line}" == LINE
    assert (counts.state, counts.periods, counts.unknown) == ("short", 24, 0)


def test_a_run_whose_sources_report_nothing_is_unknown_and_others_have_no_counts():
    world = counted_world()
    world.state.reports.clear()
    world.state.ends.clear()
    world.freeze(DATE)
    [counts] = world.table.run(PIPELINE, DATE, 1).counts
    assert (counts.state, counts.line) == ("unknown", "no counts of the source")
    other = World()
    other.freeze(DATE)
    assert other.table.run(PIPELINE, DATE, 1).counts == ()


def test_runs_shows_the_line(monkeypatch, capsys):
    world = counted_world()
    world.freeze(DATE)
    use_client(monkeypatch, a_client(world.project, run_table=world.table))
    assert run(["runs", PIPELINE, *PROJECT]) == 0
    assert f"{DATE}, attempt 1: {LINE}" in capsys.readouterr().out
    assert run(["runs", PIPELINE, "--json", *PROJECT]) == 0
    assert '"missing": 5' in capsys.readouterr().out


def test_run_prints_the_line(monkeypatch, capsys):
    world = counted_world()
    frozen = world.freeze(DATE)
    counts = world.table.run(PIPELINE, DATE, 1).counts
    result = RunResult(
        outcome="published", run=frozen, publication=PUBLICATION, seconds=RunSeconds(total=1.0), execution="e",
        files_not_taken={}, counts=counts,
    )  # fmt: skip
    use_client(monkeypatch, SimpleNamespace(run=lambda *_, **__: SimpleNamespace(wait=lambda **_: result)))
    assert run(["run", PIPELINE, "--date", DATE, *PROJECT]) == 0
    assert f"  {LINE}\n" in capsys.readouterr().out
    [document] = run_command.run_document(result)["counts"]
    assert (document["source"], document["sent"], document["missing"]) == ("flights", 1_000, 5)


def test_messages_pages_and_documents_have_the_line():
    world = counted_world()
    world.publish(DATE)
    record = world.table.run(PIPELINE, DATE, 1)
    assert published_version(record).counts == record.counts
    changed = comparison(after=version(2).model_copy(update={"counts": record.counts}))
    assert f"Counts of the sources for version 2\n  {LINE}\n" in compose(changed).body
    assert LINE in report_page(changed)
    [item] = change_document(changed, summary="s", comparison_uri="c", report_uri="r").counts
    assert item.line == LINE.removeprefix("flights: ")
    assert "Counts of the sources" not in compose(comparison()).body


def test_a_rollback_has_the_counts_of_the_version_that_it_restores():
    world = counted_world()
    world.publish(DATE)
    record = world.table.run(PIPELINE, DATE, 1)
    restored = rollback_record(record, reason="r", run=record.run, execution="e", now=START)
    assert restored.counts == record.counts


def test_records_of_later_versions_keep_what_this_one_does_not_know():
    counts = SourceCounts.model_validate(
        {"source": "a", "state": "short", "unit": "hour", "later": 1}
        | dict.fromkeys(("sent", "stored", "rejected", "missing", "surplus", "periods", "unknown"), 0)
    )
    assert counts.model_dump()["later"] == 1


def test_facts_are_read_only_from_the_first_report_on(monkeypatch):
    world, read = counted_world(), []
    facts = world.state.facts
    monkeypatch.setattr(world.state, "facts", lambda source, hours: read.extend(hours) or facts(source, hours))
    world.freeze(DATE)
    assert len(read) == 24
    world.freeze("2013-03-07")
    assert len(read) == 24, "the partner has reported nothing about the day before"
