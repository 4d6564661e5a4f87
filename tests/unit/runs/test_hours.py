"""Runs of hours: what they read, how they are named, and what an hourly pipeline cannot do."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from slackwater.cli.commands.deploy import print_deployment
from slackwater.client.days.backfill_plan import DayKind, kind_of_hour
from slackwater.client.days.verified import Verifier
from slackwater.client.monitoring import days_to_monitor
from slackwater.client.verdicts import Verdicts
from slackwater.client.why import Explainer
from slackwater.errors import InputError
from slackwater.late.check.dry_run import without_writes
from slackwater.runs.inputs.manifest import read_manifest
from slackwater.runs.outputs import VersionType
from slackwater.runs.record import VERSION_TAG
from tests.example_project import EXAMPLE
from tests.fakes_check import PIPELINE, PUBLICATION, World, freezer_of, make_hourly
from tests.fakes_cli import a_client, use_client
from tests.fakes_waits import MemoryWaits
from tests.unit.client.test_verified import Tables
from tests.unit.runs.test_cost import TWO_JOBS, Usage, recorder

pytestmark = pytest.mark.unit

HOUR, NEXT = "2013-03-10T17", "2013-03-10T18"


@pytest.fixture
def world():
    world = World()
    make_hourly(world, timezone="UTC")
    for source in ("flights", "weather"):
        for hour in ("16", "17", "18"):
            world.add(source, "2013-03-10", hour)
        world.add(source, "2013-03-11", "17")
    return world


def objects_of(world, run):
    return {item.uri for item in read_manifest(world.store, run.manifest).objects}


def test_a_run_reads_the_objects_of_its_hour_in_all_sources_and_no_others(world):
    run = world.publish(HOUR)
    uris = {f"s3://raw/raw/source={name}/date=2013-03-10/hour=17/a.parquet" for name in ("flights", "weather")}
    assert (run.date, objects_of(world, run)) == (HOUR, uris)


def test_prefixes_and_tags_have_the_name_of_the_hour(world):
    run = world.publish(HOUR)
    assert f"/{PIPELINE}/{HOUR}/" in run.prefix
    assert f"/{PIPELINE}/{HOUR}/" in run.manifest
    assert VERSION_TAG.fullmatch(run.tag).groups() == (HOUR, "1")


def test_each_hour_has_attempts_and_versions_of_its_own(world):
    world.publish(HOUR)
    world.publish(NEXT)
    world.add("flights", "2013-03-10", "17", name="b")
    again = world.publish(HOUR)
    assert (again.attempt, len(objects_of(world, again))) == (2, 3)
    assert [day.date for day in world.table.days(PIPELINE, "2013-03-10", "2013-03-11")] == [HOUR, NEXT]
    assert world.table.day(PIPELINE, NEXT).published.run.attempt == 1


@pytest.mark.parametrize(("days", "seen"), [(15, 1), (16, 2)])
def test_a_version_of_an_hour_waits_for_a_message_while_versions_before_it_are_there(world, days, seen):
    world.publish(HOUR)
    world.time += timedelta(days=days)
    world.publish(HOUR, force=True)
    day = world.table.day(PIPELINE, HOUR)
    assert (day.seen_attempt, day.notification_due) == (seen, seen == 1)


def test_a_rolled_back_hour_is_on_hold_until_it_is_released(world):
    first = world.publish(HOUR)
    world.add("flights", "2013-03-10", "17", name="b")
    world.publish(HOUR)
    run = world.publish(HOUR, rollback=1, reason="wrong file")
    assert (run.attempt, run.manifest) == (3, first.manifest)
    with pytest.raises(InputError, match=f"{HOUR} is on hold"):
        world.freeze(HOUR)
    decisions = world.hold_decisions()
    assert decisions.release(PIPELINE, HOUR, reason="it is right") is True
    again = world.publish(HOUR, force=True)
    assert (again.attempt, len(objects_of(world, again))) == (4, 3)


def test_an_hour_that_lost_an_object_is_not_published_without_it(world):
    world.add("flights", "2013-03-10", "17", name="b")
    world.publish(HOUR)
    world.store.delete(["s3://raw/raw/source=flights/date=2013-03-10/hour=17/b.parquet"])
    with pytest.raises(InputError, match=f"{PIPELINE} --date {HOUR}"):
        world.freeze(HOUR)


@pytest.mark.parametrize(
    ("date", "message"),
    [
        ("2013-03-10", "date: 2013-03-10 is not an hour of UTC such as 2013-03-10T15: daily_delays has `period: hour`"),
        ("2013-03-10T24", "date: '2013-03-10T24' is not an hour of UTC such as 2013-03-10T15"),
    ],
)
def test_an_hourly_pipeline_has_no_days(world, date, message):
    with pytest.raises(InputError) as raised:
        world.freeze(date)
    assert str(raised.value) == message


def test_a_daily_pipeline_has_no_hours():
    with pytest.raises(InputError) as raised:
        World().freeze(HOUR)
    message = f"date: {HOUR} is not a date such as 2013-03-10: daily_delays has `period: day`"
    assert str(raised.value) == message


def test_an_hour_that_has_not_begun_is_refused(world):
    world.freeze(f"{world.time:%Y-%m-%dT%H}")
    with pytest.raises(InputError, match="has not begun in UTC"):
        freezer_of(world).freeze(
            pipeline=PIPELINE, date=f"{world.time + timedelta(hours=1):%Y-%m-%dT%H}", execution="x", correlation_id="c"
        )


def kinds(world, *hours):
    decisions = without_writes(world.checker).decide(pipeline=PIPELINE, dates=hours)
    return [kind_of_hour(item) for item in decisions]


def test_a_backfill_runs_published_hours_whose_inputs_have_changed(world):
    world.publish(HOUR)
    world.publish(NEXT)
    assert kinds(world, HOUR, NEXT) == [DayKind.PUBLISHED, DayKind.PUBLISHED]
    world.add("flights", "2013-03-10", "17", name="b")
    assert kinds(world, HOUR, NEXT) == [DayKind.CHANGED, DayKind.PUBLISHED]
    world.publish(HOUR)
    assert kinds(world, HOUR) == [DayKind.PUBLISHED]


def test_a_backfill_leaves_hours_to_a_person_that_have_lost_objects_or_were_rolled_back(world):
    world.publish(HOUR)
    world.add("flights", "2013-03-10", "17", name="b")
    world.publish(HOUR)
    world.publish(NEXT)
    world.publish(HOUR, rollback=1, reason="wrong file")
    world.store.delete(["s3://raw/raw/source=flights/date=2013-03-10/hour=18/a.parquet"])
    assert kinds(world, HOUR, NEXT) == [DayKind.HELD, DayKind.HELD]
    world.hold_decisions().release(PIPELINE, NEXT, reason="it was a mistake")
    assert kinds(world, HOUR, NEXT) == [DayKind.HELD, DayKind.CHANGED]
    world.hold_decisions().keep(PIPELINE, HOUR, reason="the first file is right")
    assert kinds(world, HOUR) == [DayKind.PUBLISHED]


def why(world, date, **options):
    checker = without_writes(world.checker)
    explainer = Explainer(checker=checker, is_scheduled=True, waits=MemoryWaits().waits, collect_minutes=5)
    return explainer.why(PIPELINE, date, **options)


def test_an_hour_is_explained_by_its_inputs(world):
    assert why(world, HOUR).next_look.text == "its first run: the schedule's time for it, 2013-03-10 20:05 UTC, is over"
    world.publish(HOUR)
    assert (why(world, HOUR).decision.rule, why(world, HOUR).late) == ("unchanged", ())
    world.add("flights", "2013-03-10", "17", name="b")
    world.add("flights", "2013-03-10", "18", name="b")
    answer = why(world, HOUR)
    assert [(item.name, item.rows) for item in answer.late] == [("flights", 10)]
    assert answer.next_look.text == (
        "about 5 minutes after data of the hour arrives, and at the latest 2013-03-14 06:00 UTC, by the schedule"
    )
    assert answer.run_now == (f"slackwater run {PIPELINE} --date {HOUR}",)
    with pytest.raises(InputError, match="as_of: 2013-03-10T16 is before the hour 2013-03-10T17"):
        why(world, HOUR, as_of="2013-03-10T16")


def test_the_run_of_an_hour_records_the_costs_of_earlier_ones(world):
    first, second = TWO_JOBS._replace(ended=False), TWO_JOBS
    for usage, period in ((first, HOUR), (second, NEXT)):
        run = world.freeze(period)
        world.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())
        costs = recorder(world.table, Usage(attempt1=usage), now=world.now)
        replace(world.recorder, costs=costs).end_published(run)
        costs_due = [due.date for due in world.table.costs_due(PIPELINE)]
        assert costs_due == ([HOUR] if period == HOUR else [])


@pytest.fixture
def client(world):
    return a_client(
        world.project,
        run_table=world.table,
        store=world.store,
        checker=world.checker,
        hold_decisions=world.hold_decisions(),
    )


def test_no_thresholds_are_suggested_for_hours(client):
    with pytest.raises(InputError, match="thresholds are suggested for daily pipelines only"):
        client.suggest_thresholds(PIPELINE)


@pytest.mark.parametrize("as_of", ["2013-03-12T23", "2013-03-12"])
def test_hours_are_monitored_as_of_an_hour_or_of_the_last_one_of_a_date(client, as_of):
    assert days_to_monitor(client.project, [PIPELINE], as_of, name="--as-of") == {PIPELINE: "2013-03-12T23"}


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        (None, None, [HOUR]),
        ("2013-03-10", "2013-03-10", [HOUR, NEXT]),
        (NEXT, NEXT, [NEXT]),
        ("2013-03-10T00", HOUR, [HOUR]),
    ],
)
def test_hours_before_the_window_with_late_data_are_listed(world, client, first, last, found):
    for hour in (HOUR, NEXT):
        world.publish(hour)
        world.add("flights", "2013-03-10", hour[-2:], name="b", rows=20)
    world.table.record_late_day(PIPELINE, HOUR, at=world.now())
    world.time += timedelta(days=8)
    days = client.older_late_days(PIPELINE, first=first, last=last).days
    assert [(day.decision.date, day.decision.rule) for day in days] == [(hour, "grown") for hour in found]


@pytest.mark.parametrize(
    "call",
    [
        lambda client, date: client.day(PIPELINE, date),
        lambda client, date: client.history(PIPELINE, date),
        lambda client, date: client.attempt(PIPELINE, date=date),
        lambda client, date: client.release(PIPELINE, date, reason="x"),
        lambda client, date: client.keep(PIPELINE, date, reason="x"),
        lambda client, date: client.run(PIPELINE, date),
    ],
)
def test_the_client_refuses_a_day_of_an_hourly_pipeline(client, call):
    with pytest.raises(InputError, match="2013-03-10 is not an hour of UTC"):
        call(client, "2013-03-10")


def test_a_range_that_ends_with_a_day_has_all_of_its_hours(world, client):
    for hour in (HOUR, NEXT):
        world.publish(hour)
    assert [record.run.date for record in client.runs(PIPELINE, first="2013-03-10", last="2013-03-10")] == [HOUR, NEXT]
    assert [record.run.date for record in client.runs(PIPELINE, first=NEXT, last=NEXT)] == [NEXT]
    assert client.runs(PIPELINE, first="2013-03-11") == []


def test_a_published_hour_whose_version_has_ended_is_no_problem(world, client):
    world.publish(HOUR)
    *_, version = client.refs(PIPELINE, HOUR)
    verifier = Verifier(
        project=world.project, pipeline=PIPELINE, date=HOUR, published=1, store=world.store, warehouse=Tables()
    )
    assert (version.type, verifier.verify(version).problems) == (VersionType.PUBLISHED, None)


def verdicts_of(world):
    return Verdicts(
        project=world.project,
        table=world.verdicts,
        runs=world.table,
        store=world.store,
        wake=lambda *_: None,
        principal=lambda: "ana",
        now=world.now,
    )


@pytest.mark.parametrize("given", [{"hour": HOUR, "date": None}, {"hour": None, "date": HOUR}])
def test_a_verdict_about_a_published_hour_is_about_its_version(world, given):
    verdicts = verdicts_of(world)
    with pytest.raises(InputError, match=f"has published nothing for {HOUR}"):
        verdicts.give(PIPELINE, "fail", reason="bots", **given)
    world.publish(HOUR)
    world.time += timedelta(days=500)  # published hours have no limit of age, as days
    [verdict] = verdicts.give(PIPELINE, "fail", reason="bots", **given).verdicts
    assert (verdict.of, verdict.period, verdict.version) == ("pipeline", HOUR, 1)
    failed = verdicts.failed(verdicts.subjects(PIPELINE), "2013-03-10", "2013-03-10")
    assert [(item.period, item.version) for item in failed] == [(HOUR, 1)]
    with pytest.raises(InputError, match="date: 2013-03-10 is not an hour of UTC"):
        verdicts.give(PIPELINE, "fail", reason="bots", hour=None, date="2013-03-10")


def test_a_verdict_about_an_hour_of_a_source_travels_to_the_published_hour(world):
    world.publish(HOUR)
    given = verdicts_of(world).give("flights", "fail", reason="bots", hour=HOUR, date=None)
    assert given.read_by == (PIPELINE,)
    answer = why(world, HOUR)
    assert [(item.name, [each.period for each in item.verdicts]) for item in answer.failed] == [
        ("this version", [HOUR])
    ]
    assert (answer.decision.rule, answer.run_now) == (
        "invalid",
        (f"slackwater late release {PIPELINE} --date {HOUR} --reason TEXT",),
    )
    world.add("flights", "2013-03-10", "17", name="b")
    assert kinds(world, HOUR) == [DayKind.HELD]


def test_runs_of_a_date_are_those_of_its_hours_and_versions_have_an_hour(world):
    for hour in (HOUR, NEXT, "2013-03-11T17"):
        world.publish(hour)
    client = a_client(world.project, run_table=world.table, store=world.store)
    assert [record.run.date for record in client.runs(PIPELINE, "2013-03-10")] == [HOUR, NEXT]
    assert [record.run.date for record in client.runs(PIPELINE, NEXT)] == [NEXT]
    assert {version.attempt for version in client.refs(PIPELINE, HOUR)} == {1}
    with pytest.raises(InputError, match="date: 2013-03-10 is not an hour of UTC"):
        client.refs(PIPELINE, "2013-03-10")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--date", "2013-03-09"], "--from 2013-03-09T00 --to 2013-03-09T23"),
        (["--date", HOUR], f"--date {HOUR}"),
        ([], "--date HOUR"),
    ],
)
def test_a_list_without_runs_names_a_command_that_runs_hours(tmp_path, monkeypatch, printed_by, arguments, hint):
    shutil.copytree(EXAMPLE / "sources", tmp_path / "sources")
    (tmp_path / "pipelines").mkdir()
    shutil.copy(EXAMPLE.parents[1] / "tests" / "pipelines" / "hourly_delays.yaml", tmp_path / "pipelines")
    use_client(monkeypatch, SimpleNamespace(runs=lambda *_, **__: []))
    out = printed_by("runs", "hourly_delays", *arguments, "--project", str(tmp_path)).out
    assert out.endswith(f"(slackwater run hourly_delays {hint})\n")


def test_after_a_deployment_the_command_runs_an_hour(world, capsys):
    result = SimpleNamespace(changed=True, deployment=SimpleNamespace(api_url="u"))
    print_deployment(result, world.project)
    assert f"  to run an hour: slackwater run {PIPELINE} --date HOUR" in capsys.readouterr().out.splitlines()
