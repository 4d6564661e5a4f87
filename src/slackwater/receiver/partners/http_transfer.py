"""One file's way here, which goes on where it broke off: only if the file is still the same, byte for byte."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import BinaryIO, NamedTuple

import httpx

from slackwater.errors import FileTooLarge, FileVanished
from slackwater.receiver.partners.download import PartialDownload, TransientPartnerError
from slackwater.receiver.partners.http_session import GONE, date_of, expect_ok, is_encoded, length_of, shown
from slackwater.receiver.partners.partner import Download, plain_etag

_RANGE = re.compile(r"bytes (?P<first>[0-9]{1,18})-[0-9]+/(?P<total>[0-9]{1,18}|\*)")
_SETTLED = timedelta(minutes=1)
"""A modification this long before the answer tells versions apart, though dates are of whole seconds (RFC 9110)."""


class _Version(NamedTuple):
    """What tells a file's version from any other: a header, and its value."""

    header: str
    value: str


class Transfer:
    """What has arrived of a file, over several answers."""

    def __init__(self, address: str, into: BinaryIO, *, max_file_bytes: int) -> None:
        self._address = address
        self._max_file_bytes = max_file_bytes
        self._partial = PartialDownload(into)
        self._version: _Version | None = None
        self._total: int | None = None
        self._etag: str | None = None

    def headers(self) -> dict[str, str]:
        """Return what the next request asks for: the rest of the very file of which a part is here, or all of it."""
        if not self._partial.size or self._version is None:
            return {}
        return {"range": f"bytes={self._partial.size}-", "if-range": self._version.value}

    def take(self, answer: httpx.Response) -> Download:
        """Write what the answer brings, and return the file.

        Raises `TransientPartnerError` when it is not whole yet, `FileVanished`, `FileTooLarge`, or `PartnerError`.
        """
        if answer.status_code in GONE:
            raise FileVanished(f"{shown(self._address)}: listed, but gone when it was fetched ({answer.status_code})")
        if self.headers() and answer.status_code in {206, 416}:
            self._go_on(answer)
        else:
            expect_ok(self._address, answer)
            self._begin(answer)
        self._expect_fits(self._total or 0)
        for block in answer.iter_bytes():
            self._expect_fits(self._partial.size + len(block))
            self._partial.add(block)
        if self._total not in {None, self._partial.size}:
            raise TransientPartnerError(
                f"{shown(self._address)}: broke off after {self._partial.size:,} of {self._total:,} bytes"
            )
        return self._partial.download(etag=plain_etag(self._etag))

    def _begin(self, answer: httpx.Response) -> None:
        self._total = length_of(answer)
        self._etag = answer.headers.get("etag")
        has_ranges = answer.headers.get("accept-ranges") == "bytes" and not is_encoded(answer)
        self._version = _version(answer) if has_ranges else None
        self._partial.begin_anew(self._version)

    def _go_on(self, answer: httpx.Response) -> None:
        """See that an answer to a range continues what is here; otherwise the next attempt begins anew."""
        there = _RANGE.fullmatch(answer.headers.get("content-range", ""))
        total = int(there["total"]) if there and there["total"] != "*" else self._total
        continues = (
            answer.status_code == httpx.codes.PARTIAL_CONTENT
            and there is not None
            and int(there["first"]) == self._partial.size
            and self._total in {None, total}
            and self._version is not None
            and answer.headers.get(self._version.header) == self._version.value
            and not is_encoded(answer)
        )
        if not continues:
            self._version = None
            raise TransientPartnerError(
                f"{shown(self._address)}: broke off, and its server does not go on where it did"
            )
        self._total = total

    def _expect_fits(self, size: int) -> None:
        if size > self._max_file_bytes:
            raise FileTooLarge(
                f"{shown(self._address)}: larger than {self._max_file_bytes:,} bytes, the most that is taken here"
            )


def _version(answer: httpx.Response) -> _Version | None:
    """Return what surely tells this version, or None: a weak tag does not, nor does a date that is too new."""
    etag = answer.headers.get("etag")
    if etag:
        return None if etag.startswith("W/") else _Version("etag", etag)
    modified, now = date_of(answer, "last-modified"), date_of(answer, "date")
    if modified is None or now is None or now - modified < _SETTLED:
        return None
    return _Version("last-modified", answer.headers["last-modified"])
