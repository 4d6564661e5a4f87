"""`slackwater why`: a day with late data, one that waits, one on hold, and one that was never published."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from slackwater.client.client import Client
from slackwater.late.check.dry_run import without_writes
from slackwater.pipeline.definition import Late
from slackwater.sources.late_thresholds import LateThresholds
from tests.example_project import PROJECT
from tests.fakes_check import PIPELINE, five_days
from tests.fakes_cli import a_client, use_client
from tests.fakes_waits import MemoryWaits

pytestmark = pytest.mark.unit

DAY = "2013-03-10"


@pytest.fixture
def why(monkeypatch, printed_by):
    """Return what `slackwater why` prints about a day of a world."""

    def why(world, date=DAY, *, schedule="eventbridge", collect_minutes=5, as_of=()):
        connect(monkeypatch, world, schedule=schedule, collect_minutes=collect_minutes)
        return printed_by("why", PIPELINE, "--date", date, *as_of, *PROJECT).out

    return why


def connect(monkeypatch, world, **settings):
    deployment = SimpleNamespace(**{"schedule": "eventbridge", "collect_minutes": 5, "state_table": "state"} | settings)
    checker = without_writes(world.checker)
    client = a_client(
        world.project,
        deployment=deployment,
        dry_checker=checker,
        wait_table=MemoryWaits(),
    )
    use_client(monkeypatch, client)
    return client


def with_late(world, **late):
    definition = world.project.pipelines[PIPELINE].model_copy(update={"late": Late(**late)})
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: definition}})
    return world


RERUN = """\
daily_delays 2013-03-10
  published     version 1, 2013-03-13 18:00 UTC, 3 rows, from
                flights: 1,000 rows in 1 object, the last one at 2023-11-14 22:13 UTC
                weather: 1,000 rows in 1 object, the last one at 2023-11-14 22:13 UTC
  since then    flights grew by 500 rows (50.0 %), 1 object, 500 Bytes, the last one at 2023-11-14 22:13 UTC
  decision      rerun, by the rule grown: late data reaches a threshold of its source
                flights grew by 500 rows (50.0 %), 1 object, 500 Bytes: reaches percent 1 and rows 10 of its source
  next check    about 5 minutes after data of the day arrives, and at the latest 2013-03-14 10:00 UTC, by the schedule
  to run it     slackwater run daily_delays --date 2013-03-10
"""


def test_a_day_with_late_data_is_explained(why, document_of):
    world = five_days()
    world.add("flights", DAY, "20", name="late", rows=500)
    assert why(world) == RERUN
    document = document_of("why", PIPELINE, "--date", DAY, *PROJECT)
    assert (document["decision"]["rule"], document["late"][0]["rows"]) == ("grown", 500)
    assert document["next_look"]["at"] == "2013-03-14T10:00:00Z"


def test_a_version_without_inputs_ends_with_its_rows(why, monkeypatch):
    explain = Client.why

    def answer(client, *arguments, **options):
        found = explain(client, *arguments, **options)
        return found.model_copy(update={"published": found.published.model_copy(update={"inputs": ()})})

    monkeypatch.setattr(Client, "why", answer)
    assert "  published     version 1, 2013-03-13 18:00 UTC, 3 rows\n  since then" in why(five_days())


def test_late_data_below_the_thresholds_says_how_much_is_missing(why):
    world = five_days()
    world.add("flights", DAY, "20", name="late", rows=7)
    *_, run, first, second = why(world).splitlines()
    assert run == "  to run it     slackwater run daily_delays --date 2013-03-10"
    assert first == "                or 3 more rows of flights (percent 1 of its source)"
    assert second == "                or 3 more rows of flights (rows 10 of its source)"


@pytest.mark.parametrize(
    ("thresholds", "missing"),
    [
        ({"bytes": 1000}, ["993 more bytes of flights (bytes 1,000 of its source)"]),
        (
            {"changed_files": 1, "percent": 0.8},
            ["1 more row of flights (percent 0.8 ", "1 more changed file of flights"],
        ),
    ],
)
def test_each_threshold_has_its_unit(why, thresholds, missing):
    world = five_days()
    sources = dict(world.project.sources)
    sources["flights"] = sources["flights"].model_copy(update={"late": LateThresholds(**thresholds)})
    world.project = world.project.model_copy(update={"sources": sources})
    world.add("flights", DAY, "20", name="late", rows=7)
    shown = [line.strip() for line in why(world).splitlines() if line.strip().startswith("or ")]
    assert len(shown) == len(missing)
    assert all(line.startswith(f"or {text}") for line, text in zip(shown, missing, strict=True))


def test_late_data_that_is_not_worth_its_price_says_how_much_would_be(why, monkeypatch):
    monkeypatch.setattr("slackwater.late.check.limits.expected_usd", lambda *_: 0.4)
    world = with_late(five_days(), worth_per_percent=0.02)
    world.add("flights", DAY, "20", name="late", rows=100)
    assert why(world).endswith("  or late data of 20 %, now it is 10 %\n")


def test_a_deferred_day_says_when_its_limit_ends_and_that_a_run_by_hand_does_not_wait(why):
    world = five_days()
    world.publish(DAY, force=True)
    world.add("flights", DAY, "20", name="late", rows=500)
    *_, look, run = why(world).splitlines()
    assert look.endswith(" after data of the day arrives, and at the latest 2013-03-13 19:00 UTC, when the limit ends")
    assert run.endswith("slackwater run daily_delays --date 2013-03-10 (a run by hand waits for no limit)")


def test_a_day_on_hold_names_the_release(why):
    world = five_days()
    world.store.delete([f"s3://raw/raw/source=flights/date={DAY}/hour=17/a.parquet"])
    shown = why(world)
    assert "  decision      hold, by the rule vanished: objects that the published run has read are gone\n" in shown
    assert shown.endswith("  to run it     slackwater late release daily_delays --date 2013-03-10 --reason TEXT\n")


def test_a_day_with_nothing_new_runs_only_with_force(why):
    shown = why(five_days(), schedule="none", collect_minutes=0)
    assert "  since then    nothing\n" in shown
    assert "  next check    only by hand: slackwater monitor\n" in shown
    assert shown.endswith("  to run it     slackwater run daily_delays --date 2013-03-10 --force\n")


NEVER = """\
daily_delays 2013-03-13
  published     nothing
  data          flights: 40 rows in 1 object, the last one at 2023-11-14 22:13 UTC
                weather: nothing has arrived
  decision      ignore, by the rule current: the day has not ended yet
  waits for     its first run, 2013-03-14 07:00 UTC by the schedule
  to run it     slackwater run daily_delays --date 2013-03-13
