"""What a deployment starts, and when: one list, written as `schedule.json` and read by every scheduler.

Airflow reads the file (`mwaa_dags/schedule.py`); another scheduler gets its rules from the same list.
To write the file of a project by hand: `python -m slackwater.project.schedule PROJECT_DIR > schedule.json`.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from slackwater.errors import SlackwaterError
from slackwater.model import Cron, Model, TimeZone
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import layers, stages
from slackwater.pipeline.live import Live
from slackwater.project.project import Project, load_project

# Names of the state machines that a schedule starts, without the prefix of the deployment.
PULL_MACHINE = "pull-source"
PIPELINE_MACHINE_PREFIX = "pipeline-"
MONITOR_MACHINE = "monitor-days"
# And of those that are started otherwise.
COMPARE_MACHINE = "compare-day"
BACKFILL_MACHINE = "backfill"
HOUR = timedelta(hours=1)


class ScheduledWork(StrEnum):
    """What a scheduled task does."""

    PULL = "pull"
    PROCESS = "process"
    MONITOR = "monitor"
    LIVE = "live"


class ScheduledTask(Model):
    """One state machine that is started at regular times.

    The machine's input is `input` with a date added under `date_key`. The date is the local date of the scheduled
    instant minus the buffer, minus `days_before` days.
    """

    work: ScheduledWork
    subject: str
    """The name of the source or pipeline."""
    description: str
    state_machine: str
    """The state machine's name without the prefix of the deployment."""
    cron: Cron
    """When the task starts, in local time of `timezone`."""
    timezone: TimeZone
    input: dict[str, str | bool]
    date_key: Literal["date", "as_of"]
    period: Literal["day", "hour"] = "day"
    """Of an hour, the machine gets the UTC hour of that instant, minus `hours_before`, instead of a date."""
    buffer_hours: Annotated[int, Field(ge=0)] = 0
    buffer_minutes: Annotated[int, Field(ge=0)] = 0
    """In addition to `buffer_hours`."""
    hours_before: Annotated[int, Field(ge=0)] = 0
    days_before: Annotated[int, Field(ge=0)] = 0
    wait_hours: Annotated[int, Field(ge=0)] = 0
    """For how many hours, at most, an execution waits for its inputs before it runs."""
    max_active_runs: Annotated[int, Field(gt=0)] = 1
    """How many executions of this task may run, or wait, at the same time."""
    stages: tuple[tuple[str, ...], ...] = ()
    """Of a pipeline, the names of its stages, in the order in which they run; those of one layer run in parallel."""


class ProjectSchedule(Model):
    """Everything that a deployment of a project starts at regular times."""

    tasks: tuple[ScheduledTask, ...]

    @property
    def state_machines(self) -> frozenset[str]:
        """The names of all state machines that the tasks start."""
        return frozenset(task.state_machine for task in self.tasks)


def schedule_of(project: Project) -> ProjectSchedule:
    """Return the schedule of a project: a task for each source that is pulled, and two or three for each pipeline."""
    tasks = [
        ScheduledTask(
            work=ScheduledWork.PULL,
            subject=source.source,
            description=f"Fetches new and changed files of `{source.source}` within its look-back window.",
            state_machine=PULL_MACHINE,
            cron=source.pull.schedule,
            timezone=source.pull_timezone,
            input={"source": source.source},
            date_key="as_of",
        )
        for source in project.sources.values()
        if source.pull
    ]
    for pipeline in project.pipelines.values():
        name, schedule = pipeline.pipeline, pipeline.schedule
        waits = pipeline.when.longest if pipeline.waits else timedelta()
        process = ScheduledTask(
            work=ScheduledWork.PROCESS,
            subject=name,
            description=_process_description(pipeline),
            state_machine=f"{PIPELINE_MACHINE_PREFIX}{name}",
            cron=schedule.process,
            # In a timezone whose clocks change, an hour would be left out.
            timezone="UTC" if pipeline.period == "hour" else pipeline.timezone,
            input={"wait": True} if pipeline.waits else {},
            date_key="date",
            buffer_hours=schedule.buffer // HOUR,
            buffer_minutes=schedule.buffer % HOUR // timedelta(minutes=1),
            period=pipeline.period,
            hours_before=int(pipeline.period == "hour"),
            days_before=int(pipeline.period == "day"),
            wait_hours=ceil(waits / HOUR),
            max_active_runs=_most_runs(pipeline.period, waits),
            stages=tuple(tuple(stage.name for stage in layer) for layer in layers(stages(pipeline))),
        )
        tasks.append(process)
        if pipeline.live:
            tasks.append(live_task(pipeline, pipeline.live))
        monitor = ScheduledTask(
            work=ScheduledWork.MONITOR,
            subject=name,
            description=f"Checks the finished {pipeline.period}s of `{name}` for late data, runs late "
            f"{pipeline.period}s again and sends notifications about changes.",
            state_machine=MONITOR_MACHINE,
            cron=schedule.monitor,
            timezone=pipeline.timezone,
            input={"pipeline": name},
            date_key="as_of",
            # Checks that arriving data starts do not wait for each other, as with the other schedulers.
            max_active_runs=16,
        )
        tasks.append(monitor)
    return ProjectSchedule(tasks=tuple(tasks))


def live_task(pipeline: Pipeline, live: Live) -> ScheduledTask:
    """Return the task that publishes the open day or hour of a pipeline with this key."""
    name = pipeline.pipeline
    return ScheduledTask(
        work=ScheduledWork.LIVE,
        subject=name,
        description=f"Publishes the {pipeline.period} of `{name}` that has not ended, if there are new events.",
        state_machine=f"{PIPELINE_MACHINE_PREFIX}{name}",
        cron=live.cron,
        timezone="UTC" if pipeline.period == "hour" else pipeline.timezone,
        input={"live": True},
        date_key="date",
        period=pipeline.period,
    )


def _most_runs(period: str, waits: timedelta) -> int:
    """Return how many runs of a pipeline may be active. A start that has to wait for one may never come."""
    # A day that takes longer than a day must not delay the next one, nor must those that wait.
    return 24 + ceil(waits / HOUR) if period == "hour" else 2 + ceil(waits / timedelta(days=1))


def _process_description(pipeline: Pipeline) -> str:
    """Return what the task does that runs the pipeline, as people read it in a scheduler."""
    buffer, length = _described(pipeline.schedule.buffer), "24 hours" if pipeline.period == "day" else "hour"
    what = f"day of {pipeline.timezone}" if pipeline.period == "day" else "hour of UTC"
    return (
        f"Runs `{pipeline.pipeline}` for the latest {what} that ended at least {buffer} ago.\n\n"
        f"To run a past {pipeline.period}, trigger this task with a logical date in the {length} that start"
        f"{'' if pipeline.period == 'day' else 's'} {buffer} after the end of that {pipeline.period}."
    )


def _described(buffer: timedelta) -> str:
    minutes = buffer // timedelta(minutes=1)
    return f"{minutes} minutes" if minutes % 60 else f"{minutes // 60} hours"


def schedule_json(project: Project) -> str:
    """Return the content of `schedule.json`. It states every value, so that its readers need no defaults."""
    return schedule_of(project).model_dump_json(indent=2) + "\n"


def main() -> int:
    """Print the `schedule.json` of the project folder named on the command line; return the exit code."""
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and its one argument
        sys.stderr.write("usage: python -m slackwater.project.schedule PROJECT_DIR\n")
        return 2
    try:
        sys.stdout.write(schedule_json(load_project(Path(sys.argv[1]))))
    except SlackwaterError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
