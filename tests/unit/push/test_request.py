"""The API, and the function that it calls."""

from __future__ import annotations

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
)
from slackwater.receiver.event_counts import EventCount
from tests.fakes_receiver import (
    RECEIVED,
    Crash,
    MemoryTokens,
    a_source,
)
from tests.pushing import SOURCE, FunctionContext, Setup, call_function, event

pytestmark = pytest.mark.unit


LINE = json.dumps(event()).encode()
SOURCES = SOURCE, a_source(source="others"), a_source(source="pulled", push=None)
TOKENS = MemoryTokens({"good": ["things"], "all": ["*"]})


class TestApi:
    def test_accepted_events_are_counted_in_the_response(self):
        answer = Setup().post(event(), 7)
        assert answer.status == 202
        body = answer.body
        assert set(body) == {"batch_id", "accepted", "duplicates", "rejected"}
        assert (body["accepted"], body["duplicates"]) == (1, 0)
        assert body["rejected"] == [{"index": 1, "reason": "an event is a JSON object, not a number (7)"}]

    def test_fields_that_the_definition_does_not_list_are_named(self):
        setup = Setup()
        events = [event(), event(id="b", triage=1), event(id="c", insurance={"no": 2}, triage=3), {"at": "x", "no": 1}]
        answer = setup.post(*events)
        assert (answer.body["accepted"], answer.body["unknown_fields"]) == (3, ["triage", "insurance"])
        many = {f"field{n}" + "x" * 50: n for n in range(11)}
        names = setup.post(event(id="d", **many)).body["unknown_fields"]
        assert names == [name[:40] for name in many][:10]
        assert "unknown_fields" not in setup.post(event(id="e")).body

    def test_a_few_old_events_are_counted_and_an_archive_is_not(self):
        setup, old = Setup(), "1970-01-21T00:00:00Z"
        assert "old_events" not in setup.post(event(id="a"), event(id="b")).body
        answer = setup.post(event(id="c"), event(id="d"), event(id="e", at=old))
        assert answer.body["old_events"] == {"events": 1, "first": "1970-01-21", "last": "1970-01-21"}
        assert "old_events" not in setup.post(event(id="f"), event(id="g", at=old)).body

    @pytest.mark.parametrize(
        ("body", "options", "status", "code"),
        [
            (b"{}", {"authorization": ""}, 401, "unauthorized"),
            (b"{}", {"authorization": "Bearer wrong"}, 401, "unauthorized"),
            (b"{}", {"authorization": "Bearer wrong", "source": "nowhere"}, 401, "unauthorized"),
            (b"{}", {"authorization": "Basic good"}, 401, "unauthorized"),
            (b"{}", {"authorization": "Bearer "}, 401, "unauthorized"),
            (b"{}", {"source": "nowhere"}, 404, "no_such_source"),
            (b"{}", {"source": "others"}, 403, "forbidden"),
            (b"{}", {"source": "pulled"}, 403, "forbidden"),
            (b"{}", {"source": "pulled", "authorization": "Bearer all"}, 404, "no_such_source"),
            (b"", {}, 400, "unreadable_body"),
            (b"hello", {}, 400, "unreadable_body"),
            (b"{}", {"content_type": "text/csv"}, 415, "unsupported_media"),
            (b"{}", {"content_encoding": "br"}, 415, "unsupported_media"),
            (b"[1]" * 10, {"content_type": "text/csv"}, 415, "unsupported_media"),
        ],
    )
    def test_an_invalid_request_is_refused_and_stores_nothing(self, body, options, status, code):
        setup = Setup(*SOURCES, tokens=TOKENS)
        answer = setup.post(body=body, **options)
        assert answer.status == status
        body_json = answer.body
        assert set(body_json) == {"error"}
        assert body_json["error"]["code"] == code
        assert body_json["error"]["message"]
        assert setup.store.objects == {}

    def test_too_large_bodies_are_refused(self):
        assert Setup(body_bytes=100).post(body=b"[" + b" " * 100).status == 413
        assert Setup().post(body=b"1\n" * 10_001).status == 413
        bomb = pa.compress(b"\n" * 40_000_000, codec="zstd", asbytes=True)
        answer = Setup().post(body=bomb, content_encoding="zstd")
        assert (answer.status, answer.body["error"]["code"]) == (413, "too_large")

    def test_a_batch_without_valid_events_is_refused(self):
        setup = Setup()
        answer = setup.post({"id": "x"}, {"id": "y"})
        assert answer.status == 422
        assert answer.body["error"]["code"] == "all_rejected"
        assert len(answer.body["rejected"]) == 2
        assert len(setup.reject_records()) == 2

    def test_an_empty_array_is_accepted(self):
        answer = Setup().post(body=b"[]", content_type="application/json")
        assert (answer.status, answer.body["accepted"], answer.body["rejected"]) == (202, 0, [])

    def test_revoked_and_expired_tokens_are_refused(self):
        soon = RECEIVED + timedelta(seconds=1)
        for changes, status in (({"revoked": True}, 401), ({"expires_at": RECEIVED}, 401), ({"expires_at": soon}, 202)):
            setup = Setup(tokens=MemoryTokens({"good": ["*"]}, **changes))
            assert setup.post(body=b"[]", content_type="application/json", authorization="bearer good").status == status