"""


def test_a_day_that_was_never_published_says_what_it_has_and_what_it_waits_for(why):
    world = five_days()
    world.add("flights", "2013-03-13", "17", rows=40)
    assert why(world, "2013-03-13") == NEVER
    world.time = datetime(2013, 3, 15, 18, tzinfo=UTC)
    world.fail(world.freeze("2013-03-13"))
    shown = why(world, "2013-03-13")
    assert (
        "  last attempt  failed: E: no cause was given\n  decision      ignore, by the rule never_published:" in shown
    )
    assert "  waits for     its first run: the schedule's time for it, 2013-03-14 07:00 UTC, is over\n" in shown
    assert "its first run: no schedule runs the day" in why(world, "2013-03-13", schedule="none")


def test_a_day_before_the_window_is_decided_about_and_says_that_no_check_looks_at_it(why):
    world = five_days()
    world.add("flights", DAY, "20", name="late", rows=500)
    world.time = datetime(2013, 4, 20, 18, tzinfo=UTC)
    shown = why(world)
    assert "decision      rerun, by the rule grown" in shown
    assert "next check    no check looks at the day: it is before the window, which begins on 2013-04-13" in shown
    assert "except slackwater monitor daily_delays --as-of 2013-03-11\n" in shown


def test_as_of_a_day_the_answer_is_that_of_its_check(why, document_of):
    world = five_days()
    world.publish(DAY, force=True)
    world.add("flights", DAY, "20", name="late", rows=500)
    as_of = ["--as-of", "2013-03-12"]
    # The window of today has the day.
    assert "the limit ends" in why(world, as_of=as_of)
    world.time = datetime(2013, 4, 20, 18, tzinfo=UTC)
    world.publish("2013-03-09", force=True)
    world.add("flights", "2013-03-09", "20", name="late", rows=500)
    shown = why(world, "2013-03-09", as_of=as_of)
    assert "decision      defer, by the rule cool_down" in shown
    assert (
        "  next check    only by hand: slackwater monitor daily_delays --as-of 2013-03-12 after 2013-04-20 19:00 UTC: "
        "limits count real time\n"
    ) in shown


def test_as_of_a_day_before_is_refused(why, printed_by):
    why(five_days())
    shown = printed_by("why", PIPELINE, "--date", DAY, "--as-of", "2013-03-09", *PROJECT, code=2)
    assert "as_of: 2013-03-09 is before the day 2013-03-10" in shown.err


def test_the_current_day_that_is_published_already_waits_for_its_end(why):
    world = five_days()
    world.add("flights", "2013-03-13", "12", rows=40)
    world.publish("2013-03-13")
    assert "  next check    2013-03-14 10:00 UTC, by the schedule\n" in why(world, "2013-03-13")


def test_a_running_day_is_not_compared(why):
    world = five_days()
    world.freeze(DAY, force=True)
    shown = why(world)
    assert "  since then    not compared\n" in shown
    assert shown.endswith("  next check    when its run has ended\n  to run it     nothing: it is running\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([PIPELINE, "--date", "9999-12-31"], "--date: 9999-12-31 has not begun in America/New_York"),
        (["nothing", "--date", DAY], "no pipeline 'nothing'"),
    ],
)
def test_a_wrong_day_or_pipeline_is_refused(monkeypatch, printed_by, words, message):
    connect(monkeypatch, five_days())
    assert message in printed_by("why", *words, *PROJECT, code=2).err


def test_nothing_is_written(why):
    world = with_late(five_days(), max_reruns_per_day=1)
    for date in ("2013-03-09", DAY):
        world.add("flights", date, "20", name="late", rows=500)
    why(world)
    assert (world.table.usage, world.table.late) == ({}, {})
