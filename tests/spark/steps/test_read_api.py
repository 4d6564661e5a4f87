"""`read_api`: pages by link, cursor and number, credentials, limits, retries, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from slackwater.arrow import exchange
from slackwater.errors import DataError, InputError, OutboundRefused, PartnerError
from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import Outbound
from slackwater.steps.extract import read_api
from slackwater.steps.extract.read_api import STEP, ApiAccess, ReadApi, read_pages
from slackwater.steps.step import StepContext
from tests.fakes_web import Reply, Web
from tests.postgres import FakeSecrets
from tests.spark.steps.conftest import DAY


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        yield server


def page(content: Any, **headers: str) -> Reply:
    return Reply(body=json.dumps(content).encode(), headers=headers)


def records(web: Web, *, day: date | None = DAY, allow: tuple[str, ...] = (), **parameters: Any) -> list[Any]:
    """Return the numbers that the step reads; its pauses take no time."""
    values = {"url": f"{web.url}/v1", "fields": {"n": "int64"}, **parameters}
    access = ApiAccess(Outbound.of([web.entry, *allow]), None, sleep=lambda seconds: None)
    tables = list(read_pages(ReadApi.model_validate(values), day=day, access=access))
    return [row["n"] for table in tables for row in table.to_pylist()]


def test_one_page_of_typed_records(web: Web, context: StepContext, monkeypatch: pytest.MonkeyPatch) -> None:
    web.on("/v1?day=2013-03-10&x=%20", page({"data": {"items": [{"Id": 9007199254740993, "at": 0}, {"more": {}}]}}))
    parameters = {
        "url": f"{web.url}/v1?day={{date}}&x=%20",
        "records": "data.items",
        "fields": {"id": {"type": "int64", "from": "Id"}, "at": {"type": "timestamp", "formats": ["epoch_ms"]}},
    }
    allowed = replace(context, outbound=Outbound.of([web.entry]))
    expected = [{"id": 9007199254740993, "at": datetime(1970, 1, 1, tzinfo=UTC)}, {"id": None, "at": None}]
    assert STEP.read(ReadApi.model_validate(parameters), allowed).toArrow().to_pylist() == expected
    monkeypatch.setattr(exchange, "DRIVER_BYTES", 0)
    frame = STEP.read(ReadApi.model_validate(parameters), allowed)
    assert "MapInArrow" in frame._jdf.queryExecution().toString()
    assert frame.toArrow().to_pylist() == expected
    with pytest.raises(OutboundRefused, match="loopback"):
        STEP.read(ReadApi.model_validate(parameters), context)
    with pytest.raises(InputError, match="only a run of a pipeline has"):
        STEP.read(ReadApi.model_validate(parameters), replace(allowed, day=None))


def test_pages_by_a_link_in_the_body_or_the_header(web: Web) -> None:
    web.on("/v1", page({"rows": [{"n": 1}], "links": {"next": "/v1?after=1"}}))
    web.on("/v1?after=1", page({"rows": [], "links": {"next": f"{web.url}/v1?after=2"}}))
    web.on("/v1?after=2", page({"rows": [{"n": 2}], "links": {"next": None}}))
    assert records(web, records="rows", pages={"by": "next_link", "link": "links.next"}) == [1, 2]
    web.on("/v1", page([{"n": 1}], Link='</v1?after=1>; rel="next"'))
    web.on("/v1?after=1", page([{"n": 2}]))
    assert records(web, pages={"by": "next_link"}) == [1, 2]


def test_pages_by_a_cursor(web: Web) -> None:
    web.on("/v1?size=1", page({"rows": [{"n": 1}], "next": 0}))
    web.on("/v1?size=1&from=0", page({"rows": [{"n": 2}], "next": "a b/ü"}))
    web.on("/v1?size=1&from=a+b%2F%C3%BC", page({"rows": [{"n": 3}], "next": ""}))
    pages = {"by": "cursor", "cursor": "next", "parameter": "from"}
    assert records(web, url=f"{web.url}/v1?size=1", records="rows", pages=pages) == [1, 2, 3]


def test_a_cursor_that_is_no_value_is_named(web: Web) -> None:
    web.on("/v1", page({"rows": [{"n": 1}], "next": {"a": 1}}))
    with pytest.raises(DataError, match=r"pages\.cursor: next is \{'a': 1\}, and a string or number is expected"):
        records(web, records="rows", pages={"by": "cursor", "cursor": "next", "parameter": "from"})


def test_pages_by_number_end_at_an_empty_one(web: Web) -> None:
    for number, content in enumerate([[{"n": 1}], [{"n": 2}], [], [{"n": 4}]]):
        web.on(f"/v1?page={number}", page(content))
    assert records(web, pages={"by": "number", "parameter": "page", "first": 0}) == [1, 2]
    assert web.paths == ["/v1?page=0", "/v1?page=1", "/v1?page=2"]


def test_pages_that_link_in_a_circle_or_never_end(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    web.on("/v1", page({"rows": [], "next": "/v1?a"}))
    web.on("/v1?a", page({"rows": [], "next": "/v1"}))
    with pytest.raises(PartnerError, match="link in a circle"):
        records(web, records="rows", pages={"by": "next_link", "link": "next"})
    monkeypatch.setattr(read_api, "_MAX_PAGES", 3)
    for number in range(1, 5):
        web.on(f"/v1?page={number}", page([{"n": number}]))
    with pytest.raises(PartnerError, match="more than 3 pages"):
        records(web, pages={"by": "number", "parameter": "page"})


def test_a_failure_that_may_pass_is_retried_and_rows_count_once(web: Web) -> None:
    body = json.dumps([{"n": 1}]).encode()
    web.on("/v1", Reply(503), Reply(body=body, sent=3), Reply(429, headers={"Retry-After": "1"}), Reply(body=body))
    assert records(web) == [1]
    web.on("/v1", Reply(500))
    with pytest.raises(PartnerError, match="answered 500"):
        records(web)
    web.on("/v1", Reply(403))
    with pytest.raises(PartnerError, match="answered 403, where 200 is expected"):
        records(web)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (page({"n": 1}), "an array of records is expected as the page: set `records`"),
        (page(None), "an array of records is expected"),
        (Reply(body=b"<html>"), "/v1: not JSON"),
        (Reply(body=b"[" * 100_000), "/v1: not JSON"),
        (page([{"n": 1}, {"n": "x"}, 3]), r"/v1: row 2: n: 'x' is not a whole number \(and 1 more row near it\)"),
    ],
)
def test_a_page_that_does_not_fit(web: Web, reply: Reply, message: str) -> None:
    web.on("/v1", reply)
    with pytest.raises(DataError, match=message):
        records(web)


def test_sizes_are_limited(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_api, "_MAX_PAGE", 100)
    web.on("/v1", page([{"n": n} for n in range(100)]))
    with pytest.raises(PartnerError, match="larger than 100 bytes: ask for smaller pages"):
        records(web)
    monkeypatch.undo()
    monkeypatch.setattr(read_api, "_MAX_PAGES_TOGETHER", 20)
    for number in range(1, 5):
        web.on(f"/v1?page={number}", page([{"n": number}]))
    with pytest.raises(PartnerError, match="all pages together are larger than 20 bytes"):
        records(web, pages={"by": "number", "parameter": "page"})


def test_credentials_are_sent_to_the_host_of_the_url_only(web: Web) -> None:
    with Web() as other:
        other.on("/page", page([{"n": 2}]))
        web.on("/v1", page([{"n": 1}], Link=f'<{other.url}/page>; rel="next"'))
        secrets = FakeSecrets(Credentials(token=SecretStr("a-token")))
        values = {"url": f"{web.url}/v1", "fields": {"n": "int64"}, "pages": {"by": "next_link"}}
        # The model refuses credentials over http, see below.
        parameters = ReadApi.model_validate(values).model_copy(update={"credentials": "ssm:x"})
        access = ApiAccess(Outbound.of([web.entry, other.entry]), secrets)
        assert sum(table.num_rows for table in read_pages(parameters, day=None, access=access)) == 2
        assert web.requests[0].headers["authorization"] == "Bearer a-token"
        assert "authorization" not in other.requests[0].headers
        with pytest.raises(OutboundRefused):
            list(read_pages(parameters, day=None, access=ApiAccess(Outbound.of([web.entry]), secrets)))
        with pytest.raises(InputError, match="there are no secrets here"):
            list(read_pages(parameters, day=None, access=ApiAccess(Outbound.of([web.entry]), None)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "s3://bucket/x"}, "is not a URL such as https"),
        ({"url": "file:///etc/passwd"}, "is not a URL such as https"),
        ({"url": "https://user:secret@host/x"}, "must not contain credentials"),
        ({"url": "https://{date}.example/x"}, "is not a URL such as https"),
        ({"url": "https://host/{hour}"}, "the only placeholder"),
        ({"url": "https://host/x#y"}, "fragment"),
        ({"url": "http://host/x", "credentials": "ssm:x"}, "unencrypted: use https"),
        ({"records": "a..b"}, "pattern"),
        ({"pages": {"by": "magic"}}, "does not match any of the expected tags"),
    ],
)
def test_wrong_parameters(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ReadApi.model_validate({"url": "https://host/x", "fields": {"n": "int64"}, **change})
