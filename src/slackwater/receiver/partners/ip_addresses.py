"""Which addresses are public, by IANA's registries of special-purpose addresses (IPv4: RFC 6890; IPv6: RFC 4291).

The tables stand here, and not with `ipaddress`, since what that calls global has changed with Python's patch versions.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

PRIVATE = "private"
LOOPBACK = "loopback"
_OF_IPV4 = (
    ("0.0.0.0/8", "this very host"),
    ("10.0.0.0/8", PRIVATE),
    ("100.64.0.0/10", PRIVATE),
    ("127.0.0.0/8", LOOPBACK),
    ("169.254.0.0/16", "link-local, where clouds keep credentials"),
    ("172.16.0.0/12", PRIVATE),
    ("192.0.0.0/24", "reserved for protocols"),
    ("192.0.2.0/24", "for documentation"),
    ("192.88.99.0/24", "a 6to4 relay"),
    ("192.168.0.0/16", PRIVATE),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("224.0.0.0/4", "multicast"),
    ("255.255.255.255/32", "broadcast"),
    ("240.0.0.0/4", "reserved"),
)
_OF_IPV6 = (
    ("::/128", "this very host"),
    ("::1/128", LOOPBACK),
    ("::ffff:0:0/96", "an IPv4 address in IPv6's clothes"),
    ("::/96", "an IPv4 address in IPv6's clothes"),
    ("64:ff9b:1::/48", "a translation to IPv4 for local use"),
    ("2001::/32", "a Teredo tunnel to an IPv4 address"),
    ("2001::/23", "reserved for protocols"),
    ("2001:db8::/32", "for documentation"),
    ("2002::/16", "a 6to4 tunnel to an IPv4 address"),
    ("3fff::/20", "for documentation"),
    ("fd00:ec2::/32", "AWS's own, where it keeps credentials"),
    ("fc00::/7", PRIVATE),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
_SPECIAL = tuple((ip_network(network), what) for network, what in (*_OF_IPV4, *_OF_IPV6))
"""The first that holds an address tells what it is."""
_UNICAST = IPv6Network("2000::/3")
"""All that has been given out of IPv6."""
_TRANSLATED = IPv6Network("64:ff9b::/96")
"""Networks without IPv4 reach a server that has nothing else by an address that ends with its own: NAT64, RFC 6052."""


def special(address: Address) -> str | None:
    """Return what an address is when it is not public, so that no partner of ours can be there; None when it is."""
    if isinstance(address, IPv6Address) and address in _TRANSLATED:
        return special(IPv4Address(address.packed[-4:]))
    what = next((what for network, what in _SPECIAL if address in network), None)
    if what is None and isinstance(address, IPv6Address) and address not in _UNICAST:
        return "not in use"
    return what
