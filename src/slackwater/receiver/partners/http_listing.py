"""What files a partner's HTTP server has: by its JSON listing, by its index pages, or by asking for each name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date

import httpx
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from slackwater.errors import DefinitionError, PartnerError
from slackwater.receiver.partners.html_index import index_names
from slackwater.receiver.partners.http_session import (
    GONE,
    HttpSession,
    Method,
    date_of,
    expect_ok,
    length_of,
    link,
    shown,
)
from slackwater.receiver.partners.partner import ListedFile, listed_file
from slackwater.sources.file_pattern import FilePattern

MAX_PAGES = 1_000
MAX_BYTES = 64 * 2**20
"""Of a JSON listing's pages together."""
MAX_INDEX_BYTES = 4 * 2**20
"""Of one index page: some 20,000 files."""
_FILES = TypeAdapter(tuple[ListedFile, ...])
_HEAD: tuple[Method, dict[str, str]] = ("HEAD", {})
_FIRST_BYTE: tuple[Method, dict[str, str]] = ("GET", {"range": "bytes=0-0"})
_NO_SUCH_METHOD = frozenset({405, 501})
_TOTAL = re.compile(r"bytes (?:[0-9]+-[0-9]+|\*)/(?P<total>[0-9]{1,18}|\*)")
_ANY = "\0"


class _Page(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    files: tuple[ListedFile, ...]
    next: str | None = None


def json_listing(session: HttpSession, address: str) -> Iterator[ListedFile]:
    """Yield the files of a JSON listing, page by page, as far as pages link to a next one. Raises `PartnerError`.

    A page is an array of files, or an object with them in `files`; the next one stands in its `next`, or in the header
    `Link` as `rel="next"`.
    """
    seen: set[str] = set()
    left, following = MAX_BYTES, address
    while following:
        if following in seen or len(seen) == MAX_PAGES:
            raise PartnerError(f"{shown(following)}: its pages are more than {MAX_PAGES:,}, or lead in a circle")
        seen.add(following)
        body, answer = _read(session, following, at_most=left, of=MAX_BYTES)
        left -= len(body)
        page = _page(following, body)
        yield from page.files
        to = page.next or answer.links.get("next", {}).get("url")
        following = link(str(answer.url), to) if to else ""


def indexed_names(
    session: HttpSession, address_of: Callable[[str], str], pattern: FilePattern, days: Sequence[date]
) -> Iterator[str]:
    """Yield the names of those days' files in their folders' index pages. Raises `PartnerError`, `DefinitionError`.

    A folder that is not there is empty, but for the listed address itself.
    """
    folders: dict[str, list[date]] = {}
    for day in days:
        for folder in dict.fromkeys(_folders(pattern, day)):
            folders.setdefault(folder, []).append(day)
    for folder, some in folders.items():
        address = address_of(folder)
        body, answer = _read(session, address, at_most=MAX_INDEX_BYTES, of=MAX_INDEX_BYTES, may_be_gone=bool(folder))
        for name in index_names(body.decode(errors="replace"), str(answer.url)):
            if any(pattern.matches(folder + name, day) for day in some):
                yield listed_file(shown(address), folder + name).name


def asked_files(session: HttpSession, address_of: Callable[[str], str], names: Iterable[str]) -> Iterator[ListedFile]:
    """Yield those of the names whose files are there, with what tells one version from another. Raises `PartnerError`.

    A server that does not know HEAD is asked for the first byte of each.
    """
    ways = [_FIRST_BYTE, _HEAD]
    for name in dict.fromkeys(names):
        answer = _ask(session, *ways[-1], address_of(name))
        if answer.status_code in _NO_SUCH_METHOD and len(ways) > 1:
            ways.pop()
            answer = _ask(session, *ways[-1], address_of(name))
        if answer.status_code not in GONE:
            yield _told(name, address_of(name), answer)


def _read(
    session: HttpSession, address: str, *, at_most: int, of: int, may_be_gone: bool = False
) -> tuple[bytes, httpx.Response]:
    """Return a page of at most so many bytes, which is what is left of all those `of` which a listing may be."""
    for attempt in session.attempts():
        with attempt, session.answer("GET", address) as answer:
            if may_be_gone and answer.status_code in GONE:
                return b"", answer
            expect_ok(address, answer)
            body = bytearray()
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > at_most:
                    raise PartnerError(f"{shown(address)}: its listing is larger than {of:,} bytes")
            return bytes(body), answer
    raise AssertionError("the last attempt raises")


def _page(address: str, body: bytes) -> _Page:
    try:
        if body.lstrip().startswith(b"{"):
            return _Page.model_validate_json(body)
        return _Page(files=_FILES.validate_json(body))
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"]) or "(whole)"
        raise PartnerError(f"{shown(address)}: not a listing of files: {where}: {fault['msg']}") from error


def _folders(pattern: FilePattern, day: date) -> Iterator[str]:
    """Yield the folders of a day's files, each with a slash at its end; that of the listed address is empty."""
    for name in FilePattern(pattern.pattern.replace("*", _ANY)).names(day):
        folder = "".join(name.rpartition("/")[:2])
        if _ANY in folder:
            raise DefinitionError(
                f"files: {pattern.pattern!r}: an HTML index shows one folder, so that none can be a *"
            )
        yield folder


def _ask(session: HttpSession, method: Method, headers: Mapping[str, str], address: str) -> httpx.Response:
    for attempt in session.attempts():
        with attempt, session.answer(method, address, headers) as answer:
            return answer
    raise AssertionError("the last attempt raises")


def _told(name: str, address: str, answer: httpx.Response) -> ListedFile:
    """Return what the answer tells of a file, whether it was asked for its headers or for its first byte."""
    part = _TOTAL.fullmatch(answer.headers.get("content-range", ""))
    if answer.status_code in {206, 416} and part:
        size = None if part["total"] == "*" else int(part["total"])
    else:
        expect_ok(address, answer)
        size = length_of(answer)
    modified = date_of(answer, "last-modified")
    return ListedFile(name=name, size=size, modified=modified, etag=answer.headers.get("etag"))
