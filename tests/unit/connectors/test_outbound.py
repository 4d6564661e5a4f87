from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from contextlib import closing, suppress

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DefinitionError, OutboundRefused
from slackwater.outbound.guard import GuardedTransport, Outbound
from slackwater.outbound.ip_addresses import special_purpose
from tests.fakes_web import Reply, Web
from tests.unit.connectors.outbound_cases import DNS, DNS_OF_PASSES, PASSES, PUBLIC, REFUSED

pytestmark = pytest.mark.unit


def resolve_known(host: str, port: int) -> list[str]:
    return (DNS | DNS_OF_PASSES).get(host, [PUBLIC])


def allowed_addresses(url: str, *allow: str) -> list[str]:
    """The addresses that the guard allows for a connection to `url`."""
    guard = Outbound.of(allow, resolve=resolve_known)
    return [str(address) for address in guard.connect_addresses(guard.check(url))]


class TestPublishedBypasses:
    @pytest.mark.parametrize(
        "url", [pytest.param(url, id=f"{category}: {url!a}") for category, urls in REFUSED.items() for url in urls]
    )
    def test_a_published_bypass_is_refused(self, url):
        with pytest.raises(OutboundRefused):
            allowed_addresses(url)

    def test_there_are_at_least_200_distinct_bypasses(self):
        urls = [url for urls in REFUSED.values() for url in urls]
        assert len(set(urls)) == len(urls) >= 200

    @pytest.mark.parametrize(("url", "addresses"), PASSES, ids=[url for url, _ in PASSES])
    def test_an_ordinary_url_passes(self, url, addresses):
        assert allowed_addresses(url) == addresses


class TestAddresses:
    @given(st.ip_addresses(v=4))
    def test_ipv4_is_public_only_if_python_calls_it_global(self, address):
        assert special_purpose(address) is not None or (address.is_global and not address.is_multicast)

    @given(st.ip_addresses(v=4).filter(lambda address: address.is_global and not address.is_multicast))
    def test_ipv4_that_python_calls_global_is_public_except_relays(self, address):
        more = [ipaddress.ip_network(network) for network in ("192.0.0.0/24", "192.88.99.0/24")]
        assert special_purpose(address) is None or any(address in network for network in more)

    @given(st.ip_addresses(v=6))
    def test_ipv6_is_public_only_if_python_calls_it_global(self, address):
        assert special_purpose(address) is not None or (address.is_global and not address.is_multicast)

    @given(st.ip_addresses(v=6, network="2000::/3").filter(lambda address: address.is_global))
    def test_ipv6_that_python_calls_global_is_public_except_tunnels(self, address):
        more = [ipaddress.ip_network(network) for network in ("2001::/23", "2002::/16", "3fff::/20")]
        assert special_purpose(address) is None or any(address in network for network in more)

    @given(st.ip_addresses(v=4))
    def test_a_translated_address_is_judged_as_its_ipv4_address(self, address):
        translated = ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) + int(address))
        assert special_purpose(translated) == special_purpose(address)


