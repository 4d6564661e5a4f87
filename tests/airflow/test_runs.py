"""Runs of the DAGs: Airflow starts the state machines of the deployed local cloud and waits for their end."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from operator import itemgetter
from typing import Any

import pytest

from examples.nyc_flights.feed import flights_files, to_ndjson, weather_of_day
from tests.airflow.running import running, wait_until
from tests.cloud.queued_jobs import occupied_application
from tests.independent import COLUMNS, assert_same_table, daily_delays

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(900)]

DAY = date(2013, 11, 3)
"""The day of 25 hours. No other test on the cloud uses it."""
NEXT_DAY = DAY + timedelta(days=1)
PULL, PROCESS, MONITOR = f"{NEXT_DAY}T06:15:00+00:00", f"{NEXT_DAY}T08:00:00+00:00", f"{NEXT_DAY}T10:00:00+00:00"
"""When the DAGs of that day are scheduled."""
BROKEN = f"{DAY}T03:00:00+00:00"
LATE_HOUR = datetime(2013, 11, 3, 20, tzinfo=UTC)


TABLE = "slackwater://slackwater/daily_delays"


def executions(cloud, pipeline, instant) -> list[str]:
    """Return the status of each execution that Airflow started for the pipeline and instant."""
    machine = cloud.outputs()["PipelineMachinePrefix"] + pipeline
    listed = cloud.client("stepfunctions").list_executions(stateMachineArn=machine)["executions"]
    start = f"process-{pipeline}-{datetime.fromisoformat(instant):%Y%m%dT%H%M%SZ}-"
    return [execution["status"] for execution in listed if execution["name"].startswith(start)]


def monitored_days(cloud, instant) -> list[str]:
    """Return the days that the monitoring of that instant has worked on, as its execution reports them."""
    states, machine = cloud.client("stepfunctions"), cloud.outputs()["MonitorMachineArn"]
    start = f"monitor-daily_delays-{datetime.fromisoformat(instant):%Y%m%dT%H%M%SZ}-"
    listed = states.list_executions(stateMachineArn=machine)["executions"]
    [arn] = [execution["executionArn"] for execution in listed if execution["name"].startswith(start)]
    return [day["date"] for day in json.loads(states.describe_execution(executionArn=arn)["output"])["days"]]


def runs_of_the_day(cloud):
    return [run for run in cloud.json("runs", "daily_delays")["runs"] if run["date"] == DAY.isoformat()]


@pytest.fixture(scope="module")
def weather_of_the_day():
    """The observations of the day, and those of the hour that arrives late."""
    events = list(weather_of_day(DAY))
    late = [event for event in events if datetime.fromisoformat(event["time_hour"]) == LATE_HOUR]
    assert late
    return [event for event in events if event not in late], late


@pytest.fixture(scope="module")
def airflow(home):
    with running(home) as airflow:
        yield airflow


@pytest.fixture(scope="module")
def broken(airflow) -> str:
    """A run of the pipeline that fails, started before all others."""
    return airflow.start("process_broken", BROKEN)


@pytest.fixture(scope="module")
def pulled(airflow, broken, partner) -> str:
    """The day's flights, pulled by their DAG: the final state of its run."""
    for name, content in flights_files(DAY).items():
        partner.put(name, content)
    return airflow.end("pull_flights", airflow.start("pull_flights", PULL))


@pytest.fixture(scope="module")
def processed(cloud, airflow, pulled, weather_of_the_day, tmp_path_factory) -> str:
    """The day, processed without the weather of the hour that arrives late, its task cleared while it waits: the state
    of the DAG's run.
    """
    folder = tmp_path_factory.mktemp("weather")
    (folder / "weather.ndjson").write_text(to_ndjson(weather_of_the_day[0]))
    cloud.json("push", "weather", str(folder / "weather.ndjson"))
    with occupied_application(cloud, folder):  # so that the execution lasts until the cleared task waits for it, too
        run = airflow.start("process_daily_delays", PROCESS)
        airflow.clear_waiting("process_daily_delays", run, "process")
    return airflow.end("process_daily_delays", run)


def test_the_pull_dag_fetches_the_days_files(cloud, pulled):
    assert pulled == "success"
    lines = sum(content.count("\n") - 1 for content in flights_files(DAY).values())
    assert cloud.query("SELECT count(*) FROM raw.flights WHERE month = 11 AND day = 3") == [[lines]]


