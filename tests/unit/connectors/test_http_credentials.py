from __future__ import annotations

import logging
import re
import ssl
from datetime import date

import httpx
import pytest
from pydantic import SecretStr

from slackwater.errors import DefinitionError, OutboundRefused, PartnerError
from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import GuardedTransport, Outbound
from slackwater.receiver.connectors.http_connector import HttpConnector
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.pull_config import PullConfig
from tests.fakes_web import Reply, Web, connector_of, fetched, rest, tls_contexts

pytestmark = pytest.mark.unit

NAME = "flights-2013-03-08.csv"
PATH = f"/files/{NAME}"
CONTENT = bytes(range(256)) * 40
RANGES = {"Accept-Ranges": "bytes", "ETag": '"one"'}
TOKEN = Credentials(token="hush-hush")
BASIC = Credentials(username="partner", password="hush:hüsh")


def names(partner: HttpConnector) -> list[str]:
    return [file.name for file in partner.list(FilePattern("flights-{date}*.csv"), [date(2013, 3, 8)])]


class TestCredentials:
    @pytest.mark.parametrize(
        ("credentials", "header"),
        [(TOKEN, "Bearer hush-hush"), (BASIC, "Basic cGFydG5lcjpodXNoOmjDvHNo")],
        ids=["token", "basic"],
    )
    def test_credentials_are_sent_with_every_request(self, web, credentials, header):
        web.on("/files", Reply(body=b"[]"))
        web.on(PATH, Reply(body=CONTENT, headers=RANGES, sent=10), rest(CONTENT, 10))
        with connector_of(f"{web.url}/files", credentials=credentials) as partner:
            names(partner)
            fetched(partner)
        assert [request.headers["authorization"] for request in web.requests] == [header] * 3

    def test_no_header_is_sent_without_credentials(self, web):
        web.on(PATH, Reply(body=CONTENT))
        with connector_of(f"{web.url}/files") as partner:
            fetched(partner)
        assert "authorization" not in web.requests[0].headers

    def test_credentials_are_sent_to_no_other_origin(self, web, other):
        web.on(PATH, Reply(302, headers={"Location": "/here"}))
        web.on("/here", Reply(302, headers={"Location": f"{other.url}/there"}))
        other.on("/there", Reply(302, headers={"Location": "/and-there"}))
        other.on("/and-there", Reply(302, headers={"Location": f"{web.url}/and-back"}))
        web.on("/and-back", Reply(body=CONTENT))
        with connector_of(f"{web.url}/files", allow=[other.entry], credentials=TOKEN) as partner:
            assert fetched(partner) == CONTENT
        assert ["authorization" in request.headers for request in web.requests] == [True, True, True]
        assert ["authorization" in request.headers for request in other.requests] == [False, False]

    @pytest.mark.parametrize("to", ["http://127.0.0.1/", "http://files.example/"])
    def test_a_redirect_from_https_to_http_is_refused(self, to):
        schemes = []

        def redirect(request: httpx.Request) -> httpx.Response:
            schemes.append(request.url.scheme)
            return httpx.Response(302, headers={"location": f"{to}?token=hush"})

        with (
            connector_of("https://127.0.0.1/", transport=httpx.MockTransport(redirect)) as partner,
            pytest.raises(OutboundRefused, match=f"^{to}: not encrypted, but an https server links to it$"),
        ):
            fetched(partner)
        assert schemes == ["https"]

    def test_a_private_key_is_refused_for_http(self):
        key = Credentials(username="partner", private_key="hush")
        with (
            pytest.raises(DefinitionError, match="need a `token`, or a `username` with a `password`") as refused,
            connector_of("https://127.0.0.1/", credentials=key),
        ):
            pass
        assert "hush" not in str(refused.value)

    def test_credentials_are_in_no_error_and_no_log(self, web, caplog):
        caplog.set_level(logging.INFO)
        web.on("/files?key=hush", Reply(302, headers={"Location": "/signed?signature=hush"}))
        web.on("/signed?signature=hush", Reply(401))
        with connector_of(f"{web.url}/files?key=hush", credentials=TOKEN) as partner:
            for act in (names, fetched):
                with pytest.raises(PartnerError) as refused:
                    act(partner)
                assert "hush" not in str(refused.value)
        assert len(web.requests) == 3
        assert "hush" not in caplog.text

    def test_credentials_are_in_no_debug_log(self, web, caplog):
        for name in ("", "httpx", "httpcore"):
            caplog.set_level(logging.DEBUG, logger=name or None)
        web.on("/files?key=hush", Reply(body=b"[]"))
        with connector_of(f"{web.url}/files?key=hush", credentials=TOKEN) as partner:
            names(partner)
        assert len(web.requests) == 1
        assert "hush" not in caplog.text

    def test_a_username_with_a_colon_is_refused(self):
        with pytest.raises(DefinitionError, match="holds a colon") as refused:
            HttpConnector(
                PullConfig(url="https://files.example/x", files="{date}"),
                outbound=Outbound.of([]),
                credentials=Credentials(username="hush:hush", password="hush"),
                max_file_bytes=1,
            )
        assert "hush" not in str(refused.value)

    @pytest.mark.parametrize("token", ["hush\n", "hush\rx: y", "hüsh"])
    def test_an_invalid_token_is_not_shown(self, web, caplog, token):
        caplog.set_level(logging.DEBUG)
        unchecked = Credentials.model_construct(token=SecretStr(token))
        waits: list[float] = []
        with (
            connector_of(f"{web.url}/files", credentials=unchecked, waits=waits) as partner,
            pytest.raises(PartnerError, match=f"^{web.url}{PATH}: HTTP cannot send the request's headers") as refused,
        ):
            fetched(partner)
        assert refused.value.__cause__ is None
        assert refused.value.__suppress_context__
        assert not re.search("h[uü]sh", f"{refused.value} {caplog.text}")
        assert (waits, web.requests) == ([], [])


