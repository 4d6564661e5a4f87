"""A partner's HTTP server: lists its files, and resumes a download only if the file is byte for byte the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from functools import partial
from time import sleep as wait_for
from typing import BinaryIO, NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from slackwater.errors import FileTooLarge, FileVanished
from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import GuardedTransport, Outbound
from slackwater.receiver.connectors.connector import (
    Download,
    ListedFile,
    PartialDownload,
    TransientPartnerError,
    download,
)
from slackwater.receiver.connectors.http_listing import (
    HtmlPage,
    json_listing,
    names_in_indexes,
    request_each_file,
)
from slackwater.receiver.connectors.http_session import (
    GONE,
    HttpSession,
    content_length,
    expect_ok,
    header_date,
    is_encoded,
    without_query,
)
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.pull_config import PullConfig

# RFC 9110, 14.4: `bytes 5-9/10`, or `bytes 5-9/*` (unknown size). 18 digits fit an int64.
_CONTENT_RANGE = re.compile(r"bytes (?P<first>[0-9]{1,18})-[0-9]+/(?P<total>[0-9]{1,18}|\*)")
# A file that changes twice within a second keeps its date, so Last-Modified identifies a version only if it is older
# than the response. The minute is that of RFC 7232, 2.2.2: the two dates may come from different clocks.
_DATE_IS_STRONG_AFTER = timedelta(minutes=1)


class HttpConnector:
    """`slackwater.receiver.connectors.connector.Connector` over HTTP and HTTPS."""

    def __init__(
        self,
        pull: PullConfig,
        *,
        outbound: Outbound,
        credentials: Credentials | None,
        max_file_bytes: int,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = wait_for,
    ) -> None:
        """Raise `DefinitionError` for credentials that HTTP cannot use. `transport` replaces the guarded transport."""
        self._pull = pull
        self._max_file_bytes, self._sleep = max_file_bytes, sleep
        self._session = HttpSession(
            pull.url, credentials=credentials, transport=transport or GuardedTransport(outbound), sleep=sleep
        )

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def list(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        """Return the files of the days. Raises `PartnerError`.

        An index page is read as one although a JSON listing is expected, if it links to files of the days.
        """
        match self._pull.listing:
            case "json":
                try:
                    return tuple(json_listing(self._session, self._pull.url, pattern.of_days(days)))
                except HtmlPage:
                    # Without such a link, it may be the page of a login or of an error.
                    if not (files := self._files_in_indexes(pattern, days)):
                        raise
                    return files
            case "html":
                return self._files_in_indexes(pattern, days)
            case "none":
                names = (name for day in days for name in pattern.names(day))
                return tuple(request_each_file(self._session, self._url_of, names))

    def _files_in_indexes(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        # Index pages show names only, so a request for each file has to detect whether it has changed.
        names = names_in_indexes(self._session, self._url_of, pattern, days)
        return tuple(request_each_file(self._session, self._url_of, names))

    def fetch(self, name: str, into: BinaryIO) -> Download:
        """Write the file to the start of `into`. Raises `FileVanished`, `FileTooLarge` or another `PartnerError`."""
        return download(partial(self._missing_bytes, self._url_of(name)), into, sleep=self._sleep)

    def _missing_bytes(self, url: str, received: PartialDownload) -> Iterator[bytes]:
        """Yield the bytes of the file that `received` lacks, as `download` needs them."""
        shown = without_query(url)
        version: HttpVersion | None = received.version if received.size else None
        # If-Range: a server whose file has changed answers 200 with all of the new version.
        headers = {"range": f"bytes={received.size}-", "if-range": version.value} if version else {}
        with self._session.request("GET", url, headers) as response:
            if response.status_code in GONE:
                raise FileVanished(f"{shown}: listed, but gone when it was fetched ({response.status_code})")
            if version and response.status_code in {206, 416}:
                continued = version.continued_by(response, at=received.size)
                if continued is None:
                    received.restart(None)
                    raise TransientPartnerError(f"{shown}: broke off, and the server cannot resume the download")
                received.version, total = continued, continued.total
            else:
                expect_ok(url, response)
                total = content_length(response)
                received.restart(HttpVersion.of(response, total), etag=response.headers.get("etag"))
            # Checked before the first byte, and for each block again: the announced size may be missing or wrong.
            self._expect_size(shown, total or 0)
            for block in response.iter_bytes():
                self._expect_size(shown, received.size + len(block))
                yield block
            if total not in {None, received.size}:
                raise TransientPartnerError(f"{shown}: broke off after {received.size:,} of {total:,} bytes")

    def _expect_size(self, url: str, size: int) -> None:
        """Raise `FileTooLarge` when `size`, in bytes, exceeds the limit."""
        if size > self._max_file_bytes:
            raise FileTooLarge(f"{url}: larger than {self._max_file_bytes:,} bytes, the limit")

    def _url_of(self, path: str) -> str:
        """Return the URL of a path below the source's `url`, with the query of that `url` (which may hold a key)."""
        base = urlsplit(self._pull.url)
        return base._replace(path=f"{base.path.rstrip('/')}/{quote(path)}").geturl()


class HttpVersion(NamedTuple):
    """What identifies one version of a file, byte for byte."""

    header: str
    value: str
    """The response header, and its value."""
    total: int | None
    """Bytes of the file; None if the server does not send it."""

    @classmethod
    def of(cls, response: httpx.Response, total: int | None) -> HttpVersion | None:
        """Return the version of a response with all of a file; None if its download cannot be resumed.

        A weak ETag does not identify a version, nor does a Last-Modified date less than a minute before the response.
        """
        if response.headers.get("accept-ranges") != "bytes" or is_encoded(response):
            return None
        etag = response.headers.get("etag")
        if etag:
            return None if etag.startswith("W/") else cls("etag", etag, total)
        modified, now = header_date(response, "last-modified"), header_date(response, "date")
        if modified is None or now is None or now - modified < _DATE_IS_STRONG_AFTER:
            return None
        return cls("last-modified", response.headers["last-modified"], total)

    def continued_by(self, response: httpx.Response, *, at: int) -> HttpVersion | None:
        """Return the version, with its size, if the response has its bytes from `at` on; else None."""
        # Some servers ignore If-Range and send a part of the new version, so the validator and the size are compared.
        content_range = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
        if response.status_code != httpx.codes.PARTIAL_CONTENT or content_range is None or is_encoded(response):
            return None
        total = self.total if content_range["total"] == "*" else int(content_range["total"])
        is_same = response.headers.get(self.header) == self.value and self.total in {None, total}
        return self._replace(total=total) if is_same and int(content_range["first"]) == at else None
