"""The DAGs as Airflow reads them: from the project's YAML, without a network, as the library understands it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from slackwater.pipeline.definition import Pipeline
from slackwater.project import Project, load_project
from slackwater.runs.day import day_of
from tests.airflow.home import BIN, MACHINES, ROOT, make_home

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
    "2013-11-04T08:00": "2013-11-03",  # the regular moment, after the day that has 25 hours
}
"""The day that the example processes, by moments in UTC."""


def hours_around(*dates: str) -> list[datetime]:
    """Every five hours of three days from each date."""
    starts = [datetime.fromisoformat(date).replace(tzinfo=UTC) for date in dates]
    return [start + timedelta(hours=5 * count) for start in starts for count in range(15)]


MOMENTS = hours_around("2013-03-09", "2013-11-02", "2013-04-06", "2013-09-28")
"""Around the changes of the clocks in New York and on the Chatham Islands."""


def written(folder: Path, *, source: str = SOURCE + PULL, pipeline: str = PIPELINE) -> Path:
    """A project of one source and one pipeline."""
    for kind, name, text in (("sources", "tides", source), ("pipelines", "heights", pipeline)):
        (folder / kind).mkdir(parents=True)
        (folder / kind / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def projects(tmp_path_factory) -> dict[str, Path]:
    """The example's, one that leaves all to the defaults, and two that leave nothing to them."""
    folder = tmp_path_factory.mktemp("projects")
    return {
        "example": ROOT / "examples" / "nyc_flights",
        "defaults": written(folder / "defaults"),
        "all given": written(folder / "all", source=SOURCE + CHATHAM_PULL, pipeline=PIPELINE + CHATHAM % 30),
        "push only": written(folder / "push", source=f"{SOURCE}push: {{}}\n", pipeline=PIPELINE + CHATHAM % 0),
    }


@pytest.fixture(scope="module")
def answers(parser, projects):
    """All projects as Airflow reads them, every task rendered for every moment, by one process."""
    moments = [f"{moment}:00+00:00" for moment in NEW_YORK] + [moment.isoformat() for moment in MOMENTS]
    return dict(zip(projects, parser.inspect(list(projects.values()), [None, *moments]), strict=True))


@pytest.fixture(params=["example", "defaults", "all given", "push only"])
def name(request) -> str:
    return request.param


@pytest.fixture
def project(projects, name) -> Project:
    """The project as the library reads it."""
    return load_project(projects[name])


@pytest.fixture
def dags(answers, name):
    """The project's DAGs, as Airflow reads them."""
    return answers[name]["dags"]


def test_the_dags_load_without_errors_warnings_or_a_network(answers, name):
    assert (answers[name]["errors"], answers[name]["warnings"], answers[name]["files"]) == ([], [], 1)


def test_dags_are_scheduled_as_the_library_reads_the_project(dags, project):
    wanted = {f"pull_{s.source}": (s.pull.schedule, s.pull.timezone) for s in project.sources.values() if s.pull}
    for pipeline in project.pipelines.values():
        wanted[f"process_{pipeline.pipeline}"] = (pipeline.schedule.process, pipeline.timezone)
        wanted[f"monitor_{pipeline.pipeline}"] = (pipeline.schedule.monitor, pipeline.timezone)
    assert {dag_id: (dag["cron"], dag["timezone"]) for dag_id, dag in dags.items()} == wanted


def test_a_day_is_processed_once_it_ended_the_buffer_before_as_the_library_reckons_days(dags, project):
    [pipeline] = project.pipelines.values()
    runs = dags[f"process_{pipeline.pipeline}"]["rendered"][-len(MOMENTS) :]
    wanted = [{"date": latest_day(pipeline, moment)} for moment in MOMENTS]
    assert [{"date": run["input"]["date"]} for run in runs] == wanted


def latest_day(pipeline: Pipeline, moment: datetime) -> str:
    """The latest of the library's days that was over by then."""
    by = moment - timedelta(hours=pipeline.schedule.buffer_hours)
    near = [by.date() - timedelta(days=count) for count in range(-1, 4)]
    return max(date for date in near if day_of(date, pipeline.timezone).end <= by).isoformat()


def test_clocks_that_change_do_not_move_the_day_of_new_york(answers):
    runs = answers["example"]["dags"]["process_daily_delays"]["rendered"][1:]
    assert dict(zip(NEW_YORK, (run["input"]["date"] for run in runs), strict=False)) == NEW_YORK


def test_pulling_and_monitoring_are_as_of_the_local_date_of_their_moment(dags, project):
    zones = {f"pull_{s.source}": s.pull.timezone for s in project.sources.values() if s.pull}
    zones |= {f"monitor_{pipeline.pipeline}": pipeline.timezone for pipeline in project.pipelines.values()}
    for dag_id, zone in zones.items():
        runs = dags[dag_id]["rendered"][-len(MOMENTS) :]
        wanted = [moment.astimezone(ZoneInfo(zone)).date().isoformat() for moment in MOMENTS]
        assert [run["input"]["as_of"] for run in runs] == wanted


def test_a_run_without_a_logical_date_counts_from_when_it_was_triggered(answers):
    dags = answers["example"]["dags"]
    assert dags["process_daily_delays"]["rendered"][0]["input"]["date"] == "2013-06-30"
    assert dags["monitor_daily_delays"]["rendered"][0]["input"]["as_of"] == "2013-07-01"