class TestTls:
    """Certificates are verified by host name, although the connection uses an IP address."""

    @pytest.fixture
    def requested_names(self):
        return []

    @pytest.fixture
    def web(self, tmp_path, requested_names):
        server, self.trust = tls_contexts(tmp_path, "files.example")
        server.sni_callback = lambda _socket, name, _context: requested_names.append(name)
        with Web(tls=server) as web:
            web.on(PATH, Reply(body=CONTENT))
            yield web

    def partner(self, host: str, web: Web, trust: ssl.SSLContext | None):
        guard = Outbound.of([f"127.0.0.1:{web.port}"], resolve=lambda _host, _port: ["127.0.0.1"])
        transport = GuardedTransport(guard, trust=trust)
        return connector_of(f"https://{host}:{web.port}/files", transport=transport, credentials=TOKEN)

    def test_the_host_name_is_sent_and_verified(self, web, requested_names):
        with self.partner("files.example", web, self.trust) as partner:
            assert fetched(partner) == CONTENT
        assert requested_names == ["files.example"]
        assert web.requests[0].headers["authorization"] == "Bearer hush-hush"

    @pytest.mark.parametrize("host", ["other.example", "127.0.0.1"])
    def test_a_certificate_for_another_name_is_refused(self, web, host):
        with (
            self.partner(host, web, self.trust) as partner,
            pytest.raises(PartnerError, match=r"CERTIFICATE_VERIFY_FAILED.* mismatch"),
        ):
            fetched(partner)
        assert web.requests == []

    def test_a_self_signed_certificate_is_refused(self, web):
        with (
            self.partner("files.example", web, None) as partner,
            pytest.raises(PartnerError, match=r"CERTIFICATE_VERIFY_FAILED.*self-signed"),
        ):
            fetched(partner)
        assert web.requests == []
