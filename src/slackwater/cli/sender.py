"""Sending batches of events to the API, as a partner does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from slackwater.cli.events import body_of
from slackwater.errors import AccessDenied, CloudError, DataError, SlackwaterError, Throttled, UnknownName


class TooLarge(DataError):
    """The API takes less at once."""


TIMEOUT = httpx.Timeout(60.0, connect=5.0)
_ANSWERED = {HTTPStatus.ACCEPTED, HTTPStatus.UNPROCESSABLE_ENTITY}
_TRANSIENT = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
_REFUSED: dict[int, type[SlackwaterError]] = {
    HTTPStatus.BAD_REQUEST: DataError,
    HTTPStatus.UNAUTHORIZED: AccessDenied,
    HTTPStatus.FORBIDDEN: AccessDenied,
    HTTPStatus.NOT_FOUND: UnknownName,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: TooLarge,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: DataError,
}


@dataclass
class Pushed:
    """What became of the events of one file, in the words of the API's answer."""

    source: str
    correlation_id: str = ""
    events: int = 0
    batches: int = 0
    accepted: int = 0
    duplicates: int = 0
    rejected: list[dict[str, Any]] = field(default_factory=list)
    """Each with `index`, its place among the file's events counted from 0, and `reason`."""

    @property
    def ok(self) -> bool:
        """Whether something is there now: a rejected event is no failure, but all of them are."""
        return not self.rejected or self.accepted + self.duplicates > 0

    def add(self, batch: Sequence[bytes], answer: dict[str, Any]) -> None:
        """Count the API's answer to one batch."""
        for item in answer.get("rejected", []):
            self.rejected.append({"index": self.events + item["index"], "reason": item["reason"]})
        self.events += len(batch)
        self.batches += 1
        self.accepted += answer.get("accepted", 0)
        self.duplicates += answer.get("duplicates", 0)


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Posts batches over one connection; transient failures are tried again, a bounded number of times."""

    http: httpx.Client
    api: str
    token: str
    correlation_id: str
    """Goes with every batch, through to the logs of what it causes."""
    sleep: Callable[[float], None] = time.sleep

    def send(self, source: str, batches: Iterator[list[bytes]]) -> Iterator[Pushed]:
        """Send the batches in order, and give the totals after each.

        One that is too large is sent in halves, and these in halves again: the same events are always cut the same way.
        Raises `AccessDenied`, `UnknownName` or `DataError` as the API answers, and `CloudError` when it does not; what
        was sent before stays, and is recognised when it is sent again.
        """
        totals = Pushed(source, self.correlation_id)
        for batch in batches:
            for part, answer in self._taken(source, batch):
                totals.add(part, answer)
                yield totals

    def _taken(self, source: str, batch: list[bytes]) -> Iterator[tuple[list[bytes], dict[str, Any]]]:
        """Post a batch, and give each part in which it was taken, in order, with its answer."""
        try:
            answer = self._post(source, body_of(batch))
        except TooLarge:
            if len(batch) == 1:
                raise
            middle = len(batch) // 2
            yield from self._taken(source, batch[:middle])
            yield from self._taken(source, batch[middle:])
        else:
            yield batch, answer

    def _post(self, source: str, body: bytes) -> dict[str, Any]:
        attempts = Retrying(
            retry=retry_if_exception_type((httpx.TransportError, Throttled)),
            wait=wait_random_exponential(multiplier=0.5, max=10),
            stop=stop_after_attempt(5),
            sleep=self.sleep,
            reraise=True,
        )
        try:
            return attempts(self._post_once, source, body)
        except httpx.HTTPError as error:
            raise CloudError(f"the API at {self.api} does not answer: {error or type(error).__name__}") from error

    def _post_once(self, source: str, body: bytes) -> dict[str, Any]:
        answer = self.http.post(
            f"{self.api.rstrip('/')}/v1/sources/{source}/events",
            content=body,
            headers={
                "authorization": f"Bearer {self.token}",
                "content-type": "application/x-ndjson",
                "content-encoding": "gzip",
                "x-correlation-id": self.correlation_id,
            },
            timeout=TIMEOUT,
        )
        if answer.status_code in _TRANSIENT:
            raise Throttled(f"the API answered {answer.status_code}: {_message(answer)}")
        if answer.status_code not in _ANSWERED:
            kind = _REFUSED.get(answer.status_code, CloudError)
            raise kind(f"the API answered {answer.status_code}: {_message(answer)}")
        document: dict[str, Any] = answer.json()
        return document


def _message(answer: httpx.Response) -> str:
    """Return the API's own words, or those of the gateway before it."""
    try:
        document = answer.json()
    except ValueError:
        return answer.text[:200]
    if not isinstance(document, dict):
        return str(document)[:200]
    error = document.get("error")
    return str(error.get("message") if isinstance(error, dict) else document.get("message", document))