def test_the_process_dag_publishes_the_day_before_in_one_execution_although_its_task_was_cleared(
    cloud, airflow, processed
):
    assert processed == "success"
    run, *_ = runs_of_the_day(cloud)
    flights = cloud.query(f"SELECT sum(flights) FROM daily_delays WHERE date = '{DAY}'")
    assert run["state"] == "published"
    assert run["correlation_id"] == "process-daily_delays-20131104T080000Z-1"
    assert flights == cloud.query("SELECT count(*) FROM raw.flights WHERE month = 11 AND day = 3")
    assert executions(cloud, "daily_delays", PROCESS) == ["SUCCEEDED"]
    [run] = airflow.request("GET", "/dags/process_daily_delays/dagRuns")["dag_runs"]
    path = f"/dags/process_daily_delays/dagRuns/{run['dag_run_id']}/taskInstances/process"
    assert airflow.request("GET", path)["try_number"] == 2


def test_a_failed_execution_fails_its_task_with_the_error_and_starts_again_when_the_task_is_cleared(
    cloud, airflow, broken
):
    assert airflow.end("process_broken", broken) == "failed"
    attempts = airflow.attempts("process_broken", broken, "process")
    assert attempts[-1] == 3
    # Airflow 3.0.6 sometimes keeps no record of an attempt before the last.
    for attempt in attempts:
        log = airflow.log("process_broken", broken, "process", attempt)
        assert "Step function failed: FAILED - RunFailed - DefinitionError: pipeline broken: steps.wrong" in log
        assert "no_such_column" in log
    # The two retries repeat the result of the first attempt and start nothing: apache/airflow#62845.
    assert executions(cloud, "broken", BROKEN) == ["FAILED"]
    airflow.clear("process_broken", broken)
    wait_until(lambda: executions(cloud, "broken", BROKEN) == ["FAILED", "FAILED"])


def test_the_monitor_dag_runs_a_late_day_again(cloud, airflow, processed, weather_of_the_day, tmp_path):
    file = tmp_path / "late.ndjson"
    file.write_text(to_ndjson(weather_of_the_day[1]))
    cloud.json("push", "weather", str(file))
    monitored = airflow.start("monitor_daily_delays", MONITOR)
    assert airflow.end("monitor_daily_delays", monitored) == "success"
    instances = airflow.request("GET", f"/dags/monitor_daily_delays/dagRuns/{monitored}/taskInstances")
    shown = {
        instance["rendered_map_index"]: instance["state"]
        for instance in instances["task_instances"]
        if instance["task_id"] == "late_day"
    }
    # The monitoring may also work on days of other tests whose notification is due.
    days = monitored_days(cloud, MONITOR)
    assert DAY.isoformat() in days
    assert shown == dict.fromkeys(days, "success")
    attempts = runs_of_the_day(cloud)
    assert [run["state"] for run in attempts] == ["published", "published"]
    assert {run["correlation_id"].split("-")[0] for run in attempts} == {"process", "monitor"}
    published = cloud.query(
        f"SELECT {', '.join(COLUMNS)} FROM daily_delays WHERE date = '{DAY}' ORDER BY origin, carrier"
    )
    assert_same_table(published, daily_delays(tmp_path, DAY.isoformat()))
    # Each publication, of the run and of the monitoring, has started the DAG of a user, or was taken by its next run.
    versions = [{"date": DAY.isoformat(), "version": run["attempt"], "run_id": run["run_id"]} for run in attempts]
    wait_until(lambda: reported(airflow) == sorted(versions, key=itemgetter("version")))
    events = airflow.request("GET", "/assets/events")["asset_events"]
    assert {event["uri"] for event in events} == {TABLE}


def reported(airflow) -> list[dict[str, Any]]:
    """Return what the DAG in docs/airflow.md has returned for the day, by version."""
    runs = airflow.request("GET", "/dags/daily_report/dagRuns")["dag_runs"]
    path = "/dags/daily_report/dagRuns/{}/taskInstances/report/xcomEntries/return_value"
    done = [run["dag_run_id"] for run in runs if run["state"] == "success"]
    values = [airflow.request("GET", path.format(run))["value"] for run in done]
    days = [day for value in values for day in value]
    return sorted((day for day in days if day["date"] == DAY.isoformat()), key=itemgetter("version"))
