"""The list of scheduled tasks: from the project's definitions to `schedule.json`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slackwater.errors import DefinitionError
from slackwater.project import schedule
from slackwater.project.project import load_project
from slackwater.project.schedule import ProjectSchedule, schedule_json, schedule_of
from slackwater.project.scheduled_starts import scheduled_date

pytestmark = pytest.mark.unit

EXAMPLE = Path("examples/nyc_flights")
SOURCE = "source: tides\ntimestamp: {field: at}\nfields: {at: timestamp, port: string, metres: double}\n"
PULL = "pull: {url: 'http://tides.example', files: 'tides-{date}.csv'}\n"
PIPELINE = """
pipeline: heights
sources: [tides]
steps:
  highest: {step: sql, depends_on: [tides], with: {query: "SELECT port, max(metres) AS m FROM tides GROUP BY port"}}
publish: {step: highest, key: [date, port]}
"""


def project_folder(folder: Path, *, source: str = SOURCE + PULL, pipeline: str = PIPELINE) -> Path:
    for folder_name, name, content in (("sources", "tides", source), ("pipelines", "heights", pipeline)):
        (folder / folder_name).mkdir(parents=True)
        (folder / folder_name / f"{name}.yaml").write_text(content)
    return folder


def test_the_example_has_a_task_for_its_pulled_source_and_two_for_each_pipeline():
    tasks = schedule_of(load_project(EXAMPLE)).tasks
    assert [(task.work, task.subject, task.state_machine, task.date_key, task.input) for task in tasks] == [
        ("pull", "flights", "pull-source", "as_of", {"source": "flights"}),
        ("process", "daily_delays", "pipeline-daily_delays", "date", {}),
        ("monitor", "daily_delays", "monitor-days", "as_of", {"pipeline": "daily_delays"}),
        ("process", "weekly_delays", "pipeline-weekly_delays", "date", {"wait": True}),
        ("monitor", "weekly_delays", "monitor-days", "as_of", {"pipeline": "weekly_delays"}),
    ]
    assert [(task.buffer_hours, task.days_before, task.wait_hours, task.max_active_runs) for task in tasks] == [
        (0, 0, 0, 1), (2, 1, 0, 2), (0, 0, 0, 16), (0, 1, 24, 3), (0, 0, 0, 16),
    ]  # fmt: skip


def test_an_hourly_pipeline_runs_the_hour_before_and_is_checked_at_a_local_time(tmp_path):
    hourly = (
        PIPELINE.replace("key: [date,", "key: [date, hour,")
        + "period: hour\ntimezone: Asia/Kolkata\nschedule: {process: '10 * * * *', buffer_minutes: 65}\n"
    )
    _, task, monitor = schedule_of(load_project(project_folder(tmp_path, pipeline=hourly))).tasks
    assert (task.work, task.cron, task.timezone, task.date_key) == ("process", "10 * * * *", "UTC", "date")
    assert (task.period, task.hours_before, task.days_before) == ("hour", 1, 0)
    assert (task.buffer_hours, task.buffer_minutes) == (1, 5)
    assert (monitor.work, monitor.cron, monitor.timezone, monitor.period) == (
        "monitor",
        "0 6 * * *",
        "Asia/Kolkata",
        "day",
    )
    assert monitor.description.startswith("Checks the finished hours of `heights` for late data, runs late hours again")
    # A start that waits for a run of another hour would be left out, and nothing makes up for an hour.
    assert task.max_active_runs == 24
    assert task.description == (
        "Runs `heights` for the latest hour of UTC that ended at least 65 minutes ago.\n\n"
        "To run a past hour, trigger this task with a logical date in the hour that starts 65 minutes after the end "
        "of that hour."
    )


@pytest.mark.parametrize(
    ("every", "cron"), [("60s", "* * * * *"), ("5m", "*/5 * * * *"), ("300s", "*/5 * * * *"), ("60m", "0 * * * *")]
)
def test_the_open_day_is_published_at_each_of_these_minutes(tmp_path, every, cron):
    live = f"{PIPELINE}timezone: Asia/Kolkata\nlive: {{every: {every}}}\n"
    tasks = schedule_of(load_project(project_folder(tmp_path, pipeline=live))).tasks
    assert [task.work for task in tasks] == ["pull", "process", "live", "monitor"]
    task = tasks[2]
    assert (task.state_machine, task.cron, task.timezone) == ("pipeline-heights", cron, "Asia/Kolkata")
    assert (task.input, task.date_key, task.stages, task.max_active_runs) == ({"live": True}, "date", (), 1)
    # 18:30 UTC is midnight.
    at = datetime(2026, 1, 1, 18, 29, tzinfo=UTC)
    assert [scheduled_date(task, at + timedelta(minutes=count)) for count in (0, 1)] == ["2026-01-01", "2026-01-02"]


@pytest.mark.parametrize(("windows", "cron"), [("5m", "*/5 * * * *"), ("30m", "*/30 * * * *"), ("1h", "0 * * * *")])
def test_it_is_published_at_these_minutes_too_if_windows_start_runs(tmp_path, windows, cron):
    counted = f"{SOURCE}{PULL}counts: {{window: 5m}}\n"
    live = f"{PIPELINE}live: {{windows: {windows}}}\n"
    task = schedule_of(load_project(project_folder(tmp_path, source=counted, pipeline=live))).tasks[2]
    assert (task.work, task.cron, task.input) == ("live", cron, {"live": True})


def test_windows_are_those_of_sources(tmp_path):
    alone = PIPELINE.replace("sources: [tides]", "tables: {tides: {table: heights, days: [-1, -1], missing: empty}}")
    folder = project_folder(tmp_path, pipeline=f"{alone}live: {{windows: 10m}}\n")
    with pytest.raises(DefinitionError, match=r"live\.windows: the pipeline reads no source"):
        load_project(folder)


def test_the_open_hour_is_published(tmp_path):
    hourly = (
        PIPELINE.replace("key: [date,", "key: [date, hour,")
        + "period: hour\ntimezone: Asia/Kolkata\nschedule: {process: '10 * * * *'}\nlive: {every: 10m}\n"
    )
    task = schedule_of(load_project(project_folder(tmp_path, pipeline=hourly))).tasks[2]
    assert (task.work, task.period, task.timezone) == ("live", "hour", "UTC")
    assert scheduled_date(task, datetime(2026, 1, 1, 18, 50, tzinfo=UTC)) == "2026-01-01T18"


@pytest.mark.parametrize(
    ("live", "message"),
    [
        ("{every: 30s}", "'30s' is shorter than 60s, the shortest interval of a scheduler"),
        ("{every: 90s}", "'90s': use 1m, 2m, 3m"),
        ("{every: 7m}", "'7m': use 1m, 2m, 3m"),
        ("{every: 2h}", "'2h' is not a time such as 60s or 5m"),
        ("{windows: 1m}", "live.windows: wrong value: '1m' (expected '5m', '10m', '30m' or '1h'"),
        ("{every: 5m, windows: 10m}", "write either `every: 5m` or `windows: 10m`"),
        ("{}", "write either `every: 5m` or `windows: 10m`"),
    ],
)
def test_what_no_scheduler_does_is_refused(tmp_path, live, message):
    folder = project_folder(tmp_path, pipeline=f"{PIPELINE}live: {live}\n")
    with pytest.raises(DefinitionError) as refused:
        load_project(folder)
    assert message in str(refused.value)


def test_a_live_pipeline_writes_no_rows_elsewhere_and_an_hour_has_several_versions(tmp_path):
    load = "load: {files: {step: write_parquet, depends_on: [highest], with: {path: 'out/{date}.parquet'}}}\n"
    folder = project_folder(tmp_path / "load", pipeline=f"{PIPELINE}live: {{every: 5m}}\n{load}")
    with pytest.raises(DefinitionError, match="load steps would write provisional rows elsewhere"):
        load_project(folder)
    hourly = f"{PIPELINE.replace('[date,', '[date, hour,')}period: hour\nschedule: {{process: '5 * * * *'}}\n"
    for number, live in enumerate(("every: 60m", "windows: 1h")):
        folder = project_folder(tmp_path / f"hour-{number}", pipeline=f"{hourly}live: {{{live}}}\n")
        with pytest.raises(DefinitionError, match="an hour that is published once an hour is never open then"):
            load_project(folder)


def test_the_key_live_changes_no_identity_of_a_run(tmp_path):
    plain = load_project(project_folder(tmp_path / "plain"))
    live = load_project(project_folder(tmp_path / "live", pipeline=f"{PIPELINE}live: {{every: 5m}}\n"))
    assert plain.definition_digest("heights") == live.definition_digest("heights")
    assert plain.written_digest("heights") == live.written_digest("heights")


def test_hours_that_wait_do_not_keep_later_ones_from_their_start(tmp_path):
    pipeline = (
        PIPELINE.replace("key: [date,", "key: [date, hour,")
        + "period: hour\nschedule: {process: '10 * * * *'}\n"
        + "when: {inputs: {tides: {newer_than: 2h}}, incomplete: {after: 90m}, unknown: {after: 1h}}\n"
    )
    _, task, _ = schedule_of(load_project(project_folder(tmp_path, pipeline=pipeline))).tasks
    assert (task.input, task.wait_hours, task.max_active_runs) == ({"wait": True}, 2, 26)


def test_a_source_that_is_only_pushed_has_no_task(tmp_path):
    folder = project_folder(tmp_path, source=f"{SOURCE}push: {{}}\n")
    schedule = schedule_of(load_project(folder))
    assert [task.work for task in schedule.tasks] == ["process", "monitor"]
    assert schedule.state_machines == {"pipeline-heights", "monitor-days"}


def test_crons_timezones_and_buffers_come_from_the_definitions(tmp_path):
    pull = f"{PULL.rstrip()[:-1]}, timezone: Pacific/Chatham, schedule: '*/20 6-22/2 * * MON-FRI'}}\n"
    schedule_yaml = (
        "timezone: Asia/Tokyo\nschedule: {process: '30 1 1,15 * *', monitor: '0 2 * 1-6 *', buffer_hours: 30}\n"
    )
    folder = project_folder(tmp_path, source=SOURCE + pull, pipeline=PIPELINE + schedule_yaml)
    tasks = schedule_of(load_project(folder)).tasks
    assert [(task.cron, task.timezone, task.buffer_hours) for task in tasks] == [
        ("*/20 6-22/2 * * MON-FRI", "Pacific/Chatham", 0),
        ("30 1 1,15 * *", "Asia/Tokyo", 30),
        ("0 2 * 1-6 *", "Asia/Tokyo", 0),
    ]


def test_the_file_states_every_value_and_can_be_read_back():
    project = load_project(EXAMPLE)
    content = schedule_json(project)
    assert ProjectSchedule.model_validate_json(content) == schedule_of(project)
    for task in json.loads(content)["tasks"]:
        assert task.keys() == schedule.ScheduledTask.model_fields.keys()


def test_the_command_prints_the_file(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["schedule", str(EXAMPLE)])
    assert schedule.main() == 0
    assert capsys.readouterr().out == schedule_json(load_project(EXAMPLE))


@pytest.mark.parametrize(("arguments", "exit_code"), [([], 2), (["a", "b"], 2), (["nowhere"], 2)])
def test_the_command_refuses_wrong_arguments(monkeypatch, capsys, arguments, exit_code):
    monkeypatch.setattr(sys, "argv", ["schedule", *arguments])
    assert schedule.main() == exit_code
    assert capsys.readouterr().err
