"""From received events to published days on the deployed local cloud, checked against independent computations."""

from __future__ import annotations

from datetime import date

import pytest

from examples.nyc_flights.feed import flights_files, weather_of_hours
from tests.cloud.conftest import AS_OF, EMPTY_DAY, PAST, ended, entered
from tests.cloud.staged_runs import wait_for
from tests.cloud.test_monitoring import FIRST, FIRST_WEATHER
from tests.conftest import DATES, LATE_FILES, LATE_HOUR
from tests.independent import COLUMNS, assert_same_table, daily_delays, database
from tests.lineage_runs import validated

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]


TABLE = f"SELECT {', '.join(COLUMNS)} FROM daily_delays WHERE date = '{{date}}' ORDER BY origin, carrier"


def files(*days):
    return sum(len(flights_files(date.fromisoformat(day))) for day in days)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("independent")


def test_every_flight_and_every_observation_is_received_once(cloud, received, monitored, scratch):
    days = " OR ".join(f"(month = {int(d[5:7])} AND day = {int(d[8:])})" for d in DATES)
    flights = database(scratch).execute(f"SELECT count(*) FROM flights WHERE {days}").fetchone()[0]
    assert received.pulled["stored"] == files(*DATES) - len(LATE_FILES)
    distinct = "SELECT count(*), count(DISTINCT (carrier, flight, origin, time_hour, dest)) FROM raw.flights"
    # Other tests put files of other months, and files of present days with rows of this one.
    assert cloud.query(f"{distinct} WHERE month = 3 AND date < '2014'") == [[flights, flights]]
    assert (received.pushed["duplicates"], received.pushed["rejected"]) == (0, [])
    distinct = "SELECT count(*), count(DISTINCT (origin, time_hour)) FROM raw.weather"
    observations = received.pushed["accepted"] + len(list(weather_of_hours(*LATE_HOUR)))
    assert cloud.query(f"{distinct} WHERE month = 3 AND date < '2014'") == [[observations, observations]]


@pytest.mark.parametrize("day", PAST)
def test_a_published_day_agrees_with_the_independent_computation(cloud, published, monitored, scratch, day):
    assert published[day]["outcome"] == "published"
    assert_same_table(cloud.query(TABLE.format(date=day)), daily_delays(scratch, day))


def test_days_that_are_published_at_the_same_time_keep_rows_and_tags_of_each_other(cloud, published, scratch):
    runs = [cloud.json("runs", "daily_delays", "--date", day)["runs"][0] for day in PAST]
    assert max(run["started_at"] for run in runs) < min(run["ended_at"] for run in runs)
    for day, where in zip(PAST, ({}, {"where": FIRST, "weather": FIRST_WEATHER}), strict=True):
        first = cloud.json("history", "daily_delays", "--date", day)["versions"][0]
        assert first["run_id"] == published[day]["run_id"]
        # The version is read at its tag.
        rows = cloud.json("query", TABLE.format(date=day), "--date", day, "--version", str(first["version"]))["rows"]
        assert_same_table(rows, daily_delays(scratch, day, **where))


def test_a_run_is_recorded_with_what_it_read(cloud, monitored, scratch):
    record = [r for r in cloud.json("runs", "daily_delays")["runs"] if r["date"] == "2013-03-10"][-1]
    rows = database(scratch).execute("SELECT count(*) FROM flights WHERE month = 3 AND day = 10").fetchone()[0]
    hours = "time_hour >= '2013-03-10 05:00+00' AND time_hour < '2013-03-11 04:00+00'"
    rows += cloud.query(f"SELECT count(*) FROM raw.weather WHERE {hours}")[0][0]
    assert record["state"] == "published"
    assert record["input"]["rows"] == rows
    assert record["input"]["bytes"] > 0


def test_the_steps_of_a_day_are_shown_and_its_arrow_files_are_removed_after_it_is_published(cloud, published):
    day = PAST[0]
    run = cloud.json("runs", "daily_delays", "--date", day)["runs"][-1]
    assert {step["stage"] for step in run["steps"]} == {stage["stage"] for stage in run["stages"]}
    assert run["steps"][-1]["rows_out"] == run["publication"]["rows"]
    # Spark computes them in one pass.
    assert {step["seconds"] for step in run["steps"]} == {None}
    # The deployment of these tests has the setting `intermediate_days=0`.
    first, *stages, last = cloud.json("refs", "daily_delays", "--date", day)["versions"]
    assert (first["type"], first["state"], first["rows"]) == ("input", "present", run["input"]["rows"])
    assert {(version["type"], version["state"]) for version in stages} == {("stage", "removed")}
    assert (last["type"], last["snapshot_id"]) == ("published", run["publication"]["snapshot_id"])


