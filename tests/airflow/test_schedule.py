"""The DAGs as Airflow loads them from `schedule.json`: without a network, with the library's dates."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project, load_project
from slackwater.project.schedule import ProjectSchedule, ScheduledWork, schedule_json, schedule_of
from slackwater.project.scheduled_starts import ScheduledStart
from slackwater.runs.day import day_of
from tests.airflow.home import BIN, ROOT, STATE_MACHINE_PREFIX

pytestmark = pytest.mark.airflow

SOURCE = """
source: tides
timestamp: {field: at}
fields: {at: timestamp, port: string, metres: double}
"""
PIPELINE = """
pipeline: heights
sources: [tides]
steps:
  highest: {step: sql, depends_on: [tides], with: {query: "SELECT port, max(metres) AS m FROM tides GROUP BY port"}}
publish: {step: highest, key: [date, port]}
"""
STAGES = """
pipeline: heights
sources: [tides]
steps:
  hourly: {step: sql, exchange: true, depends_on: [tides], with: {query: "SELECT port, metres AS m FROM tides"}}
  daily: {step: sql, exchange: true, depends_on: [tides], with: {query: "SELECT port, metres AS d FROM tides"}}
  highest: {step: sql, depends_on: [hourly, daily], with: {query: "SELECT port, m FROM hourly JOIN daily USING (port)"}}
