"""Sending batches: retries, error responses, totals, tokens."""

from __future__ import annotations

import gzip
import json
import stat
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest

from slackwater.aws.deployment import Deployment
from slackwater.client.push import TokenFile
from slackwater.client.sender import PushBlocked, PushTotals, Sender
from slackwater.errors import AccessDenied, CloudError, DataError, InputError, Throttled, Unavailable, UnknownName
from slackwater.sources.definition import PushConfig
from tests.example_project import example_project
from tests.fakes_cli import a_client

pytestmark = pytest.mark.unit

BATCHES = [[b'{"n":0}', b'{"n":1}'], [b'{"n":2}']]


class Api:
    """Returns its responses in order, and records the requests."""

    def __init__(self, *responses):
        self.responses = list(responses)
        self.requests = []

    def __call__(self, request):
        self.requests.append(request)
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response


def accepted(count, *, duplicates=0, rejected=(), status=202):
    body = {"batch_id": "b", "accepted": count, "duplicates": duplicates, "rejected": list(rejected)}
    return httpx.Response(status, json=body)


def send(*responses, batches=BATCHES):
    api, waits = Api(*responses), []
    with httpx.Client(transport=httpx.MockTransport(api)) as http:
        sender = Sender(http=http, api="http://api/", token="secret", correlation_id="c", sleep=waits.append)
        totals = list(sender.send("weather", iter(batches)))
    return totals[-1], api.requests, waits


def test_batches_are_posted_as_gzipped_ndjson_with_the_token():
    totals, requests, waits = send(accepted(2), accepted(0, duplicates=1))
    assert [str(request.url) for request in requests] == ["http://api/v1/sources/weather/events"] * 2
    assert requests[0].headers["authorization"] == "Bearer secret"
    assert [request.headers["x-correlation-id"] for request in requests] == ["c", "c"]
    assert requests[0].headers["content-type"] == "application/x-ndjson"
    assert gzip.decompress(requests[0].content) == b'{"n":0}\n{"n":1}\n'
    assert totals == PushTotals("weather", "c", events=3, batches=2, accepted=2, duplicates=1)
    assert totals.ok
    assert waits == []


def test_the_unknown_fields_of_all_batches_are_named_once():
    answers = [httpx.Response(202, json={"accepted": 1, "unknown_fields": names}) for names in (["b", "a"], ["a", "c"])]
    assert send(*answers)[0].unknown_fields == ["b", "a", "c"]


def test_rejected_events_have_their_index_in_the_file():
    totals, _, _ = send(accepted(2), accepted(0, rejected=[{"index": 0, "reason": "no time"}], status=422))
    assert totals.rejected == [{"index": 2, "reason": "no time"}]
    assert totals.ok


def test_a_push_without_an_accepted_event_is_not_ok():
    totals, _, _ = send(accepted(0, rejected=[{"index": 0, "reason": "no time"}], status=422), batches=[[b"{}"]])
    assert not totals.ok


LIMITED = {"error": {"code": "too_many_requests", "message": "wait for a minute"}}


def test_after_the_answer_of_aws_waf_a_batch_waits_for_as_long_as_requests_count():
    limited = httpx.Response(429, json=LIMITED)
    totals, requests, waits = send(httpx.Response(503), limited, limited, accepted(1), batches=[[b"{}"]])
    assert totals.accepted == 1
    assert {request.content for request in requests} == {requests[0].content}
    assert [60 <= wait <= 70 for wait in waits] == [False, True, True]
    assert waits[0] <= 10


def test_a_client_that_aws_waf_keeps_limiting_gives_up_with_its_message():
    api, waits = Api(*[httpx.Response(429, json=LIMITED)] * 9), []
    with httpx.Client(transport=httpx.MockTransport(api)) as http:
        sender = Sender(http=http, api="http://api/", token="secret", correlation_id="c", sleep=waits.append)
        with pytest.raises(Throttled, match=r"^the API answered 429: wait for a minute$"):
            list(sender.send("weather", iter(BATCHES)))
    assert len(waits) == 4
    assert len(api.requests) == 5


def test_a_long_push_waits_for_aws_waf_as_often_as_it_has_to():
    limited = [httpx.Response(429, json=LIMITED), accepted(1), accepted(1)]
    totals, requests, waits = send(*limited * 30, batches=[[b"{}"]] * 60)
    assert (totals.batches, totals.accepted, len(requests)) == (60, 60, 90)
    assert len(waits) == 30
    assert min(waits) >= 60