def test_sending_pulling_and_running_again_changes_nothing(cloud, published, monitored, weather):
    before, jobs = cloud.query(TABLE.format(date="2013-03-09")), len(cloud.jobs())
    counts = cloud.query("SELECT (SELECT count(*) FROM raw.flights), (SELECT count(*) FROM raw.weather)")
    pulled, pushed = cloud.json("pull", "flights", "--as-of", AS_OF), cloud.json("push", "weather", str(weather))
    again = cloud.json("run", "daily_delays", "--date", "2013-03-09")
    assert (pulled["stored"], pulled["unchanged"]) == (0, files(*DATES))
    assert (pushed["accepted"], pushed["duplicates"]) == (0, len(weather.read_text().splitlines()))
    assert again["outcome"] == "unchanged"
    assert again["run_id"] == published["2013-03-09"]["run_id"]
    assert cloud.query("SELECT (SELECT count(*) FROM raw.flights), (SELECT count(*) FROM raw.weather)") == counts
    assert cloud.query(TABLE.format(date="2013-03-09")) == before
    assert len(cloud.jobs()) == jobs


def test_two_concurrent_runs_of_a_day_publish_it_once_even_when_it_is_empty(cloud, empty_day):
    outputs = [ended(cloud, execution) for execution in empty_day]
    assert sorted(output["outcome"] for output in outputs) == ["published", "unchanged"]
    assert outputs[0]["publication"] == outputs[1]["publication"]
    assert (outputs[0]["run"]["files"], outputs[0]["publication"]["rows"]) == (0, 0)
    assert [job["name"] for job in cloud.jobs() if f"daily_delays {EMPTY_DAY} delays_by_carrier" in job["name"]] != []
    assert any("Wait for the other execution" in entered(cloud, execution) for execution in empty_day)


def test_only_references_counts_and_identifiers_pass_through_the_machine(cloud, published):
    states = cloud.client("stepfunctions")
    events = states.get_execution_history(executionArn=published["2013-03-10"]["execution"], maxResults=1000)["events"]
    passed = [
        detail[side]
        for event in events
        for detail in event.values()
        if isinstance(detail, dict)
        for side in ("input", "output")
        if side in detail
    ]
    assert any('"manifest":"s3://' in value.replace(" ", "") for value in passed), "a run names its input manifest"
    outputs = [value for value in passed if '"SparkSubmitParameters"' not in value and "BilledResource" not in value]
    assert max(len(value) for value in outputs) < 2048
    assert max(len(value) for value in passed) < 8192, "the response of EMR about a job, with its arguments"
    assert not any(".parquet" in value or ".arrow" in value for value in passed)


def test_the_error_of_a_failed_spark_job_is_printed_and_names_the_command_for_its_log(cloud, received, lineage):
    failed = cloud.json("run", "broken", "--date", "2013-03-09", code=1)["error"]
    assert failed["type"] == "RunFailed"
    assert "no_such_column" in failed["message"]
    assert "slackwater logs broken --date 2013-03-09" in failed["message"]
    log = cloud.slackwater("logs", "broken", "--date", "2013-03-09").out
    assert "no_such_column" in log
    (record,) = [run for run in cloud.json("runs", "broken")["runs"] if run["date"] == "2013-03-09"]
    assert (record["state"], "no_such_column" in record["error"]) == ("failed", True)
    wait_for(lambda: bool(lineage.ends("broken", "2013-03-09")))
    events = validated(lineage.of_run(lineage.ends("broken", "2013-03-09")[0]["run"]["runId"]))
    kinds = [(event["eventType"], event["job"]["name"]) for event in events]
    assert kinds == [("START", "broken"), ("FAIL", "broken.wrong"), ("FAIL", "broken")]
    assert "no_such_column" in events[-1]["run"]["facets"]["errorMessage"]["message"]
