"""Runs of the DAGs: Airflow starts the state machines of the deployed local cloud and waits for their end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus
from operator import itemgetter
from typing import Any
from zoneinfo import ZoneInfo

import boto3
import pytest
from botocore.config import Config

from examples.nyc_flights.feed import flights_files, to_ndjson, weather_of_day
from slackwater.aws.clients import AIRFLOW_CONFIG
from slackwater.aws.executions.airflow import AirflowEnvironment
from slackwater.local.layout import AIRFLOW, Layout
from tests.airflow.running import running, wait_until
from tests.cloud.queued_jobs import occupied_application
from tests.independent import COLUMNS, assert_same_table, daily_delays

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(900)]

DAY = date(2013, 11, 3)
"""The day of 25 hours. No other test on the cloud uses it."""
NEXT_DAY = DAY + timedelta(days=1)
PULL, PROCESS, MONITOR = f"{NEXT_DAY}T06:15:00+00:00", f"{NEXT_DAY}T08:00:00+00:00", f"{NEXT_DAY}T10:00:00+00:00"
"""When the DAGs of that day are scheduled."""
BROKEN, STOPPED = f"{DAY}T03:00:00+00:00", f"{NEXT_DAY}T03:00:00+00:00"
STAGE = "run_delays_by_carrier"
LATE_HOUR = datetime(2013, 11, 3, 20, tzinfo=UTC)


TABLE = "slackwater://slackwater/daily_delays"


def executions(cloud, pipeline, instant) -> list[str]:
    """Return the status of each execution that Airflow started for the pipeline and instant."""
    machine = cloud.outputs()["PipelineMachinePrefix"] + pipeline
    listed = cloud.client("stepfunctions").list_executions(stateMachineArn=machine)["executions"]
    start = f"process-{pipeline}-{datetime.fromisoformat(instant):%Y%m%dT%H%M%SZ}-"
    return [execution["status"] for execution in listed if execution["name"].startswith(start)]


def checks(cloud, name) -> dict[str, str]:
    """Return the statuses of the executions of `monitor-days` whose names begin with `name`, by name."""
    machine = cloud.outputs()["MonitorMachineArn"]
    listed = cloud.client("stepfunctions").list_executions(stateMachineArn=machine)["executions"]
    return {each["name"]: each["status"] for each in listed if each["name"].startswith(name)}


def monitored_days(cloud, name) -> list[str]:
    """Return the days that an execution of `monitor-days` has worked on, as it reports them."""
    arn = f"{cloud.outputs()['MonitorMachineArn'].replace(':stateMachine:', ':execution:')}:{name}"
    described = cloud.client("stepfunctions").describe_execution(executionArn=arn)
    return [day["date"] for day in json.loads(described["output"])["days"]]


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
def mwaa(cloud, airflow, home) -> Iterator[AirflowEnvironment]:
    """The Airflow environment as the local cloud shows it to functions."""
    file = Layout(cloud.root).airflow
    file.parent.mkdir(exist_ok=True)
    shutil.copyfile(home.folder / file.name, file)
    session = boto3.session.Session("test", "test", region_name=cloud.environment["AWS_REGION"])
    # As AWS_DISABLE_HOST_PREFIX_INJECTION, which functions have.
    config = AIRFLOW_CONFIG.merge(Config(inject_host_prefix=False))
    yield AirflowEnvironment(session.client("mwaa", endpoint_url=cloud.endpoint, config=config), AIRFLOW)
    file.unlink(missing_ok=True)


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
    with occupied_application(cloud, folder):  # so that the executions last until they are cleared and stopped
        run, stopped = airflow.start("process_daily_delays", PROCESS), airflow.start("process_broken", STOPPED)
        airflow.clear_waiting("process_daily_delays", run, STAGE)
        airflow.wait_for("process_broken", stopped, "run_wrong", "deferred")
        airflow.request("PATCH", f"/dags/process_broken/dagRuns/{stopped}", state="failed")
        assert airflow.end("process_broken", stopped) == "failed"
        states = {task["task_id"]: task["state"] for task in airflow.tasks("process_broken", stopped)}
        assert states == {
            "start": "success",
            "run_wrong": "failed",
            **dict.fromkeys(("publish", "end"), "skipped"),
            "stop": "failed",
        }
        assert executions(cloud, "broken", STOPPED) == ["ABORTED"]
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
    tasks = airflow.tasks("process_daily_delays", run["dag_run_id"])
    assert {task["task_id"]: (task["state"], task["try_number"]) for task in tasks} == {
        "start": ("success", 1),
        STAGE: ("success", 2),
        "publish": ("success", 1),
        "end": ("success", 1),
        "stop": ("success", 1),
    }
    path = f"/dags/process_daily_delays/dagRuns/{run['dag_run_id']}/taskInstances/{STAGE}/xcomEntries/return_value"
    assert airflow.request("GET", path)["value"]["seconds"] > 0


def test_a_stage_that_fails_has_the_error_and_runs_again_when_it_is_cleared(cloud, airflow, broken):
    assert airflow.end("process_broken", broken) == "failed"
    states = {task["task_id"]: task["state"] for task in airflow.tasks("process_broken", broken)}
    not_run = dict.fromkeys(("publish", "end"), "upstream_failed")
    assert states == {"start": "success", "run_wrong": "failed", **not_run, "stop": "success"}
    # A failed execution is not repeated by itself.
    assert airflow.attempts("process_broken", broken, "run_wrong") == [1]
    log = airflow.log("process_broken", broken, "run_wrong", 1)
    assert "FAILED: RunFailed: DefinitionError: pipeline broken: steps.wrong" in log
    assert "no_such_column" in log
    assert executions(cloud, "broken", BROKEN) == ["FAILED"]
    airflow.end_scheduler()  # it is started again
    airflow.clear("process_broken", broken)
    wait_until(lambda: executions(cloud, "broken", BROKEN) == ["FAILED", "FAILED"])
    assert airflow.end("process_broken", broken) == "failed"


def test_a_run_that_waits_for_its_inputs_is_deferred_and_waits_again_when_it_is_cleared(cloud, airflow):
    """No day of the week is published."""
    dag, now = "process_weekly_delays", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S+00:00}"
    run = airflow.start(dag, now)
    for attempt in (1, 2):
        airflow.wait_for(dag, run, "wait_for_inputs", "deferred", attempt=attempt)
        assert sorted(executions(cloud, "weekly_delays", now)) == ["ABORTED"] * (attempt - 1) + ["RUNNING"]
        airflow.request("PATCH", f"/dags/{dag}/dagRuns/{run}", state="failed")
        assert airflow.end(dag, run) == "failed"
        if attempt == 1:
            after = [task["task_id"] for task in airflow.tasks(dag, run) if task["task_id"] != "start"]
            airflow.clear(dag, run, only_failed=False, tasks=after)
    assert executions(cloud, "weekly_delays", now) == ["ABORTED", "ABORTED"]


@pytest.mark.usefixtures("processed")
def test_a_run_of_the_monitor_dag_with_days_runs_a_late_day_again(cloud, airflow, mwaa, weather_of_the_day, tmp_path):
    file = tmp_path / "late.ndjson"
    file.write_text(to_ndjson(weather_of_the_day[1]))
    cloud.json("push", "weather", str(file))
    # As the function starts it; with a logical date, because the day is long ago.
    run = {"dag_run_id": "arrival-0f", "logical_date": MONITOR, "conf": {"days": [DAY.isoformat()]}}
    assert mwaa.request("POST", "/dags/monitor_daily_delays/dagRuns", run)[0] == HTTPStatus.OK
    assert airflow.end("monitor_daily_delays", "arrival-0f") == "success"
    shown = {
        task["rendered_map_index"]: task["state"]
        for task in airflow.tasks("monitor_daily_delays", "arrival-0f")
        if task["task_id"] == "late_day"
    }
    assert shown == {DAY.isoformat(): "success"}
    assert monitored_days(cloud, "arrival-0f") == [DAY.isoformat()]
    attempts = runs_of_the_day(cloud)
    assert [run["state"] for run in attempts] == ["published", "published"]
    assert {run["correlation_id"].split("-")[0] for run in attempts} == {"process", "arrival"}
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


@pytest.fixture
def check_arrivals(cloud, mwaa) -> Iterator[Callable[[dict[str, str]], None]]:
    """The deployed function that starts checks, as it is where Airflow is the scheduler: called with a message."""
    functions, iam, name = cloud.client("lambda"), cloud.client("iam"), "slackwater-check-arrivals"
    described = functions.get_function_configuration(FunctionName=name)
    variables, role = described["Environment"]["Variables"], described["Role"].rpartition("/")[2]
    account = cloud.client("sts").get_caller_identity()["Account"]
    allowed = {
        "Effect": "Allow",
        "Action": "airflow:InvokeRestApi",
        "Resource": f"arn:aws:airflow:{cloud.environment['AWS_REGION']}:{account}:role/{AIRFLOW}/User",
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_role_policy(RoleName=role, PolicyName="airflow", PolicyDocument=policy)
    environment = {"Variables": {**variables, "AIRFLOW_ENVIRONMENT": AIRFLOW}}
    functions.update_function_configuration(FunctionName=name, Environment=environment)

    def invoke(message: dict[str, str]) -> None:
        event = {"Records": [{"messageId": "m", "body": json.dumps(message)}]}
        response = functions.invoke(FunctionName=name, Payload=json.dumps(event))
        assert json.load(response["Payload"]) == {"batchItemFailures": []}

    yield invoke
    functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
    iam.delete_role_policy(RoleName=role, PolicyName="airflow")


def test_late_data_starts_a_dag_run_that_runs_again_when_it_is_cleared_and_needs_no_airflow(
    cloud, airflow, check_arrivals
):
    dag, today = "monitor_daily_delays", datetime.now(ZoneInfo("America/New_York")).date()
    day = (today - timedelta(days=5)).isoformat()  # in the window, and of no other test
    assert cloud.json("run", "daily_delays", "--date", day)["outcome"] == "published"
    before = checks(cloud, "arrival-")

    def deliver(name: str) -> None:
        """Deliver the message that a deferred day may be checked again."""
        not_before = datetime(2013, 11, 4, tzinfo=UTC).isoformat()
        check_arrivals({"id": name, "pipeline": "daily_delays", "date": day, "not_before": not_before})

    def dag_runs() -> dict[str, str]:
        runs = airflow.request("GET", f"/dags/{dag}/dagRuns")["dag_runs"]
        return {run["dag_run_id"]: run["note"] for run in runs if run["note"] == f"New data of {day}"}

    def started() -> dict[str, str]:
        return {name: status for name, status in checks(cloud, "arrival-").items() if name not in before}

    deliver("one")
    deliver("one")  # a batch is delivered again
    [name] = dag_runs()
    assert name.startswith("arrival-")
    assert airflow.end(dag, name) == "success"
    assert started() == {name: "SUCCEEDED"}
    airflow.clear(dag, name, only_failed=False)
    wait_until(lambda: started() == {name: "SUCCEEDED", f"{name}-2": "SUCCEEDED"})
    Layout(cloud.root).airflow.unlink()  # as if Airflow had ended
    deliver("another")
    wait_until(lambda: list(started().values()) == ["SUCCEEDED"] * 3)
    assert list(dag_runs()) == [name]
