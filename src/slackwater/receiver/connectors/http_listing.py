"""List the files of a partner's HTTP server: from a JSON listing, from index pages, or by a request for each name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date
from functools import partial
from html import unescape
from time import sleep as wait_for
from typing import Literal
from urllib.parse import unquote, urljoin, urlsplit

import httpx

from slackwater.errors import DefinitionError, PartnerError
from slackwater.outbound.guard import GuardedTransport, Outbound
from slackwater.receiver.connectors.connector import ListedFile, listed_file
from slackwater.receiver.connectors.http_session import (
    GONE,
    HttpSession,
    Method,
    absolute_link,
    content_length,
    expect_ok,
    header_date,
    without_query,
)
from slackwater.receiver.connectors.json_page import JsonPage, read_json_page
from slackwater.sources.file_pattern import FilePattern, Names

# Pages of a JSON listing.
MAX_PAGES = 10_000
# Bytes of all pages of a JSON listing together: about 10 million files.
MAX_BYTES = 2 * 2**30
# Bytes of one index page: about 150,000 files.
MAX_INDEX_BYTES = 32 * 2**20
# Bytes that are read from a body at a time.
_BLOCK = 2**16
_HEADERS: Mapping[Method, Mapping[str, str]] = {"GET": {"range": "bytes=0-0"}, "HEAD": {}}
# Method not allowed, and not implemented.
_NO_SUCH_METHOD = frozenset({405, 501})
# RFC 9110: `bytes 0-0/1234`, `bytes 0-0/*` (unknown size), or `bytes */1234` with status 416. 18 digits fit an int64.
_CONTENT_RANGE = re.compile(r"bytes (?:[0-9]+-[0-9]+|\*)/(?P<total>[0-9]{1,18}|\*)")
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


class HtmlPage(PartnerError):
    """A server has answered with HTML, where a JSON listing is expected."""


class LimitedBody:
    """The blocks of a response's body. Iterating raises `PartnerError` beyond `at_most` bytes.

    The error names `limit`, the largest size of the whole listing.
    """

    def __init__(self, response: httpx.Response, url: str, *, at_most: int, limit: int) -> None:
        self._response, self._url, self._at_most, self._limit = response, url, at_most, limit
        self.size = 0
        """Bytes read so far."""

    def __iter__(self) -> Iterator[bytes]:
        for block in self._response.iter_bytes(_BLOCK):
            self.size += len(block)
            if self.size > self._at_most:
                raise PartnerError(f"{without_query(self._url)}: its listing is larger than {self._limit:,} bytes")
            yield block


def json_listing(session: HttpSession, url: str, wanted: Names) -> Iterator[ListedFile]:
    """Yield the files whose names match `wanted`, of a JSON listing and of the pages that it links to.

    A page is an array of files, or an object with the array in `files`. The next page's link is in `next`, or in the
    header `Link` with `rel="next"`. Raises `HtmlPage` for a page of HTML, and `PartnerError` for pages that are
    malformed, too large, or link in a circle, and for more files than fit into memory.
    """
    visited: set[str] = set()
    bytes_left, found, page_url = MAX_BYTES, 0, url
    while page_url:
        if page_url in visited or len(visited) == MAX_PAGES:
            raise PartnerError(
                f"{without_query(page_url)}: the listing has more than {MAX_PAGES:,} pages, or links in a circle"
            )
        visited.add(page_url)
        read = partial(_read_json_page, page_url, wanted, found=found, bytes_left=bytes_left)
        # The files of a page are kept until it is complete: a repeated attempt would yield some of them twice.
        page, size, page_url = session.read(page_url, read)
        yield from page.files
        bytes_left -= size
        found += len(page.files)


def _read_json_page(
    url: str, wanted: Names, response: httpx.Response, *, found: int, bytes_left: int
) -> tuple[JsonPage, int, str]:
    """Return a page, its bytes, and the URL of the next one, which is empty on the last page."""
    expect_ok(url, response)
    if response.headers.get("content-type", "").startswith("text/html"):
        raise HtmlPage(
            f"{without_query(url)}: an HTML page that links to no file of the look-back window, where a JSON listing "
            "is expected: set `listing: html` if it is the index of a folder"
        )
    body = LimitedBody(response, url, at_most=bytes_left, limit=MAX_BYTES)
    page = read_json_page(without_query(url), body, wanted, found=found)
    link = page.next or response.links.get("next", {}).get("url")
    return page, body.size, absolute_link(str(response.url), link) if link else ""


def names_in_folder(
    url: str, *, outbound: Outbound, sleep: Callable[[float], None] = wait_for
) -> tuple[Literal["json", "html"], list[str]]:
    """Return the names of the files that a JSON listing or an index page at `url` has, without those of sub-folders.

    The first part of the result says which of them it is.

    Raises `OutboundRefused`, or another `PartnerError`.
    """
    with closing(HttpSession(url, credentials=None, transport=GuardedTransport(outbound), sleep=sleep)) as session:
        kind: Literal["json", "html"] = "json"
        try:
            names = [file.name for file in json_listing(session, url, re.compile("[^/]+"))]
        except HtmlPage:
            kind, names = "html", list(index_names(*read_index(session, url, may_be_gone=False)))
    return kind, sorted(dict.fromkeys(names))


def names_in_indexes(
    session: HttpSession, url_of: Callable[[str], str], pattern: FilePattern, days: Sequence[date]
) -> Iterator[str]:
    """Yield the names of the days' files that the index pages of their folders link to.

    `url_of` returns the URL of a path below the source's `url`. A missing folder counts as empty, except the folder at
    `url` itself. Raises `PartnerError`, and `DefinitionError` for a pattern with a `*` in a folder's name.
    """
    # Grouped by folder, so that a folder with the files of many days is requested once.
    days_of_folders: dict[str, list[date]] = {}
    for day in days:
        for folder in dict.fromkeys(index_folders(pattern, day)):
            days_of_folders.setdefault(folder, []).append(day)
    for folder, folder_days in days_of_folders.items():
        url, wanted = url_of(folder), pattern.of_days(folder_days)
        page, page_url = read_index(session, url, may_be_gone=bool(folder))
        for name in index_names(page, page_url):
            if wanted.fullmatch(folder + name):
                yield listed_file(without_query(url), folder + name).name


def request_each_file(session: HttpSession, url_of: Callable[[str], str], names: Iterable[str]) -> Iterator[ListedFile]:
    """Yield the named files that exist, with the size, time and ETag that the server sends.

    Sends HEAD for each file. A server without HEAD gets a request for the first byte. Raises `PartnerError`.
    """
    method: Method = "HEAD"
    for name in dict.fromkeys(names):
        url = url_of(name)
        response = session.read(url, _unread, method=method, headers=_HEADERS[method])
        if response.status_code in _NO_SUCH_METHOD and method == "HEAD":
            method = "GET"  # for all other files, too
            response = session.read(url, _unread, headers=_HEADERS[method])
        if response.status_code in GONE:
            continue
        # A response to a range has the size of that range: the file's own size is in Content-Range.
        match = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
        if response.status_code in {206, 416} and match:
            size = None if match["total"] == "*" else int(match["total"])
        else:
            expect_ok(url, response)
            size = content_length(response)
        modified = header_date(response, "last-modified")
        yield listed_file(without_query(url), name, size=size, modified=modified, etag=response.headers.get("etag"))


def _unread(response: httpx.Response) -> httpx.Response:
    return response


def read_index(session: HttpSession, url: str, *, may_be_gone: bool) -> tuple[str, str]:
    """Return an index page and its URL after redirects. Raises `PartnerError` beyond `MAX_INDEX_BYTES`.

    With `may_be_gone`, a missing page counts as empty.
    """

    def read(response: httpx.Response) -> tuple[str, str]:
        if may_be_gone and response.status_code in GONE:
            return "", str(response.url)
        expect_ok(url, response)
        body = LimitedBody(response, url, at_most=MAX_INDEX_BYTES, limit=MAX_INDEX_BYTES)
        return b"".join(body).decode(errors="replace"), str(response.url)

    return session.read(url, read)


def index_folders(pattern: FilePattern, day: date) -> Iterator[str]:
    """Yield the folders of a day's files, with a slash at the end; the folder at the source's `url` is "".

    Raises `DefinitionError` for a `*` in the name of a folder.
    """
    # `names` needs a pattern without `*`, so NUL replaces it: no file name contains NUL.
    for name in FilePattern(pattern.pattern.replace("*", "\0")).names(day):
        folder = "".join(name.rpartition("/")[:2])
        if "\0" in folder:
            raise DefinitionError(
                f"files: {pattern.pattern!r}: an HTML index lists one folder, so a folder's name cannot contain a *"
            )
        yield folder


# Possessive quantifiers (`*+`, `++`) do not backtrack, because that would take quadratic time for broken pages. Text
# that starts like a tag or a comment is consumed up to its end, or to the end of the page if it has none.


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
