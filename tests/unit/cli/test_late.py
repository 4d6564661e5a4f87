"""`slackwater late`: what it lists, and what its decisions print."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from slackwater.cli.main import run
from slackwater.client.client import Client
from slackwater.errors import Throttled
from slackwater.late.changes.job_claims import AbandonedComparison, abandoned_uri
from slackwater.late.changes.pairs import comparisons_prefix, pair_prefix
from slackwater.late.check.dry_run import without_writes
from slackwater.late.suggest import suggest
from slackwater.pipeline.table_inputs import TableInput
from slackwater.project.project import Project
from slackwater.receiver.pull.removed_files import save_doubtful
from slackwater.runs.record import TableNotice
from tests.example_project import example_project
from tests.fakes_check import PIPELINE, five_days
from tests.fakes_cli import a_client, use_client
from tests.unit.late.test_holds import DAY, NOON, decisions
from tests.unit.late.test_suggest import DEFINITION, of_days, rerun

pytestmark = pytest.mark.unit

PROJECT = ["--project", "examples/nyc_flights"]


@pytest.fixture
def world(monkeypatch):
    world = five_days()
    project = example_project()
    client = a_client(
        project,
        deployment=SimpleNamespace(exchange_bucket="exchange"),
        run_table=world.table,
        store=world.store,
        hold_decisions=decisions(world),
        checker=world.checker,
        dry_checker=without_writes(world.checker),
    )
    use_client(monkeypatch, client)
    return world


@pytest.mark.parametrize("words", [["late"], ["late", PIPELINE], ["late", "list"], ["late", "list", PIPELINE]])
def test_days_on_hold_are_listed_with_rule_and_reason(world, printed_by, document_of, words):
    world.store.delete([NOON])
    world.check()
    heading, day, total = printed_by(*words, *PROJECT).out.splitlines()
    assert heading.split() == ["pipeline", "date", "since", "rule", "reason"]
    assert day.startswith(f"{PIPELINE}  {DAY}  2013-03-13 18:00 UTC  vanished  flights has lost 1 object")
    assert total.startswith("1 day on hold: slackwater late release | keep")
    (hold,) = document_of(*words, *PROJECT)["days"]
    assert (hold["pipeline"], hold["date"], hold["rule"], len(hold["inputs"])) == (PIPELINE, DAY, "vanished", 64)


def test_deferred_days_are_listed_with_the_limit_and_when_it_ends(world, printed_by, document_of, monkeypatch):
    monkeypatch.setattr("slackwater.client.late_client.utc_now", world.now)
    world.publish(DAY, force=True)
    world.add("flights", DAY, "20", name="late", rows=500)
    world.check()
    day, heading, deferred, *others, total = printed_by("late", *PROJECT).out.splitlines()
    assert (day, heading.split()) == ("no day is on hold", ["pipeline", "date", "not", "before", "rule", "reason"])
    assert deferred.startswith(f"{PIPELINE}  {DAY}  2013-03-13 19:00 UTC  cool_down  flights grew by 500 rows")
    assert deferred.endswith("late.cool_down_hours is 1, so it runs after 2013-03-13 19:00 UTC")
    assert (others, total) == ([], "1 day deferred: slackwater run PIPELINE --date DATE runs one now")
    [document] = document_of("late", PIPELINE, *PROJECT)["deferred"]
    assert (document["date"], document["figures"]["not_before"]) == (DAY, "2013-03-13T19:00:00Z")
    world.publish(DAY)
    assert printed_by("late", *PROJECT).out == "no day is on hold\n"


def test_without_days_on_hold_nothing_is_listed(world, printed_by):
    assert printed_by("late", *PROJECT).out == "no day is on hold\n"


def test_days_whose_comparison_was_given_up_are_named_with_the_remedy(world, printed_by, document_of):
    world.publish(DAY, force=True)
    given_up = AbandonedComparison(pipeline=PIPELINE, date=DAY, before=1, after=2, reason="it failed: fix the cause")
    prefix = pair_prefix(comparisons_prefix("exchange", PIPELINE, DAY), before=1, after=2)
    world.store.put(abandoned_uri(prefix), given_up.model_dump_json().encode())
    shown = printed_by("late", *PROJECT).out.splitlines()
    assert shown == ["no day is on hold", f"nobody is notified of {PIPELINE} {DAY}: it failed: fix the cause"]
    document = document_of("late", PIPELINE, *PROJECT)
    assert (document["days"], document["comparisons"]) == ([], [given_up.model_dump()])


def test_doubtful_removals_are_named_with_the_command_that_accepts_them(world, printed_by, document_of, monkeypatch):
    monkeypatch.setattr(Project, "records_removed", lambda _, source: source == "flights")
    at = datetime(2013, 3, 13, 18, tzinfo=UTC)
    save_doubtful(["a.csv", "b.csv"], store=world.store, exchange_bucket="exchange", source="flights", at=at)
    assert printed_by("late", PIPELINE, *PROJECT).out.splitlines()[1:] == [
        "flights: the listing of 2013-03-13 18:00 UTC lacks more stored files than it has: 2 files, such as a.csv. "
        "Their rows still count. If the partner has removed them on purpose: slackwater pull flights --accept-removed 2"
    ]
    (files,) = document_of("late", *PROJECT)["doubtful_files"]
    assert (files["source"], files["files"], files["examples"]) == ("flights", 2, ["a.csv", "b.csv"])


def test_days_that_have_read_tables_before_these_changed_are_named_until_they_run_again(
    world, printed_by, document_of, monkeypatch
):
    table = TableInput(table="upstream", on_change="notify", missing="empty")
    definitions = world.project.pipelines
    reading = definitions[PIPELINE].model_copy(update={"tables": {"up": table}})
    monkeypatch.setitem(definitions, "upstream", definitions[PIPELINE])
    monkeypatch.setattr(Project, "pipeline", lambda _, name: reading if name == PIPELINE else definitions[name])
    monkeypatch.setattr("slackwater.client.late_client.utc_now", world.now)
    record = world.table.day(PIPELINE, DAY)
    notice = TableNotice(
        versions={}, attempt=1, reason=f"upstream {DAY}: 1 -> 2 rows", since=world.now(), execution="one", call="c"
    )
    world.table.save(record.model_copy(update={"table_notice": notice}))
    assert printed_by("late", PIPELINE, *PROJECT).out.splitlines() == [
        "no day is on hold",
        f"{PIPELINE} {DAY} has read an earlier version of upstream {DAY}: 1 -> 2 rows. To run it with the new one: "
        f"slackwater run {PIPELINE} --date {DAY}",
    ]
    assert document_of("late", PIPELINE, *PROJECT)["changed_tables"] == [
        {
            "pipeline": PIPELINE,
            "date": DAY,
            "table_notice": {"reason": f"upstream {DAY}: 1 -> 2 rows", "since": "2013-03-13T18:00:00Z"},
        }
    ]
    world.publish(DAY, force=True)
    assert document_of("late", PIPELINE, *PROJECT)["changed_tables"] == []


def test_a_version_is_kept_by_the_present_and_the_former_name_of_the_command(world, capsys):
    world.store.delete([NOON])
    world.check()
    assert run(["late", "keep", PIPELINE, "--date", DAY, "--reason", "wrong", "--json", *PROJECT]) == 0
    assert json.loads(capsys.readouterr().out)["resolution"]["action"] == "rejected"
    assert run(["late", "reject", PIPELINE, "--date", DAY, "--reason", "wrong", *PROJECT]) == 2
    assert "is not on hold: slackwater late lists the days on hold" in capsys.readouterr().err


def test_days_before_the_window_are_listed_with_how_to_process_them(world, capsys, printed_by):
    world.time = datetime(2013, 3, 20, 18, tzinfo=UTC)
    assert printed_by("late", "--older", PIPELINE, *PROJECT).out == "no day before the window has late data\n"
    world.add("flights", DAY, "20", name="late", rows=500)
    world.table.record_late_day(PIPELINE, DAY, at=world.time, keys=["k"])
    later = "2013-03-12"
    world.table.record_late_day(PIPELINE, later, at=world.time, keys=["k"])
    assert run(["late", "--older", PIPELINE, "--from", DAY, "--to", DAY, *PROJECT]) == 0
    command = f"slackwater late --older {PIPELINE} --from {later} --to {later}"
    assert capsys.readouterr().out.endswith(f"{PIPELINE}: 1 more day listed: {command} checks the next ones\n")
    heading, day, *_, total = printed_by("late", "--older", PIPELINE, *PROJECT).out.splitlines()
    assert heading.split() == ["pipeline", "date", "since", "rule", "reason"]
    assert day.startswith(f"{PIPELINE}  {DAY}  2013-03-20 18:00 UTC  grown  flights grew by 500 rows")
    assert total == "1 day before the window: slackwater run PIPELINE --date DATE processes one"


def test_the_document_of_older_days_has_their_numbers(world, document_of):
    world.time = datetime(2013, 3, 20, 18, tzinfo=UTC)
    world.add("flights", DAY, "20", name="late", rows=500)
    document = document_of("late", "--older", PIPELINE, "--from", DAY, "--to", DAY, *PROJECT)
    [day] = document["days"]
    assert (day["date"], day["rule"], day["figures"]["late_rows"]) == (DAY, "grown", 500)
    assert (day["since"], day["new_objects"], document["unchecked"]) == (None, 0, [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dialy_delays"], "no pipeline 'dialy_delays'"),
        (["--from", DAY], "--from and --to: use them with --older"),
        (["--older", "--from", DAY], "--from and --to need the name of one pipeline"),
        (["--older", PIPELINE, "--from", "soon"], "--from"),
    ],
)
def test_a_wrong_pipeline_or_range_is_refused(world, printed_by, words, message):
    assert message in printed_by("late", *words, *PROJECT, code=2).err


def test_a_release_whose_run_does_not_start_says_so_and_starts_it_when_it_is_repeated(world, monkeypatch):
    world.store.delete([NOON])
    world.check()
    started = []

    def start(self, pipeline, date, *, force):
        started.append((pipeline, date, force))
        if len(started) == 1:
            raise Throttled("too many requests")

    monkeypatch.setattr(Client, "run", start)
    client = a_client(example_project(), hold_decisions=decisions(world))
    with pytest.raises(Throttled, match=rf"too many requests\n  The release of {PIPELINE} {DAY} is recorded.* repeat"):
        client.release(PIPELINE, DAY, reason="withdrawn")
    client.release(PIPELINE, DAY, reason="withdrawn")
    assert started == [(PIPELINE, DAY, False)] * 2


@pytest.mark.parametrize(("on_hold", "words"), [(True, "released"), (False, "released (it was not on hold)")])
def test_a_release_says_whether_the_day_was_on_hold(world, printed_by, monkeypatch, on_hold, words):
    if on_hold:
        world.store.delete([NOON])
        world.check()
    result = SimpleNamespace(outcome="published", publication=SimpleNamespace(rows=3))
    monkeypatch.setattr(Client, "run", lambda *_, **__: SimpleNamespace(wait=lambda **_: result))
    monkeypatch.setattr("slackwater.cli.commands.late.run_document", lambda _: {})
    shown = printed_by("late", "release", PIPELINE, "--date", DAY, "--reason", "r", *PROJECT)
    assert shown.out == f"{PIPELINE} {DAY}: {words}, published with 3 rows\n"


def test_an_interrupted_release_names_the_way_to_start_its_run(world, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "release", interrupt)
    assert run(["late", "release", PIPELINE, "--date", DAY, "--reason", "r", *PROJECT]) == 130
    assert "repeat the release" in capsys.readouterr().err


@pytest.mark.parametrize("skipped", [0, 2])
def test_re_runs_that_a_suggestion_does_not_count_are_named(world, capsys, monkeypatch, skipped):
    past = of_days(*[rerun(1, 100, files=1)] * 5, *[rerun(1, 100, differing=None)] * skipped)
    suggestion = suggest(DEFINITION, past, first=DAY, max_effect=1)
    monkeypatch.setattr(Client, "suggest_thresholds", lambda *_, **__: suggestion)
    assert run(["late", "suggest", PIPELINE, *PROJECT]) == 0
    line, printed = "2 re-runs whose effect is not known: not counted", capsys.readouterr().out
    assert (line in printed) == (skipped == 2)
    assert "  late: {changed_files: 1}  # 5 re-runs, only next to percent or rows\n" in printed