class TestHandler:
    @pytest.fixture
    def handler(self, monkeypatch, use_api):
        self.setup = Setup()
        self.logs = io.StringIO()
        monkeypatch.setattr(receive_events.logger.registered_handler, "stream", self.logs)
        use_api(self.setup.api)
        return receive_events.handler

    def test_the_response_has_a_status_and_a_correlation_id(self, handler):
        answer = call_function(LINE, **{"X-Correlation-Id": "mine"})
        assert answer["statusCode"] == 202
        assert answer["headers"] == {"content-type": "application/json", "x-correlation-id": "mine"}
        logged = [json.loads(line) for line in self.logs.getvalue().splitlines()]
        assert [line["correlation_id"] for line in logged] == ["mine"]
        assert logged[0]["accepted"] == 1

    def test_the_events_of_a_batch_are_added_to_the_counts_of_its_source(self, handler, event_counts):
        call_function(LINE + b"\n{}")
        call_function(b"")
        assert [list(hours.values()) for hours in event_counts.by_source.values()] == [[EventCount(2, 1)]]

    @pytest.mark.parametrize("encoding", ["gzip", " GZIP ", "deflate", "identity"])
    def test_a_body_that_api_gateway_has_expanded_is_read_whatever_its_header_says(self, handler, encoding):
        first = json.loads(call_function(LINE)["body"])
        again = call_function(LINE, **{"Content-Encoding": encoding})
        assert json.loads(again["body"]) == {**first, "accepted": 0, "duplicates": 1}

    def test_a_gzipped_body_that_api_gateway_has_not_expanded_is_the_same_batch(self, handler):
        first = json.loads(call_function(LINE)["body"])
        again = call_function(gzip.compress(LINE), **{"Content-Encoding": "gzip"})
        assert json.loads(again["body"]) == {**first, "accepted": 0, "duplicates": 1}

    def test_a_header_that_is_sent_twice_has_both_values(self, handler):
        twice = {"Authorization": ["Bearer bad", "Bearer good"]}
        assert call_function(LINE, **twice)["statusCode"] == 401

    def test_a_body_without_a_media_type_may_come_as_a_string(self, handler):
        request = {"multiValueHeaders": {"Authorization": ["Bearer good"]}, "body": "{}", "isBase64Encoded": False}
        context = {
            "pathParameters": {"source": "things"},
            "resource": "/",
            "requestContext": {"requestId": "request-1"},
        }
        assert handler({**request, **context}, FunctionContext())["statusCode"] == 415

    def test_a_request_without_headers_or_body_is_answered(self, handler):
        request = {"multiValueHeaders": None, "headers": None, "body": None, "isBase64Encoded": False}
        context = {
            "pathParameters": {"source": "things"},
            "resource": "/",
            "requestContext": {"requestId": "request-1"},
        }
        answer = handler({**request, **context}, FunctionContext())
        assert (answer["statusCode"], answer["headers"]["x-correlation-id"]) == (401, "request-1")

    def test_a_request_without_a_body_is_refused(self, handler):
        answer = call_function(b"")
        assert answer["statusCode"] == 400
        assert answer["headers"]["x-correlation-id"] == "request-1"

    def test_a_failure_of_the_cloud_requests_a_retry(self, handler):
        self.setup.fuse.left = 0
        answer = call_function(LINE)
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
                    answer = call_function(LINE)
                    assert time.monotonic() - start < seconds_left
                    assert answer["statusCode"] == 503
                    assert json.loads(answer["body"])["error"]["code"] == "try_again"
                assert len(asked) == 1
                assert "no time left" in self.logs.getvalue()
            finally:
                answers.set()
        answer = call_function(LINE)
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
        answer = call_function(LINE)
        assert answer["statusCode"] == status
        assert json.loads(answer["body"])["error"]["code"] == code
        assert "why" in self.logs.getvalue()
        assert "why" not in answer["body"]
