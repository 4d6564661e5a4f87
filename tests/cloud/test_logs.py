"""Two days that run at the same time and lose jobs: their counters, logs and timelines."""

from __future__ import annotations

import pytest

from tests.cloud.conftest import PAST
from tests.cloud.staged_runs import FINISHED, KILLED, LAST
from tests.independent import daily_delays, database

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

OTHER, RESTARTED = PAST
"""The second day has two attempts in one execution, the first one a third attempt in another."""
UTC_HOURS = {
    "2013-03-09": ("2013-03-09 05:00:00+00", "2013-03-10 05:00:00+00"),
    "2013-03-10": ("2013-03-10 05:00:00+00", "2013-03-11 04:00:00+00"),
}
"""Start and end of the local days: New York changes its clocks in the second one."""


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The rows of each step of both days, computed by DuckDB from the package's files."""
    folder = tmp_path_factory.mktemp("independent")
    rows = {}
    for day in PAST:
        start, end = UTC_HOURS[day]
        year, month, number = map(int, day.split("-"))
        query = f"""
            WITH f AS (FROM flights f WHERE year = {year} AND month = {month} AND day = {number}),
                 w AS (FROM weather w WHERE time_hour >= TIMESTAMPTZ '{start}' AND time_hour < TIMESTAMPTZ '{end}')
            SELECT (SELECT count(*) FROM f), (SELECT count(*) FROM w),
                   (SELECT count(*) FROM f ANTI JOIN w USING (origin, time_hour))"""
        groups = len(daily_delays(folder, day))
        rows[day] = (*database(folder).execute(query).fetchone(), groups)
    return rows


@pytest.mark.parametrize("day", PAST)
def test_the_counters_of_every_attempt_are_those_of_duckdb(cloud, recovered, expected, day):
    flights, weather, alone, groups = expected[day]
    steps = {
        "checked_flights": ({"flights": flights}, flights),
        "hourly_weather": ({"weather": weather}, weather),
        "flights_with_weather": ({"checked_flights": flights, "hourly_weather": weather}, flights),
        LAST: ({"flights_with_weather": flights}, groups),
        "report": ({LAST: groups}, groups),
    }
    *lost, last = cloud.json("runs", "staged_delays", "--date", day)["runs"]
    assert len(lost) == {OTHER: 2, RESTARTED: 1}[day]
    for run in (*lost, last):
        counted = {step["name"]: (step["rows_in"], step["rows_out"]) for step in run["steps"]}
        # The driver that publishes the late day is killed after it has stored the rows of its stage.
        stored = FINISHED[day] if day == OTHER else [*FINISHED[day], "flights_with_weather", LAST]
        assert counted == {name: steps[name] for name in (steps if run is last else stored)}
        assert run["input"]["rows"] == flights + weather
    assert last["publication"]["rows"] == groups
    (joined,) = [step["effect"] for step in last["steps"] if step["name"] == "flights_with_weather"]
    assert alone in joined.values()


def lines_of(cloud, *arguments):
    return cloud.json("logs", *arguments)["lines"]


def messages(lines, source):
    return [line["message"] for line in lines if line["source"] == source]


def test_the_log_of_an_attempt_has_its_transitions_functions_and_jobs_in_time_order(cloud, recovered):
    run_id = recovered[RESTARTED]["run_id"]
    first, second = (cloud.json("logs", run_id, "--attempt", number) for number in "12")
    for log in (first, second):
        assert log["missing"] == [] or "has no log" in " ".join(log["missing"])
        assert [line["time"] for line in log["lines"]] == sorted(line["time"] for line in log["lines"])
        ours = [line["fields"] for line in log["lines"] if "correlation_id" in line["fields"]]
        assert {fields["correlation_id"] for fields in ours} == {recovered[RESTARTED]["correlation_id"]}
        assert {fields.get("date", RESTARTED) for fields in ours} == {RESTARTED}
    lost, published = first["lines"], second["lines"]
    jobs_of_first = {line["source"] for line in lost} - {"state machine", "freeze-inputs", "record-run"}
    finished = {f"job {stage}" for stage in FINISHED[RESTARTED]}
    assert finished <= jobs_of_first
    assert any(text.startswith(f"Run {KILLED[RESTARTED]} failed: ") for text in messages(lost, "state machine"))
    assert "run: failed" in messages(lost, "record-run")
    assert messages(published, "state machine")[0] == "Freeze inputs entered"
    assert messages(published, "state machine")[-1] == "execution succeeded"
    assert messages(published, "freeze-inputs") == ["inputs frozen"]
    assert "run: published" in messages(published, "record-run")
    assert not finished & {line["source"] for line in published}
    assert messages(published, f"job {LAST}")[0] == "spark started"


