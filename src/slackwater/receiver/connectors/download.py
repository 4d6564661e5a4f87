"""Downloads that continue after a broken connection, in a limited number of attempts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import BinaryIO

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from slackwater.errors import PartnerError
from slackwater.receiver.connectors.connector import Download

ATTEMPTS = 4
# Random seconds, up to a limit that doubles with each attempt: a pull fetches up to ten files in parallel, which should
# not all retry at the same time.
_BACK_OFF = wait_random_exponential(multiplier=0.5, max=8)
# Seconds. The longest wait between two attempts, also when the partner asks for more: functions are billed meanwhile.
_MAX_WAIT = 30.0


class TransientPartnerError(PartnerError):
    """A failure that may pass: another attempt is worthwhile."""

    def __init__(self, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait
        """Seconds that the partner asks us to wait."""


def retry_attempts(sleep: Callable[[float], None]) -> Retrying:
    """Return the attempts for a `for` loop. `TransientPartnerError` starts the next attempt; the last one raises it.

    `sleep` waits for the given number of seconds.
    """
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
    """Write a file to the start of `into`, in up to `ATTEMPTS` attempts, and return the complete download.

    Each attempt calls `missing_bytes`, which first calls `PartialDownload.resume_or_restart` with the current version,
    and then yields the bytes of this version that the download lacks. Raises what `missing_bytes` raises.
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
        """Identifies the version; None before the first one, or when the partner's versions cannot be distinguished."""
        self.size = 0
        """Bytes received so far."""

    def resume_or_restart(self, version: object) -> None:
        """Keep the received bytes if they belong to this version; otherwise discard them."""
        if version != self.version:
            self.restart(version)

    def restart(self, version: object) -> None:
        """Discard the received bytes and start with this version."""
        self._into.seek(0)
        self._into.truncate()
        self._digest, self.version, self.size = hashlib.sha256(), version, 0

    def forget_version(self) -> None:
        """Make the next attempt start at the first byte, whatever its version."""
        self.version, self.size = None, 0

    def add(self, block: bytes) -> None:
        """Append the next bytes."""
        self._into.write(block)
        self._digest.update(block)
        self.size += len(block)

    def finish(self, *, etag: str | None = None) -> Download:
        """Flush the local file and return the digest and size of the received bytes, with the given ETag."""
        self._into.flush()
        return Download(sha256=self._digest.hexdigest(), size=self.size, etag=etag)
