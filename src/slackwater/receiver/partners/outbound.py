"""Where connections to partners may go. Each is checked here, and made to the very address that was checked.

Left alone, a partner is at public addresses alone, and at its scheme's own port. What else may be is listed in the
setting `outbound_allow`, each entry with a port (for that one alone) or without (for all):

- an address or a network, such as `10.20.0.5`, `10.20.0.0/16`, `[fd12::5]:8443`: connections to such addresses;
- a host's name, such as `files.partner.example:8443`: its own port, public or private. A name is as trustworthy as who
  answers for it in DNS, so that it never leads to this machine (but for `localhost`), nor to where a cloud keeps
  credentials: that takes an entry with the address.

A host has to be spelled plainly: whatever one program takes for a name and another one for an address is refused.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from ssl import SSLContext
from urllib.parse import urlsplit

import httpx

from slackwater.errors import DefinitionError, OutboundRefused
from slackwater.receiver.partners.ip_addresses import LOOPBACK, PRIVATE, Address, Network, special

PORTS = {"http": 80, "https": 443, "sftp": 22}
_CONNECT_SECONDS = 5.0
_PORT = "(?::(?P<port>[1-9][0-9]{0,4}))?"
_AUTHORITY = re.compile(rf"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+)){_PORT}")
_NETWORK = re.compile(rf"\[?(?P<network>[0-9A-Fa-f:.]+/[0-9]+)\]?{_PORT}")
_LAST_PORT = 65_535
_UNPLAIN = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LONGEST_NAME = 253
_OWN_NETWORK = (".localhost", ".internal", ".local", ".localdomain", ".home.arpa")
_METADATA_SERVERS = frozenset({"metadata.tencentyun.com", "metadata.packet.net"})
"""Clouds' servers of credentials whose names look public; all others' are of one word, or end as an own network's."""


@dataclass(frozen=True)
class Target:
    """Where a connection is to go."""

    scheme: str
    host: str
    """A name in lower case, or an address in its canonical form, without brackets."""
    port: int


@dataclass(frozen=True)
class Allowed:
    """One entry of `outbound_allow`: a host or a network."""

    host: str | None
    network: Network | None
    port: int | None
    """None is any."""

    def names(self, target: Target) -> bool:
        """Whether it is about the target's name."""
        return self.host == target.host and self.port in {None, target.port}

    def lets(self, target: Target, address: Address) -> bool:
        """Whether it lets a connection to the target's `address` pass."""
        if self.network is not None:
            return address in self.network and self.port in {None, target.port}
        return self.names(target) and _passes_by_name(target, special(address))


def _resolve(host: str, port: int) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


