"""The DAGs as Airflow loads them from `schedule.json`: without a network, with the library's dates."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project, load_project
from slackwater.project.schedule import schedule_of
from slackwater.project.scheduled_starts import ScheduledStart, scheduled_date
from slackwater.runs.period import day_of
from tests.airflow.home import BIN, ROOT, STATE_MACHINE_PREFIX
from tests.airflow.projects import FAULTS, INSTANTS, NEW_YORK

pytestmark = pytest.mark.airflow

REMEDY = (
    "deploy the project again (slackwater deploy), write the file with "
    "`python -m slackwater.project.schedule PROJECT_DIR`"
)


@pytest.fixture(params=["example", "defaults", "all settings", "push only"])
def name(request) -> str:
    return request.param


@pytest.fixture
def project(projects, name) -> Project:
    """The project as the library loads it."""
    return load_project(projects[name])


@pytest.fixture
def dags(inspected, name):
    """The project's DAGs as Airflow loads them."""
    return inspected[name]["dags"]


def test_the_dags_load_without_errors_warnings_or_a_network(inspected, name):
    assert (
        inspected[name]["errors"],
        inspected[name]["warnings"],
        inspected[name]["files"],
    ) == ([], [], 1)


def test_dags_are_scheduled_as_the_library_reads_the_project(dags, project):
    expected = {f"pull_{s.source}": (s.pull.schedule, s.pull_timezone) for s in project.sources.values() if s.pull}
    for pipeline in project.pipelines.values():
        expected[f"process_{pipeline.pipeline}"] = (pipeline.schedule.process, pipeline.timezone)
        expected[f"monitor_{pipeline.pipeline}"] = (pipeline.schedule.monitor, pipeline.timezone)
    assert {dag_id: (dag["cron"], dag["timezone"]) for dag_id, dag in dags.items()} == expected


def test_the_processed_day_is_the_one_that_the_library_selects(dags, project):
    for pipeline in project.pipelines.values():
        runs = dags[f"process_{pipeline.pipeline}"]["rendered"][-len(INSTANTS) :]
        expected = [{"date": latest_day(pipeline, instant)} for instant in INSTANTS]
        assert [{"date": run["input"]["date"]} for run in runs] == expected


def latest_day(pipeline: Pipeline, instant: datetime) -> str:
    """Return the latest day of the library that ended at least the buffer before the instant."""
    by = instant - timedelta(hours=pipeline.schedule.buffer_hours)
    near = [by.date() - timedelta(days=count) for count in range(-1, 4)]
    return max(date for date in near if day_of(date, pipeline.timezone).end <= by).isoformat()


def test_the_processed_hour_is_the_one_that_the_library_selects(inspected, projects):
    (task,) = [task for task in schedule_of(load_project(projects["hours"])).tasks if task.work == "process"]
    runs = inspected["hours"]["dags"]["process_heights"]["rendered"][-len(INSTANTS) :]
    assert [run["input"]["date"] for run in runs] == [scheduled_date(task, instant) for instant in INSTANTS]
    assert "monitor_heights" in inspected["hours"]["dags"]


def test_daylight_saving_changes_do_not_shift_the_day_of_new_york(inspected):
    runs = inspected["example"]["dags"]["process_daily_delays"]["rendered"][1:]
    assert dict(zip(NEW_YORK, (run["input"]["date"] for run in runs), strict=False)) == NEW_YORK


def test_pulling_and_monitoring_use_the_local_date_of_their_instant(dags, project):
    timezones = {f"pull_{s.source}": s.pull_timezone for s in project.sources.values() if s.pull}
    timezones |= {f"monitor_{pipeline.pipeline}": pipeline.timezone for pipeline in project.pipelines.values()}
    for dag_id, timezone in timezones.items():
        runs = dags[dag_id]["rendered"][-len(INSTANTS) :]
        expected = [instant.astimezone(ZoneInfo(timezone)).date().isoformat() for instant in INSTANTS]
        assert [run["input"]["as_of"] for run in runs] == expected


def test_a_run_without_a_logical_date_uses_its_trigger_time(inspected):
    dags = inspected["example"]["dags"]
    assert dags["process_daily_delays"]["rendered"][0]["input"]["date"] == "2013-06-30"
    assert dags["monitor_daily_delays"]["rendered"][0]["input"]["as_of"] == "2013-07-01"


def test_each_state_machine_gets_its_input(inspected):
    runs = {dag_id: dag["rendered"][1] for dag_id, dag in inspected["example"]["dags"].items()}
    assert {dag_id: run["machine"].removeprefix(STATE_MACHINE_PREFIX) for dag_id, run in runs.items()} == {
        "pull_flights": "pull-source",
        "process_daily_delays": "pipeline-daily_delays",
        "monitor_daily_delays": "monitor-days",
        "process_weekly_delays": "pipeline-weekly_delays",
        "monitor_weekly_delays": "monitor-days",
    }
    assert {dag_id: run["input"] for dag_id, run in runs.items()} == {
        "pull_flights": {"source": "flights", "as_of": "2013-03-09"},
        "process_daily_delays": {"date": "2013-03-08"},
        "monitor_daily_delays": {"pipeline": "daily_delays", "as_of": "2013-03-09"},
        "process_weekly_delays": {"date": "2013-03-08", "wait": True},
        "monitor_weekly_delays": {"pipeline": "weekly_delays", "as_of": "2013-03-09"},
    }


def test_executions_are_named_as_by_the_other_scheduler(dags, project):
    at = INSTANTS[0]
    expected = {
        f"{task.work}_{task.subject}": ScheduledStart(task=task, scheduled_at=at).name
        for task in schedule_of(project).tasks
    }
    assert {dag_id: dag["rendered"][-len(INSTANTS)]["name"] for dag_id, dag in dags.items()} == expected
    assert all(len(f"{name}-99") <= 80 for name in expected.values()), "Step Functions accepts no longer names"