def test_the_number_of_attempts_is_bounded():
    with pytest.raises(Throttled, match="the API answered 429"):
        send(*[httpx.Response(429)] * 9)
    with pytest.raises(Unavailable, match="the API answered 503"):
        send(*[httpx.Response(503)] * 9)
    with pytest.raises(Unavailable, match="http://api/ does not answer: refused"):
        send(*[httpx.ConnectError("refused")] * 9)


def test_the_error_of_a_local_cloud_that_does_not_run_names_the_remedy():
    api = Api(*[httpx.ConnectError("refused")] * 9)
    with httpx.Client(transport=httpx.MockTransport(api)) as http:
        url = "http://127.0.0.1:4566/_aws/execute-api/a1/$default"
        sender = Sender(http=http, api=url, token="secret", correlation_id="c", sleep=lambda _: None)
        with pytest.raises(Unavailable) as raised:
            list(sender.send("weather", iter(BATCHES)))
    assert str(raised.value) == (
        "the local cloud at http://127.0.0.1:4566 does not answer: start it with `slackwater local up`"
    )


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, DataError),
        (401, AccessDenied),
        (403, AccessDenied),
        (404, UnknownName),
        (413, DataError),
        (415, DataError),
        (418, CloudError),
        (501, CloudError),
    ],
)
def test_an_error_response_is_not_retried_and_gives_its_message(status, error):
    refused = httpx.Response(status, json={"error": {"code": "x", "message": "because"}})
    with pytest.raises(error, match=f"^the API answered {status}: because$"):
        send(refused, accepted(1), batches=[[b"{}"]])


class HoursApi:
    """Accepts bodies of at most `max_hours` hours, recognises repeated bodies, and rejects events without an hour."""

    def __init__(self, max_hours):
        self.max_hours, self.bodies, self.accepted_numbers = max_hours, [], []

    def __call__(self, request):
        events = [json.loads(line) for line in gzip.decompress(request.content).splitlines()]
        hours = {event["hour"] for event in events if "hour" in event}
        if len(hours) > self.max_hours:
            return httpx.Response(413, json={"error": {"code": "too_large", "message": f"of {len(hours)} hours"}})
        repeated = request.content in self.bodies
        self.bodies.append(request.content)
        count = sum("hour" in event for event in events)
        self.accepted_numbers += [] if repeated else [event["n"] for event in events if "hour" in event]
        rejected = [{"index": n, "reason": "no hour"} for n, event in enumerate(events) if "hour" not in event]
        return accepted(0 if repeated else count, duplicates=count if repeated else 0, rejected=rejected)

    def push(self, events, size):
        batches = [events[start : start + size] for start in range(0, len(events), size)]
        with httpx.Client(transport=httpx.MockTransport(self)) as http:
            sender = Sender(http=http, api="http://api", token="secret", correlation_id="c")
            return [replace(totals) for totals in sender.send("weather", iter(batches))]


def test_a_batch_that_is_too_large_is_sent_in_halves():
    hours = [{"n": n} if n % 7 == 3 else {"n": n, "hour": n} for n in range(101)]
    events = [json.dumps(event).encode() for event in hours]
    api = HoursApi(10)
    totals = api.push(events, 60)
    assert [now.events for now in totals] == sorted({now.events for now in totals})
    last = totals[-1]
    bad = [n for n in range(101) if n % 7 == 3]
    assert (last.events, last.accepted, last.duplicates) == (101, 101 - len(bad), 0)
    assert last.batches == len(totals) == len(api.bodies)
    assert last.rejected == [{"index": n, "reason": "no hour"} for n in bad]
    assert api.accepted_numbers == [n for n in range(101) if n not in bad]
    sent = list(api.bodies)
    repeated_totals = api.push(events, 60)[-1]
    assert (repeated_totals.events, repeated_totals.accepted, repeated_totals.duplicates) == (101, 0, 101 - len(bad))
    assert api.bodies == sent * 2


def test_a_single_event_that_is_too_large_is_refused_and_those_before_it_stay():
    api = HoursApi(0)
    with pytest.raises(DataError, match=r"^the API answered 413: of 1 hours$"):
        api.push([b'{"n":0}', b'{"n":1}', b'{"n":2,"hour":2}', b'{"n":3}'], 4)
    assert [gzip.decompress(body) for body in api.bodies] == [b'{"n":0}\n{"n":1}\n']


