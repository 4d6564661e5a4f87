"""Guards connections to partners and databases: resolves a host once, checks its addresses, connects to a checked one.

By default, only public addresses and the default port of the scheme are allowed. The setting `outbound_allow` lists
exceptions. An entry with a port allows that port only, an entry without a port allows all ports:

- an address or a network, such as `10.20.0.5`, `10.20.0.0/16`, `[fd12::5]:8443`: allows connections to it;
- a host name, such as `files.partner.example:8443`: allows connections to this host at public and private addresses.
  Whoever controls the DNS of a name controls its addresses. So a name never allows loopback addresses (except the name
  `localhost`) or the addresses at which clouds serve credentials: these need an entry with the address.

Hosts that one program reads as a name and another program as an address, such as `0x7f.1`, are refused.
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
from slackwater.outbound.ip_addresses import LOOPBACK, PRIVATE, Address, Network, special_purpose

PORTS = {"http": 80, "https": 443, "sftp": 22, "postgresql": 5432, "redshift": 5439}
# Limits the connection to one address: a host with several addresses may take several times as long.
_CONNECT_SECONDS = 5.0
# The expressions match a whole string, and `ipaddress` parses the result. They accept ASCII only, so a host name in
# another script has to be written in Punycode, and refuse user names, IPv6 zones (`%eth0`) and ports with a leading 0.
_PORT = "(?::(?P<port>[1-9][0-9]{0,4}))?"
# host, host:port, [IPv6], [IPv6]:port
_AUTHORITY = re.compile(rf"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+)){_PORT}")
# 10.0.0.0/8, 10.0.0.0/8:443, [fd00::/8]:443
_NETWORK = re.compile(rf"\[?(?P<network>[0-9A-Fa-f:.]+/[0-9]+)\]?{_PORT}")
_MAX_PORT = 65_535
# Control characters, blanks (also the no-break space) and backslashes: URL parsers disagree about all of them.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
# One label of a lower-case name (RFC 1035: up to 63 characters), and underscores, which occur in practice.
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# A last label that C libraries read as part of an IPv4 address, decimal, octal or hexadecimal.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# RFC 1035 allows 255 bytes on the wire. They include the length of the first label and the root, one byte each.
_MAX_NAME_LENGTH = 253
_LOCAL_SUFFIXES = (".localhost", ".internal", ".local", ".localdomain", ".home.arpa")
# Metadata servers of clouds whose names look public. Those of other clouds end with a local suffix, or have no dot.
_METADATA_SERVERS = frozenset({"metadata.tencentyun.com", "metadata.packet.net"})


@dataclass(frozen=True)
class Target:
    """Scheme, host and port of a connection."""

    scheme: str
    host: str
    """A lower-case name, or an address in the format of `ipaddress`, without brackets."""
    port: int


@dataclass(frozen=True)
class AllowedTarget:
    """One entry of `outbound_allow`: a host or a network."""

    host: str | None
    network: Network | None
    port: int | None
    """None allows every port."""

    @classmethod
    def parse(cls, entry: str) -> AllowedTarget:
        """Return the entry of the setting as an object. Raises `DefinitionError` when it is malformed."""
        try:
            if network := _NETWORK.fullmatch(entry):
                return cls(None, ip_network(network["network"]), _port(network["port"]))
            bare_ipv6 = entry.count(":") > 1 and "[" not in entry
            host, port = _host_and_port(f"[{entry}]" if bare_ipv6 else entry)
        except ValueError as error:
            raise DefinitionError(
                f"outbound_allow: {entry!r} is not a host, an address or a network with an optional port: {error}"
            ) from error
        address = _parse_address(host)
        return cls(host, None, port) if address is None else cls(None, ip_network(address), port)

    def matches_name(self, target: Target) -> bool:
        """Whether the entry names the target's host and allows its port."""
        return self.host == target.host and self.port in {None, target.port}

    def allows(self, target: Target, address: Address) -> bool:
        """Whether the entry allows a connection to the target at `address`."""
        if self.network is not None:
            return address in self.network and self.port in {None, target.port}
        return self.matches_name(target) and _allowed_by_name(target, special_purpose(address))


