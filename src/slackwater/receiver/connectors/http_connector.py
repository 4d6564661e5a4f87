"""A partner's HTTP server: lists its files, and resumes a download only if the file is byte for byte the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from time import sleep as wait_for
from typing import BinaryIO, NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from slackwater.errors import FileTooLarge, FileVanished
from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import GuardedTransport, Outbound
from slackwater.receiver.connectors.connector import Download, ListedFile, plain_etag
from slackwater.receiver.connectors.download import PartialDownload, TransientPartnerError
from slackwater.receiver.connectors.http_listing import json_listing, names_in_indexes, request_each_file
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
        self._max_file_bytes = max_file_bytes
        self._session = HttpSession(
            pull.url, credentials=credentials, transport=transport or GuardedTransport(outbound), sleep=sleep
        )

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def list(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        """Return the files of the days. Raises `PartnerError`."""
        if self._pull.listing == "json":
            return tuple(json_listing(self._session, self._pull.url, pattern.of_days(days)))
        if self._pull.listing == "html":
            # Index pages show names only, so a request for each file has to detect whether it has changed.
            names = names_in_indexes(self._session, self._url_of, pattern, days)
        else:
            names = (name for day in days for name in pattern.names(day))
        return tuple(request_each_file(self._session, self._url_of, names))

    def fetch(self, name: str, into: BinaryIO) -> Download:
        """Write the file to the start of `into`. Raises `FileVanished`, `FileTooLarge` or another `PartnerError`."""
        url = self._url_of(name)
        download = ResumableDownload(url, into, max_file_bytes=self._max_file_bytes)
        for attempt in self._session.attempts():
            with attempt, self._session.request("GET", url, download.request_headers()) as response:
                return download.receive(response)
        raise AssertionError("the last attempt raises")

    def _url_of(self, path: str) -> str:
        """Return the URL of a path below the source's `url`, with the query of that `url` (which may hold a key)."""
        base = urlsplit(self._pull.url)
        return base._replace(path=f"{base.path.rstrip('/')}/{quote(path)}").geturl()


class Validator(NamedTuple):
    """The response header that identifies one version of a file, and its value."""

    header: str
    value: str


class ResumableDownload:
    """The download of one file, from several responses if the connection breaks."""

    def __init__(self, url: str, into: BinaryIO, *, max_file_bytes: int) -> None:
        self._url = without_query(url)
        self._max_file_bytes = max_file_bytes
        self._partial = PartialDownload(into)
        self._validator: Validator | None = None
        self._total: int | None = None
        self._etag: str | None = None

    def request_headers(self) -> dict[str, str]:
        """Return the headers that request the missing bytes of the same version; none to request the whole file."""
        if not self._partial.size or self._validator is None:
            return {}
        # If-Range: a server whose file has changed answers 200 with all of the new version.
        return {"range": f"bytes={self._partial.size}-", "if-range": self._validator.value}

    def receive(self, response: httpx.Response) -> Download:
        """Write the response's body, and return the download when it is complete.

        Raises `TransientPartnerError` when bytes are still missing, `FileVanished`, `FileTooLarge`, or `PartnerError`.
        """
        if response.status_code in GONE:
            raise FileVanished(f"{self._url}: listed, but gone when it was fetched ({response.status_code})")
        if self.request_headers() and response.status_code in {206, 416}:
            self._resume(response)
        else:
            expect_ok(self._url, response)
            self._total = content_length(response)
            self._etag = response.headers.get("etag")
            has_ranges = response.headers.get("accept-ranges") == "bytes" and not is_encoded(response)
            self._validator = strong_validator(response) if has_ranges else None
            self._partial.restart(self._validator)
        # Checked before the first byte, and for each block again: the announced size may be missing or wrong.
        self._expect_size(self._total or 0)
        for block in response.iter_bytes():
            self._expect_size(self._partial.size + len(block))
            self._partial.add(block)
        if self._total not in {None, self._partial.size}:
            raise TransientPartnerError(f"{self._url}: broke off after {self._partial.size:,} of {self._total:,} bytes")
        return self._partial.finish(etag=plain_etag(self._etag))

    def _resume(self, response: httpx.Response) -> None:
        """Check that the response continues this download.

        Otherwise raises `TransientPartnerError`, and the next attempt starts at the first byte.
        """
        # Some servers ignore If-Range and send a part of the new version, so the validator and the size are compared.
        content_range = _CONTENT_RANGE.fullmatch(response.headers.get("content-range", ""))
        total = int(content_range["total"]) if content_range and content_range["total"] != "*" else self._total
        continues = (
            response.status_code == httpx.codes.PARTIAL_CONTENT
            and content_range is not None
            and int(content_range["first"]) == self._partial.size
            and self._total in {None, total}
            and self._validator is not None
            and response.headers.get(self._validator.header) == self._validator.value
            and not is_encoded(response)
        )
        if not continues:
            self._validator = None
            raise TransientPartnerError(f"{self._url}: broke off, and the server cannot resume the download")
        self._total = total

    def _expect_size(self, size: int) -> None:
        """Raise `FileTooLarge` when `size`, in bytes, exceeds the limit."""
        if size > self._max_file_bytes:
            raise FileTooLarge(f"{self._url}: larger than {self._max_file_bytes:,} bytes, the limit")


def strong_validator(response: httpx.Response) -> Validator | None:
    """Return the header that identifies the version byte for byte, or None.

    A weak ETag does not identify it, nor does a Last-Modified date less than a minute before the response.
    """
    etag = response.headers.get("etag")
    if etag:
        return None if etag.startswith("W/") else Validator("etag", etag)
    modified, now = header_date(response, "last-modified"), header_date(response, "date")
    if modified is None or now is None or now - modified < _DATE_IS_STRONG_AFTER:
        return None
    return Validator("last-modified", response.headers["last-modified"])
