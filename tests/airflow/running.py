"""A running Airflow with all of its processes: API server, scheduler, DAG processor and triggerer."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from slackwater.deploy.airflow import AirflowHome, free_url, started
from tests.airflow.home import BIN, Home

PATIENCE = 240
"""Seconds to wait for any condition; each takes less than a quarter of it."""


# Airflow calls this function for each DAG.
WITHOUT_TIMES = """
from airflow.timetables.simple import NullTimetable
from airflow.timetables.trigger import CronTriggerTimetable

def dag_policy(dag):
    if isinstance(dag.timetable, CronTriggerTimetable):
        dag.timetable = NullTimetable()
"""


class Running:
    """Airflow's REST API."""

    def __init__(self, http: httpx.Client, log: Path, group: int) -> None:
        """`group` is the id of the group of Airflow's processes."""
        self._http, self._log_file, self._group = http, log, group

    def sign_in(self) -> bool:
        """Sign in; return whether Airflow is up and has loaded its DAGs."""
        try:
            token = self._http.get("/auth/token")
        except httpx.TransportError:
            return False
        if token.is_success:
            self._http.headers["Authorization"] = f"Bearer {token.json()['access_token']}"
        # One DAG of each of the two files.
        return token.is_success and {"process_daily_delays", "daily_report"} <= self._dag_ids()

    def _dag_ids(self) -> set[str]:
        return {dag["dag_id"] for dag in self.request("GET", "/dags")["dags"]}

    def request(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        response = self._http.request(method, f"/api/v2{path}", json=body or None)
        assert response.is_success, response.text
        document: dict[str, Any] = response.json()
        return document

    def start(self, dag_id: str, instant: str) -> str:
        """Trigger a DAG for an instant; return the run's id."""
        return str(self.request("POST", f"/dags/{dag_id}/dagRuns", logical_date=instant)["dag_run_id"])

    def end(self, dag_id: str, run: str) -> str:
        """Wait for the end of a run; return its final state."""
        try:
            wait_until(lambda: self._state(dag_id, run) in {"success", "failed"})
        except AssertionError as error:
            states = {task["task_id"]: (task["state"], task["try_number"]) for task in self.tasks(dag_id, run)}
            health = self.request("GET", "/monitor/health")
            raise AssertionError(f"{dag_id} {run}: {states}\n{health}\n{self._log_end()}") from error
        return self._state(dag_id, run)

    def _log_end(self) -> str:
        """Return the end of the output of all of Airflow's processes."""
        lines = self._log_file.read_text(errors="replace").splitlines()
        return "\n".join(line[:300] for line in lines[-60:])

    def _state(self, dag_id: str, run: str) -> str:
        return str(self.request("GET", f"/dags/{dag_id}/dagRuns/{run}")["state"])

    def tasks(self, dag_id: str, run: str) -> list[dict[str, Any]]:
        """Return the tasks of a run."""
        answer = self.request("GET", f"/dags/{dag_id}/dagRuns/{run}/taskInstances")
        return list(answer["task_instances"])

    def wait_for(self, dag_id: str, run: str, task: str, state: str, *, attempt: int = 1) -> None:
        """Wait until an attempt of a task is in a state."""
        path = f"/dags/{dag_id}/dagRuns/{run}/taskInstances/{task}"

        def reached() -> bool:
            instance = self.request("GET", path)
            return (instance["state"], instance["try_number"]) == (state, attempt)

        wait_until(reached)

    def attempts(self, dag_id: str, run: str, task: str) -> list[int]:
        """Return the numbers of a task's recorded attempts, in their order."""
        tries = self.request("GET", f"/dags/{dag_id}/dagRuns/{run}/taskInstances/{task}/tries")["task_instances"]
        return sorted(attempt["try_number"] for attempt in tries)

    def log(self, dag_id: str, run: str, task: str, attempt: int) -> str:
        """Return the log of one attempt, as the user interface shows it."""
        return str(self.request("GET", f"/dags/{dag_id}/dagRuns/{run}/taskInstances/{task}/logs/{attempt}"))

    def clear(self, dag_id: str, run: str, *, only_failed: bool = True, tasks: list[str] | None = None) -> None:
        """Run the failed tasks of a run again, or all, or these."""
        more = {"task_ids": tasks} if tasks else {}
        path = f"/dags/{dag_id}/clearTaskInstances"
        self.request("POST", path, dag_run_id=run, dry_run=False, only_failed=only_failed, **more)

    def end_scheduler(self) -> None:
        """End the scheduler, as a conflict in its database does."""
        # Whole lines, however narrow the terminal is.
        command = ["ps", "-A", "-ww", "-o", "pid=,pgid=,args="]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
        [scheduler] = [
            int(pid) for pid, group, arguments in lines if int(group) == self._group and " scheduler" in arguments
        ]
        os.kill(scheduler, signal.SIGTERM)

    def clear_waiting(self, dag_id: str, run: str, task: str) -> None:
        """Run a task again as soon as it waits for its execution; return when it waits once more."""
        self.wait_for(dag_id, run, task, "deferred")
        self.clear(dag_id, run, only_failed=False, tasks=[task])
        self.wait_for(dag_id, run, task, "deferred", attempt=2)


@contextmanager
def running(home: Home) -> Iterator[Running]:
    """Run Airflow until the block ends. It starts runs that are triggered or follow an asset, none at a time."""
    (home.folder / "config").mkdir(exist_ok=True)
    (home.folder / "config" / "airflow_local_settings.py").write_text(WITHOUT_TIMES)
    url = free_url(None)
    airflow = AirflowHome(folder=home.folder, program=BIN / "airflow", dags=home.dags)
    settings = {
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": url.rpartition(":")[2],
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",  # the files do not change
    }
    with (
        started(airflow, {**home.environment, **settings}) as process,
        httpx.Client(base_url=url, headers={"Accept": "application/json"}, timeout=60, trust_env=False) as http,
    ):
        api = Running(http, airflow.log, process.pid)
        wait_until(api.sign_in)
        yield api


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until the condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"condition not true after {PATIENCE} seconds"
        time.sleep(0.5)
