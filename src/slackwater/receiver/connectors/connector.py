"""The interface to a partner's files: list them, and download one. Each protocol has a module that implements it.

Downloads continue after a broken connection, in a limited number of attempts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, BinaryIO, Protocol

from pydantic import AfterValidator, Field, ValidationError
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from slackwater.errors import PartnerError
from slackwater.model import Record
from slackwater.sources.file_pattern import FilePattern
from slackwater.storage import split_uri

MAX_PATH_BYTES = 640
"""Bytes of a file's path in UTF-8.

The path is part of keys in S3 and DynamoDB, which have at most 1,024 bytes. It is also part of the metadata of objects,
at most 2 kB: there it is percent-encoded, which takes up to three times its bytes.
"""
ATTEMPTS = 4
# Random seconds, up to a limit that doubles with each attempt: a pull fetches up to ten files in parallel, which should
# not all retry at the same time.
_BACK_OFF = wait_random_exponential(multiplier=0.5, max=8)
# Seconds. The longest wait between two attempts, also when the partner asks for more: functions are billed meanwhile.
_MAX_WAIT = 30.0


def _relative_path(value: str) -> str:
    # The path becomes part of a URL and of an S3 key, so it must not lead out of the folder: no `..`, and no backslash,
    # which some servers read as a slash. Control characters would break request lines and log lines.
    if {"", ".", ".."} & set(value.split("/")) or any(character == "\\" or character < " " for character in value):
        raise ValueError(f"{value[:200]!r} is not a path below the source's `url`")
    if (size := len(value.encode())) > MAX_PATH_BYTES:
        raise ValueError(f"the path {value[:200]!r} has {size:,} bytes in UTF-8, and the limit is {MAX_PATH_BYTES}")
    return value


class ListedFile(Record):
    """One file as the partner lists it. Other fields of a listing are ignored."""

    name: Annotated[str, Field(min_length=1), AfterValidator(_relative_path)]
    """Path of the file below the source's `url`, at most `MAX_PATH_BYTES`: no part of it is empty, `.` or `..`."""
    size: Annotated[int, Field(ge=0)] | None = None
    """Bytes; None if the listing does not show it."""
    modified: datetime | None = None
    etag: str | None = None


@dataclass(frozen=True, kw_only=True)
class Download:
    """A downloaded file."""

    sha256: str
    size: int
    """Bytes."""
    etag: str | None
    """The ETag of the downloaded version, which may be newer than the listing; None if the partner sent none."""


class Connector(Protocol):
    """Lists and downloads the files of one partner."""

    def list(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        """Return the files whose names match `pattern` on one of `days`, and possibly others. Raises `PartnerError`."""

    def fetch(self, name: str, into: BinaryIO) -> Download:
        """Write the file to the start of `into`. Raises `FileVanished`, `FileTooLarge` or another `PartnerError`."""


def listed_file(listing: str, name: str, **fields: object) -> ListedFile:
    """Return one file of a listing; `fields` are the other fields of `ListedFile`.

    Raises `PartnerError`, which names the URL `listing`, when `name` is too long or is not a path below the
    source's `url`.
    """
    try:
        return ListedFile.model_validate({"name": name, **fields})
    except ValidationError as error:
        raise PartnerError(
            f"{listing}: {name[:200]!r} cannot be fetched: {error.errors()[0]['msg']}: "
            "ask the partner to rename the file"
        ) from error


def bucket_folder(url: str) -> tuple[str, str]:
    """Return the bucket of an s3:// URL and the prefix of its keys: `folder/`, or "" for the whole bucket."""
    bucket, folder = split_uri(url.rstrip("/"))
    return bucket, f"{folder}/" if folder else ""


def plain_etag(etag: str | None) -> str | None:
    """Return the ETag without quotes and without the prefix `W/` of a weak one: servers add these inconsistently."""
    return etag.removeprefix("W/").strip('"') if etag else None


class TransientPartnerError(PartnerError):
    """A failure that may pass: another attempt is worthwhile."""

    def __init__(self, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait
        """Seconds that the partner asks us to wait."""


def retrying(sleep: Callable[[float], None]) -> Retrying:
    """Return what calls a function in up to `ATTEMPTS` attempts: `retrying(sleep)(function)` returns its result.

    `TransientPartnerError` starts the next attempt; the last one raises it. `sleep` waits for a number of seconds.
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


def download(
    missing_bytes: Callable[[PartialDownload], Iterable[bytes]], into: BinaryIO, *, sleep: Callable[[float], None]
) -> Download:
    """Write a file to the start of `into`, in up to `ATTEMPTS` attempts.

    Each attempt calls `missing_bytes`, which restarts the partial download unless the current version is the one that
    it began, and then yields the bytes of this version that it lacks. Raises what `missing_bytes` raises.
    """
    partial = PartialDownload(into)

    def attempt() -> None:
        for block in missing_bytes(partial):
            into.write(block)
            partial.digest.update(block)
            partial.size += len(block)

    retrying(sleep)(attempt)
    into.flush()
    return Download(sha256=partial.digest.hexdigest(), size=partial.size, etag=plain_etag(partial.etag))


class PartialDownload:
    """The first bytes of one version of a file, in a local file."""

    def __init__(self, into: BinaryIO) -> None:
        self._into = into
        self.restart(None)

    def restart(self, version: Any, *, etag: str | None = None) -> None:
        """Discard the received bytes and start with this version."""
        self._into.seek(0)
        self._into.truncate()
        self.digest = hashlib.sha256()
        self.version = version
        """Identifies the version; None before the first one, or when the partner's versions cannot be distinguished."""
        self.etag = etag
        self.size = 0
        """Bytes received so far."""

    def resume_or_restart(self, version: Any, *, etag: str | None = None) -> None:
        """Keep the received bytes if they belong to this version; otherwise discard them."""
        if version != self.version:
            self.restart(version, etag=etag)
