"""Two days that run at the same time, one of which loses its last job: their counters, logs and timelines."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cloud.conftest import PAST
from tests.cloud.test_recovery import jobs, kill_driver, wait_for
from tests.conftest import LATE
from tests.independent import daily_delays, database

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

RESTARTED, OTHER = PAST
FIRST_STAGES = ("checked_flights", "hourly_weather")
LAST_STAGE = "delays_by_carrier"
UTC_HOURS = {
    "2013-03-09": ("2013-03-09 05:00:00+00", "2013-03-10 05:00:00+00"),
    "2013-03-10": ("2013-03-10 05:00:00+00", "2013-03-11 04:00:00+00"),
}
"""Start and end of the local days: New York changes its clocks in the second one."""
LATE_FLIGHTS = "f.hour BETWEEN 4 AND 7 OR f.hour BETWEEN 20 AND 23"
LATE_WEATHER = "w.time_hour = TIMESTAMPTZ '2013-03-10 20:00:00+00'"


@pytest.fixture(scope="module")
def two_runs(cloud, received):
    """Both days run at the same time. One loses its last job, and runs once more in the same execution."""
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(cloud.json_of_process, "run", "staged_delays", "--date", day) for day in PAST]
        wait_for(lambda: (f"staged_delays {RESTARTED} {LAST_STAGE}", "RUNNING") in jobs(cloud), 300)
        wait_for(lambda: kill_driver(f'"date":"{RESTARTED}"'))
        results = [run.result() for run in running]
    assert [result["attempt"] for result in results] == [2, 1]
    return dict(zip(PAST, results, strict=True))


@pytest.fixture(scope="module")
def expected(tmp_path_factory, two_runs, feed):
    """The rows of each step of both days, computed by DuckDB from the package's files."""
    folder = tmp_path_factory.mktemp("independent")
    is_late_data_missing = any((feed.folder / "late").glob("*.csv"))
    rows = {}
    for day in PAST:
        left_out = is_late_data_missing and day == LATE
        flights = f"NOT ({LATE_FLIGHTS})" if left_out else "true"
        weather = f"NOT ({LATE_WEATHER})" if left_out else "true"
        start, end = UTC_HOURS[day]
        year, month, number = map(int, day.split("-"))
        query = f"""
            WITH f AS (FROM flights f WHERE year = {year} AND month = {month} AND day = {number} AND ({flights})),
                 w AS (FROM weather w WHERE time_hour >= TIMESTAMPTZ '{start}' AND time_hour < TIMESTAMPTZ '{end}'
                       AND ({weather}))
            SELECT (SELECT count(*) FROM f), (SELECT count(*) FROM w),
                   (SELECT count(*) FROM f ANTI JOIN w USING (origin, time_hour))"""
        groups = len(daily_delays(folder, day, where=flights, weather=weather))
        rows[day] = (*database(folder).execute(query).fetchone(), groups)
    return rows


@pytest.mark.parametrize("day", PAST)
def test_the_counters_of_every_attempt_are_those_of_duckdb(cloud, two_runs, expected, day):
    flights, weather, alone, groups = expected[day]
    steps = {
        "checked_flights": ({"flights": flights}, flights),
        "hourly_weather": ({"weather": weather}, weather),
        "flights_with_weather": ({"checked_flights": flights, "hourly_weather": weather}, flights),
        LAST_STAGE: ({"flights_with_weather": flights}, groups),
        "report": ({LAST_STAGE: groups}, groups),
    }
    *lost, last = cloud.json("runs", "staged_delays", "--date", day)["runs"]
    assert len(lost) == (day == RESTARTED)
    for run in (*lost, last):
        counted = {step["name"]: (step["rows_in"], step["rows_out"]) for step in run["steps"]}
        names = steps if run is last else FIRST_STAGES
        assert counted == {name: steps[name] for name in names}
        assert run["input"]["rows"] == flights + weather
    assert last["publication"]["rows"] == groups
    (joined,) = [step["effect"] for step in last["steps"] if step["name"] == "flights_with_weather"]
    assert alone in joined.values()


def lines_of(cloud, *arguments):
    return cloud.json("logs", *arguments)["lines"]


def messages(lines, source):
    return [line["message"] for line in lines if line["source"] == source]


def test_the_log_of_an_attempt_has_its_transitions_functions_and_jobs_in_time_order(cloud, two_runs):
    run_id = two_runs[RESTARTED]["run_id"]
    first, second = (cloud.json("logs", run_id, "--attempt", number) for number in "12")
    for log in (first, second):
        assert log["missing"] == [] or "has no log" in " ".join(log["missing"])
        assert [line["time"] for line in log["lines"]] == sorted(line["time"] for line in log["lines"])
        ours = [line["fields"] for line in log["lines"] if "correlation_id" in line["fields"]]
        assert {fields["correlation_id"] for fields in ours} == {two_runs[RESTARTED]["correlation_id"]}
        assert {fields.get("date", RESTARTED) for fields in ours} == {RESTARTED}
    lost, published = first["lines"], second["lines"]
    jobs_of_first = {line["source"] for line in lost} - {"state machine", "freeze-inputs", "record-run"}
    assert {f"job {stage}" for stage in FIRST_STAGES} <= jobs_of_first
    assert any(text.startswith(f"Run {LAST_STAGE} failed: ") for text in messages(lost, "state machine"))
    assert "run: failed" in messages(lost, "record-run")
    assert messages(published, "state machine")[0] == "Freeze inputs entered"
    assert messages(published, "state machine")[-1] == "execution succeeded"
    assert messages(published, "freeze-inputs") == ["inputs frozen"]
    assert "run: published" in messages(published, "record-run")
    assert {line["source"] for line in published} >= {f"job {LAST_STAGE}"}
    assert not {f"job {stage}" for stage in FIRST_STAGES} & {line["source"] for line in published}
    assert messages(published, f"job {LAST_STAGE}")[0] == "spark started"


