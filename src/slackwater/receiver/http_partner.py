"""A partner's HTTP server: a JSON listing at its address, and the files below it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import sleep as wait_for
from typing import BinaryIO
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from slackwater.errors import FileVanished, PartnerError
from slackwater.receiver.partner import Download, ListedFile, plain_etag

_ATTEMPTS = 4
_TIMEOUT = httpx.Timeout(30.0, connect=5.0)
"""Seconds without a byte, not for the whole file."""
_LONGEST_WAIT = 30.0
"""Seconds between two attempts, also when the partner asks for more."""
_BACK_OFF = wait_random_exponential(multiplier=0.5, max=8)
_GONE = frozenset({404, 410})
_LISTING = TypeAdapter(tuple[ListedFile, ...])
_CHUNK = 2**20


class _Transient(PartnerError):
    """May work when tried again."""

    def __init__(self, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class HttpPartner:
    """`slackwater.receiver.partner.Partner` over HTTP."""

    def __init__(
        self,
        url: str,
        *,
        max_file_bytes: int,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = wait_for,
    ) -> None:
        self._url = url.rstrip("/")
        self._max_file_bytes = max_file_bytes
        self._client = httpx.Client(timeout=_TIMEOUT, transport=transport, headers={"accept-encoding": "identity"})
        self._sleep = sleep

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def list(self) -> Sequence[ListedFile]:
        """Return all files there are. Raises `PartnerError` naming the address."""
        for attempt in self._attempts():
            with attempt, self._answer(self._url) as answer:
                _expect_ok(self._url, answer)
                body = answer.read()
        try:
            return _LISTING.validate_json(body)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(part) for part in fault["loc"]) or "(whole)"
            raise PartnerError(f"{self._url}: not a listing of files: {where}: {fault['msg']}") from error

    def fetch(self, name: str, into: BinaryIO) -> Download:
        """Write the file to the beginning of `into`. Raises `FileVanished`, or `PartnerError` for all else."""
        address = f"{self._url}/{quote(name, safe='')}"
        for attempt in self._attempts():
            with attempt, self._answer(address) as answer:
                return self._stream(address, answer, into)
        raise AssertionError("the last attempt raises")

    def _stream(self, address: str, answer: httpx.Response, into: BinaryIO) -> Download:
        if answer.status_code in _GONE:
            raise FileVanished(f"{address}: listed, but gone when it was fetched ({answer.status_code})")
        _expect_ok(address, answer)
        into.seek(0)
        into.truncate()
        digest, size = hashlib.sha256(), 0
        for chunk in answer.iter_bytes(_CHUNK):
            size += len(chunk)
            if size > self._max_file_bytes:
                raise PartnerError(f"{address}: larger than {self._max_file_bytes:,} bytes, the most that is pulled")
            digest.update(chunk)
            into.write(chunk)
        into.flush()
        return Download(sha256=digest.hexdigest(), size=size, etag=plain_etag(answer.headers.get("etag")))

    @contextmanager
    def _answer(self, address: str) -> Iterator[httpx.Response]:
        try:
            with self._client.stream("GET", address) as answer:
                if answer.status_code == httpx.codes.TOO_MANY_REQUESTS or answer.is_server_error:
                    raise _Transient(f"{address}: answered {answer.status_code}", wait=_retry_after(answer))
                yield answer
        except httpx.TransportError as error:
            raise _Transient(f"{address}: {str(error) or type(error).__name__}") from error
        except httpx.HTTPError as error:
            raise PartnerError(f"{address}: {error}") from error

    def _attempts(self) -> Retrying:
        return Retrying(
            stop=stop_after_attempt(_ATTEMPTS),
            retry=retry_if_exception_type(_Transient),
            wait=_wait,
            sleep=self._sleep,
            reraise=True,
        )


def _expect_ok(address: str, answer: httpx.Response) -> None:
    if answer.status_code != httpx.codes.OK:
        raise PartnerError(f"{address}: answered {answer.status_code}, where 200 is expected")


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.wait if isinstance(failure, _Transient) else None
    return _BACK_OFF(state) if asked is None else min(asked, _LONGEST_WAIT)


def _retry_after(answer: httpx.Response) -> float | None:
    header = answer.headers.get("retry-after", "").strip()
    if header.isdecimal():
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
