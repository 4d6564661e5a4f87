"""Downloads that resume after a broken connection: bounded attempts, and the part that one version already has."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import BinaryIO

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from slackwater.errors import PartnerError
from slackwater.receiver.partners.partner import Download

ATTEMPTS = 4
_BACK_OFF = wait_random_exponential(multiplier=0.5, max=8)
# Seconds between two attempts, also when the partner asks for a longer wait: functions are billed while they wait.
_MAX_WAIT = 30.0


class TransientPartnerError(PartnerError):
    """A failure that may pass: another attempt is worthwhile."""

    def __init__(self, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait
        """Seconds that the partner asks us to wait."""


def retry_attempts(sleep: Callable[[float], None]) -> Retrying:
    """Return attempts for a `for` loop: `TransientPartnerError` starts the next one, and the last one raises it."""
    return Retrying(
        stop=stop_after_attempt(ATTEMPTS),
        retry=retry_if_exception_type(TransientPartnerError),
        wait=_wait,
        sleep=sleep,
        reraise=True,
    )


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    requested = failure.wait if isinstance(failure, TransientPartnerError) else None
    return _BACK_OFF(state) if requested is None else min(requested, _MAX_WAIT)


def download_with_resume(
    missing_bytes: Callable[[PartialDownload], Iterable[bytes]], into: BinaryIO, *, sleep: Callable[[float], None]
) -> PartialDownload:
    """Write a file to the beginning of `into`, in as many attempts as needed, and return the complete download.

    Each attempt calls `missing_bytes`. It first calls `PartialDownload.resume_or_restart` with the version that it
    reads, and then yields the bytes that are missing of it.
    """
    partial = PartialDownload(into)
    for attempt in retry_attempts(sleep):
        with attempt:
            for block in missing_bytes(partial):
                partial.add(block)
    return partial


class PartialDownload:
    """The first bytes of one version of a file, in a local file."""

    def __init__(self, into: BinaryIO) -> None:
        self._into = into
        self._digest = hashlib.sha256()
        self.version: object = None
        """Identifies the version; None when there is none yet, or when the partner's versions cannot be told apart."""
        self.size = 0
        """Bytes received so far."""

    def resume_or_restart(self, version: object) -> None:
        """Keep the received bytes if they are of this version; discard them otherwise."""
        if version != self.version:
            self.restart(version)

    def restart(self, version: object) -> None:
        """Discard the received bytes, and begin with this version."""
        self._into.seek(0)
        self._into.truncate()
        self._digest, self.version, self.size = hashlib.sha256(), version, 0

    def forget_version(self) -> None:
        """Make the next attempt start from the beginning, whatever its version."""
        self.version, self.size = None, 0

    def add(self, block: bytes) -> None:
        """Append the next bytes."""
        self._into.write(block)
        self._digest.update(block)
        self.size += len(block)

    def finish(self, *, etag: str | None = None) -> Download:
        """Return the received bytes as the complete file."""
        self._into.flush()
        return Download(sha256=self._digest.hexdigest(), size=self.size, etag=etag)
