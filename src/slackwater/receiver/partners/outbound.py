"""The guard of all connections to partners: every target is checked, and connected to at the very address checked.

By default a partner has public addresses only, and its scheme's own port. The setting `outbound_allow` lists
exceptions, each with a port (for that port only) or without (for all ports):

- an address or a network, such as `10.20.0.5`, `10.20.0.0/16`, `[fd12::5]:8443`: allows connections to it;
- a host name, such as `files.partner.example:8443`: allows its own port, and private addresses besides public ones.
  Whoever controls the name's DNS controls its addresses. So a name never allows this machine (except `localhost`) nor
  the addresses at which clouds serve credentials: they need an entry with the address.

Hosts have to be in a plain form: what one program reads as a name and another one as an address is refused.
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
from slackwater.receiver.partners.ip_addresses import LOOPBACK, PRIVATE, Address, Network, special_purpose

PORTS = {"http": 80, "https": 443, "sftp": 22}
_CONNECT_SECONDS = 5.0
# Hosts and networks are matched as whole strings, and parsed by `ipaddress` then: nothing is left to interpretation.
_PORT = "(?::(?P<port>[1-9][0-9]{0,4}))?"
_AUTHORITY = re.compile(rf"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+)){_PORT}")
_NETWORK = re.compile(rf"\[?(?P<network>[0-9A-Fa-f:.]+/[0-9]+)\]?{_PORT}")
_MAX_PORT = 65_535
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_NAME_LENGTH = 253  # RFC 1035
_LOCAL_SUFFIXES = (".localhost", ".internal", ".local", ".localdomain", ".home.arpa")
# Clouds' metadata servers with names that look public. Those of other clouds have a local suffix, or no dot.
_METADATA_SERVERS = frozenset({"metadata.tencentyun.com", "metadata.packet.net"})


@dataclass(frozen=True)
class Target:
    """Scheme, host and port of a connection."""

    scheme: str
    host: str
    """A lower-case name, or an address in canonical form without brackets."""
    port: int


@dataclass(frozen=True)
class AllowedTarget:
    """One entry of `outbound_allow`: a host or a network."""

    host: str | None
    network: Network | None
    port: int | None
    """None allows every port."""

    def matches_name(self, target: Target) -> bool:
        """Whether the entry has the target's host name, and its port."""
        return self.host == target.host and self.port in {None, target.port}

    def allows(self, target: Target, address: Address) -> bool:
        """Whether the entry allows a connection to the target at `address`."""
        if self.network is not None:
            return address in self.network and self.port in {None, target.port}
        return self.matches_name(target) and _allowed_by_name(target, special_purpose(address))


def _resolve(host: str, port: int) -> list[str]:
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


