"""MWAA's InvokeRestApi on the local cloud: our client of it, over the REST API of an Airflow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from ministack.core import iam_actions, iam_evaluator

from slackwater.local import layout
from slackwater.local.services import airflow, permissions

pytestmark = pytest.mark.unit


class Airflow(BaseHTTPRequestHandler):
    """Signs in `admin` with the password `secret`, and knows one DAG."""

    requests: list[tuple[str, str, Any]] = []

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Any) -> None:
        self.requests.append((self.command, self.path, body))
        if self.path == "/auth/token":
            right = body in (None, {"username": "admin", "password": "secret"})
            return self._send(201, {"access_token": "t"}) if right else self._send(401, {"detail": "Invalid"})
        if self.headers["Authorization"] != "Bearer t":
            return self._send(401, {"detail": "Not authenticated"})
        if self.path == "/api/v2/dags/broken":
            return self._send(503, {"detail": "starting"})
        known = self.path.startswith("/api/v2/dags/monitor_a")
        return self._send(200, {"dag_id": "monitor_a"}) if known else self._send(404, {"detail": "no such DAG"})

    def _send(self, status: int, document: Any) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Path]:
    """The file that describes a running Airflow."""
    Airflow.requests = []
    server = HTTPServer(("127.0.0.1", 0), Airflow)
    thread = Thread(target=server.serve_forever)
    thread.start()
    file = tmp_path / "api.json"
    url = f"http://127.0.0.1:{server.server_port}"
    file.write_text(json.dumps({"url": url, "user": "admin", "password": "secret"}))
    yield file
    server.shutdown()
    thread.join()
    server.server_close()


def invoke(file: Path, method: str, path: str, **more: Any) -> tuple[int, str, dict[str, Any]]:
    """Return HTTP status, error code and document of MWAA's answer."""
    request = {"Method": method, "Path": path, **more}
    status, headers, body = airflow.invoke(file, layout.AIRFLOW, request)
    return status, headers.get("x-amzn-errortype", ""), json.loads(body)


def test_a_request_reaches_airflow_with_its_login(api: Path) -> None:
    answer = {"RestApiStatusCode": 200, "RestApiResponse": {"dag_id": "monitor_a"}}
    assert invoke(api, "GET", "/dags/monitor_a") == (200, "", answer)
    assert invoke(api, "POST", "/dags/monitor_a/dagRuns", Body={"logical_date": None})[2] == answer
    assert Airflow.requests[1] == ("GET", "/api/v2/dags/monitor_a", None)
    assert Airflow.requests[3] == ("POST", "/api/v2/dags/monitor_a/dagRuns", {"logical_date": None})


def test_without_a_password_airflow_signs_in_everybody(api: Path) -> None:
    api.write_text(json.dumps({**json.loads(api.read_text()), "password": ""}))
    assert invoke(api, "GET", "/dags/monitor_a")[0] == 200
    assert Airflow.requests[0] == ("GET", "/auth/token", None)


def test_refusals_of_airflow_are_the_errors_of_mwaa(api: Path) -> None:
    absent = {"RestApiStatusCode": 404, "RestApiResponse": {"detail": "no such DAG"}}
    status, code, document = invoke(api, "GET", "/dags/none")
    assert (status, code) == (400, "RestApiClientException")
    assert document.items() >= absent.items()
    status, code, document = invoke(api, "GET", "/dags/broken")
    assert (status, code, document["RestApiStatusCode"]) == (400, "RestApiServerException", 503)


def test_a_path_has_at_most_64_characters(api: Path) -> None:
    assert invoke(api, "GET", "/dags/monitor_a".ljust(64, "_"))[0] == 200
    assert invoke(api, "GET", "/dags/monitor_a".ljust(65, "_"))[:2] == (400, "ValidationException")


def test_an_airflow_that_does_not_run_or_does_not_answer_is_an_error(api: Path) -> None:
    document = json.loads(api.read_text())
    api.write_text(json.dumps({**document, "password": "wrong"}))
    assert invoke(api, "GET", "/dags/monitor_a")[:2] == (500, "InternalServerException")
    api.write_text(json.dumps({**document, "url": "http://127.0.0.1:9"}))
    assert invoke(api, "GET", "/dags/monitor_a")[:2] == (500, "InternalServerException")
    api.unlink()
    assert invoke(api, "GET", "/dags/monitor_a")[:2] == (404, "ResourceNotFoundException")
    assert airflow.invoke(api, "other", {"Method": "GET", "Path": "/"})[0] == 404


def test_the_call_needs_the_permission_on_a_role_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iam_actions, "extract_resource_arn", iam_actions.extract_resource_arn)
    monkeypatch.setattr(iam_evaluator, "enforce", iam_evaluator.enforce)
    permissions._name_resources_as_aws()
    request = ("POST", "/restapi/local", {}, b"{}", {})
    arn = iam_actions.extract_resource_arn("airflow", *request, "us-east-1", "000000000000")
    assert arn == "arn:aws:airflow:us-east-1:000000000000:role/local/User"
    assert iam_actions.extract_iam_action("airflow", *request) == "airflow:InvokeRestApi"