class TestAllowed:
    @pytest.mark.parametrize(
        ("entry", "url"),
        [
            ("127.0.0.1", "http://127.0.0.1/"),
            ("127.0.0.1", "http://127.0.0.1:8713/flights"),
            ("127.0.0.1", "sftp://127.0.0.1:2222/"),
            ("127.0.0.1:8713", "http://127.0.0.1:8713/flights"),
            ("10.0.0.0/24", "http://10.0.0.5/"),
            ("10.0.0.0/24:8080", "http://10.0.0.5:8080/"),
            ("10.0.0.0/24", "https://only-private.example/"),
            ("169.254.169.254", "http://169.254.169.254.nip.io/"),
            ("::1", "http://[::1]:8080/"),
            ("[::1]", "http://[::1]:8080/"),
            ("[::1]:8080", "http://[0::1]:8080/"),
            ("fd12::/16", "https://[fd12:3456::1]:8443/"),
            ("fd12::/16:8443", "https://[fd12:3456::1]:8443/"),
            ("[fd12::/16]:8443", "https://[fd12:3456::1]:8443/"),
            ("2606:2800:21f::/48", "https://[2606:2800:21f::1]:8443/"),
            ("files.example:8443", "https://files.example:8443/"),
            ("FILES.example", "https://files.example:8443/"),
            ("files.example", "sftp://files.example:2222/"),
            ("only-private.example", "https://only-private.example/"),
            ("only-private.example:8443", "https://only-private.example:8443/"),
            ("first-private.example", "https://first-private.example/"),
            ("ip-10-0-0-5.ec2.internal", "https://ip-10-0-0-5.ec2.internal/"),
            ("fileserver", "https://fileserver/"),
            ("localhost", "http://localhost:4566/"),
            ("app.localhost", "http://app.localhost:4566/"),
        ],
    )
    def test_an_entry_allows_its_urls(self, entry, url, monkeypatch):
        monkeypatch.setitem(DNS, "only-private.example", ["10.0.0.5"])
        monkeypatch.setitem(DNS, "app.localhost", ["::1"])
        with pytest.raises(OutboundRefused):
            allowed_addresses(url)
        assert allowed_addresses(url, "one.example", entry)

    @pytest.mark.parametrize(
        ("entry", "url"),
        [
            ("127.0.0.1:8713", "http://127.0.0.1:8714/"),
            ("127.0.0.1", "http://127.0.0.2/"),
            ("10.0.0.0/24", "http://10.0.1.5/"),
            ("10.0.0.0/24:8080", "http://10.0.0.5/"),
            ("10.0.0.0/24", "https://first-public.example:8443/"),
            ("10.0.0.0/8", "http://[::ffff:10.0.0.1]/"),
            ("10.0.0.0/8", "http://[64:ff9b::10.0.0.1]/"),
            ("0.0.0.0/0", "http://[::1]/"),
            ("::/0", "http://127.0.0.1/"),
            ("0.0.0.0/0", "http://2130706433/"),
            ("0.0.0.0/0", "http://localhost/"),
            ("files.example:8443", "https://files.example:8444/"),
            ("files.example", "https://other.files.example:8443/"),
            ("example", "https://files.example:8443/"),
            ("localtest.me", "http://localtest.me/"),
            ("169.254.169.254.nip.io", "http://169.254.169.254.nip.io/"),
            ("metadata-six.example", "http://metadata-six.example/"),
            ("metadata.google.internal", "http://metadata.google.internal/"),
            ("files.example", "gopher://files.example/"),
            ("files.example", "http://user@files.example/"),
        ],
    )
    def test_an_entry_allows_no_other_urls(self, entry, url, monkeypatch):
        monkeypatch.setitem(DNS, "metadata.google.internal", ["169.254.169.254"])
        with pytest.raises(OutboundRefused):
            allowed_addresses(url, entry)

    @pytest.mark.parametrize(
        "entry",
        [
            "",
            " ",
            "files.example ",
            "https://files.example",
            "files.example/path",
            "files.example:",
            "files.example:0",
            "files.example:65536",
            "files.example:https",
            "*.example",
            "user@files.example",
            "127.1",
            "2130706433",
            "0x7f000001",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "10.0.0.0/8:0",
            "10.0.0.0/8:70000",
            "10.0.0.0-10.0.0.255",
            "[::1",
            "[127.0.0.1]",
            "fe80::1%eth0",
            "fd12::1/16",
            "files..example",
            "bücher.example",
        ],
    )
    def test_a_malformed_entry_is_refused(self, entry):
        with pytest.raises(DefinitionError, match="outbound_allow: "):
            Outbound.of([entry])

    @pytest.mark.parametrize(
        ("url", "remedy"),
        [
            ("https://files.example:8443/", "a port other than 443; .* add files.example:8443 "),
            ("http://127.0.0.1:8713/", "127.0.0.1, loopback; .* add 127.0.0.1:8713 "),
            ("http://[::1]:8713/", "::1, loopback; .* add \\[::1\\]:8713 "),
            ("https://first-public.example/", "10.0.0.5, private; .* add first-public.example:443 "),
            ("http://localtest.me/", "127.0.0.1, loopback; .* add 127.0.0.1:80 "),
            ("https://six.example/", "::1, loopback; .* add \\[::1\\]:443 "),
            ("http://localhost:4566/", "a name of our own network, .* add localhost:4566 "),
        ],
    )
    def test_the_error_names_the_entry_that_allows_the_url(self, url, remedy):
        with pytest.raises(OutboundRefused, match=f"no connection is made to {remedy}to the setting") as refused:
            allowed_addresses(url)
        entry = str(refused.value).partition("add ")[2].partition(" to the setting")[0]
        if "localhost" not in url:
            assert allowed_addresses(url, entry)

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("https://user@files.example/", "it contains credentials"),
            ("https://files.example/a b", "it contains a space"),
            ("ftp://files.example/", "its scheme has to be one of http, https, sftp, postgresql"),
            ("https://files.example:70000/", "70000 is not a port"),
            ("https://127.1/", "Expected 4 octets"),
            ("https://files..example/", r"files\.\.example is not a host name"),
            ("https://[files]/", "its host cannot be read"),
            ("https:///", "a plain host with an optional port is expected"),
        ],
    )
    def test_the_error_names_what_is_wrong_with_the_url(self, url, reason):
        with pytest.raises(OutboundRefused, match=f": no connection is made to such a URL: .*{reason}"):
            allowed_addresses(url)

    @pytest.mark.parametrize(
        "url",
        [
            "https://user:hush@files.example/path?hush",
            "https://user:hush@files\u2100.example/",
            "ftp://files.example/path?token=hush#hush",
            "http://127.0.0.1/path?token=hush",
            "http:\\\\user:hush@127.0.0.1",
        ],
    )
    def test_the_error_contains_no_secrets(self, url):
        with pytest.raises(OutboundRefused) as refused:
            allowed_addresses(url)
        assert "hush" not in str(refused.value)


