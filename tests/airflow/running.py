"""A running Airflow with all of its processes: API server, scheduler, DAG processor and triggerer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.airflow.home import BIN, Home

PATIENCE = 240
"""Seconds to wait for any condition; each takes less than a quarter of it."""


class Running:
    """Airflow's REST API."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def sign_in(self) -> bool:
        """Sign in; return whether Airflow is up and has loaded its DAGs."""
        try:
            token = self._http.get("/auth/token")
        except httpx.TransportError:
            return False
        if token.is_success:
            self._http.headers["Authorization"] = f"Bearer {token.json()['access_token']}"
        return token.is_success and bool(self.request("GET", "/dags")["dags"])

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
        wait_until(lambda: self._state(dag_id, run) in {"success", "failed"})
        return self._state(dag_id, run)

    def _state(self, dag_id: str, run: str) -> str:
        return str(self.request("GET", f"/dags/{dag_id}/dagRuns/{run}")["state"])

    def log(self, dag_id: str, run: str, task: str, attempt: int) -> str:
        """Return the log of one attempt, as the user interface shows it."""
        return str(self.request("GET", f"/dags/{dag_id}/dagRuns/{run}/taskInstances/{task}/logs/{attempt}"))

    def clear(self, dag_id: str, run: str) -> None:
        """Run the failed tasks of a run again."""
        self.request("POST", f"/dags/{dag_id}/clearTaskInstances", dag_run_id=run, dry_run=False, only_failed=True)


@contextmanager
def running(home: Home) -> Iterator[Running]:
    """Run Airflow until the block ends. It starts triggered runs only, none by schedule."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
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
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
    }
    log = home.folder / "running.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(BIN / "airflow"), "standalone"],
            cwd=home.folder,
            env={**home.environment, **settings},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with httpx.Client(base_url=url, headers={"Accept": "application/json"}, timeout=60, trust_env=False) as http:
            api = Running(http)
            wait_until(api.sign_in)
            yield api
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until the condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"condition not true after {PATIENCE} seconds"
        time.sleep(0.5)
