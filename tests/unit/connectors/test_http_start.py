"""The beginning of a file at a URL."""

from __future__ import annotations

import io

import pytest

from slackwater.errors import OutboundRefused, PartnerError
from slackwater.outbound.guard import Outbound
from slackwater.receiver.connectors.http_session import download_start
from tests.fakes_web import Reply, Web

pytestmark = pytest.mark.unit

CONTENT = bytes(range(256)) * 100


def start(web: Web, path: str, max_bytes: int, waits: list[float]) -> tuple[bytes, bool]:
    into = io.BytesIO()
    outbound = Outbound.of([web.entry])
    is_whole = download_start(f"{web.url}{path}", into, outbound=outbound, max_bytes=max_bytes, sleep=waits.append)
    return into.getvalue(), is_whole


@pytest.mark.parametrize("max_bytes", [1, len(CONTENT) - 1, len(CONTENT), len(CONTENT) + 1])
def test_no_more_than_the_limit_is_kept(web, waits, max_bytes):
    web.on("/a", Reply(body=CONTENT))
    assert start(web, "/a", max_bytes, waits) == (CONTENT[:max_bytes], max_bytes >= len(CONTENT))


def test_a_broken_download_starts_again(web, waits):
    web.on("/a", Reply(503), Reply(body=CONTENT, sent=10_000), Reply(body=CONTENT[:1000]))
    assert start(web, "/a", len(CONTENT), waits) == (CONTENT[:1000], True)
    assert len(waits) == 2


def test_a_redirect_is_checked(web, other, waits):
    web.on("/a", Reply(302, headers={"Location": "/b"}))
    web.on("/b", Reply(body=CONTENT))
    assert start(web, "/a", 10, waits) == (CONTENT[:10], False)
    web.on("/c", Reply(302, headers={"Location": f"{other.url}/b"}))
    with pytest.raises(OutboundRefused, match="no connection is made"):
        start(web, "/c", 10, waits)
    assert other.requests == []


def test_a_missing_file_is_an_error(web, waits):
    with pytest.raises(PartnerError, match="answered 404, where 200 is expected"):
        start(web, "/none?key=secret", 10, waits)
