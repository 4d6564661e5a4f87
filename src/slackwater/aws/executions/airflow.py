"""Checks as DAG runs of an Airflow environment on Amazon MWAA, or as executions if Airflow does not start them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

from botocore.exceptions import ClientError

from slackwater.aws.failures import code_of, translated
from slackwater.errors import AccessDenied, CloudError, SlackwaterError, Throttled, Unavailable

_REST_ERRORS = {"RestApiClientException", "RestApiServerException"}
# Of the two minutes that the function has for a batch.
_SECONDS = 45


class StartsExecution(Protocol):
    """Starts executions of one state machine."""

    def __call__(self, *, name: str, payload: Mapping[str, Any]) -> object:
        """Start an execution with that name, unless one was started with it before. Raises `SlackwaterError`."""


@dataclass(frozen=True)
class AirflowEnvironment:
    """The REST API of an Airflow environment, over a client of MWAA."""

    mwaa: Any
    name: str

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Return Airflow's status and answer, also for a request that it refuses with a 4xx status.

        `path` is without `/api/v2`, and MWAA accepts at most 64 characters. Raises `CloudError`; `Unavailable` if
        Airflow does not answer.
        """
        arguments = {"Name": self.name, "Method": method, "Path": path, **({"Body": body} if body else {})}
        with translated(f"ask the Airflow environment {self.name}"):
            try:
                response = self.mwaa.invoke_rest_api(**arguments)
            except ClientError as error:
                if code_of(error) not in _REST_ERRORS:
                    raise
                response = error.response
        # The answer is a JSON document of any type; a proxy may have written it.
        status, answer = int(response.get("RestApiStatusCode", 0)), response.get("RestApiResponse")
        document = answer if isinstance(answer, dict) else {}
        if not HTTPStatus.OK <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise Unavailable(f"the Airflow environment {self.name} answers {status}: {document.get('detail', answer)}")
        return status, document


@dataclass(kw_only=True)
class CheckRuns:
    """Starts checks of days as runs of the DAG `monitor_PIPELINE`. The run starts the same state machine.

    If Airflow does not start the run, the state machine is started here. Both give the execution the same name, so a
    check whose run was created although no answer arrived is one execution, too. One object is for one batch: once
    Airflow does not answer, or has taken 45 seconds, it is not asked again.
    """

    airflow: AirflowEnvironment
    start: StartsExecution
    """Starts the state machine."""
    on_fallback: Callable[[str, str], None]
    """Gets the name of a check that is not a DAG run, and why."""
    clock: Callable[[], float] = time.monotonic
    _asked: float = field(default=0.0, init=False)
    """Seconds in which Airflow was asked."""
    _unavailable: str = field(default="", init=False)

    def __call__(self, *, name: str, payload: Mapping[str, Any]) -> None:
        """Start a check with that name, unless one was started with it before. Raises `SlackwaterError`."""
        began = self.clock()
        try:
            self._create_run(f"monitor_{payload['pipeline']}", name, list(payload["days"]))
        except SlackwaterError as error:
            if isinstance(error, (AccessDenied, Throttled, Unavailable)):
                self._unavailable = str(error)
            self.on_fallback(name, str(error))
            self.start(name=name, payload=payload)
        finally:
            self._asked += self.clock() - began

    def _create_run(self, dag: str, name: str, days: list[str]) -> None:
        """Create the run of this id, unless there is one. Raises `CloudError` if no run would start."""
        if self._unavailable:
            raise CloudError(self._unavailable)
        if self._asked > _SECONDS:
            raise CloudError(f"Airflow has answered for {_SECONDS} seconds: the state machine starts the others")
        status, answer = self.airflow.request("GET", f"/dags/{dag}")
        if status != HTTPStatus.OK:
            raise _refused(f"the DAG {dag} cannot be read", status, answer)
        # A run of such a DAG would wait, and nobody would notice that a late day is not run again.
        if answer.get("is_paused") or answer.get("is_stale"):
            raise CloudError(f"the DAG {dag} is {'paused' if answer.get('is_paused') else 'no longer there'}")
        note = f"New data of {days[0]}{f' and {len(days) - 1} more days' if days[1:] else ''}"
        run = {"dag_run_id": name, "logical_date": None, "conf": {"days": days}, "note": note}
        status, answer = self.airflow.request("POST", f"/dags/{dag}/dagRuns", run)
        # A batch is delivered more than once.
        if status not in {HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.CONFLICT}:
            raise _refused(f"no run of {dag}", status, answer)


def _refused(what: str, status: int, answer: Mapping[str, Any]) -> CloudError:
    return CloudError(f"{what}: Airflow answers {status}: {answer.get('detail', answer)}")
