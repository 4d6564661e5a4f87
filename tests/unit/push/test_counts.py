"""Reports by the API, and what the receiver counts of rejected events."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from slackwater.sources.counts import ALL
from slackwater.state.facts import HOUR, total_of
from tests.fakes_receiver import RECEIVED, MemoryTokens, a_source
from tests.pushing import Answer, Setup, call_function, event

pytestmark = pytest.mark.unit

NOON = datetime(2013, 3, 12, 8, tzinfo=UTC)
COUNTED = a_source(counts={"window": "5m"}, timestamp={"field": "at", "max_future_hours": 24 * 1000})


def a_report(counts: object = None, **fields: object) -> dict[str, object]:
    document = {"as_of": "2013-03-12T09:05:00Z", "through": "2013-03-12T09:00:00Z"}
    return {**document, "counts": counts or {"2013-03-12T08:00Z": 3}, **fields}


def post(setup: Setup, document: object, *, source: str = "things", **headers: str) -> Answer:
    sent = {"authorization": "Bearer good", "content-type": "application/json", **headers}
    return Answer(*setup.api.post_counts(source, sent, json.dumps(document).encode()))


@pytest.fixture
def setup() -> Setup:
    return Setup(COUNTED)


def test_a_report_is_stored_once_and_its_id_is_in_the_response(setup):
    first, again = post(setup, a_report()), post(setup, a_report())
    assert first == again
    assert (first.status, first.body["windows"]) == (202, 1)
    [report] = setup.state.facts("things", [NOON])[NOON].reports
    assert (report.id, report.principal, report.counts) == (first.body["report_id"], "push:acme", {0: {ALL: 3}})


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"authorization": "Bearer other"}, 401, "unauthorized"),
        ({"source": "nothing"}, 404, "no_such_source"),
        ({"source": "uncounted"}, 404, "no_such_source"),
        ({"content-type": "application/x-ndjson"}, 415, "unsupported_media"),
        ({"content-type": "text/plain"}, 415, "unsupported_media"),
        ({"document": a_report({"3000-01-01T00:00Z": 1})}, 400, "unreadable_report"),
        ({"document": a_report({str(n): 1 for n in range(3001)})}, 413, "too_large"),
        ({"document": [1]}, 400, "unreadable_report"),
    ],
)
def test_a_request_that_is_refused_stores_nothing(change, status, code):
    setup = Setup(COUNTED, a_source(source="uncounted"))
    answer = post(setup, change.pop("document", a_report()), **change)
    assert (answer.status, answer.body["error"]["code"]) == (status, code)
    assert not setup.state.reports


def test_a_token_of_another_partner_is_refused():
    setup = Setup(COUNTED, tokens=MemoryTokens({"good": ["weather"]}))
    answer = post(setup, a_report())
    assert (answer.status, answer.body["error"]["code"]) == (403, "forbidden")
    assert not setup.state.reports


def test_the_function_answers_reports(use_api):
    setup = Setup(COUNTED)
    use_api(setup.api)
    body = json.dumps(a_report()).encode()
    answer = call_function(body, path="counts", **{"Content-Type": "application/json"})
    assert answer["statusCode"] == 202
    assert len(setup.state.reports) == 1
    setup.fuse.left = 0
    failed = call_function(body, path="counts", **{"Content-Type": "application/json"})
    assert (failed["statusCode"], json.loads(failed["body"])["error"]["code"]) == (503, "try_again")


def test_rejected_events_are_counted_in_the_hours_of_their_timestamps(setup):
    bad = [
        event("2013-03-12T08:04:59Z", count="many"),
        event("2013-03-12T08:59:59.9Z", count="many"),
        event("2013-03-12T09:00:00Z", count="many"),
        event("2013-03-12T08:30:00Z", id=None),
        event("yesterday"),
        event("1969-12-31T23:59:59Z", count="many"),
        event("2013-03-14T08:00:00Z", count="many"),
    ]
    for _ in range(2):
        result = setup.push([event("2013-03-12T08:00:00Z"), *bad])
    assert len(result.rejected) == 7
    facts = setup.state.facts("things", [NOON, NOON + HOUR])
    [eight], [nine] = facts[NOON].rejected, facts[NOON + HOUR].rejected
    assert eight.bins == {ALL: (1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)}
    assert (nine.bins, nine.unplaced) == ({ALL: (1,) + (0,) * 11}, 3)
    assert (eight.origin, eight.unplaced, len(setup.state.rejected)) == (result.batch_id, 0, 2)


def test_rejected_events_are_counted_by_value_where_it_can_be_read():
    fields = {**a_source().model_dump(mode="json", by_alias=True)["fields"], "region": "string"}
    counts = {"window": "1h", "by": "region", "values": ["EU", "Süd"]}
    setup = Setup(a_source(counts=counts, fields=fields))
    at = "2013-03-12T08:04:59Z"
    bad = [
        event(at, count="many", region="EU"),
        event(at, count="many", region="Süd"),
        event(at, count="many", region="Mars"),
        event(at, count="many"),
        event(at, region=["EU"]),
        "no event",
    ]
    assert len(setup.push(bad).rejected) == 6
    facts = setup.state.facts("things", [NOON, NOON + HOUR])
    one, none = (1,) + (0,) * 11, (0,) * 12
    [eight] = facts[NOON].rejected
    assert eight.bins == {"region=EU": one, "region=Süd": one, "region=": (2,) + (0,) * 11}
    # What may be of any value counts for none: its window stays short.
    [nine] = facts[NOON + HOUR].rejected
    assert (nine.bins, nine.unplaced) == (dict.fromkeys(eight.bins, none), 2)


def test_events_without_a_time_are_kept_in_the_hour_of_receipt(setup):
    setup.push([event("yesterday"), event("2013-03-12T08:00:00Z")])
    hour = RECEIVED.replace(minute=0)
    [rejected] = setup.state.facts("things", [hour])[hour].rejected
    assert (total_of(rejected.bins), rejected.unplaced) == (0, 1)


def test_a_source_without_counts_stores_no_facts():
    setup = Setup(a_source())
    setup.push([event("2013-03-12T08:00:00Z", count="many"), event("2013-03-12T08:00:00Z")])
    assert len(setup.reject_records()) == 1
    assert not setup.state.rejected


def test_queued_events_count_their_rejects_before_the_answer():
    setup = Setup(a_source(counts={"window": "1h"}, push={"buffer": "queue"}))
    answer = setup.post(event("2013-03-12T08:00:00Z", count="many"), event("2013-03-12T08:00:00Z"))
    assert answer.status == 202
    [rejected] = setup.state.facts("things", [NOON])[NOON].rejected
    assert total_of(rejected.bins) == 1


def test_receipts_of_sources_without_counts_can_be_read_by_the_release_before():
    """It refuses unknown keys, and answers some requests during a deployment."""
    assert "counts" not in a_source().model_dump()
    counted = a_source(counts={"window": "1h"})
    assert counted.model_dump()["counts"]["window"] == "1h"
    assert counted.reading_digest == a_source().reading_digest
    assert counted.counts.wait == timedelta(hours=2)