def test_both_attempts_have_all_transitions_of_the_execution(cloud, recovered):
    states = cloud.client("stepfunctions")
    pages = states.get_paginator("get_execution_history").paginate(executionArn=recovered[RESTARTED]["execution"])
    entered = [
        event["stateEnteredEventDetails"]["name"]
        for page in pages
        for event in page["events"]
        if "stateEnteredEventDetails" in event
    ]
    shown = [
        message.removesuffix(" entered")
        for number in "12"
        for message in messages(
            lines_of(cloud, "staged_delays", "--date", RESTARTED, "--attempt", number), "state machine"
        )
        if message.endswith(" entered")
    ]
    assert shown == entered


def test_a_timeline_shows_what_each_stage_did_and_which_were_kept(cloud, recovered, expected):
    flights, weather, _, groups = expected[OTHER]
    timelines = [
        cloud.json("runs", recovered[OTHER]["run_id"][:12], "--attempt", number)["timeline"] for number in "123"
    ]
    states = [[(stage["stage"], stage["state"], stage["kept_from"]) for stage in line["stages"]] for line in timelines]
    killed, (finished,) = KILLED[OTHER], FINISHED[OTHER]
    assert [set(of_attempt) for of_attempt in states] == [
        {(finished, "done", None), (killed, "failed", None), (LAST, "not run", None)},
        {(finished, "kept", 1), (killed, "failed", None), (LAST, "not run", None)},
        {(finished, "kept", 1), (killed, "done", None), (LAST, "done", None)},
    ]
    published = timelines[2]
    done = [stage for line in timelines for stage in line["stages"] if stage["state"] == "done"]
    assert len(done) == 3
    for stage in done:
        parts = [stage[name] for name in ("waiting", "starting", "working")]
        assert min(*parts, stage["start"]) >= 0
        assert sum(parts) == pytest.approx(stage["seconds"], abs=0.3)
    rows = [(stage["rows_in"], stage["rows_out"]) for stage in published["stages"]]
    assert rows == [(flights, flights), (weather, weather), (flights + weather, groups)]
    assert [step["name"] for step in published["stages"][2]["steps"]] == [
        *("flights_with_weather", LAST, "publish", "report"),
    ]
    # Not a step of the stage that was kept from the first attempt.
    assert published["slowest"]["name"] in {killed, LAST, "publish", "report"}


def test_a_day_s_timeline_is_that_of_its_last_attempt(cloud, recovered):
    shown = cloud.slackwater("runs", "staged_delays", "--date", RESTARTED, "--timeline").out
    assert f"staged_delays {RESTARTED}, attempt 2: published" in shown
    assert "kept from attempt 1" in shown
    assert "slowest step: " in shown
    assert "orchestration: " in shown
    assert cloud.slackwater("runs", recovered[RESTARTED]["run_id"]).out == shown


def test_people_see_one_stage_or_sparks_own_log(cloud, recovered):
    command = ("logs", "staged_delays", "--date", OTHER, "--stage", KILLED[OTHER])
    shown = cloud.slackwater(*command).out.splitlines()
    assert {line[13:].split()[1] for line in shown} == {"state", "job"}
    assert any("spark started" in line and "start_seconds=" in line for line in shown)
    spark = cloud.slackwater(*command, "--spark")
    assert spark.err.endswith(f"(staged_delays {OTHER} {KILLED[OTHER]}): success\n")
    assert "spark started" not in spark.out
    wrong = cloud.slackwater("logs", "staged_delays", "--date", OTHER, "--stage", "none", "--spark", code=2)
    assert "has no Spark job of stage none" in wrong.err
