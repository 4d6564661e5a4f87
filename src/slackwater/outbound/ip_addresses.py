"""The special purposes of IP addresses, from IANA's registries (RFC 6890; for IPv6 also RFC 4291).

`ipaddress.is_global` is not used, because its result for some networks differs between patch versions of Python.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

PRIVATE = "private"
LOOPBACK = "loopback"
_IPV4 = (
    ("0.0.0.0/8", "this host"),
    ("10.0.0.0/8", PRIVATE),
    ("100.64.0.0/10", PRIVATE),
    ("127.0.0.0/8", LOOPBACK),
    ("169.254.0.0/16", "link-local, where clouds serve credentials"),
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
_IPV6 = (
    ("::/128", "this host"),
    ("::1/128", LOOPBACK),
    ("::ffff:0:0/96", "an IPv4 address in an IPv6 form"),
    ("::/96", "an IPv4 address in an IPv6 form"),
    ("64:ff9b:1::/48", "a translation to IPv4 for local use"),
    ("2001::/32", "a Teredo tunnel to an IPv4 address"),
    ("2001::/23", "reserved for protocols"),
    ("2001:db8::/32", "for documentation"),
    ("2002::/16", "a 6to4 tunnel to an IPv4 address"),
    ("3fff::/20", "for documentation"),
    ("fd00:ec2::/32", "AWS's own, where it serves credentials"),
    ("fc00::/7", PRIVATE),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
# In the order of the tables, where a smaller network stands before the one that contains it: the first match decides.
_SPECIAL = tuple((ip_network(network), category) for network, category in (*_IPV4, *_IPV6))
# All global IPv6 unicast addresses that IANA has released for allocation so far.
_UNICAST = IPv6Network("2000::/3")
# NAT64 (RFC 6052): networks without IPv4 reach an IPv4 server at this prefix followed by its IPv4 address.
_NAT64 = IPv6Network("64:ff9b::/96")


def special_purpose(address: Address) -> str | None:
    """Return the category of an address that is not public, such as `private`; None for a public address."""
    if isinstance(address, IPv6Address) and address in _NAT64:
        return special_purpose(IPv4Address(address.packed[-4:]))
    category = next((category for network, category in _SPECIAL if address in network), None)
    if category is None and isinstance(address, IPv6Address) and address not in _UNICAST:
        return "not allocated"
    return category
