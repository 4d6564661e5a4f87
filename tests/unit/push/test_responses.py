"""Every request gets a response that a Lambda function can return."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lambdas import receive_events
from slackwater.receiver.parsing.rejections import quote_name, quote_value, truncate
from slackwater.receiver.push.body import Limits
from slackwater.receiver.push.receive import Receiver
from slackwater.receiver.push.request import EventsApi
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.sources.definition import Source
from tests.fakes_receiver import Clock, MemoryBuffer, MemoryStore, MemoryTokens, a_source
from tests.pushing import FunctionContext

pytestmark = pytest.mark.unit

LARGEST = 5_500_000
"""Bytes of an answer: a Lambda function returns 6 MB at most."""
AT = "2013-03-08T12:00:00Z"


class World:
    """The function over fakes."""

    def __init__(self, source: Source, use_api: Callable[[EventsApi], object]) -> None:
        self.source, self.store, self.queue, clock = source, MemoryStore(), MemoryBuffer(), Clock()
        raw_writer = RawWriter(store=self.store, raw_bucket="raw")
        api = EventsApi(
            tokens=MemoryTokens({"good": ["*"]}),
            source=lambda _: self.source,
            receiver=Receiver(raw_writer=raw_writer, now=clock, limits=Limits()),
            queue=self.queue,
            now=clock,
        )
        use_api(api)

    def post(self, events: list[object], **headers: str) -> dict[str, object]:
        body = "\n".join(map(json.dumps, events))
        request_headers = {
            "authorization": "Bearer good",
            "content-type": "application/x-ndjson",
            "content-encoding": "gzip",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return receive_events.handler(
            {
                "multiValueHeaders": {name: [value] for name, value in request_headers.items()},
                "pathParameters": {"source": "things"},
                "requestContext": {"requestId": "ours"},
                "body": base64.b64encode(gzip.compress(body.encode(), mtime=0)).decode(),
                "isBase64Encoded": True,
            },
            FunctionContext(),
        )


SIGNS = {
    "emoji": "\U0001f30a",
    "control": "\x01",
    "newline": "\n",
    "quote": '"',
    "apostrophe": "'",
    "backslash": "\\",
    "accent": "\u00e9",
    "half": "\ud800",
    "plain": "x",
}


def source_and_rejected_event(sign: str, unknown_fields: str) -> tuple[Source, dict[str, object]]:
    """Return a source with names at or above the length limit, and an event with the longest rejection reason."""
    letters = "abcdefghijkl"
    origins = [letter * 63 if sign == "\ud800" else sign * 61 + letter for letter in letters]
    fields = {
        letter * 63: {"type": "timestamp", "formats": ["epoch_s", "%Y%m%d" + '"' * 100], "from": origin}
        for letter, origin in zip(letters, origins, strict=True)
    }
    source = a_source(push={}, unknown_fields=unknown_fields, fields={"at": "timestamp", **fields})
    name = sign * 61
    return source, {"at": AT, name: 1} if unknown_fields == "reject" else {"at": AT, origins[0]: name}


def max_response_bytes(answer: dict[str, object]) -> int:
    """Return the size of a response in bytes, in the larger of the two JSON encodings that Lambda runtimes use."""
    return max(len(json.dumps(answer, ensure_ascii=is_ascii).encode()) for is_ascii in (True, False))


@pytest.mark.parametrize("unknown_fields", ["keep", "reject"])
@pytest.mark.parametrize("sign", SIGNS)
def test_a_rejected_event_adds_few_bytes_to_the_response(use_api, sign, unknown_fields):
    source, bad = source_and_rejected_event(SIGNS[sign], unknown_fields)
    world = World(source, use_api)
    single, many = world.post([bad]), world.post([bad] * 101)
    assert (single["statusCode"], many["statusCode"]) == (422, 422)
    each = (max_response_bytes(many) - max_response_bytes(single)) / 100
    assert 100 < each < (LARGEST - 10_000) / 10_000


def test_ten_thousand_rejected_events_fit_in_one_response(use_api):
    source, bad = source_and_rejected_event(SIGNS["quote"], "reject")
    answer = World(source, use_api).post([bad] * 10_000)
    assert answer["statusCode"] == 422
    assert len(json.loads(str(answer["body"]))["rejected"]) == 10_000
    assert max_response_bytes(answer) < LARGEST


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_quoted_values_are_short_in_json_and_utf8(string):
    for quoted in (quote_value(string), quote_name(string)):
        assert len(json.dumps(quoted)) <= len('""...') + 60
        quoted.encode()
    assert quote_name(string).removesuffix("...") in string.encode(errors="backslashreplace").decode()


@pytest.mark.parametrize(
    ("string", "max_bytes", "truncated"),
    [
        ("", 1, ""),
        ("abc", 3, "abc"),
        ("abcd", 3, "abc..."),
        ("\u00e9b", 6, "\u00e9..."),
        ("\u00e9", 5, "..."),
        ('"a', 3, '"a'),
    ],
)
def test_truncate_keeps_whole_characters_within_the_limit(string, max_bytes, truncated):
    assert truncate(string, max_bytes) == truncated


ANY = st.text(alphabet=st.characters(exclude_categories=()))
LIKELY = st.text(alphabet=';=" *,/charset=utf-8Bearer good\t\n\x00\uffff')


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["content_type", "content_encoding", "authorization"]), ANY | LIKELY), ANY)
def test_every_combination_of_headers_gets_a_response(use_api, headers, correlation_id):
    world = World(a_source(push={"buffer": "queue"}), use_api)
    if "authorization" in headers:
        headers["authorization"] = f"Bearer {headers['authorization']}"
    if "content_type" in headers:
        headers["content_type"] = f"application/x-ndjson;{headers['content_type']}"
    answer = world.post([{"id": "a", "at": AT}], **headers, **{"x-correlation-id": correlation_id})
    assert answer["statusCode"] in {202, 400, 401, 415}
    json.dumps(answer, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("requested", "used"),
    [
        ("7f-1", "7f-1"),
        ("x" * 200, "x" * 200),
        ("", "ours"),
        ("x" * 201, "ours"),
        ("a\nb", "ours"),
        ("a\uffff", "ours"),
        ("\ud800", "ours"),
        ("\u00e9", "ours"),
    ],
)
def test_the_correlation_id_of_the_partner_is_used_if_it_is_a_valid_header_value(use_api, requested, used):
    world = World(a_source(push={"buffer": "queue"}), use_api)
    answer = world.post([{"id": "a", "at": AT}], **{"x-correlation-id": requested})
    assert answer["headers"]["x-correlation-id"] == used
    assert json.loads(world.queue.messages[0])["correlation_id"] == used


@pytest.mark.parametrize("buffer", ["none", "queue"])
def test_a_batch_with_events_of_too_many_hours_is_refused(use_api, buffer):
    world = World(a_source(push={"buffer": buffer}), use_api)
    timestamps = [
        f"2013-{1 + hour // 600:02d}-{1 + hour // 24 % 25:02d}T{hour % 24:02d}:59:00Z" for hour in range(1_001)
    ]
    answer = world.post([{"id": "a", "at": at} for at in timestamps])
    assert answer["statusCode"] == 413
    error = json.loads(str(answer["body"]))["error"]
    assert error == {
        "code": "too_large",
        "message": "the events are from 1,001 hours, the limit is 1,000: split the batch",
    }
    assert world.store.objects == {}
    assert world.queue.messages == []
    answer = world.post([{"id": "a", "at": at} for at in timestamps[1:] * 2])
    assert answer["statusCode"] == 202
    assert json.loads(str(answer["body"]))["accepted"] == 2_000
