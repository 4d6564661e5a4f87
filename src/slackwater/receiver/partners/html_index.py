"""File names in the index page that a web server (Apache, nginx, lighttpd, Python) generates for a folder.

An HTML parser that builds a tree is not safe here: unclosed formatting tags multiply in the tree, so a hostile page of
60 kB takes gigabytes. The regular expressions below read any page once, in linear time and constant memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import unquote, urljoin, urlsplit

# Possessive quantifiers (`*+`, `++`) do not backtrack, because that would take quadratic time for broken pages. Text
# that starts like a tag or a comment is consumed up to its end, or to the end of the page if it has none.

# An attribute: a name, and a value with double, single or no quotes.
_ATTRIBUTE = r"""[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|(?!["'])[^\s>]++)?+)?+"""
_TAG_OR_COMMENT = re.compile(
    rf"""
    <!--.*?(?:-->|\Z)                                       # a comment
    | <(script|style)(?=[\s/>]).*?(?:</\1|\Z)                # contents that are not HTML
    | <(?P<tag>[a-z][^\s/>]*+)(?P<attributes>(?:[\s/]++|{_ATTRIBUTE})*+)(?P<end>>?+)
    """,
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
# One attribute of a tag, or the blanks between two attributes. Only the value of `href` gets a group.
_HREF = re.compile(
    rf"""
    [\s/]++
    | href\s*+=\s*+(?:"(?P<double>[^"]*+)"|'(?P<single>[^']*+)'|(?!["'])(?P<bare>[^\s>]++))
    | {_ATTRIBUTE}
    """,
    re.IGNORECASE | re.VERBOSE,
)


def index_names(page: str, url: str) -> Iterator[str]:
    """Yield the names of the files directly in the folder at `url`, in the order of the page, some more than once.

    Ignores all other links: to the parent folder, to sub-folders, to the same page in another order, to other hosts.
    """
    base = urlsplit(url)
    folder = unquote(base.path).rpartition("/")[0] + "/"
    for link in _links(page):
        try:
            target = urlsplit(urljoin(url, unescape(link).strip()))
            path = unquote(target.path, errors="strict")
        except ValueError:
            # Not a URL, or a name that is not UTF-8: it cannot be requested.
            continue
        is_below = (target.scheme, target.netloc) == (base.scheme, base.netloc) and path.startswith(folder)
        name = path.removeprefix(folder)
        if is_below and name and "/" not in name and not (target.query or target.fragment):
            yield name


def _links(page: str) -> Iterator[str]:
    """Yield the `href` of each `<a>`, still escaped."""
    for match in _TAG_OR_COMMENT.finditer(page):
        if match["end"] and match["tag"].lower() == "a":
            for attribute in _HREF.finditer(match["attributes"]):
                if link := attribute["double"] or attribute["single"] or attribute["bare"]:
                    yield link
