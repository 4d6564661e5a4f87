"""Verdicts of partners by the API."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from slackwater.state.verdicts import Subject, failures, new_verdict
from tests.fakes_receiver import RECEIVED, MemoryTokens
from tests.pushing import Answer, Setup, call_function

pytestmark = pytest.mark.unit

THINGS = Subject("source", "things")
HOUR = "2013-03-12T08"


def a_verdict(quality: str = "fail", **fields: object) -> dict[str, object]:
    document = {"as_of": RECEIVED.isoformat(), "hour": HOUR, "quality": quality, "reason": "a test system"}
    return {**document, **fields}


def post(setup: Setup, document: object, *, source: str = "things", **headers: str) -> Answer:
    sent = {"authorization": "Bearer good", "content-type": "application/json", **headers}
    return Answer(*setup.api.post_verdict(source, sent, json.dumps(document).encode()))


def failed(setup: Setup) -> list[str]:
    return [verdict.principal for verdict in failures(setup.verdicts.verdicts(THINGS, HOUR, HOUR))]


def test_a_verdict_is_stored_once_and_its_partner_clears_it():
    setup = Setup()
    first, again = post(setup, a_verdict()), post(setup, a_verdict())
    assert first == again
    assert first.status == 202
    assert list(setup.verdicts.stored) == [first.body["verdict_id"]]
    assert failed(setup) == ["push:acme"]
    # An earlier one, which comes late, decides nothing.
    assert post(setup, a_verdict("pass", as_of=(RECEIVED - timedelta(minutes=9)).isoformat())).status == 202
    assert failed(setup) == ["push:acme"]
    assert post(setup, a_verdict("pass", as_of=(RECEIVED + timedelta(minutes=1)).isoformat())).status == 202
    assert failed(setup) == []


def test_a_partner_does_not_clear_what_a_person_has_said():
    setup = Setup()
    by_person = new_verdict(THINGS, HOUR, "fail", version=None, reason="bots", principal="ana", at=RECEIVED)
    setup.verdicts.put_verdicts([by_person])
    assert post(setup, a_verdict("pass", as_of=(RECEIVED + timedelta(minutes=1)).isoformat())).status == 202
    assert failed(setup) == ["ana"]


@pytest.mark.parametrize(
    ("change", "status", "code", "message"),
    [
        ({"authorization": "Bearer other"}, 401, "unauthorized", "send a valid token"),
        ({"source": "nothing"}, 404, "no_such_source", "there is no source 'nothing'"),
        ({"content-type": "text/plain"}, 415, "unsupported_media", ""),
        ({"content-type": "application/x-ndjson"}, 415, "unsupported_media", "a verdict is one JSON document"),
        ({"document": [1]}, 400, "unreadable_verdict", "the body: "),
        ({"document": a_verdict("bad")}, 400, "unreadable_verdict", "quality: Input should be 'fail' or 'pass'"),
        ({"document": a_verdict(reason=" ")}, 400, "unreadable_verdict", "reason: "),
        ({"document": a_verdict(reason="x" * 1001)}, 400, "unreadable_verdict", "reason: "),
        ({"document": a_verdict(hour="2013-03-12T08:00")}, 400, "unreadable_verdict", "hour: "),
        (
            {"document": a_verdict(hour="2013-02-30T08")},
            400,
            "unreadable_verdict",
            "hour: 2013-02-30T08 is no",
        ),
        ({"document": a_verdict(hour="2013-03-13T20")}, 400, "unreadable_verdict", "2013-03-13T20 has not begun"),
        ({"document": a_verdict(hour="2010-03-13T20")}, 400, "unreadable_verdict", "more than 400 days ago"),
        ({"document": a_verdict(as_of="2013-03-12T09:00")}, 400, "unreadable_verdict", "as_of: "),
        ({"document": a_verdict(as_of="2013-03-14T09:00Z")}, 400, "unreadable_verdict", "minutes from now"),
        ({"document": a_verdict(as_of="2013-03-12T00:00Z")}, 400, "unreadable_verdict", "minutes from now"),
        ({"document": a_verdict(as_of="0001-01-01T00:00:00+23:59")}, 400, "unreadable_verdict", "as_of: "),
        ({"document": a_verdict(as_of="9999-12-31T23:59:59-23:59")}, 400, "unreadable_verdict", "as_of: "),
        # It would be read as a line about another verdict.
        ({"document": a_verdict(reason="x\nthings: pass")}, 400, "unreadable_verdict", "reason: it has a line feed"),
        ({"document": a_verdict(reason="x\x1b[2K")}, 400, "unreadable_verdict", "reason: it has a line feed"),
        ({"document": a_verdict(other=1)}, 400, "unreadable_verdict", "other: Extra inputs are not permitted"),
    ],
)
def test_a_request_that_is_refused_stores_nothing(change, status, code, message):
    setup = Setup()
    answer = post(setup, change.pop("document", a_verdict()), **change)
    assert (answer.status, answer.body["error"]["code"]) == (status, code)
    assert message in answer.body["error"]["message"]
    assert not setup.verdicts.stored


def test_a_token_of_another_partner_is_refused():
    setup = Setup(tokens=MemoryTokens({"good": ["weather"]}))
    assert post(setup, a_verdict()).status == 403
    assert not setup.verdicts.stored


def test_the_function_answers_verdicts(use_api):
    setup = Setup()
    use_api(setup.api)
    body = json.dumps(a_verdict()).encode()
    answer = call_function(body, path="verdicts", **{"Content-Type": "application/json"})
    assert answer["statusCode"] == 202
    assert failed(setup) == ["push:acme"]
