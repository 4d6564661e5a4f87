"""Downloads that may be cut off: bounded attempts, and what is there already of one version of a file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import BinaryIO

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from slackwater.errors import PartnerError
from slackwater.receiver.partners.partner import Download

ATTEMPTS = 4
_BACK_OFF = wait_random_exponential(multiplier=0.5, max=8)
_LONGEST_WAIT = 30.0
"""Seconds between two attempts, also when the partner asks for more."""


class TransientPartnerError(PartnerError):
    """May work when tried again."""

    def __init__(self, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait
        """Seconds that the partner asks us to wait."""


def retry_attempts(sleep: Callable[[float], None]) -> Retrying:
    """Return attempts for a `for`, which end with the first that raises no `TransientPartnerError`; the last one's is raised."""
    return Retrying(
        stop=stop_after_attempt(ATTEMPTS),
        retry=retry_if_exception_type(TransientPartnerError),
        wait=_wait,
        sleep=sleep,
        reraise=True,
    )


def download_with_resume(
    rest: Callable[[PartialDownload], Iterable[bytes]], into: BinaryIO, *, sleep: Callable[[float], None]
) -> PartialDownload:
    """Write a file to the beginning of `into`, over as many attempts as there are, and return what is there.

    `rest` gives what is lacking of the version that is there, after `PartialDownload.begin` or `PartialDownload.forget`.
    """
    partial = PartialDownload(into)
    for attempt in retry_attempts(sleep):
        with attempt:
            for block in rest(partial):
                partial.add(block)
    return partial


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.wait if isinstance(failure, TransientPartnerError) else None
    return _BACK_OFF(state) if asked is None else min(asked, _LONGEST_WAIT)


class PartialDownload:
    """What has come of one version of a file: the next attempt goes on behind it, unless the file has changed."""

    def __init__(self, into: BinaryIO) -> None:
        self._into = into
        self._digest = hashlib.sha256()
        self.version: object = None
        """What the partner tells versions by; None when there is none of them."""
        self.size = 0
        """Bytes that are there."""

    def begin(self, version: object) -> None:
        """Keep what is there if it is of this version, and drop it otherwise."""
        if version != self.version:
            self.begin_anew(version)

    def begin_anew(self, version: object) -> None:
        """Drop what is there."""
        self._into.seek(0)
        self._into.truncate()
        self._digest, self.version, self.size = hashlib.sha256(), version, 0

    def forget(self) -> None:
        """Let the next version begin anew, whichever it is."""
        self.version, self.size = None, 0

    def add(self, block: bytes) -> None:
        """Write the bytes that come next."""
        self._into.write(block)
        self._digest.update(block)
        self.size += len(block)

    def download(self, *, etag: str | None = None) -> Download:
        """Return what is there as the whole file."""
        self._into.flush()
        return Download(sha256=self._digest.hexdigest(), size=self.size, etag=etag)