def test_both_attempts_have_all_transitions_of_the_execution(cloud, two_runs):
    states = cloud.client("stepfunctions")
    pages = states.get_paginator("get_execution_history").paginate(executionArn=two_runs[RESTARTED]["execution"])
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


def test_people_see_one_stage_or_sparks_own_log(cloud, two_runs):
    command = ("logs", "staged_delays", "--date", OTHER, "--stage", FIRST_STAGES[0])
    shown = cloud.slackwater(*command).out.splitlines()
    assert {line[13:].split()[1] for line in shown} == {"state", "job"}
    assert any("spark started" in line and "start_seconds=" in line for line in shown)
    spark = cloud.slackwater(*command, "--spark")
    assert spark.err.endswith(f"(staged_delays {OTHER} {FIRST_STAGES[0]}): success\n")
    assert "spark started" not in spark.out
    wrong = cloud.slackwater("logs", "staged_delays", "--date", OTHER, "--stage", "none", "--spark", code=2)
    assert "has no Spark job of stage none" in wrong.err


def test_without_a_permission_the_rest_of_the_log_is_printed(cloud, two_runs):
    iam, name = cloud.client("iam"), "reader"
    iam.create_user(UserName=name)
    statements = [
        {"Effect": "Allow", "Action": "*", "Resource": "*"},
        {"Effect": "Deny", "Action": "logs:FilterLogEvents", "Resource": "*"},
    ]
    iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=json.dumps({"Statement": statements}))
    keys = iam.create_access_key(UserName=name)["AccessKey"]
    credentials = {"AWS_ACCESS_KEY_ID": keys["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"]}
    reader = dataclasses.replace(cloud, environment=cloud.environment | credentials)
    log = reader.json_of_process("logs", "staged_delays", "--date", OTHER)
    assert [text.partition(":")[0] for text in log["missing"]] == [
        "could not read the log group /aws/lambda/slackwater-freeze-inputs",
        "could not read the log group /aws/lambda/slackwater-record-run",
    ]
    assert all("AccessDenied" in text for text in log["missing"])
    sources = {line["source"] for line in log["lines"]}
    assert sources == {"state machine", *(f"job {stage}" for stage in (*FIRST_STAGES, LAST_STAGE))}


def test_a_timeline_shows_what_each_stage_did_and_which_were_kept(cloud, two_runs, expected):
    flights, weather, _, groups = expected[RESTARTED]
    timelines = [
        cloud.json("runs", two_runs[RESTARTED]["run_id"][:12], "--attempt", number)["timeline"] for number in "12"
    ]
    states = [[(stage["stage"], stage["state"], stage["kept_from"]) for stage in line["stages"]] for line in timelines]
    assert states == [
        [*((stage, "done", None) for stage in FIRST_STAGES), (LAST_STAGE, "failed", None)],
        [*((stage, "kept", 1) for stage in FIRST_STAGES), (LAST_STAGE, "done", None)],
    ]
    lost, published = timelines
    for stage in (*lost["stages"][:2], published["stages"][2]):
        parts = [stage[name] for name in ("waiting", "starting", "working")]
        assert min(*parts, stage["start"]) >= 0
        assert sum(parts) == pytest.approx(stage["seconds"], abs=0.3)
    rows = [(stage["rows_in"], stage["rows_out"]) for stage in published["stages"]]
    assert rows == [(flights, flights), (weather, weather), (flights + weather, groups)]
    assert [step["name"] for step in published["stages"][2]["steps"]] == [
        *("flights_with_weather", LAST_STAGE, "publish", "report"),
    ]
    assert published["slowest"]["name"] in {LAST_STAGE, "publish", "report"}
    seconds = published["seconds"]
    assert seconds["total"] == pytest.approx(
        seconds["spark_start"] + seconds["spark_work"] + seconds["orchestration"], abs=0.5
    )
    assert published["missing"] == []


def test_a_day_s_timeline_is_that_of_its_last_attempt(cloud, two_runs):
    shown = cloud.slackwater("runs", "staged_delays", "--date", RESTARTED, "--timeline").out
    assert f"staged_delays {RESTARTED}, attempt 2: published" in shown
    assert "kept from attempt 1" in shown
    assert "slowest step: " in shown
    assert "orchestration: " in shown
    assert cloud.slackwater("runs", two_runs[RESTARTED]["run_id"]).out == shown