def test_each_machine_is_given_what_it_takes(answers):
    found = {dag_id: dag["rendered"][1] for dag_id, dag in answers["example"]["dags"].items()}
    assert {dag_id: run["machine"].removeprefix(MACHINES) for dag_id, run in found.items()} == {
        "pull_flights": "pull-source",
        "process_daily_delays": "pipeline-daily_delays",
        "monitor_daily_delays": "monitor-days",
    }
    inputs = {dag_id: dict(run["input"]) for dag_id, run in found.items()}
    names = {dag_id: given.pop("correlation_id") for dag_id, given in inputs.items()}
    assert inputs == {
        "pull_flights": {"source": "flights", "as_of": "2013-03-09"},
        "process_daily_delays": {"date": "2013-03-08"},
        "monitor_daily_delays": {"pipeline": "daily_delays", "as_of": "2013-03-09"},
    }
    assert names == {dag_id: run["name"] for dag_id, run in found.items()}
    assert names["process_daily_delays"] == "process-20130309T080000Z-00000000-0000-0000-0000-000000000007"
    assert all(len(name) <= 80 for name in names.values()), "Step Functions takes no longer names"


def test_dags_wait_for_hours_without_a_worker_and_are_never_caught_up(dags):
    for dag_id, dag in dags.items():
        task, _, of = dag_id.partition("_")
        assert (dag["operator"], dag["task"], dag["deferrable"]) == ("StepFunctionStartExecutionOperator", task, True)
        assert (dag["catchup"], dag["paused"], dag["retries"]) == (False, False, 2)
        assert dag["longest"] == 24 * 3600
        assert dag["max_active_runs"] == (2 if task == "process" else 1)
        assert dag["tags"] == sorted(["slackwater", task, of])
        assert f"`{of}`" in dag["doc"]


def test_no_machine_ends_in_the_one_way_that_the_provider_does_not_know():
    package = next(BIN.parent.glob("lib/*/site-packages/airflow/providers/amazon/aws/waiters/stepfunctions.json"))
    known = json.loads(package.read_text())["waiters"]["step_function_succeeded"]["acceptors"]
    assert {acceptor["expected"] for acceptor in known} == {"SUCCEEDED", "RUNNING", "FAILED", "ABORTED"}
    for machine in (ROOT / "step_functions").glob("*.asl.json"):
        assert "TimeoutSeconds" not in json.loads(machine.read_text()), f"{machine.name} could end as TIMED_OUT"


FAULTS = {
    "schedule: {process: '99 3 * * *'}": "pipelines/heights.yaml: schedule.process: no cron expression: ",
    "schedule: {monitor: 6}": "pipelines/heights.yaml: schedule.monitor: a cron expression is expected, in quotes, ",
    "schedule: {buffer_hours: some}": "pipelines/heights.yaml: schedule.buffer_hours: a number of hours is expected",
    "schedule: {buffer_hours: 721}": "pipelines/heights.yaml: schedule.buffer_hours: 721 is not between 0 and 720",
    "schedule: nightly": "pipelines/heights.yaml: schedule: a mapping of keys is expected, not 'nightly'",
    "timezone: Mars/Olympus": "pipelines/heights.yaml: timezone: no such time zone: 'Mars/Olympus'",
    "timezone: [UTC]": "pipelines/heights.yaml: timezone: no such time zone: ['UTC']",
    "pipeline: depths": "pipelines/heights.yaml: pipeline: it defines 'depths': name the file depths.yaml",
    "a: 'b": "pipelines/heights.yaml: not readable as YAML: ",
}


@pytest.fixture(scope="module")
def refused(parser, tmp_path_factory) -> dict[str, str]:
    """What Airflow says of each fault, and of projects that are none, by one process."""
    folder = tmp_path_factory.mktemp("faulty")
    made = {fault: written(folder / str(count), pipeline=PIPELINE + fault + "\n") for count, fault in enumerate(FAULTS)}
    made["list"] = written(folder / "list", pipeline="- heights\n")
    made["pull"] = written(folder / "pull", source=SOURCE + "pull: {schedule: hourly}\n")
    made["none"] = folder / "none"
    answers = parser.inspect(list(made.values()))
    assert [answer["dags"] for answer in answers] == [{}] * len(made)
    return {fault: "".join(answer["errors"]) for fault, answer in zip(made, answers, strict=True)}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_an_import_error_that_names_file_and_field(refused, fault):
    assert f"/{FAULTS[fault]}" in refused[fault]


def test_a_project_that_is_none_is_an_import_error_that_says_so(refused):
    assert "pipelines/heights.yaml: a mapping of keys is expected at the top, not list" in refused["list"]
    assert "sources/tides.yaml: pull.schedule: no cron expression: " in refused["pull"]
    assert "/none: put the project's sources/ and pipelines/ there" in refused["none"]


def test_a_setting_that_is_missing_is_named(tmp_path):
    [answer] = make_home(tmp_path, machines="").inspect([ROOT / "examples" / "nyc_flights"])
    assert "AIRFLOW__SLACKWATER__MACHINES is not set" in answer["errors"][0]
