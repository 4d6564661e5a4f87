"""Measures how long Airflow takes to load the DAGs of 500 pipelines, without a network. Runs in Airflow's own Python.

.venv-airflow/bin/python benchmarks/airflow_parse.py
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PIPELINES = 500
PARTS = 3
"""The pipelines have so many different times."""
DAGS = Path(__file__).resolve().parents[1] / "mwaa_dags"


def no_network(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse connections and name look-ups."""
    if event in {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname"}:
        raise PermissionError(f"no network here: {event} {arguments[1:]}")


def schedule() -> str:
    """Return the content of `schedule.json`: a run with three stages and a monitoring for each pipeline."""
    tasks = []
    for index in range(PIPELINES):
        common = {"subject": f"pipeline_{index}", "description": "", "cron": f"{index % PARTS} 4 * * *", "input": {}}
        common |= {"timezone": "America/New_York", "buffer_hours": 2, "days_before": 1, "max_active_runs": 1}
        process = {"work": "process", "state_machine": f"pipeline-{index}", "date_key": "date"}
        process["stages"] = [["checked", "weather"], ["joined"]]
        tasks += [common | process, common | {"work": "monitor", "state_machine": "monitor-days", "date_key": "as_of"}]
    return json.dumps({"tasks": tasks})


def main() -> None:
    """Print the seconds of processor time that it takes to load the file, after the imports of Airflow."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "schedule.json")
        file.write_text(schedule(), encoding="utf-8")
        os.environ["AIRFLOW_HOME"] = folder
        os.environ["AIRFLOW__SLACKWATER__SCHEDULE"] = str(file)
        os.environ["AIRFLOW__SLACKWATER__STATE_MACHINE_PREFIX"] = "arn:aws:states:r:a:stateMachine:slackwater-"
        sys.path.append(str(DAGS))
        import slackwater_stages  # noqa: F401, PLC0415 - the imports of the DAG file, which are not measured
        from airflow.models.dagbag import DagBag  # noqa: PLC0415

        sys.addaudithook(no_network)
        start = time.process_time()
        bag = DagBag(DAGS / "schedule.py", include_examples=False)
        seconds = time.process_time() - start
    if bag.import_errors:
        raise SystemExit("\n".join(bag.import_errors.values()))
    sys.stdout.write(f"{len(bag.dags)} DAGs: {seconds:.2f} s of processor time\n")


if __name__ == "__main__":
    main()