def _resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host name from DNS. Raises `OSError`."""
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


@dataclass(frozen=True)
class Outbound:
    """Checks targets against the default rules and the entries of `outbound_allow`."""

    allow: tuple[AllowedTarget, ...] = ()
    resolve: Callable[[str, int], Sequence[str]] = _resolve
    """Returns the addresses of a host name. Raises `OSError`."""

    @classmethod
    def of(cls, entries: Iterable[str], *, resolve: Callable[[str, int], Sequence[str]] = _resolve) -> Outbound:
        """Return the guard for entries of `outbound_allow`. Raises `DefinitionError` for a malformed entry."""
        return cls(tuple(AllowedTarget.parse(entry) for entry in entries), resolve)

    def check(self, url: str) -> Target:
        """Return the target of a URL, before its host is resolved.

        Raises `OutboundRefused` for a URL that programs may read differently, for a scheme without an entry in `PORTS`,
        and for a local host name.
        """
        try:
            if _FORBIDDEN.search(url):
                raise ValueError("it contains a space, a control character or a backslash")
            try:
                parts = urlsplit(url)
            except ValueError:  # its message may hold credentials
                raise ValueError("its host cannot be read") from None
            if parts.scheme not in PORTS:
                raise ValueError(f"its scheme has to be one of {', '.join(PORTS)}")
            if "@" in parts.netloc:
                raise ValueError("it contains credentials, or an @ before its path")
            return self._target(parts.scheme, parts.netloc)
        except ValueError as error:
            raise OutboundRefused(f"{_without_secrets(url)}: no connection is made to such a URL: {error}") from error

    def connect_addresses(self, target: Target) -> tuple[Address, ...]:
        """Return the addresses of the target in the order in which to try them.

        Raises `OutboundRefused` if any of them is not allowed, and `OSError` when the host has none.
        """
        literal = _parse_address(target.host)
        addresses = [literal] if literal else [ip_address(item) for item in self.resolve(target.host, target.port)]
        if not addresses:
            raise OSError(f"{target.host} has no address")
        # One refused address refuses the host: a DNS answer that mixes public and private addresses is suspicious.
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
        """Connect to an SFTP server and return the socket; `timeout` is in seconds, for each address.

        Raises `OutboundRefused`, and `OSError` when none of its addresses answers.
        """
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
    """Sends each request, including each redirect, to an address that `Outbound` has checked for that request."""

    def __init__(self, outbound: Outbound, *, trust: SSLContext | None = None) -> None:
        """Verify certificates for the host's name, with the authorities in `trust` or else the public ones."""
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
        # One pool for each target and address, so that a connection whose certificate was verified for one name never
        # carries requests for another name. The URL contains the checked address, so that nothing resolves the name a
        # second time (DNS rebinding); the Host header and SNI keep the name.
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
    # Cached, because each pool of connections needs it and reading the certificates of the authorities is slow.
    return httpx.create_ssl_context()


def _host_and_port(authority: str) -> tuple[str, int | None]:
    """Return the host, and the port or None. Raises `ValueError` for a host or port that programs read differently."""
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise ValueError("a plain host with an optional port is expected: files.example:8443 or [2a00::1]:8443")
    port = _port(parts["port"])
    if parts["six"]:
        return str(IPv6Address(parts["six"])), port
    host = parts["name"].lower()
    labels = host.split(".")
    # Some programs read such a name as an address: only four decimal numbers without leading zeros are accepted.
    if _NUMBER.fullmatch(labels[-1]):
        return str(IPv4Address(host)), port
    if len(host) > _MAX_NAME_LENGTH or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{host} is not a host name")
    return host, port


def _port(digits: str | None) -> int | None:
    """Return the port as a number. Raises `ValueError` when it is too large."""
    if digits is None:
        return None
    if int(digits) > _MAX_PORT:
        raise ValueError(f"{digits} is not a port")
    return int(digits)


def _parse_address(host: str) -> Address | None:
    """Return the address that `host` is, or None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _allowed_by_name(target: Target, category: str | None) -> bool:
    """Whether an entry with the target's name allows an address of this category (None is public)."""
    localhost = target.host == "localhost" or target.host.endswith(".localhost")
    return category in {None, PRIVATE} or (category == LOOPBACK and localhost)


def _refusal(target: Target, reason: str, entry: str) -> OutboundRefused:
    """Return the error for a target; `entry` is the host or address to allow, which the message suggests."""
    host, entry = (f"[{item}]" if ":" in item else item for item in (target.host, entry))
    return OutboundRefused(
        f"{target.scheme}://{host}:{target.port}: no connection is made to {reason}; "
        f"if this connection is intended, add {entry}:{target.port} to the setting outbound_allow"
    )


def _without_secrets(url: str) -> str:
    """Return the URL for messages: without credentials, query and fragment, and with escapes for unusual characters."""
    return ascii(re.split("[?#]", url)[0].rpartition("@")[2])[1:-1]
