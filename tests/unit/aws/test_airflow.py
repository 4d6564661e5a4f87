"""Checks as DAG runs: what Airflow is asked, and that each check starts, whatever the answer is."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError

from slackwater.aws.clients import AIRFLOW_CONFIG
from slackwater.aws.executions.airflow import AirflowEnvironment, CheckRuns
from slackwater.errors import CloudError

pytestmark = pytest.mark.unit

DAG, RUN = "/dags/monitor_tides", "/dags/monitor_tides/dagRuns"
CREATED = {"dag_run_id": "arrival-1", "state": "queued"}


def rest_error(kind: str, status: int, answer: Any = None) -> tuple[str, dict[str, Any]]:
    """A refusal of Airflow, as MWAA returns it."""
    return kind, {"RestApiStatusCode": status, "RestApiResponse": {"detail": "no"} if answer is None else answer}


class Mwaa:
    """MWAA behind a real client: by path, the answer of Airflow, an error code with its members, or an exception."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {DAG: (200, {"is_paused": False, "is_stale": False}), RUN: (200, CREATED)}
        self.requests: list[dict[str, Any]] = []
        session = boto3.session.Session("key", "secret", region_name="eu-west-1")
        self.client = session.client("mwaa", config=AIRFLOW_CONFIG)
        self.client.meta.events.register("before-send.mwaa", self._send)

    def _send(self, request: Any, **_: Any) -> AWSResponse:
        body = json.loads(request.body)
        self.requests.append({"url": request.url, **body})
        answer = self.answers[body["Path"]]
        if isinstance(answer, Exception):
            raise answer
        code, members = answer
        headers = {"content-type": "application/json"}
        if isinstance(code, int):
            members = {"RestApiStatusCode": code, "RestApiResponse": members}
            status = 200
        else:
            status = {"AccessDeniedException": 403, "ResourceNotFoundException": 404}.get(code, 400)
            status = 500 if code == "InternalServerException" else status
            headers["x-amzn-errortype"] = code
        raw = io.BytesIO(json.dumps(members).encode())
        raw.stream = lambda *_, **__: iter([raw.getvalue()])  # type: ignore[attr-defined]
        return AWSResponse(request.url, status, headers, raw)


@pytest.fixture
def mwaa() -> Mwaa:
    return Mwaa()


class Checks:
    """What starts the checks of one batch, with the executions that it started itself, and why."""

    def __init__(self, mwaa: Mwaa, clock: Any = None) -> None:
        self.executions: list[tuple[str, Any]] = []
        self.reasons: list[str] = []
        self.start_check = CheckRuns(
            airflow=AirflowEnvironment(mwaa.client, "slackwater-schedule"),
            start=lambda *, name, payload: self.executions.append((name, payload)),
            on_fallback=lambda _, reason: self.reasons.append(reason),
            clock=clock or (lambda: 0.0),
        )

    def start(self, name: str = "arrival-1", *days: str, pipeline: str = "tides") -> None:
        payload = {"pipeline": pipeline, "days": days or ("2013-03-09",), "correlation_id": name}
        self.start_check(name=name, payload=payload)


@pytest.fixture
def checks(mwaa: Mwaa) -> Checks:
    return Checks(mwaa)


def test_a_check_is_a_dag_run_of_its_name_with_the_days(mwaa: Mwaa, checks: Checks) -> None:
    checks.start("arrival-1", "2013-03-09", "2013-03-10", "2013-03-12")
    asked, created = mwaa.requests
    assert (asked["Method"], asked["Path"]) == ("GET", DAG)
    assert created["url"] == "https://env.airflow.eu-west-1.amazonaws.com/restapi/slackwater-schedule"
    assert (created["Method"], created["Path"]) == ("POST", RUN)
    assert created["Body"] == {
        "dag_run_id": "arrival-1",
        "logical_date": None,
        "conf": {"days": ["2013-03-09", "2013-03-10", "2013-03-12"]},
        "note": "New data of 2013-03-09 and 2 more days",
    }
    assert checks.executions == []
    assert checks.reasons == []


def test_a_run_that_is_there_already_is_not_created_twice(mwaa: Mwaa, checks: Checks) -> None:
    mwaa.answers[RUN] = rest_error("RestApiClientException", 409)
    checks.start()
    assert checks.executions == []


