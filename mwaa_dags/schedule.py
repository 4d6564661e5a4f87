"""Slackwater's schedule in Airflow: one DAG for each task in `schedule.json`.

A DAG starts one state machine and waits for its end. The state machine does all work and retries transient failures
itself. The tasks wait without a worker, and fail with the cause of the execution. The DAG of a pipeline has a task for
each stage (decision 42), that of a monitoring one for each late day (decision 17). The task `stop` stops the execution
if a person has stopped the DAG run. A published day adds an event to the asset of its table,
`slackwater://slackwater/TABLE`, whose host is the prefix of the deployment.

The deployment writes `schedule.json` from the checked project. `slackwater.project.schedule` documents its fields.
The slackwater library is not installed where Airflow runs.

AIRFLOW__SLACKWATER__STATE_MACHINE_PREFIX   beginning of every state machine's ARN: arn:...:stateMachine:slackwater-
AIRFLOW__SLACKWATER__SCHEDULE               path of schedule.json; default: beside this file
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from airflow.configuration import conf
from airflow.providers.amazon.aws.links.step_function import StateMachineExecutionsDetailsLink
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, get_parsing_context
from airflow.timetables.trigger import CronTriggerTimetable
from slackwater_operators import LateDayOperator, LateDaysOperator, RunStateMachineOperator, StopOperator
from slackwater_stages import LONGEST_WAIT, PublishOperator, StageOperator, StartRunOperator, WaitOperator

# A run that was triggered without a logical date counts from the instant at which it was triggered.
INSTANT = "(dag_run.logical_date or dag_run.run_after)"
# The buffer is subtracted in UTC, so it is a number of elapsed hours even when the clocks change.
DATE = f"{{{{ ({INSTANT} - buffer).astimezone(timezone).date() - days_before }}}}"
# Pipelines with hours have no timezone but UTC.
HOUR = f"{{{{ ({INSTANT} - buffer).astimezone(timezone).strftime('%Y-%m-%dT%H') }}}}"
PERIODS = {"day": DATE, "hour": HOUR}
# The end of the execution's name. The operator adds the number of the execution.
SCHEDULED_TIME = f"{INSTANT}.strftime('%Y%m%dT%H%M%SZ')"
# These retries repeat a start that failed, not an execution that failed. Clear the task to run it again.
START_RETRIES = 2
POLL_SECONDS = 10

schedule_path = Path(conf.get("slackwater", "schedule", fallback=str(Path(__file__).with_name("schedule.json"))))
REMEDY = (
    "deploy the project again (slackwater deploy), write the file with "
    "`python -m slackwater.project.schedule PROJECT_DIR`, or name another one with AIRFLOW__SLACKWATER__SCHEDULE"
)

state_machine_prefix = conf.get("slackwater", "state_machine_prefix", fallback="")
if not state_machine_prefix:
    raise ValueError(
        "AIRFLOW__SLACKWATER__STATE_MACHINE_PREFIX is not set: "
        "give the beginning of the state machines' ARNs, such as arn:aws:states:...:stateMachine:slackwater-"
    )

deployment = state_machine_prefix.rpartition(":")[2].rstrip("-")


def task_name(work: str, subject: str) -> str:
    """Return the beginning of the names of a task's executions, as `slackwater.project.scheduled_starts` does."""
    name = f"{work}-{subject}"
    return name if len(name) <= 60 else f"{name[:51]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"  # noqa: PLR2004


def execution_name(work: str, subject: str) -> str:
    """Return the template of the name of a run's executions. A run that arriving data has started gives its own."""
    scheduled = f"'{task_name(work, subject)}-' ~ {SCHEDULED_TIME}"
    return f"{{{{ run_id if run_id.startswith('arrival-') else {scheduled} }}}}"


def execution_of(task_id: str) -> str:
    """Return the template of the ARN of the execution that a task has started; it is empty if it has started none."""
    # The operator stores the ARN for its link before it waits, so it is there after a failure too.
    link = f"ti.xcom_pull(task_ids='{task_id}', key='{StateMachineExecutionsDetailsLink.key}')"
    return f"{{{{ ({link} or {{}}).get('execution_arn', '') }}}}"


