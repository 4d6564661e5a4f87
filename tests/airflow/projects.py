"""Projects whose schedules the tests load into Airflow, malformed schedules, and instants of runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from slackwater.project.project import load_project
from slackwater.project.schedule import ProjectSchedule, ScheduledWork, schedule_json, schedule_of

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
HOURS = "period: hour\nschedule: {process: '10 * * * *', buffer_minutes: 20}\nlive: {every: 10m}\n"
HOURLY = f"{PIPELINE.replace('[date,', '[date, hour,')}{HOURS}"
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