def test_the_execution_of_a_check_that_data_has_started_has_the_name_of_its_dag_run(dags):
    assert {dag["of_arrival"]["name"] for dag in dags.values()} == {"arrival-0f"}


def test_only_a_run_and_the_list_of_late_days_can_publish_a_table(inspected):
    outlets = {dag_id: dag["outlets"] for dag_id, dag in inspected["example"]["dags"].items()}
    assert outlets == {
        "pull_flights": {},
        "process_daily_delays": {"publish": "slackwater://slackwater/daily_delays"},
        "monitor_daily_delays": {"late_days": "slackwater://slackwater/daily_delays"},
        "process_weekly_delays": {"publish": "slackwater://slackwater/weekly_delays"},
        "monitor_weekly_delays": {"late_days": "slackwater://slackwater/weekly_delays"},
    }


def test_500_pipelines_read_no_more_files_than_one_and_a_worker_creates_only_the_dag_of_its_task(inspected):
    small, large, of_task = (inspected[name] for name in ("1 copy", "500 copies", "worker"))
    assert [small["errors"], large["errors"], of_task["errors"]] == [[], [], []]
    assert (len(small["dags"]), len(large["dags"]), list(of_task["dags"])) == (2, 1000, ["monitor_heights_7"])
    assert large["reads"] <= small["reads"]


def test_dags_wait_for_hours_without_a_worker_and_are_never_caught_up(dags):
    for dag_id, dag in dags.items():
        work, _, of = dag_id.partition("_")
        first = ("StartRunOperator", "start") if work == "process" else ("RunStateMachineOperator", work)
        assert (dag["operator"], dag["task"]) == first
        assert (dag["catchup"], dag["paused"], dag["retries"]) == (False, False, 2)
        # The tasks after `start` wait for the run.
        assert (dag["deferrable"], dag["longest"]) == ((False, 1800) if work == "process" else (True, 24 * 3600))
        # A week waits for its days.
        waits = dag_id == "process_weekly_delays"
        assert ("wait_for_inputs" in dag["after"]) == waits
        assert dag["max_active_runs"] == (3 if waits else {"process": 2, "monitor": 16, "pull": 1}[work])
        assert dag["tags"] == sorted(["slackwater", work, of])
        assert f"`{of}`" in dag["doc"]


def test_a_monitoring_shows_its_late_days_and_fails_with_them(dags):
    shown = {"late_days": ["monitor"], "late_day": ["late_days"], "end": ["late_day", "monitor"], "stop": ["monitor"]}
    monitors = [dag for dag_id, dag in dags.items() if dag_id.startswith("monitor_")]
    assert [dag["after"] for dag in monitors] == [shown] * len(monitors)


def test_a_pipeline_has_a_task_for_each_stage_in_the_order_of_its_state_machine(inspected):
    after = inspected["stages"]["dags"]["process_heights"]["after"]
    assert after == {
        "run_hourly": ["start"],
        "run_daily": ["start"],
        "run_highest": ["run_daily", "run_hourly"],
        "publish": ["run_highest"],
        "end": ["publish"],
        "stop": ["publish"],
    }
    one = inspected["example"]["dags"]["process_daily_delays"]["after"]
    last = {"publish": ["run_delays_by_carrier"], "end": ["publish"], "stop": ["publish"]}
    assert one == {"run_delays_by_carrier": ["start"], **last}


def test_the_last_task_stops_the_execution_whatever_has_become_of_the_others(dags):
    for dag in dags.values():
        # Airflow runs teardown tasks after failed ones, and in runs that are marked as failed.
        assert dag["teardowns"] == ["stop"]
        # The result of a run is that of its last tasks.
        assert dag["last"] == ["end", "stop"]


def test_no_state_machine_ends_in_a_status_unknown_to_the_provider():
    package = next(BIN.parent.glob("lib/*/site-packages/airflow/providers/amazon/aws/waiters/stepfunctions.json"))
    known = json.loads(package.read_text())["waiters"]["step_function_succeeded"]["acceptors"]
    assert {acceptor["expected"] for acceptor in known} == {"SUCCEEDED", "RUNNING", "FAILED", "ABORTED"}
    for machine in (ROOT / "step_functions").glob("*.asl.json"):
        assert "TimeoutSeconds" not in json.loads(machine.read_text()), f"{machine.name} could end as TIMED_OUT"


@pytest.fixture(scope="module")
def errors(schedules, inspected) -> dict[str, tuple[str, str]]:
    """Path and import error of each schedule that cannot be used."""
    refused = [*FAULTS, "unknown timezone", "missing"]
    assert [inspected[name]["dags"] for name in refused] == [{}] * len(refused)
    return {name: (str(schedules[name]), "".join(inspected[name]["errors"])) for name in refused}


@pytest.mark.parametrize("content", FAULTS)
def test_a_malformed_schedule_is_an_import_error_that_names_file_and_remedy(errors, content):
    path, error = errors[content]
    assert f"{path}: {FAULTS[content]}" in error
    assert REMEDY in error


def test_an_unknown_timezone_in_the_schedule_is_an_import_error(errors):
    path, error = errors["unknown timezone"]
    assert f"{path}: not a valid schedule (" in error
    assert "Mars/X" in error


def test_a_missing_schedule_is_an_import_error_that_names_file_and_remedy(errors):
    path, error = errors["missing"]
    assert f"{path}: cannot be read (No such file or directory): {REMEDY}" in error


def test_a_missing_setting_is_named(inspected):
    assert "AIRFLOW__SLACKWATER__STATE_MACHINE_PREFIX is not set" in inspected["no prefix"]["errors"][0]