class Resolver:
    """Returns its answers in order and repeats the last one."""

    def __init__(self, *answers: list[str]) -> None:
        self.lookups: Counter[str] = Counter()
        self._answers = list(answers)

    def __call__(self, host: str, port: int) -> list[str]:
        self.lookups[host] += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@pytest.fixture
def web():
    with Web() as web:
        web.on("/", Reply(body=b"hello"))
        yield web


@pytest.fixture
def connected(monkeypatch, web):
    """Addresses that connections were made to; all connections reach the test server."""
    addresses = []
    create_connection = socket.create_connection

    def connect(address, *args, **more):
        addresses.append(address)
        return create_connection(("127.0.0.1", web.port), *args, **more)

    monkeypatch.setattr(socket, "create_connection", connect)
    return addresses


class TestGuardedTransport:
    def get(self, guard: Outbound, *urls: str) -> list[httpx.Response]:
        with httpx.Client(transport=GuardedTransport(guard), trust_env=False) as client:
            return [client.get(url) for url in urls]

    def test_the_host_header_keeps_the_name(self, web):
        guard = Outbound.of([web.entry], resolve=Resolver(["127.0.0.1"]))
        (response,) = self.get(guard, f"http://files.example:{web.port}/?a=%2F&b=%C3%BC")
        assert (response.status_code, response.url.host) == (404, "files.example")
        assert web.requests[0].headers["host"] == f"files.example:{web.port}"
        assert web.paths == ["/?a=%2F&b=%C3%BC"]

    def test_a_name_is_resolved_once_for_check_and_connection(self, web, connected):
        resolver = Resolver([PUBLIC], ["127.0.0.1"])
        guard = Outbound.of([], resolve=resolver)
        assert self.get(guard, "http://files.example/")[0].text == "hello"
        assert connected == [(PUBLIC, 80)]
        assert resolver.lookups == {"files.example": 1}

    def test_a_name_is_checked_again_for_each_request(self, web, connected):
        guard = Outbound.of([], resolve=Resolver([PUBLIC], ["127.0.0.1"]))
        with pytest.raises(OutboundRefused, match=r"127\.0\.0\.1, loopback"):
            self.get(guard, "http://files.example/", "http://files.example/")
        assert connected == [(PUBLIC, 80)]
        assert web.paths == ["/"]

    def test_one_refused_address_among_several_refuses_the_name(self, connected):
        guard = Outbound.of([], resolve=Resolver([PUBLIC, "169.254.169.254"]))
        with pytest.raises(OutboundRefused, match=r"169\.254\.169\.254, link-local"):
            self.get(guard, "http://files.example/")
        assert connected == []

    def test_hosts_with_the_same_address_do_not_share_connections(self, web, connected):
        guard = Outbound.of([], resolve=Resolver([PUBLIC]))
        self.get(guard, "http://one.example/", "http://two.example/", "http://one.example/", "http://two.example/")
        assert connected == [(PUBLIC, 80)] * 2
        assert [request.headers["host"] for request in web.requests] == ["one.example", "two.example"] * 2

    def test_the_next_address_is_tried_when_one_does_not_answer(self, web):
        with Web() as closed:
            unused_port = closed.port
        guard = Outbound.of(["127.0.0.0/8"], resolve=Resolver(["127.0.0.2", "127.0.0.1"]))
        assert self.get(guard, f"http://files.example:{web.port}/")[0].text == "hello"
        with pytest.raises(httpx.ConnectError):
            self.get(guard, f"http://files.example:{unused_port}/")

    @pytest.mark.parametrize("category", REFUSED)
    def test_no_bypass_reaches_a_refused_address(self, category, connected):
        guard = Outbound.of([], resolve=resolve_known)
        for url in REFUSED[category]:
            with suppress(OutboundRefused, httpx.HTTPError, httpx.InvalidURL):
                self.get(guard, url)
        assert {address for address, _ in connected} <= {PUBLIC}
        assert {port for _, port in connected} <= {80, 443}

    def test_a_name_without_an_address_is_reported(self):
        with pytest.raises(httpx.ConnectError, match=r"files\.example has no address"):
            self.get(Outbound.of([], resolve=Resolver([])), "http://files.example/")

    def test_an_unknown_name_is_reported(self):
        def resolve(host, port):
            raise socket.gaierror(-2, "Name or service not known")

        with pytest.raises(httpx.ConnectError, match=r"files.example: .*Name or service not known"):
            self.get(Outbound.of([], resolve=resolve), "http://files.example/")

    def test_the_system_resolver_is_the_default(self, web):
        assert self.get(Outbound.of(["localhost"]), f"http://localhost:{web.port}/")[0].text == "hello"

    def test_proxies_of_the_environment_are_ignored(self, web, monkeypatch):
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
        assert self.get(Outbound.of(["127.0.0.1"]), f"{web.url}/")[0].text == "hello"