@dataclass(frozen=True)
class Outbound:
    """The guard."""

    allow: tuple[Allowed, ...] = ()
    resolve: Callable[[str, int], Sequence[str]] = _resolve
    """Returns a name's addresses. Raises `OSError`."""

    @classmethod
    def of(cls, entries: Iterable[str], *, resolve: Callable[[str, int], Sequence[str]] = _resolve) -> Outbound:
        """Make it of the entries of `outbound_allow`. Raises `DefinitionError` for one that is malformed."""
        return cls(tuple(_allowed(entry) for entry in entries), resolve)

    def check(self, url: str) -> Target:
        """Return where a URL leads. Raises `OutboundRefused` for one that is not plain, and for a name of our own."""
        try:
            return self._target(*_scheme_and_authority(url))
        except ValueError as error:
            raise OutboundRefused(f"{_shown(url)}: no connection is made to such an address: {error}") from error

    def connect_addresses(self, target: Target) -> tuple[Address, ...]:
        """Return the addresses to connect to, the first that answers.

        Raises `OutboundRefused` if a single one of them is not to be connected to, and `OSError` when there is none.
        """
        literal = _address(target.host)
        found = [literal] if literal else [ip_address(text) for text in self.resolve(target.host, target.port)]
        if not found:
            raise OSError(f"{target.host} has no address")
        for address in found:
            self._check_address(target, address)
        return tuple(dict.fromkeys(found))

    def open_socket(self, host: str, port: int, *, timeout: float = _CONNECT_SECONDS) -> socket.socket:
        """Connect to an SFTP server. Raises `OutboundRefused`, and `OSError` when none of its addresses answers."""
        try:
            target = self._target("sftp", f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except ValueError as error:
            raise OutboundRefused(f"{_shown(host)}: no connection is made to such a host: {error}") from error
        *others, last = self.connect_addresses(target)
        for address in others:
            try:
                return socket.create_connection((str(address), port), timeout=timeout)
            except OSError:
                continue
        return socket.create_connection((str(last), port), timeout=timeout)

    def _target(self, scheme: str, authority: str) -> Target:
        host, port = _host_and_port(authority)
        target = Target(scheme, host, port or PORTS[scheme])
        if _is_local_name(host) and not any(entry.names(target) for entry in self.allow):
            raise _refusal(target, "a name of our own network, or of a cloud's metadata", host)
        return target

    def _check_address(self, target: Target, address: Address) -> None:
        if any(entry.lets(target, address) for entry in self.allow):
            return
        what = special(address)
        if what is not None:
            raise _refusal(target, f"{address}, {what}", target.host if _passes_by_name(target, what) else str(address))
        if target.port != PORTS[target.scheme]:
            raise _refusal(target, f"a port other than {PORTS[target.scheme]}", target.host)


class GuardedTransport(httpx.BaseTransport):
    """Sends each request, and so each hop of a redirect, to an address that `outbound` has checked for it."""

    def __init__(self, outbound: Outbound, *, trust: SSLContext | None = None) -> None:
        """Servers' certificates are verified for their names, and by the public authorities unless `trust` is given."""
        self._outbound = outbound
        self._trust = trust
        self._inner: dict[tuple[Target, Address], httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Raise `OutboundRefused`, or what httpx raises."""
        target = self._outbound.check(str(request.url))
        try:
            *others, last = self._outbound.connect_addresses(target)
        except OSError as error:
            raise httpx.ConnectError(f"{target.host}: {error}", request=request) from error
        for address in others:
            try:
                return self._send(request, target, address)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return self._send(request, target, last)

    def close(self) -> None:
        """Close all connections."""
        for inner in self._inner.values():
            inner.close()

    def _send(self, request: httpx.Request, target: Target, address: Address) -> httpx.Response:
        # One pool for each name at each address: a connection that was opened, and verified, for one name never
        # carries another one's requests. Headers still name the host.
        if (target, address) not in self._inner:
            self._inner[target, address] = httpx.HTTPTransport(verify=self._trust or _authorities())
        return self._inner[target, address].handle_request(
            httpx.Request(
                request.method,
                request.url.copy_with(host=str(address)),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": target.host},
            )
        )


@cache
def _authorities() -> SSLContext:
    return httpx.create_ssl_context()


def _scheme_and_authority(url: str) -> tuple[str, str]:
    """Raise `ValueError` for a URL that is not plain."""
    if _UNPLAIN.search(url):
        raise ValueError("it holds a space, a control character or a backslash")
    try:
        parts = urlsplit(url)
    except ValueError:  # whose message may hold credentials
        raise ValueError("its host cannot be read") from None
    if parts.scheme not in PORTS:
        raise ValueError(f"partners are reached by {', '.join(PORTS)} alone")
    if "@" in parts.netloc:
        raise ValueError("it holds credentials, or an @ before its path")
    return parts.scheme, parts.netloc


def _host_and_port(text: str) -> tuple[str, int | None]:
    """Raise `ValueError` for a host or a port that is not spelled plainly."""
    parts = _AUTHORITY.fullmatch(text)
    if parts is None:
        raise ValueError("a plain host, and maybe a port, are expected, such as files.example:8443 or [2a00::1]:8443")
    port = _port(parts["port"])
    if parts["six"]:
        return str(IPv6Address(parts["six"])), port
    host = parts["name"].lower()
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):  # read as an address by some, in whatever form
        return str(IPv4Address(host)), port
    if len(host) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{host} is no host's name")
    return host, port


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    if int(text) > _LAST_PORT:
        raise ValueError(f"{text} is no port")
    return int(text)


def _allowed(entry: str) -> Allowed:
    try:
        if network := _NETWORK.fullmatch(entry):
            return Allowed(None, ip_network(network["network"]), _port(network["port"]))
        bare_ipv6 = entry.count(":") > 1 and "[" not in entry
        host, port = _host_and_port(f"[{entry}]" if bare_ipv6 else entry)
    except ValueError as error:
        raise DefinitionError(
            f"outbound_allow: {entry!r} is neither a host, an address nor a network, maybe with a port: {error}"
        ) from error
    address = _address(host)
    return Allowed(host, None, port) if address is None else Allowed(None, ip_network(address), port)


def _address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_localhost(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def _is_local_name(host: str) -> bool:
    if _address(host) is not None:
        return False
    return "." not in host or host.endswith(_OWN_NETWORK) or host in _METADATA_SERVERS


def _passes_by_name(target: Target, what: str | None) -> bool:
    return what in {None, PRIVATE} or (what == LOOPBACK and _is_localhost(target.host))


def _refusal(target: Target, what: str, entry: str) -> OutboundRefused:
    host, entry = (f"[{text}]" if ":" in text else text for text in (target.host, entry))
    return OutboundRefused(
        f"{target.scheme}://{host}:{target.port}: no connection is made to {what}; "
        f"if it is meant, add {entry}:{target.port} to the setting outbound_allow"
    )


def _shown(url: str) -> str:
    """Return the URL without what may be secret: credentials and the query."""
    return ascii(re.split("[?#]", url)[0].rpartition("@")[2])[1:-1]
