"""A folder as web servers show it to people: the files that its page links to (Apache, nginx, lighttpd, Python)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import unquote, urljoin, urlsplit

_ATTRIBUTE = r"""[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|(?!["'])[^\s>]++)?+)?+"""
_PIECE = re.compile(
    rf"""
    <!--.*?(?:-->|\Z)                                       # a comment
    | <(script|style)(?=[\s/>]).*?(?:</\1|\Z)                # text that is no HTML
    | <(?P<tag>[a-z][^\s/>]*+)(?P<attributes>(?:[\s/]++|{_ATTRIBUTE})*+)(?P<end>>?+)
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
"""What begins like one of them is taken, to the page's end if it does not end before, and none gives anything back.

So a page is read once, however broken it is.
"""
_HREF = re.compile(
    rf"""
    [\s/]++
    | href\s*+=\s*+(?:"(?P<double>[^"]*+)"|'(?P<single>[^']*+)'|(?!["'])(?P<bare>[^\s>]++))
    | {_ATTRIBUTE}
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""One attribute after the other, or the blanks between them."""


def index_names(page: str, address: str) -> list[str]:
    """Return the names of the files directly below `address`, the folder's own, as the page has them, each once.

    Links elsewhere are let be: to the folder above, to sub-folders, to another order of the same page, to other hosts.
    """
    return list(dict.fromkeys(_names(_links(page), address)))


def _links(page: str) -> Iterator[str]:
    """Yield where anchors lead, as the page has it."""
    for piece in _PIECE.finditer(page):
        if piece["end"] and piece["tag"].lower() == "a":
            for attribute in _HREF.finditer(piece["attributes"]):
                if link := attribute["double"] or attribute["single"] or attribute["bare"]:
                    yield link


def _names(links: Iterator[str], address: str) -> Iterator[str]:
    home = urlsplit(address)
    folder = unquote(home.path).rpartition("/")[0] + "/"
    for link in links:
        try:
            to = urlsplit(urljoin(address, unescape(link).strip()))
            path = unquote(to.path, errors="strict")
        except ValueError:  # no address, no character, or a name that is not UTF-8: it could not be asked for
            continue
        here = (to.scheme, to.netloc) == (home.scheme, home.netloc) and path.startswith(folder)
        name = path.removeprefix(folder)
        if here and name and "/" not in name and not (to.query or to.fragment):
            yield name
