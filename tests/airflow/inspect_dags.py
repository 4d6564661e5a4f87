"""Load DAGs in several environments, render their tasks, and print the result as JSON. Runs in Airflow's own Python.

It reads `[{"environment": {...}, "instants": [...]}, ...]` from standard input: an environment is an object of
variables; an instant is ISO 8601, or null for a run without a logical date. Connections and name look-ups are refused.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.models.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.api.datamodels._generated import DagRun, DagRunState, DagRunType, TIRunContext
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from jinja2 import Environment

RUN_AFTER = datetime(2013, 7, 1, 12, tzinfo=UTC)
"""When a run without a logical date was triggered."""


def no_network(event: str, arguments: tuple[Any, ...]) -> None:
    if event in {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname"}:
        raise PermissionError(f"no network here: {event} {arguments[1:]}")


def record_reads() -> list[str]:
    """Return a list that gets the path of each file that is opened from now on."""
    paths: list[str] = []

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            paths.append(str(arguments[0]))

    sys.addaudithook(opened)
    return paths


def rendered(dag: DAG, instant: str | None, templates: Environment, run_id: str = "any") -> dict[str, Any]:
    """Return what a worker would send to Step Functions for a run at that instant."""
    task = copy.copy(dag.roots[0])
    run = DagRun(
        dag_id=dag.dag_id,
        run_id=run_id,
        logical_date=datetime.fromisoformat(instant) if instant else None,
        run_after=RUN_AFTER,
        start_date=RUN_AFTER,
        run_type=DagRunType.MANUAL,
        state=DagRunState.RUNNING,
        consumed_asset_events=[],
    )
    instance = RuntimeTaskInstance.model_construct(
        id=uuid.UUID(int=7),
        task=task,
        task_id=task.task_id,
        dag_id=dag.dag_id,
        run_id=run.run_id,
        try_number=1,
        map_index=-1,
        start_date=RUN_AFTER,
        _ti_context_from_server=TIRunContext(dag_run=run, max_tries=task.retries),
    )
    instance.render_templates(jinja_env=templates)
    return {"machine": task.state_machine_arn, "name": task.name, "input": task.input}


def described(dag: DAG, instants: list[str | None]) -> dict[str, Any]:
    dag.validate()
    [task] = dag.roots
    templates = task.get_template_env()
    return {
        "cron": dag.timetable.summary,
        "timezone": dag.timetable._timezone.name,
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "paused": dag.is_paused_upon_creation,
        "tags": sorted(dag.tags),
        "doc": dag.doc_md,
        "operator": type(task).__name__,
        "task": task.task_id,
        "outlets": {other.task_id: alias.name for other in dag.tasks for alias in other.outlets},
        "after": {other.task_id: sorted(other.upstream_task_ids) for other in dag.tasks if other is not task},
        "last": sorted(other.task_id for other in dag.leaves),
        "teardowns": [other.task_id for other in dag.teardowns],
        "deferrable": task.deferrable,
        "longest": task.waiter_delay * task.waiter_max_attempts,
        "retries": task.retries,
        "of_arrival": rendered(dag, None, templates, "arrival-0f"),
        "rendered": [rendered(dag, instant, templates) for instant in instants],
    }


def main() -> None:
    loads = json.load(sys.stdin)
    sys.path.append(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])  # as Airflow's own processes do
    sys.addaudithook(no_network)
    reads = record_reads()
    results, inherited = [], dict(os.environ)
    for load in loads:
        os.environ.clear()
        os.environ.update(inherited | load["environment"])
        reads.clear()
        bag = DagBag(Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]), include_examples=False)
        results.append(
            {
                "errors": list(bag.import_errors.values()),
                "warnings": [str(warning) for warnings in bag.captured_warnings.values() for warning in warnings],
                "files": len(bag.dagbag_stats),
                "reads": len(reads),
                "dags": {dag_id: described(dag, load["instants"]) for dag_id, dag in bag.dags.items()},
            }
        )
    sys.__stdout__.write(json.dumps(results))


if __name__ == "__main__":
    main()