@dataclass(frozen=True)
class Outbound:
    """The guard, with the entries of `outbound_allow`."""

    allow: tuple[AllowedTarget, ...] = ()
    resolve: Callable[[str, int], Sequence[str]] = _resolve
    """Returns the addresses of a host name. Raises `OSError`."""

    @classmethod
    def of(cls, entries: Iterable[str], *, resolve: Callable[[str, int], Sequence[str]] = _resolve) -> Outbound:
        """Return the guard for entries of `outbound_allow`. Raises `DefinitionError` for a malformed entry."""
        return cls(tuple(_parse_entry(entry) for entry in entries), resolve)

    def check(self, url: str) -> Target:
        """Return the target of a URL.

        Raises `OutboundRefused` for a URL that programs may read differently, for another scheme, and for a local name.
        """
        try:
            if _FORBIDDEN.search(url):
                raise ValueError("it holds a space, a control character or a backslash")
            try:
                parts = urlsplit(url)
            except ValueError:  # its message may hold credentials
                raise ValueError("its host cannot be read") from None
            if parts.scheme not in PORTS:
                raise ValueError(f"its scheme has to be one of {', '.join(PORTS)}")
            if "@" in parts.netloc:
                raise ValueError("it holds credentials, or an @ before its path")
            return self._target(parts.scheme, parts.netloc)
        except ValueError as error:
            raise OutboundRefused(f"{_without_secrets(url)}: no connection is made to such a URL: {error}") from error

    def connect_addresses(self, target: Target) -> tuple[Address, ...]:
        """Return the addresses of the target, to be tried in this order.

        Raises `OutboundRefused` if any of them is not allowed, and `OSError` when there is none.
        """
        literal = _parse_address(target.host)
        addresses = [literal] if literal else [ip_address(item) for item in self.resolve(target.host, target.port)]
        if not addresses:
            raise OSError(f"{target.host} has no address")
        for address in addresses:
            if any(entry.allows(target, address) for entry in self.allow):
                continue
            category = special_purpose(address)
            if category is not None:
                entry = target.host if _allowed_by_name(target, category) else str(address)
                raise _refusal(target, f"{address}, {category}", entry)
            if target.port != PORTS[target.scheme]:
                raise _refusal(target, f"a port other than {PORTS[target.scheme]}", target.host)
        return tuple(dict.fromkeys(addresses))

    def open_socket(self, host: str, port: int, *, timeout: float = _CONNECT_SECONDS) -> socket.socket:
        """Connect to an SFTP server. Raises `OutboundRefused`, and `OSError` when none of its addresses answers."""
        try:
            target = self._target("sftp", f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except ValueError as error:
            raise OutboundRefused(f"{_without_secrets(host)}: no connection is made to such a host: {error}") from error
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
        local = "." not in host or host.endswith(_LOCAL_SUFFIXES) or host in _METADATA_SERVERS
        if local and _parse_address(host) is None and not any(entry.matches_name(target) for entry in self.allow):
            raise _refusal(target, "a name of our own network, or of a cloud's metadata server", host)
        return target


class GuardedTransport(httpx.BaseTransport):
    """Sends each request, including each redirect, to an address that `outbound` has checked for that request."""

    def __init__(self, outbound: Outbound, *, trust: SSLContext | None = None) -> None:
        """Verify servers' certificates by `trust`, or else by the public authorities; always for the host's name."""
        self._outbound = outbound
        self._trust = trust
        self._inner: dict[tuple[Target, Address], httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to the first address that answers. Raises `OutboundRefused`, or httpx's own errors."""
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
        # One pool for each target and address: a connection whose certificate was verified for one name never carries
        # requests for another name. The URL gets the checked address; the Host header and SNI keep the name.
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


def _host_and_port(authority: str) -> tuple[str, int | None]:
    """Return host and port, None if there is none. Raises `ValueError` unless both are in a plain form."""
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise ValueError("a plain host with an optional port is expected: files.example:8443 or [2a00::1]:8443")
    port = _port(parts["port"])
    if parts["six"]:
        return str(IPv6Address(parts["six"])), port
    host = parts["name"].lower()
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):  # some programs read such a name as an address: only its plain form is accepted
        return str(IPv4Address(host)), port
    if len(host) > _MAX_NAME_LENGTH or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{host} is not a host name")
    return host, port


def _port(digits: str | None) -> int | None:
    if digits is None:
        return None
    if int(digits) > _MAX_PORT:
        raise ValueError(f"{digits} is not a port")
    return int(digits)


def _parse_entry(entry: str) -> AllowedTarget:
    try:
        if network := _NETWORK.fullmatch(entry):
            return AllowedTarget(None, ip_network(network["network"]), _port(network["port"]))
        bare_ipv6 = entry.count(":") > 1 and "[" not in entry
        host, port = _host_and_port(f"[{entry}]" if bare_ipv6 else entry)
    except ValueError as error:
        raise DefinitionError(
            f"outbound_allow: {entry!r} is not a host, an address or a network with an optional port: {error}"
        ) from error
    address = _parse_address(host)
    return AllowedTarget(host, None, port) if address is None else AllowedTarget(None, ip_network(address), port)


def _parse_address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _allowed_by_name(target: Target, category: str | None) -> bool:
    """Whether an entry with the target's name allows an address of this category (None is public)."""
    localhost = target.host == "localhost" or target.host.endswith(".localhost")
    return category in {None, PRIVATE} or (category == LOOPBACK and localhost)


def _refusal(target: Target, reason: str, entry: str) -> OutboundRefused:
    host, entry = (f"[{item}]" if ":" in item else item for item in (target.host, entry))
    return OutboundRefused(
        f"{target.scheme}://{host}:{target.port}: no connection is made to {reason}; "
        f"if this connection is intended, add {entry}:{target.port} to the setting outbound_allow"
    )


def _without_secrets(url: str) -> str:
    """Return the URL for messages, without what may be secret: credentials and the query."""
    return ascii(re.split("[?#]", url)[0].rpartition("@")[2])[1:-1]
