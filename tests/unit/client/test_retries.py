"""What a client repeats and what not, over real connections to a server that fails in different ways."""

from __future__ import annotations

import json
from functools import partial
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
from tests.fakes_web import Reply
from tests.pauses import record_pauses

pytestmark = pytest.mark.unit

NO_RESPONSE, HALF_A_RESPONSE = Reply(0), Reply(200, b"{}", {"Content-Length": "3"}, sent=2)
STORED = (202, {"batch_id": "b", "accepted": 1, "duplicates": 0, "rejected": []})
STARTED = (200, {"executionArn": "arn:aws:states:us-east-1:0:execution:m:e", "startDate": 1.0})


def script(web, *answers):
    """Let the server, which is the API and AWS, answer by a script: a status, a status and a document, or a reply."""
    replies = []
    for answer in answers:
        status, document = answer if isinstance(answer, tuple) else (answer, {})
        replies.append(answer if isinstance(answer, Reply) else Reply(status, json.dumps(document).encode()))
    for path in ("/", "/v1/sources/weather/events"):
        web.on(path, *replies)


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between attempts, which take no time."""
    pauses = record_pauses(monkeypatch, "botocore.endpoint")
    monkeypatch.setattr(push, "Sender", partial(Sender, sleep=pauses.append))
    return pauses


@pytest.fixture
def client(web, pauses, monkeypatch, tmp_path):
    """A client whose API and whose AWS are the web."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", web.url)
    default_session.cache_clear()
    connection = Connection(
        workspace=Workspace(root=tmp_path, project=tmp_path),
        project=example_project(),
        deployment=SimpleNamespace(
            api_url=web.url,
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
def test_a_push_that_fails_for_a_short_time_is_repeated_after_random_pauses_that_grow(web, client, pauses, failure):
    script(web, failure, failure, STORED)
    assert push_one(client).accepted == 1
    assert len(web.requests) == 3
    assert len({request.body for request in web.requests}) == 1
    assert {request.headers["x-correlation-id"] for request in web.requests} == {"c-1"}
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
def test_a_start_that_fails_for_a_short_time_is_repeated_under_the_same_name(web, client, pauses, failure):
    script(web, failure, failure, STARTED)
    assert run_one(client).execution == STARTED[1]["executionArn"]
    requests = [json.loads(request.body) for request in web.requests]
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
def test_a_start_that_is_refused_is_not_repeated(web, client, pauses, failure, error):
    script(web, failure, STARTED)
    with pytest.raises(error):
        run_one(client)
    assert (len(web.requests), pauses) == (1, [])


@pytest.mark.parametrize(
    ("call", "retries", "attempts"), [(push_one, 10, 5), (run_one, 100, 6)], ids=["the API", "AWS"]
)
def test_an_outage_does_not_multiply_the_load(web, client, call, retries, attempts):
    """The first calls get all of their attempts, and in the end each gets one."""
    script(web, 503)
    counts = []
    for _ in range(25):
        before = len(web.requests)
        with pytest.raises(SlackwaterError):
            call(client)
        counts.append(len(web.requests) - before)
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
def test_calls_share_a_connection_that_is_closed_with_the_client(web, client, call, answer):
    script(web, answer)
    for _ in range(3):
        call(client)
    assert web.connections == 1
    assert web.closed.empty()
    client.close()
    assert web.closed.get(timeout=60)


def test_connecting_may_take_5_seconds_and_reading_300(client):
    config = client.connection.clients("stepfunctions").meta.config
    assert (config.connect_timeout, config.read_timeout) == (5, 300)
    assert client.http.timeout == httpx.Timeout(300, connect=5)