REFUSALS = {
    "an unknown DAG": (DAG, rest_error("RestApiClientException", 404), "the DAG monitor_tides cannot be read: .* 404"),
    "a paused DAG": (DAG, (200, {"is_paused": True}), "the DAG monitor_tides is paused"),
    "a removed DAG": (DAG, (200, {"is_stale": True}), "the DAG monitor_tides is no longer there"),
    "no Airflow role": (DAG, rest_error("RestApiClientException", 403), "Airflow answers 403"),
    "a wrong request": (RUN, rest_error("RestApiClientException", 422), "no run of monitor_tides: Airflow answers 422"),
    "a broken Airflow": (RUN, rest_error("RestApiServerException", 500), "slackwater-schedule answers 500: no"),
    "a proxy": (DAG, rest_error("RestApiServerException", 503, "<html>"), "answers 503: <html>"),
    "no status": (DAG, ("RestApiClientException", {}), "answers 0"),
    "no permission": (DAG, ("AccessDeniedException", {"Message": "not authorized"}), "AccessDeniedException"),
    "a long name": (RUN, ("ValidationException", {"message": "Path: length"}), "ValidationException: Path: length"),
    "no environment": (DAG, ("ResourceNotFoundException", {"message": "absent"}), "ResourceNotFoundException: absent"),
    "a broken MWAA": (DAG, ("InternalServerException", {}), "InternalServerException"),
    "throttled": (DAG, ("ThrottlingException", {"message": "Rate exceeded"}), "ThrottlingException"),
    "no connection": (DAG, EndpointConnectionError(endpoint_url="https://env"), "does not answer"),
    "no connection in time": (DAG, ConnectTimeoutError(endpoint_url="https://env"), "timeout|timed out"),
    "no answer in time": (RUN, ReadTimeoutError(endpoint_url="https://env"), "timeout|timed out"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_the_state_machine_starts_what_airflow_does_not_start(mwaa: Mwaa, checks: Checks, refusal: str) -> None:
    path, answer, reason = REFUSALS[refusal]
    mwaa.answers[path] = answer
    checks.start("arrival-1", "2013-03-09")
    payload = {"pipeline": "tides", "days": ("2013-03-09",), "correlation_id": "arrival-1"}
    assert checks.executions == [("arrival-1", payload)]
    [told] = checks.reasons
    assert re.search(reason, told)
    assert len([request for request in mwaa.requests if request["Path"] == path]) == 1, "the call was repeated"


@pytest.mark.parametrize(
    "answer",
    [
        ReadTimeoutError(endpoint_url="https://env"),
        rest_error("RestApiServerException", 503),
        ("AccessDeniedException", {}),
        ("ThrottlingException", {}),
    ],
)
def test_an_airflow_that_does_not_answer_is_asked_once_for_a_batch(mwaa: Mwaa, checks: Checks, answer: Any) -> None:
    mwaa.answers[DAG] = answer
    for name in ("arrival-1", "arrival-2", "arrival-3"):
        checks.start(name)
    assert len(mwaa.requests) == 1
    assert [name for name, _ in checks.executions] == ["arrival-1", "arrival-2", "arrival-3"]
    assert len(set(checks.reasons)) == 1
    Checks(mwaa).start()
    assert len(mwaa.requests) == 2


def test_a_dag_that_cannot_run_does_not_stop_those_of_other_pipelines(mwaa: Mwaa, checks: Checks) -> None:
    mwaa.answers["/dags/monitor_waves"] = (200, {"is_paused": True})
    checks.start("arrival-1", pipeline="waves")
    checks.start("arrival-2")
    assert [name for name, _ in checks.executions] == ["arrival-1"]


def test_a_slow_airflow_leaves_time_for_the_rest_of_the_batch(mwaa: Mwaa) -> None:
    instants = iter(range(0, 1000, 23))
    checks = Checks(mwaa, clock=lambda: next(instants))
    for name in ("arrival-1", "arrival-2", "arrival-3"):
        checks.start(name)
    assert [name for name, _ in checks.executions] == ["arrival-3"]
    assert checks.reasons == ["Airflow has answered for 45 seconds: the state machine starts the others"]


def test_a_check_that_cannot_start_at_all_is_an_error(mwaa: Mwaa, checks: Checks) -> None:
    def fail(**_: Any) -> None:
        raise CloudError("no state machine")

    mwaa.answers[DAG] = ReadTimeoutError(endpoint_url="https://env")
    checks.start_check.start = fail
    with pytest.raises(CloudError, match="no state machine"):
        checks.start()