BLOCKED = (
    httpx.Response(403, json={"message": "Forbidden"}),
    httpx.Response(403, json={"message": "Missing Authentication Token"}),
    httpx.Response(403, json={"error": {"code": "blocked", "message": "Forbidden"}}),
    httpx.Response(403, text="<html>Forbidden</html>"),
    httpx.Response(403, json=[]),
)


@pytest.mark.parametrize("response", BLOCKED, ids=lambda response: response.text)
def test_a_request_that_the_gateway_blocks_is_sent_once_and_the_error_says_why(response):
    with pytest.raises(
        PushBlocked, match=r"^the API answered 403: .*: the request did not reach .*WAF.*http://api/ is"
    ):
        send(response, accepted(2))


def test_the_error_message_of_the_gateway_is_reported():
    with pytest.raises(UnknownName, match="Not Found"):
        send(httpx.Response(404, json={"message": "Not Found"}))
    with pytest.raises(CloudError, match="<html>"):
        send(httpx.Response(302, text="<html>"))


def test_a_token_is_created_once_for_each_api_and_only_its_owner_can_read_it(tmp_path):
    tokens, created = TokenFile(tmp_path / ".slackwater" / "token"), iter(["one", "two", "three"])
    for api, token in (("http://a", "one"), ("http://a", "one"), ("http://b", "two"), ("http://a", "one")):
        assert tokens.get_or_create(api, lambda: next(created)) == token
    tokens.save("http://a", "three")
    assert TokenFile(tokens.path).token("http://a") == "three"
    assert json.loads(tokens.path.read_text()) == {"http://a": "three", "http://b": "two"}
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    assert [path.name for path in tokens.path.parent.iterdir()] == ["token"]


def test_a_broken_token_file_says_what_to_do(tmp_path):
    (tmp_path / "token").write_text("{")
    with pytest.raises(InputError, match="remove it"):
        TokenFile(tmp_path / "token").token("http://a")


@pytest.fixture
def client(tmp_path):
    """A client of the example that numbers the tokens it creates, and an API that accepts the second token only."""
    deployment = Deployment.model_construct(api_url="http://api")
    created = []

    def create(partner, sources, *, instead_of_oldest):
        assert instead_of_oldest
        created.append((partner, sources))
        return SimpleNamespace(plain=f"token{len(created)}")

    def respond(request):
        if request.headers["authorization"] != "Bearer token2":
            return httpx.Response(401, json={"error": {"code": "unauthorized", "message": "no"}})
        return accepted(len(gzip.decompress(request.content).splitlines()))

    with httpx.Client(transport=httpx.MockTransport(respond)) as http:
        tokens = SimpleNamespace(create=create)
        yield a_client(example_project(), deployment=deployment, root=tmp_path, tokens=tokens, http=http), created


def test_a_saved_token_that_is_refused_is_replaced_once(client):
    client, created = client
    assert client.push("weather", [b"{}"] * 3).accepted == 3
    assert created == [("operator", ["weather"])] * 2
    assert client.push("weather", [b"{}"] * 2).accepted == 2
    assert len(created) == 2


def test_a_request_that_the_gateway_blocks_creates_no_other_token(client):
    client, created = client
    blocked = httpx.MockTransport(lambda _: httpx.Response(403, json={"message": "Forbidden"}))
    with httpx.Client(transport=blocked) as client.http, pytest.raises(PushBlocked):
        client.push("weather", [b"{}"])
    assert len(created) == 1


def test_a_token_from_the_caller_is_used_and_not_saved(client):
    client, created = client
    with pytest.raises(AccessDenied):
        client.push("weather", [b"{}"], token="wrong")
    assert client.push("weather", [b"{}"], token="token2").accepted == 1
    assert created == []
    assert not (client.connection.workspace.state / "token").exists()


def test_max_events_of_the_source_limits_a_batch(client):
    client, _ = client
    batches = []
    client.push("weather", [b"{}"] * 10_001, token="token2", on_progress=lambda now: batches.append(now.events))
    assert batches == [5_000, 10_000, 10_001]
    source = client.project.sources["weather"]
    client.project.sources["weather"] = source.model_copy(update={"push": PushConfig(max_events=4_000)})
    batches.clear()
    client.push("weather", [b"{}"] * 5_000, token="token2", on_progress=lambda now: batches.append(now.events))
    assert batches == [4_000, 5_000]
