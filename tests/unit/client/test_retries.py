"""What a client repeats and what not, over real connections to a server that fails in different ways."""

from __future__ import annotations

import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from types import SimpleNamespace

import httpx
import pytest

from slackwater.aws.clients import Clients, default_session
from slackwater.client import push
from slackwater.client.client import Client
from slackwater.client.resources import Connection
from slackwater.client.sender import RetryBudget, Sender
from slackwater.client.workspace import Workspace
from slackwater.errors import (
    AccessDenied,
    CloudError,
    NotDeployed,
    SlackwaterError,
)
from tests.example_project import example_project
from tests.pauses import record_pauses

pytestmark = pytest.mark.unit

NO_RESPONSE, HALF_A_RESPONSE = "no response", "half a response"
STORED = (202, {"batch_id": "b", "accepted": 1, "duplicates": 0, "rejected": []})
STARTED = (200, {"executionArn": "arn:aws:states:us-east-1:0:execution:m:e", "startDate": 1.0})


class Server:
    """Answers POST requests by a script: a status, a status and a document, or one of the failures above."""

    def __init__(self):
        self.script, self.bodies, self.headers, self.connections, self.closed = [], [], [], 0, Queue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Without it, each response waits 40 ms for an acknowledgement.
            disable_nagle_algorithm = True

            def setup(self):
                super().setup()
                server.connections += 1

            def finish(self):
                super().finish()
                server.closed.put(True)

            def do_POST(self):
                server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                server.headers.append(self.headers)
                answer = server.script.pop(0) if len(server.script) > 1 else server.script[0]
                if answer == NO_RESPONSE:
                    self.close_connection = True
                    return
                status, document = answer if isinstance(answer, tuple) else (answer, {})
                body = json.dumps(document).encode()
                self.send_response_only(200 if answer == HALF_A_RESPONSE else status)
                self.send_header("content-length", str(len(body) + (answer == HALF_A_RESPONSE)))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = answer == HALF_A_RESPONSE

            def log_message(self, *_):
                pass

        return Handler


@pytest.fixture
def server():
    with Server() as server:
        yield server


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between attempts, which take no time."""
    pauses = record_pauses(monkeypatch, "botocore.endpoint")
    monkeypatch.setattr(push, "Sender", partial(Sender, sleep=pauses.append))
    return pauses


@pytest.fixture
def client(server, pauses, monkeypatch, tmp_path):
    """A client whose API and whose AWS are the server."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    default_session.cache_clear()
    connection = Connection(
        workspace=Workspace(root=tmp_path, project=tmp_path),
        project=example_project(),
        deployment=SimpleNamespace(
            api_url=server.url,
            token_table="tokens",
            run_table="runs",
            pipeline_machine_prefix="arn:aws:states:us-east-1:000000000000:stateMachine:x-",
        ),
        cloud="a server",
        clients=Clients(),
    )
    with Client(correlation_id="c-1", connection=connection) as client:
        vars(client).update(warehouse=None)
        yield client
    default_session.cache_clear()


def push_one(client):
    return client.push("weather", [{"n": 1}], token="secret")


def run_one(client):
    return client.run("daily_delays", "2013-03-08")


def aws_error(status, code):
    return status, {"__type": code, "message": "because"}


@pytest.mark.parametrize("failure", [429, 500, 502, 503, 504, NO_RESPONSE, HALF_A_RESPONSE])
def test_a_push_that_fails_for_a_short_time_is_repeated_after_random_pauses_that_grow(server, client, pauses, failure):
    server.script = [failure, failure, STORED]
    assert push_one(client).accepted == 1
    assert len(server.bodies) == 3
    assert len(set(server.bodies)) == 1
    assert {headers["x-correlation-id"] for headers in server.headers} == {"c-1"}
    assert len(pauses) == 2
    assert all(0 <= pause <= 0.5 * 2**number for number, pause in enumerate(pauses))


@pytest.mark.parametrize(
    "failure",
    [
        500,
        502,
        503,
        504,
        NO_RESPONSE,
        aws_error(400, "ThrottlingException"),
        aws_error(429, "TooManyRequestsException"),
    ],
    ids=str,
)
def test_a_start_that_fails_for_a_short_time_is_repeated_under_the_same_name(server, client, pauses, failure):
    server.script = [failure, failure, STARTED]
    assert run_one(client).execution == STARTED[1]["executionArn"]
    requests = [json.loads(body) for body in server.bodies]
    assert requests == [requests[0]] * 3
    assert requests[0]["name"].startswith("2013-03-08-c-1-")
    assert json.loads(requests[0]["input"])["correlation_id"] == "c-1"
    assert len(pauses) == 2


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (aws_error(400, "AccessDeniedException"), AccessDenied),
        (aws_error(403, "UnrecognizedClientException"), CloudError),
        (aws_error(400, "ValidationException"), CloudError),
        (aws_error(400, "StateMachineDoesNotExist"), NotDeployed),
    ],
)
def test_a_start_that_is_refused_is_not_repeated(server, client, pauses, failure, error):
    server.script = [failure, STARTED]
    with pytest.raises(error):
        run_one(client)
    assert (len(server.bodies), pauses) == (1, [])


@pytest.mark.parametrize(
    ("call", "retries", "attempts"), [(push_one, 10, 5), (run_one, 100, 6)], ids=["the API", "AWS"]
)
def test_an_outage_does_not_multiply_the_load(server, client, call, retries, attempts):
    """The first calls get all of their attempts, and in the end each gets one."""
    server.script, counts = [503], []
    for _ in range(25):
        before = len(server.bodies)
        with pytest.raises(SlackwaterError):
            call(client)
        counts.append(len(server.bodies) - before)
    assert counts[0] == attempts
    assert counts[-3:] == [1] * 3
    assert sum(counts) <= len(counts) + retries


def test_ten_requests_that_succeed_allow_one_retry():
    budget = RetryBudget()
    assert [budget.take() for _ in range(12)] == [True] * 10 + [False] * 2
    for _ in range(11):
        budget.succeeded()
    assert [budget.take() for _ in range(2)] == [True, False]
    for _ in range(1000):
        budget.succeeded()
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]


@pytest.mark.parametrize(("call", "answer"), [(push_one, STORED), (run_one, STARTED)])
def test_calls_share_a_connection_that_is_closed_with_the_client(server, client, call, answer):
    server.script = [answer]
    for _ in range(3):
        call(client)
    assert server.connections == 1
    assert server.closed.empty()
    client.close()
    assert server.closed.get(timeout=60)


def test_connecting_may_take_5_seconds_and_reading_300(client):
    config = client.connection.clients("stepfunctions").meta.config
    assert (config.connect_timeout, config.read_timeout) == (5, 300)
    assert client.http.timeout == httpx.Timeout(300, connect=5)
