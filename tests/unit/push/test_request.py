"""The API, and the function that it calls."""

from __future__ import annotations

import base64
import gzip
import io
import json
import threading
import time
from datetime import timedelta

import pyarrow as pa
import pytest

from lambdas import receive_events
from slackwater.errors import (
    AccessDenied,
    CloudError,
    DataError,
    DefinitionError,
    PartnerError,
    Throttled,
    Unavailable,
    UnknownName,
)
from slackwater.receiver.event_counts import EventCount
from slackwater.receiver.push.request import EventsApi
from slackwater.sources.definition import Source
from tests.fakes_receiver import (
    RECEIVED,
    Crash,
    MemoryBuffer,
    MemoryTokens,
    a_source,
)
from tests.pushing import NDJSON, SOURCE, Answer, FunctionContext, Setup, event

pytestmark = pytest.mark.unit


class TestApi:
    def api(self, setup: Setup) -> EventsApi:
        sources = {
            "things": SOURCE,
            "others": a_source(source="others"),
            "pulled": a_source(source="pulled", push=None),
        }

        def source(name: str) -> Source:
            if name not in sources:
                raise UnknownName(name)
            return sources[name]

        tokens = MemoryTokens({"good": ["things"], "all": ["*"]})
        return EventsApi(tokens=tokens, source=source, receiver=setup.receiver, queue=MemoryBuffer(), now=setup.clock)

    def post(
        self,
        body: bytes,
        *,
        source: str = "things",
        token: str | None = "good",  # noqa: S107
        setup: Setup | None = None,
        **headers: str,
    ):
        request_headers = {"content-type": NDJSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if token:
            request_headers["authorization"] = f"Bearer {token}"
        return Answer(*self.api(setup or Setup()).post(source, request_headers, body))

    def test_accepted_events_are_counted_in_the_response(self):
        answer = self.post(f"{json.dumps(event())}\n7".encode())
        assert answer.status == 202
        body = answer.body
        assert set(body) == {"batch_id", "accepted", "duplicates", "rejected"}
        assert (body["accepted"], body["duplicates"]) == (1, 0)
        assert body["rejected"] == [{"index": 1, "reason": "an event is a JSON object, not a number (7)"}]

    @pytest.mark.parametrize(
        ("body", "options", "status", "code"),
        [
            (b"{}", {"token": None}, 401, "unauthorized"),
            (b"{}", {"token": "wrong"}, 401, "unauthorized"),
            (b"{}", {"token": "wrong", "source": "nowhere"}, 401, "unauthorized"),
            (b"{}", {"token": None, "authorization": "Basic good"}, 401, "unauthorized"),
            (b"{}", {"token": None, "authorization": "Bearer "}, 401, "unauthorized"),
            (b"{}", {"source": "nowhere"}, 404, "no_such_source"),
            (b"{}", {"source": "others"}, 403, "forbidden"),
            (b"{}", {"source": "pulled"}, 403, "forbidden"),
            (b"{}", {"source": "pulled", "token": "all"}, 404, "no_such_source"),
            (b"", {}, 400, "unreadable_body"),
            (b"hello", {}, 400, "unreadable_body"),
            (b"{}", {"content_type": "text/csv"}, 415, "unsupported_media"),
            (b"{}", {"content_encoding": "br"}, 415, "unsupported_media"),
            (b"[1]" * 10, {"content_type": "text/csv"}, 415, "unsupported_media"),
        ],
    )
    def test_an_invalid_request_is_refused_and_stores_nothing(self, body, options, status, code):
        setup = Setup()
        answer = self.post(body, setup=setup, **options)
        assert answer.status == status
        body_json = answer.body
        assert set(body_json) == {"error"}
        assert body_json["error"]["code"] == code
        assert body_json["error"]["message"]
        assert setup.store.objects == {}

    def test_too_large_bodies_are_refused(self):
        assert self.post(b"[" + b" " * 100, setup=Setup(body_bytes=100)).status == 413
        assert self.post(b"1\n" * 10_001).status == 413
        bomb = pa.compress(b"\n" * 40_000_000, codec="zstd", asbytes=True)
        answer = self.post(bomb, content_encoding="zstd")
        assert (answer.status, answer.body["error"]["code"]) == (413, "too_large")

    def test_a_batch_without_valid_events_is_refused(self):
        setup = Setup()
        answer = self.post(b'{"id":"x"}\n{"id":"y"}', setup=setup)
        assert answer.status == 422
        assert answer.body["error"]["code"] == "all_rejected"
        assert len(answer.body["rejected"]) == 2
        assert len(setup.reject_records()) == 2

    @pytest.mark.parametrize("codec", ["gzip", "zstd"])
    def test_compressed_bodies_are_accepted(self, codec):
        body = pa.compress(json.dumps(event()).encode(), codec=codec, asbytes=True)
        assert self.post(body, content_encoding=codec).body["accepted"] == 1
        assert self.post(body[:-1], content_encoding=codec).status == 400

    def test_an_empty_array_is_accepted(self):
        answer = self.post(b"[]", content_type="application/json")
        assert (answer.status, answer.body["accepted"], answer.body["rejected"]) == (202, 0, [])

    def test_revoked_and_expired_tokens_are_refused(self):
        setup = Setup()
        for changes in ({"revoked": True}, {"expires_at": RECEIVED}):
            api = EventsApi(
                tokens=MemoryTokens({"old": ["*"]}, **changes),
                source=lambda _: SOURCE,
                receiver=setup.receiver,
                queue=MemoryBuffer(),
                now=setup.clock,
            )
            assert api.post("things", {"authorization": "bearer old"}, b"[]")[0] == 401
        later = MemoryTokens({"new": ["*"]}, expires_at=RECEIVED + timedelta(seconds=1))
        api = EventsApi(
            tokens=later, source=lambda _: SOURCE, receiver=setup.receiver, queue=MemoryBuffer(), now=setup.clock
        )
        headers = {"authorization": "bearer new", "content-type": "application/json"}
        assert api.post("things", headers, b"[]")[0] == 202


class TestHandler:
    @pytest.fixture
    def handler(self, monkeypatch, use_api):
        self.setup = Setup()
        self.logs = io.StringIO()
        monkeypatch.setattr(receive_events.logger.registered_handler, "stream", self.logs)
        use_api(TestApi().api(self.setup))
        return receive_events.handler

    def call(self, handler, body, **headers):
        """Call the handler as API Gateway does: with `binaryMediaTypes: */*`, each body is in Base64."""
        sent = {"Content-Type": [NDJSON], "Authorization": ["Bearer good"]}
        sent |= {name: [values] if isinstance(values, str) else values for name, values in headers.items()}
        content = body.encode() if isinstance(body, str) else body
        event = {
            "resource": "/v1/sources/{source}/events",
            "path": "/v1/sources/things/events",
            "httpMethod": "POST",
            "headers": {name: values[-1] for name, values in sent.items()},
            "multiValueHeaders": sent,
            "queryStringParameters": None,
            "multiValueQueryStringParameters": None,
            "pathParameters": {"source": "things"},
            "stageVariables": None,
            "requestContext": {"requestId": "request-1", "stage": "push", "identity": {"sourceIp": "192.0.2.1"}},
            "body": base64.b64encode(content).decode() if content else None,
            "isBase64Encoded": bool(content),
        }
        return handler(event, FunctionContext())

    def test_the_response_has_a_status_and_a_correlation_id(self, handler):
        answer = self.call(handler, json.dumps(event()), **{"X-Correlation-Id": "mine"})
        assert answer["statusCode"] == 202
        assert answer["headers"] == {"content-type": "application/json", "x-correlation-id": "mine"}
        logged = [json.loads(line) for line in self.logs.getvalue().splitlines()]
        assert [line["correlation_id"] for line in logged] == ["mine"]
        assert logged[0]["accepted"] == 1

    def test_the_events_of_a_batch_are_added_to_the_counts_of_its_source(self, handler, event_counts):
        self.call(handler, "\n".join(map(json.dumps, (event(), {}))))
        self.call(handler, None)
        assert [list(hours.values()) for hours in event_counts.by_source.values()] == [[EventCount(2, 1)]]

    @pytest.mark.parametrize("encoding", ["gzip", " GZIP ", "deflate", "identity"])
    def test_a_body_that_api_gateway_has_expanded_is_read_whatever_its_header_says(self, handler, encoding):
        line = json.dumps(event())
        first = json.loads(self.call(handler, line)["body"])
        again = self.call(handler, line, **{"Content-Encoding": encoding})
        assert json.loads(again["body"]) == {**first, "accepted": 0, "duplicates": 1}

    def test_a_gzipped_body_that_api_gateway_has_not_expanded_is_the_same_batch(self, handler):
        line = json.dumps(event())
        first = json.loads(self.call(handler, line)["body"])
        again = self.call(handler, gzip.compress(line.encode()), **{"Content-Encoding": "gzip"})
        assert json.loads(again["body"]) == {**first, "accepted": 0, "duplicates": 1}

    def test_a_header_that_is_sent_twice_has_both_values(self, handler):
        twice = {"Authorization": ["Bearer bad", "Bearer good"]}
        assert self.call(handler, json.dumps(event()), **twice)["statusCode"] == 401

    def test_a_body_without_a_media_type_may_come_as_a_string(self, handler):
        request = {"multiValueHeaders": {"Authorization": ["Bearer good"]}, "body": "{}", "isBase64Encoded": False}
        context = {"pathParameters": {"source": "things"}, "requestContext": {"requestId": "request-1"}}
        assert handler({**request, **context}, FunctionContext())["statusCode"] == 415

    def test_a_request_without_headers_or_body_is_answered(self, handler):
        request = {"multiValueHeaders": None, "headers": None, "body": None, "isBase64Encoded": False}
        context = {"pathParameters": {"source": "things"}, "requestContext": {"requestId": "request-1"}}
        answer = handler({**request, **context}, FunctionContext())
        assert (answer["statusCode"], answer["headers"]["x-correlation-id"]) == (401, "request-1")

    def test_a_request_without_a_body_is_refused(self, handler):
        answer = self.call(handler, None)
        assert answer["statusCode"] == 400
        assert answer["headers"]["x-correlation-id"] == "request-1"

    def test_a_failure_of_the_cloud_requests_a_retry(self, handler):
        self.setup.fuse.left = 0
        answer = self.call(handler, json.dumps(event()))
        assert answer["statusCode"] == 503
        assert json.loads(answer["body"])["error"]["code"] == "try_again"
        assert "Crash" in self.logs.getvalue()
        assert issubclass(Crash, CloudError)

    def test_the_function_answers_503_before_its_timeout_whatever_s3_does(self, handler, monkeypatch):
        get, answers, asked = self.setup.store.get, threading.Event(), []

        def hang(uri: str) -> bytes:
            asked.append(uri)
            answers.wait()
            return get(uri)

        seconds_left = receive_events.RESPONSE_SECONDS + 0.2
        with monkeypatch.context() as patch:
            patch.setattr(self.setup.store, "get", hang)
            patch.setattr(FunctionContext, "get_remaining_time_in_millis", lambda _: int(seconds_left * 1000))
            try:
                for _ in range(2):  # the second batch is not begun while the first one is in memory
                    start = time.monotonic()
                    answer = self.call(handler, json.dumps(event()))
                    assert time.monotonic() - start < seconds_left
                    assert answer["statusCode"] == 503
                    assert json.loads(answer["body"])["error"]["code"] == "try_again"
                assert len(asked) == 1
                assert "no time left" in self.logs.getvalue()
            finally:
                answers.set()
        answer = self.call(handler, json.dumps(event()))
        assert (answer["statusCode"], json.loads(answer["body"])["duplicates"]) == (202, 1)
        assert len(self.setup.rows()) == 1

    @pytest.mark.parametrize(
        ("failure", "status", "code"),
        [
            (Throttled, 503, "try_again"),
            (Unavailable, 503, "try_again"),
            (PartnerError, 503, "try_again"),
            (AccessDenied, 501, "internal"),
            (DefinitionError, 501, "internal"),
            (DataError, 501, "internal"),
            (ZeroDivisionError, 501, "internal"),
        ],
    )
    def test_a_failure_that_would_happen_again_has_a_status_that_api_gateway_does_not_use(
        self, handler, monkeypatch, failure, status, code
    ):
        def fail(*_) -> None:
            raise failure("why")

        monkeypatch.setattr(receive_events, "function_resources", fail)
        answer = self.call(handler, json.dumps(event()))
        assert answer["statusCode"] == status
        assert json.loads(answer["body"])["error"]["code"] == code
        assert "why" in self.logs.getvalue()
        assert "why" not in answer["body"]
