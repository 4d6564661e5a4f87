"""Slackwater's schedule: a DAG for each source that is pulled, and two for each pipeline.

A DAG starts one state machine by the clock and waits for its end. All work is done there, with its own retries of what
is transient: a task starts the machine, hands over to the triggerer, and fails with the cause that the execution names.

Where Airflow runs, the slackwater library is not installed: this file stands for itself, and reads the few keys of the
project's YAML that say when something happens, with the library's defaults. `tests/airflow` holds it to the library.

AIRFLOW__SLACKWATER__MACHINES   what all state machines' ARNs begin with: arn:...:stateMachine:slackwater-
AIRFLOW__SLACKWATER__PROJECT    the project folder; if not given, `project` beside this file
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import yaml
from airflow.configuration import conf
from airflow.exceptions import AirflowTimetableInvalid
from airflow.providers.amazon.aws.operators.step_function import StepFunctionStartExecutionOperator
from airflow.sdk import DAG
from airflow.timetables.trigger import CronTriggerTimetable

_MOMENT = "(dag_run.logical_date or dag_run.run_after)"
"""The scheduled moment; a run that was triggered without a logical date counts from when it was triggered."""
_TODAY = f"{{{{ {_MOMENT}.astimezone(zone).date() }}}}"
_LAST_DAY = f"{{{{ ({_MOMENT} - buffer).astimezone(zone).date() - macros.timedelta(days=1) }}}}"
"""The latest day that ended at least the buffer before: hours that pass, whatever the clocks show."""
_EXECUTION = f"{{{{ task.task_id }}}}-{{{{ {_MOMENT}.strftime('%Y%m%dT%H%M%SZ') }}}}-{{{{ ti.id }}}}"
"""Name and correlation id. Each try of a task has its own `ti.id`: a start that is repeated within a try finds the same
execution, and another try, after a failure or by hand, starts one of its own."""

_STARTS = 2
"""More tries of a start that fails. An execution that failed is not started again by them: Airflow 3.0.6 fails a task's
later tries with what its trigger said first (apache/airflow#62845). To run it again, clear the task."""
_LOOK_SECONDS = 10
_LONGEST = timedelta(hours=24)
"""A run may wait for room on Spark for hours."""
_START = datetime(2000, 1, 1, tzinfo=UTC)
"""Before any day that one may want to run; it starts nothing by itself, since nothing is caught up on."""
_MOST_BUFFER = 720


class DefinitionError(Exception):
    """What is scheduled is not well defined; the message names file and field, or the setting."""


@dataclass(frozen=True)
class Definition:
    """One YAML file of the project; fields are named with a dot between the levels."""

    path: Path
    kind: str
    content: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Of the source or pipeline."""
        return str(self.value(self.kind))

    def value(self, field: str, default: Any = None) -> Any:
        """Return what stands there, or the default where nothing stands."""
        found: Any = self.content
        *above, last = field.split(".")
        for level, key in enumerate(above, start=1):
            found = found.get(key, {})
            if not isinstance(found, dict):
                raise self.fault(".".join(above[:level]), f"a mapping of keys is expected, not {found!r}")
        return found.get(last, default)

    def zone(self, field: str) -> ZoneInfo:
        """Return a time zone, UTC by default."""
        name = self.value(field, "UTC")
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, TypeError, OSError) as error:
            raise self.fault(field, f"no such time zone: {name!r} (America/New_York is one)") from error

    def cron(self, field: str, default: str, zone: ZoneInfo) -> CronTriggerTimetable:
        """Return the moments of a cron expression, by the clock of the zone."""
        text = self.value(field, default)
        if not isinstance(text, str):
            raise self.fault(field, f'a cron expression is expected, in quotes, such as "{default}", not {text!r}')
        timetable = CronTriggerTimetable(text, timezone=zone.key)
        try:
            timetable.validate()
        except AirflowTimetableInvalid as error:
            raise self.fault(field, f"no cron expression: {error}") from error
        return timetable

    def hours(self, field: str, default: int) -> timedelta:
        """Return a number of whole hours."""
        given = self.value(field, default)
        try:
            hours = int(given)
        except (TypeError, ValueError) as error:
            raise self.fault(field, f"a number of hours is expected, not {given!r}") from error
        if not 0 <= hours <= _MOST_BUFFER:
            raise self.fault(field, f"{hours} is not between 0 and {_MOST_BUFFER}")
        return timedelta(hours=hours)

    def fault(self, field: str, what: str) -> DefinitionError:
        """Return the error that names file and field."""
        return DefinitionError(f"{self.path}: {field}: {what}")


def read_definitions(folder: Path, kind: str) -> Iterator[Definition]:
    """Read the project's sources, or its pipelines. Raises `DefinitionError`."""
    if not folder.is_dir():
        raise DefinitionError(
            f"no project folder at {folder}: put the project's sources/ and pipelines/ there, "
            "or name the folder that holds them with AIRFLOW__SLACKWATER__PROJECT"
        )
    for path in sorted((folder / f"{kind}s").glob("*.yaml")):
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise DefinitionError(f"{path}: not readable as YAML: {error}") from error
        if not isinstance(content, dict):
            raise DefinitionError(f"{path}: a mapping of keys is expected at the top, not {type(content).__name__}")
        definition = Definition(path, kind, content)
        if definition.name != path.stem:
            raise definition.fault(kind, f"it defines {definition.name!r}: name the file {definition.name}.yaml")
        yield definition


def schedule(
    task: str,
    name: str,
    *,
    machine: str,
    payload: dict[str, str],
    timetable: CronTriggerTimetable,
    zone: ZoneInfo,
    doc: str,
    buffer: timedelta = timedelta(),
    max_active_runs: int = 1,
) -> None:
    """Make the DAG `<task>_<name>`, of one task that runs a state machine from its start to its end."""
    with DAG(
        f"{task}_{name}",
        schedule=timetable,
        start_date=_START,
        catchup=False,
        max_active_runs=max_active_runs,
        is_paused_upon_creation=False,  # what is deployed is scheduled
        tags=["slackwater", task, name],
        doc_md=doc,
        user_defined_macros={"zone": zone, "buffer": buffer},
    ):
        StepFunctionStartExecutionOperator(
            task_id=task,
            state_machine_arn=setting("machines") + machine,
            name=_EXECUTION,
            state_machine_input={**payload, "correlation_id": _EXECUTION},
            deferrable=True,
            waiter_delay=_LOOK_SECONDS,
            waiter_max_attempts=int(_LONGEST.total_seconds()) // _LOOK_SECONDS,
            aws_conn_id=None,  # the role of the environment itself
            botocore_config={"retries": {"mode": "standard", "max_attempts": 10}},
            retries=_STARTS,
        )


def setting(name: str, default: str | None = None) -> str:
    """Return one of this file's settings. Raises `DefinitionError` when it is missing."""
    value: str | None = conf.get("slackwater", name, fallback=default)
    if not value:
        raise DefinitionError(f"AIRFLOW__SLACKWATER__{name.upper()} is not set (mwaa_dags/schedule.py says what it is)")
    return value


project = Path(setting("project", str(Path(__file__).parent / "project")))

for source in read_definitions(project, "source"):
    if not source.value("pull"):
        continue
    pull_zone = source.zone("pull.timezone")
    schedule(
        "pull",
        source.name,
        machine="pull-source",
        payload={"source": source.name, "as_of": _TODAY},
        timetable=source.cron("pull.schedule", "15 * * * *", pull_zone),
        zone=pull_zone,
        doc=f"Fetches the new and changed files of `{source.name}`, over its look-back window.",
    )

for pipeline in read_definitions(project, "pipeline"):
    zone, buffer = pipeline.zone("timezone"), pipeline.hours("schedule.buffer_hours", 2)
    schedule(
        "process",
        pipeline.name,
        machine=f"pipeline-{pipeline.name}",
        payload={"date": _LAST_DAY},
        timetable=pipeline.cron("schedule.process", "0 3 * * *", zone),
        zone=zone,
        buffer=buffer,
        max_active_runs=2,  # a day that takes long does not hold up the next one
        doc=f"Runs `{pipeline.name}` for the latest day of {zone} that ended {buffer} hours ago or earlier.\n\n"
        "To run a past day, trigger this with a logical date soon after that day's end.",
    )
    schedule(
        "monitor",
        pipeline.name,
        machine="monitor-days",
        payload={"pipeline": pipeline.name, "as_of": _TODAY},
        timetable=pipeline.cron("schedule.monitor", "0 6 * * *", zone),
        zone=zone,
        doc=f"Looks at the finished days of `{pipeline.name}` again, re-runs the late ones, and tells what changed.",
    )
