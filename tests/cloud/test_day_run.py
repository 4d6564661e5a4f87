"""The whole way of the data on the deployed local cloud: received, processed, published, and right."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import DATES, LONG_DAY
from tests.independent import COLUMNS, assert_same_table, daily_delays, database

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

EMPTY_DAY = "2013-05-01"
"""No partner has sent anything of this day."""
TABLE = f"SELECT {', '.join(COLUMNS)} FROM daily_delays WHERE date = '{{date}}' ORDER BY origin, carrier"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("independent")


@pytest.fixture(scope="module")
def received(cloud, weather):
    """The flights pulled and the weather pushed, once."""
    pulled = [cloud.json("pull", "flights", "--as-of", date) for date in ("2013-03-12", LONG_DAY)]
    return pulled, cloud.json("push", "weather", str(weather))


@pytest.fixture(scope="module")
def published(cloud, received):
    """The five days, run two at a time."""
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda date: cloud.json("run", "daily_delays", "--date", date), DATES)
    return dict(zip(DATES, answers, strict=True))


def test_every_flight_and_every_observation_is_received_once(cloud, received, scratch):
    (first, second), pushed = received
    days = " OR ".join(f"(month = {int(d[5:7])} AND day = {int(d[8:])})" for d in (*DATES, LONG_DAY))
    flights = database(scratch).execute(f"SELECT count(*) FROM flights WHERE {days}").fetchone()[0]
    assert (first["taken"], second["taken"]) == (5, 1)
    assert first["rows"] + second["rows"] == flights
    distinct = "SELECT count(*), count(DISTINCT (carrier, flight, origin, time_hour, dest)) FROM raw.flights"
    assert cloud.query(f"{distinct} WHERE month IN (3, 11)") == [[flights, flights]]
    assert (pushed["duplicates"], pushed["rejected"]) == (0, [])
    distinct = "SELECT count(*), count(DISTINCT (origin, time_hour)) FROM raw.weather WHERE year = 2013"
    assert cloud.query(distinct) == [[pushed["accepted"], pushed["accepted"]]]


def test_raw_partitions_are_registered_in_glue(cloud, received):
    database_name = cloud.outputs()["RawDatabase"]
    paginator = cloud.client("glue").get_paginator("get_partitions")
    pages = paginator.paginate(DatabaseName=database_name, TableName="flights")
    registered = {tuple(partition["Values"]) for page in pages for partition in page["Partitions"]}
    stored = {tuple(row) for row in cloud.query("SELECT DISTINCT date, hour FROM raw.flights")}
    assert registered == stored != set()


@pytest.mark.parametrize("date", DATES)
def test_a_published_day_agrees_with_the_independent_computation(cloud, published, scratch, date):
    expected = daily_delays(scratch, date)
    assert published[date]["outcome"] == "published"
    assert published[date]["publication"]["rows"] == len(expected) > 0
    assert_same_table(cloud.query(TABLE.format(date=date)), expected)


def test_the_day_of_25_hours_agrees_too(cloud, received, scratch):
    cloud.json("run", "daily_delays", "--date", LONG_DAY)
    assert_same_table(cloud.query(TABLE.format(date=LONG_DAY)), daily_delays(scratch, LONG_DAY))


def test_a_run_is_recorded_with_what_it_read(cloud, published, scratch):
    (record,) = [r for r in cloud.json("runs", "daily_delays")["runs"] if r["date"] == "2013-03-10"]
    rows = database(scratch).execute("SELECT count(*) FROM flights WHERE month = 3 AND day = 10").fetchone()[0]
    hours = "time_hour >= '2013-03-10 05:00+00' AND time_hour < '2013-03-11 04:00+00'"
    rows += cloud.query(f"SELECT count(*) FROM raw.weather WHERE {hours}")[0][0]
    assert record["state"] == "published"
    assert record["input"]["rows"] == rows
    assert record["input"]["bytes"] > 0


def test_sending_pulling_and_running_again_changes_nothing(cloud, received, published, weather):
    before, jobs = cloud.query(TABLE.format(date="2013-03-09")), len(cloud.jobs())
    counts = cloud.query("SELECT (SELECT count(*) FROM raw.flights), (SELECT count(*) FROM raw.weather)")
    pulled, pushed = cloud.json("pull", "flights", "--as-of", "2013-03-12"), cloud.json("push", "weather", str(weather))
    again = cloud.json("run", "daily_delays", "--date", "2013-03-09")
    assert (pulled["taken"], pulled["unchanged"]) == (0, 5)
    assert (pushed["accepted"], pushed["duplicates"]) == (0, received[1]["accepted"])
    assert again["outcome"] == "unchanged"
    assert again["run_id"] == published["2013-03-09"]["run_id"]
    assert cloud.query("SELECT (SELECT count(*) FROM raw.flights), (SELECT count(*) FROM raw.weather)") == counts
    assert cloud.query(TABLE.format(date="2013-03-09")) == before
    assert len(cloud.jobs()) == jobs


def test_two_runs_of_one_day_at_once_end_in_one_published_day_even_an_empty_one(cloud, published):
    jobs = len(cloud.jobs())
    machine = cloud.outputs()["PipelineMachinePrefix"] + "daily_delays"
    states = cloud.client("stepfunctions")
    executions = [
        states.start_execution(stateMachineArn=machine, input=json.dumps({"date": EMPTY_DAY}))["executionArn"]
        for _ in range(2)
    ]
    outputs = [ended(states, execution) for execution in executions]
    assert sorted(output["outcome"] for output in outputs) == ["published", "unchanged"]
    assert outputs[0]["publication"] == outputs[1]["publication"]
    assert (outputs[0]["run"]["files"], outputs[0]["publication"]["rows"]) == (0, 0)
    assert len(cloud.jobs()) == jobs + 3
    assert cloud.query(TABLE.format(date=EMPTY_DAY)) == []
    assert any("Wait for the other execution" in entered(states, execution) for execution in executions)


def entered(states, execution):
    events = states.get_execution_history(executionArn=execution, maxResults=1000)["events"]
    return [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]


def ended(states, execution):
    while (found := states.describe_execution(executionArn=execution))["status"] == "RUNNING":
        time.sleep(0.5)
    assert found["status"] == "SUCCEEDED", found
    return json.loads(found["output"])


def test_nothing_but_references_counts_and_identifiers_passes_through_the_machine(cloud, published):
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
    references = [json.loads(text) for text in passed if '"manifest.json' in text or "manifest.json" in text]
    assert references, "an Arrow reference passes through Step Functions"
    handed_on = [text for text in passed if '"SparkSubmitParameters"' not in text and "BilledResource" not in text]
    assert max(len(text) for text in handed_on) < 2048
    assert max(len(text) for text in passed) < 8192, "what EMR answers of a job, its arguments among it"
    assert not any(".parquet" in text or ".arrow" in text for text in passed)


def test_a_failed_spark_job_is_told_by_its_own_words_and_its_log_is_one_command_away(cloud, received):
    failed = cloud.json("run", "broken", "--date", "2013-03-09", code=1)["error"]
    assert failed["kind"] == "RunFailed"
    assert "no_such_column" in failed["message"]
    assert "slackwater logs broken --date 2013-03-09" in failed["message"]
    log = cloud.slackwater("logs", "broken", "--date", "2013-03-09").out
    assert "no_such_column" in log
    (record,) = cloud.json("runs", "broken")["runs"]
    assert (record["state"], "no_such_column" in record["error"]) == ("failed", True)