# Airflow reads a file of translations for each timetable, so DAGs with the same times share one.
timetable = cache(CronTriggerTimetable)
running_dag = get_parsing_context().dag_id  # a worker, which runs a task of one DAG, needs no other

try:
    for entry in json.loads(schedule_path.read_text(encoding="utf-8"))["tasks"]:
        dag_id = f"{entry['work']}_{entry['subject']}"
        if running_dag not in {None, dag_id}:
            continue
        with DAG(
            dag_id,
            schedule=timetable(entry["cron"], timezone=entry["timezone"]),
            start_date=datetime(2000, 1, 1, tzinfo=UTC),  # before any day to run; without catchup it starts nothing
            catchup=False,
            max_active_runs=entry["max_active_runs"],
            is_paused_upon_creation=False,
            tags=["slackwater", entry["work"], entry["subject"]],
            doc_md=entry["description"],
            user_defined_macros={
                "timezone": ZoneInfo(entry["timezone"]),
                "buffer": timedelta(
                    hours=entry["buffer_hours"] + entry["hours_before"], minutes=entry["buffer_minutes"]
                ),
                "days_before": timedelta(days=entry["days_before"]),
            },
        ):
            table = f"slackwater://{deployment}/{entry['subject']}"
            aws: dict[str, Any] = {
                "aws_conn_id": None,  # the environment's own role
                "botocore_config": {"retries": {"mode": "standard", "max_attempts": 10}},
                "retries": START_RETRIES,
            }
            machine = {
                "state_machine_arn": state_machine_prefix + entry["state_machine"],
                "name": execution_name(entry["work"], entry["subject"]),
                "state_machine_input": {**entry["input"], entry["date_key"]: PERIODS[entry["period"]]},
                **aws,
            }
            first = "start" if entry["work"] == "process" else entry["work"]
            # Airflow takes the result of a run from its last tasks. What is not needed is skipped.
            end = EmptyOperator(task_id="end", trigger_rule="none_failed")
            stop = StopOperator(
                task_id="stop", execution_arn=execution_of(first), restarts=entry["work"] == "process", **aws
            ).as_teardown(on_failure_fail_dagrun=True)
            if entry["work"] == "process":
                tasks: list[Any] = [StartRunOperator(task_id=first, **machine)]
                if entry["wait_hours"]:
                    longest = timedelta(hours=entry["wait_hours"]) + LONGEST_WAIT
                    tasks[0] >> (waits := WaitOperator(task_id="wait_for_inputs", longest=longest, **aws))
                    tasks = [waits]
                for layer in entry["stages"]:
                    before, tasks = tasks, []
                    for stage in layer:
                        task = StageOperator(task_id=f"run_{stage}", stage=stage, trigger_rule="none_failed", **aws)
                        before >> task
                        tasks.append(task)
                (
                    tasks
                    >> PublishOperator(task_id="publish", table=table, trigger_rule="none_failed", **aws)
                    >> [end, stop]
                )
                continue
            started = RunStateMachineOperator(
                task_id=first,
                deferrable=True,
                waiter_delay=POLL_SECONDS,
                waiter_max_attempts=int(LONGEST_WAIT.total_seconds()) // POLL_SECONDS,
                **machine,
            )
            started >> [end, stop]
            if entry["work"] == "monitor":
                late_days = LateDaysOperator(
                    task_id="late_days",
                    execution_arn=execution_of(first),
                    table=table,
                    trigger_rule="all_done",
                    **aws,
                )
                days = LateDayOperator.partial(
                    task_id="late_day", map_index_template="{{ task.day['date'] }}", retries=0
                ).expand(day=late_days.output)
                started >> late_days
                days >> end
except OSError as error:
    raise FileNotFoundError(f"{schedule_path}: cannot be read ({error.strerror}): {REMEDY}") from error
except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(f"{schedule_path}: not a valid schedule ({type(error).__name__}: {error}): {REMEDY}") from error