publish: {step: highest, key: [date, port]}
"""
LONG_NAMED = PIPELINE.replace("pipeline: heights", f"pipeline: {'heights_' * 7}")
PULL = "pull: {url: 'http://tides.example', files: 'tides-{date}.csv'}\n"
CHATHAM_PULL = f"{PULL.rstrip()[:-1]}, timezone: Pacific/Chatham, schedule: '*/20 6-22/2 * * MON-FRI'}}\n"
CHATHAM = "timezone: Pacific/Chatham\nschedule: {process: '30 1 1,15 * *', monitor: '0 2 * 1-6 *', buffer_hours: %s}\n"
"""Islands 12:45 or 13:45 hours before UTC."""

NEW_YORK = {
    "2013-03-09T08:00": "2013-03-08",
    "2013-03-10T06:59": "2013-03-08",
    "2013-03-10T07:00": "2013-03-09",  # 3:00 of the day that has 23 hours, two hours after midnight
    "2013-03-11T05:59": "2013-03-09",
    "2013-03-11T07:00": "2013-03-10",
    "2013-11-03T06:00": "2013-11-02",  # 1:00 for the second time, two hours after midnight
    "2013-11-03T08:00": "2013-11-02",
    "2013-11-04T06:59": "2013-11-02",
    "2013-11-04T08:00": "2013-11-03",  # the usual time, after the day that has 25 hours
}
"""The day that the example processes, by instants in UTC."""


REMEDY = (
    "deploy the project again (slackwater deploy), write the file with "
    "`python -m slackwater.project.schedule PROJECT_DIR`"
)
FAULTS = {
    "": "not a valid schedule (JSONDecodeError: ",
    "[]": "not a valid schedule (TypeError: ",
    "null": "not a valid schedule (TypeError: ",
    "{}": "not a valid schedule (KeyError: 'tasks')",
    '{"tasks": [{"work": "pull"}]}': "not a valid schedule (KeyError: 'subject')",
    '{"tasks": ["pull"]}': "not a valid schedule (TypeError: ",
}


def hours_around(*dates: str) -> list[datetime]:
    """Return an instant every five hours of three days from each date."""
    starts = [datetime.fromisoformat(date).replace(tzinfo=UTC) for date in dates]
    return [start + timedelta(hours=5 * count) for start in starts for count in range(15)]


INSTANTS = hours_around("2013-03-09", "2013-11-02", "2013-04-06", "2013-09-28")
"""Around the daylight saving changes in New York and on the Chatham Islands."""


def write_project(folder: Path, *, source: str = SOURCE + PULL, pipeline: str = PIPELINE) -> Path:
    """Write a project of one source and one pipeline; return its folder."""
    for folder_name, content in (("sources", source), ("pipelines", pipeline)):
        name = content.split()[1]
        (folder / folder_name).mkdir(parents=True)
        (folder / folder_name / f"{name}.yaml").write_text(content)
    return folder


def schedule_file(path: Path, project: Path) -> Path:
    """Write the schedule of a project folder as the deployment does."""
    path.write_text(schedule_json(load_project(project)))
    return path


def schedule_of_copies(project: Path, count: int) -> str:
    """Return the schedule of a project that has each pipeline of this one so many times."""
    tasks = [task for task in schedule_of(load_project(project)).tasks if task.work != ScheduledWork.PULL]
    subjects = [(task, f"{task.subject}_{index}") for index in range(count) for task in tasks]
    copies = tuple(task.model_copy(update={"subject": subject}) for task, subject in subjects)
    return ProjectSchedule(tasks=copies).model_dump_json()


@pytest.fixture(scope="module")
def projects(tmp_path_factory) -> dict[str, Path]:
    """The example, a project that uses all defaults, and two that override every one."""
    folder = tmp_path_factory.mktemp("projects")
    return {
        "example": ROOT / "examples" / "nyc_flights",
        "defaults": write_project(folder / "defaults"),
        "all settings": write_project(folder / "all", source=SOURCE + CHATHAM_PULL, pipeline=PIPELINE + CHATHAM % 30),
        "push only": write_project(folder / "push", source=f"{SOURCE}push: {{}}\n", pipeline=LONG_NAMED + CHATHAM % 0),
        "stages": write_project(folder / "stages", pipeline=STAGES),
    }


@pytest.fixture(scope="module")
def schedules(projects, tmp_path_factory) -> dict[str, Path]:
    """The schedules of the projects, malformed ones, and the path of a missing one, by name."""
    folder = tmp_path_factory.mktemp("schedules")
    paths = {name: schedule_file(folder / f"{name}.json", project) for name, project in projects.items()}
    for index, content in enumerate(FAULTS):
        paths[content] = folder / f"fault-{index}.json"
        paths[content].write_text(content)
    paths["unknown timezone"] = folder / "timezone.json"
    paths["unknown timezone"].write_text(paths["example"].read_text().replace("America/New_York", "Mars/X"))
    paths["missing"] = folder / "none.json"
    return paths


@pytest.fixture(scope="module")
def inspected(parser, schedules, tmp_path_factory) -> dict[str, Any]:
    """What Airflow loads with each schedule, every task rendered for every instant, by one process.

    Also of a project with 1 and with 500 copies of a pipeline, and of these by a worker; without any instant.
    """
    instants = [f"{instant}:00+00:00" for instant in NEW_YORK] + [instant.isoformat() for instant in INSTANTS]
    environments = {name: {"AIRFLOW__SLACKWATER__SCHEDULE": str(path)} for name, path in schedules.items()}
    environments["no prefix"] = environments["example"] | {"AIRFLOW__SLACKWATER__STATE_MACHINE_PREFIX": ""}
    loads = {name: (environment, [None, *instants]) for name, environment in environments.items()}
    folder = tmp_path_factory.mktemp("copies")
    project = write_project(folder / "project")
    one, many = (folder / f"{count}.json" for count in (1, 500))
    one.write_text(schedule_of_copies(project, 1))
    many.write_text(schedule_of_copies(project, 500))
    loads["1 copy"], loads["500 copies"] = (({"AIRFLOW__SLACKWATER__SCHEDULE": str(path)}, []) for path in (one, many))
    worker = {"_AIRFLOW_PARSING_CONTEXT_DAG_ID": "monitor_heights_7", "AIRFLOW__SLACKWATER__SCHEDULE": str(many)}
    loads["worker"] = worker, []
    return dict(zip(loads, parser.inspect(list(loads.values())), strict=True))


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
