from __future__ import annotations

import gzip
import hashlib
import io
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from examples.nyc_flights.partner import PartnerServer
from slackwater.errors import FileTooLarge, FileVanished, OutboundRefused, PartnerError
from slackwater.receiver.connectors.http_connector import HttpConnector
from slackwater.sources.file_pattern import FilePattern
from tests.fakes_web import Reply, Web, connector_of, fetched, rest

pytestmark = pytest.mark.unit

NAME = "flights-2013-03-08.csv"
PATH = f"/files/{NAME}"
CONTENT = bytes(range(256)) * 40
RANGES = {"Accept-Ranges": "bytes", "ETag": '"one"'}


@pytest.fixture
def partner(web, waits):
    with connector_of(f"{web.url}/files", waits=waits) as partner:
        yield partner


def names(partner: HttpConnector) -> list[str]:
    return [file.name for file in partner.list(FilePattern("flights-{date}*.csv"), [date(2013, 3, 8)])]


class TestFetch:
    def test_a_file_of_the_example_server_is_fetched(self, tmp_path):
        with PartnerServer(tmp_path) as server, connector_of(server.url) as partner:
            server.put("2013-03-08 b#1?%2F.csv", CONTENT)
            (file,) = partner.list(FilePattern("{date}*"), [date(2013, 3, 8)])
            into = io.BytesIO()
            download = partner.fetch(file.name, into)
        assert into.getvalue() == CONTENT
        assert (download.size, download.sha256) == (len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
        assert (file.name, file.size, file.etag) == ("2013-03-08 b#1?%2F.csv", len(CONTENT), f'"{download.etag}"')

    def test_an_empty_file_is_fetched(self, web, partner):
        web.on(PATH, Reply())
        assert fetched(partner) == b""

    def test_the_query_of_the_url_is_sent_with_each_file(self, web):
        web.on("/files/2013/03/a%20b.csv?key=1", Reply(body=CONTENT))
        with connector_of(f"{web.url}/files/?key=1") as partner:
            assert fetched(partner, "2013/03/a b.csv") == CONTENT

    def test_a_url_without_a_path_is_the_root(self, web):
        web.on(f"/{NAME}", Reply(body=CONTENT))
        with connector_of(web.url) as partner:
            assert fetched(partner) == CONTENT

    @pytest.mark.parametrize("status", [404, 410])
    def test_a_missing_file_is_reported_as_vanished(self, web, partner, status, waits):
        web.on(PATH, Reply(status))
        with pytest.raises(FileVanished, match=rf"{web.url}/files/{NAME}: listed, but gone .*\({status}\)"):
            fetched(partner)
        assert waits == []

    def test_a_file_of_the_maximum_size_is_fetched(self, web):
        web.on(PATH, Reply(body=CONTENT))
        with connector_of(f"{web.url}/files", max_file_bytes=len(CONTENT)) as partner:
            assert fetched(partner) == CONTENT

    def test_a_file_that_is_too_large_is_not_read(self, web, waits):
        web.on(PATH, Reply(body=CONTENT, headers={"Content-Length": "1000000000001"}))
        into = io.BytesIO()
        with (
            connector_of(f"{web.url}/files", max_file_bytes=10**12, waits=waits) as partner,
            pytest.raises(FileTooLarge, match=f"{NAME}: larger than 1,000,000,000,000 bytes"),
        ):
            partner.fetch(NAME, into)
        assert (waits, into.getvalue()) == ([], b"")

    def test_a_file_of_unknown_length_is_read_up_to_the_limit(self):
        endless = httpx.MockTransport(lambda _: httpx.Response(200, content=iter([b"x" * 600] * 1000)))
        into = io.BytesIO()
        with (
            connector_of("http://127.0.0.1/", max_file_bytes=1000, transport=endless) as partner,
            pytest.raises(FileTooLarge),
        ):
            partner.fetch(NAME, into)
        assert len(into.getvalue()) <= 1000

    def test_a_compressed_response_is_decompressed(self, web, partner):
        web.on(PATH, Reply(body=gzip.compress(CONTENT, mtime=0), headers={"Content-Encoding": "gzip", **RANGES}))
        assert fetched(partner) == CONTENT
        assert web.requests[0].headers["accept-encoding"] == "identity"


class TestRetries:
    @pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
    def test_a_temporary_failure_is_retried(self, web, partner, status, waits):
        web.on(PATH, Reply(status), Reply(status), Reply(status), Reply(body=CONTENT))
        assert fetched(partner) == CONTENT
        assert len(waits) == 3
        assert all(0 <= wait <= 8 for wait in waits)

    @pytest.mark.parametrize("status", [201, 204, 206, 300, 304, 400, 401, 403, 405, 416, 501])
    def test_a_permanent_failure_is_not_retried(self, web, partner, status, waits):
        web.on(PATH, Reply(status))
        with pytest.raises(PartnerError, match=f"^{web.url}{PATH}: answered {status}, where 200 is expected$"):
            fetched(partner)
        assert (waits, len(web.requests)) == ([], 1)

    def test_all_failures_of_a_file_share_one_retry_budget(self, web, partner):
        broken = Reply(body=CONTENT, headers=RANGES, sent=100)
        web.on(PATH, Reply(503), broken, rest(CONTENT, 100, 200), Reply(429), Reply(body=CONTENT))
        with pytest.raises(PartnerError, match="answered 429"):
            fetched(partner)
        assert len(web.requests) == 4

    def test_a_refused_connection_is_retried_and_reported(self, waits):
        with Web() as gone:
            url = gone.url
        with connector_of(url, waits=waits) as partner, pytest.raises(PartnerError, match=f"{url}.*refused"):
            names(partner)
        assert len(waits) == 3

    def test_a_timeout_is_retried_and_reported(self, waits):
        def silent(request: httpx.Request) -> httpx.Response:
            assert request.extensions["timeout"] == {"connect": 5.0, "read": 30.0, "write": 30.0, "pool": 30.0}
            raise httpx.ReadTimeout("")

        with (
            connector_of("http://127.0.0.1/", transport=httpx.MockTransport(silent), waits=waits) as partner,
            pytest.raises(PartnerError, match="ReadTimeout"),
        ):
            names(partner)
        assert len(waits) == 3

    @pytest.mark.parametrize(("header", "waited"), [("0", 0), ("2", 2), ("30", 30), ("3600", 30)])
    def test_retry_after_sets_the_wait_up_to_30_seconds(self, web, partner, waits, header, waited):
        web.on(PATH, Reply(429, headers={"Retry-After": header}), Reply(body=CONTENT))
        fetched(partner)
        assert waits == [waited]

    @pytest.mark.parametrize("headers", [{}, {"Retry-After": "-1"}, {"Retry-After": "nonsense"}], ids=str)
    def test_the_first_wait_is_short_without_a_valid_retry_after(self, web, partner, waits, headers):
        web.on(PATH, Reply(429, headers=headers), Reply(body=CONTENT))
        fetched(partner)
        assert len(waits) == 1
        assert 0 <= waits[0] <= 0.5

    @pytest.mark.parametrize(("seconds", "waited"), [(3600, 30), (-3600, 0)])
    def test_retry_after_may_be_a_date(self, web, partner, waits, seconds, waited):
        date_ = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
        web.on(PATH, Reply(503, headers={"Retry-After": date_}), Reply(body=CONTENT))
        fetched(partner)
        assert waits == [waited]


class TestRedirects:
    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_a_redirect_is_followed(self, web, partner, status):
        web.on(PATH, Reply(status, headers={"Location": "/elsewhere?a=1"}))
        web.on("/elsewhere?a=1", Reply(body=CONTENT))
        assert fetched(partner) == CONTENT

    def test_a_redirect_to_an_allowed_host_is_followed(self, web, other):
        web.on(PATH, Reply(302, headers={"Location": f"{other.url}/file"}))
        other.on("/file", Reply(body=CONTENT))
        with connector_of(f"{web.url}/files", allow=[other.entry]) as partner:
            assert fetched(partner) == CONTENT

    def test_a_retry_follows_the_redirect_again(self, web, partner):
        web.on(PATH, Reply(302, headers={"Location": "/a"}), Reply(302, headers={"Location": "/b"}))
        web.on("/a", Reply(body=CONTENT, headers=RANGES, sent=6_000))
        web.on("/b", rest(CONTENT, 6_000))
        assert fetched(partner) == CONTENT
        assert web.requests[-1].headers["range"] == "bytes=6000-"

    @pytest.mark.parametrize(("hops", "arrives"), [(5, True), (6, False)])
    def test_at_most_five_redirects_are_followed(self, web, partner, hops, arrives, waits):
        web.on(PATH, Reply(302, headers={"Location": "/1"}))
        for hop in range(1, hops):
            web.on(f"/{hop}", Reply(302, headers={"Location": f"/{hop + 1}"}))
        web.on(f"/{hops}", Reply(body=CONTENT))
        if arrives:
            assert fetched(partner) == CONTENT
        else:
            with pytest.raises(PartnerError, match=f"{PATH}: redirected more than 5 times"):
                fetched(partner)
        assert waits == []

    def test_the_body_of_a_redirect_is_not_read(self):
        def body() -> Iterator[bytes]:
            raise AssertionError("read")
            yield b""

        responses = iter(
            [httpx.Response(302, headers={"location": "/x"}, content=body()), httpx.Response(200, content=CONTENT)]
        )
        with connector_of("http://127.0.0.1/", transport=httpx.MockTransport(lambda _: next(responses))) as partner:
            assert fetched(partner) == CONTENT

    @pytest.mark.parametrize(
        "location",
        [
            "http://169.254.169.254/latest/meta-data/",
            "http://[::ffff:169.254.169.254]/",
            "http://2130706433/",
            "http://localhost/",
            "http://127.0.0.2/",
            "//10.0.0.1/",
            "http://partner@127.0.0.1/",
            "gopher://127.0.0.1:25/_HELO",
            "file:///etc/passwd",
            "http://①②⑦.⓪.⓪.①/".encode().decode("latin-1"),
            "http://[::1/",
            "http://127.0.0.1:99999/",
        ],
    )
    def test_a_redirect_to_a_refused_url_is_not_followed(self, web, partner, location):
        web.on(PATH, Reply(302, headers={"Location": location}))
        with pytest.raises(PartnerError):
            fetched(partner)
        assert set(web.paths) == {PATH}

    def test_a_redirect_to_another_port_is_not_followed(self, web, other, partner):
        web.on(PATH, Reply(302, headers={"Location": f"{other.url}/file"}))
        with pytest.raises(OutboundRefused, match=f"127.0.0.1, loopback; .*add 127.0.0.1:{other.port} "):
            fetched(partner)
        assert other.requests == []