class TestSocket:
    @pytest.fixture
    def listening(self):
        with closing(socket.create_server(("127.0.0.1", 0))) as listening:
            yield listening.getsockname()[1]

    def test_a_socket_opens_to_the_next_address_that_answers(self, listening):
        guard = Outbound.of(["127.0.0.0/8"], resolve=Resolver(["127.0.0.2", "127.0.0.1"]))
        with closing(guard.open_socket("sftp.example", listening)) as opened:
            assert opened.getpeername() == ("127.0.0.1", listening)

    def test_a_name_is_checked_again_for_each_socket(self, connected):
        guard = Outbound.of([], resolve=Resolver([PUBLIC], ["127.0.0.1"]))
        guard.open_socket("sftp.example", 22).close()
        assert connected == [(PUBLIC, 22)]
        with pytest.raises(OutboundRefused):
            guard.open_socket("sftp.example", 22)
        assert len(connected) == 1

    @pytest.mark.parametrize(
        "host", ["127.0.0.1", "::1", "localhost", "127.1", "10.0.0.5", "a@127.0.0.1", "sftp.example/"]
    )
    def test_a_socket_to_a_refused_host_is_not_opened(self, host, connected):
        with pytest.raises(OutboundRefused):
            Outbound.of([], resolve=resolve_known).open_socket(host, 22)
        assert connected == []

    def test_a_refused_connection_is_reported(self):
        with Web() as closed:
            port = closed.port
        with pytest.raises(OSError, match="refused"):
            Outbound.of(["127.0.0.1"]).open_socket("127.0.0.1", port)
