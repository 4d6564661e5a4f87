"""Sends batches of events, and reports of how many were sent, to the API, as a partner does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from slackwater.aws.failures import stopped_local_cloud
from slackwater.client.events import encode_body
from slackwater.errors import (
    AccessDenied,
    CloudError,
    DataError,
    SlackwaterError,
    Throttled,
    Unavailable,
    UnknownName,
)
from slackwater.sources.old_events import OldEvents

TIMEOUT = httpx.Timeout(300.0, connect=5.0)
"""Seconds, for connecting and for each read or write. A body may pass through a slow connection."""
_ATTEMPTS = 5
_BACKOFF = wait_random_exponential(multiplier=0.5, max=10)
_RATE_WINDOW = 60.0
"""Seconds for which AWS WAF looks back when it counts the requests of an IP address. It looks every 10 seconds."""
# 422: every event was rejected. Its body has the same keys as the body of a 202.
_PROCESSED = {HTTPStatus.ACCEPTED, HTTPStatus.UNPROCESSABLE_ENTITY}
# The API or the gateway before it may succeed later. API Gateway answers 500 when Lambda throttles the function; to a
# batch that would fail again, the API answers 501. A batch may be sent again, because the API recognises it.
_TRANSIENT: dict[int, type[CloudError]] = {
    HTTPStatus.TOO_MANY_REQUESTS: Throttled,
    HTTPStatus.INTERNAL_SERVER_ERROR: Unavailable,
    HTTPStatus.BAD_GATEWAY: Unavailable,
    HTTPStatus.SERVICE_UNAVAILABLE: Unavailable,
    HTTPStatus.GATEWAY_TIMEOUT: Unavailable,
}


class PushTooLarge(DataError):
    """The batch exceeds a limit of the API (status 413)."""


class PushRateLimited(Throttled):
    """Status 429 with the code `too_many_requests`: AWS WAF refuses all requests of the IP address for a while."""


class PushBlocked(AccessDenied):
    """Status 403, which is not an answer of the receiver: the gateway before it blocks the request."""


_ERRORS: dict[int, type[SlackwaterError]] = {
    HTTPStatus.BAD_REQUEST: DataError,
    HTTPStatus.UNAUTHORIZED: AccessDenied,
    HTTPStatus.FORBIDDEN: AccessDenied,
    HTTPStatus.NOT_FOUND: UnknownName,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: PushTooLarge,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: DataError,
}


@dataclass
class PushTotals:
    """Result of pushing one file: the sums of the API's responses to its batches."""

    source: str
    correlation_id: str = ""
    events: int = 0
    batches: int = 0
    accepted: int = 0
    duplicates: int = 0
    rejected: list[dict[str, Any]] = field(default_factory=list)
    """One entry for each event, with `index` (in the file, from 0) and `reason`."""
    report: dict[str, Any] | None = None
    """The report about these events, if the caller asked for one: `report_id`, `windows`, `events` and `through`."""
    not_reported: dict[str, int] = field(default_factory=dict)
    """The events, by window, that the report leaves out, because no report takes windows so old or so far ahead."""
    unknown_fields: list[str] = field(default_factory=list)
    """The first fields of its events that the definition does not list, and whose values are kept."""
    old_events: dict[str, Any] | None = None
    """How many accepted events are more than 20 years old, with the `first` and the `last` date of them (UTC). None if
    there are none, and for an archive, whose events are mostly old."""

    @property
    def ok(self) -> bool:
        """Whether the push succeeded: some events may be rejected, but not all."""
        return not self.rejected or self.accepted + self.duplicates > 0

    @property
    def old_note(self) -> str:
        """What a user should know about `old_events`; empty if there are none."""
        return OldEvents(**self.old_events).note() if self.old_events else ""

    def add(self, batch: Sequence[bytes], response: dict[str, Any]) -> None:
        """Add the API's response to one batch."""
        for item in response.get("rejected", []):
            self.rejected.append({"index": self.events + item["index"], "reason": item["reason"]})
        self.unknown_fields = list(dict.fromkeys([*self.unknown_fields, *response.get("unknown_fields", [])]))
        if old := response.get("old_events"):
            earlier = OldEvents(**self.old_events) if self.old_events else None
            self.old_events = OldEvents(**old).plus(earlier)._asdict()
        self.events += len(batch)
        self.batches += 1
        self.accepted += response.get("accepted", 0)
        self.duplicates += response.get("duplicates", 0)


class RetryBudget:
    """Retries that a client has left, over all of its requests and threads.

    Without it, each of many requests would be repeated as often as one is: an API that is overloaded would get five
    times its load. A client begins with 10 retries, and every 10 requests that succeed allow one more, up to 10. So in
    a long outage, only few requests are repeated, and each one fails at once.
    """

    _MOST, _PER_SUCCESS = 10.0, 0.1

    def __init__(self) -> None:
        self._left = self._MOST
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Return whether a failed request may be repeated, and count the retry."""
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True

    def succeeded(self) -> None:
        """Count a request that has succeeded."""
        with self._lock:
            self._left = min(self._MOST, self._left + self._PER_SUCCESS)


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Sends batches over one connection, each with up to five attempts if failures are transient.

    The pauses between attempts are random and grow, and are longer than a minute after an answer of AWS WAF that limits
    the IP address. A batch gets fewer attempts when the budget of retries is used up, but not after such an answer.
    """

    http: httpx.Client
    api: str
    """The API's base URL."""
    token: str
    correlation_id: str
    """Sent with every batch; it is in all log lines about the batches."""
    budget: RetryBudget = field(default_factory=RetryBudget)
    """The retries that the client has left: senders share it."""
    sleep: Callable[[float], None] = time.sleep

    def send(self, source: str, batches: Iterator[list[bytes]]) -> Iterator[PushTotals]:
        """Send the batches in order; yield the totals after each.

        A batch that is too large is sent in two halves, which are halved again if necessary. The same events are always
        cut in the same way, so that the API recognises a batch that is sent again.

        Raises `AccessDenied`, `UnknownName` or `DataError` when the API refuses a batch, and `CloudError` when it fails
        or does not respond. Batches that were sent before the error stay stored.
        """
        totals = PushTotals(source, self.correlation_id)
        for batch in batches:
            for part, response in self._send_in_parts(source, batch):
                totals.add(part, response)
                yield totals

    def send_report(self, source: str, report: bytes) -> dict[str, Any]:
        """Send a report, a JSON document, and return the API's response. Raises as `send` does."""
        return self._post(f"{source}/counts", report, {"content-type": "application/json"})

    def _send_in_parts(self, source: str, batch: list[bytes]) -> Iterator[tuple[list[bytes], dict[str, Any]]]:
        """Send a batch; yield each part that the API accepted, in order, with its response."""
        headers = {"content-type": "application/x-ndjson", "content-encoding": "gzip"}
        try:
            response = self._post(f"{source}/events", encode_body(batch), headers)
        except PushTooLarge:
            if len(batch) == 1:
                raise
            middle = len(batch) // 2
            yield from self._send_in_parts(source, batch[:middle])
            yield from self._send_in_parts(source, batch[middle:])
        else:
            yield batch, response

    def _is_last_attempt(self, state: RetryCallState) -> bool:
        # A batch that waits for AWS WAF is no load for the API, and a long push waits again and again.
        return state.attempt_number == _ATTEMPTS or not (_is_rate_limited(state) or self.budget.take())

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        attempts = Retrying(
            retry=retry_if_exception_type((httpx.TransportError, Throttled, Unavailable)),
            wait=_pause,
            stop=self._is_last_attempt,
            sleep=self.sleep,
            reraise=True,
        )
        try:
            return attempts(self._post_once, path, body, headers)
        except httpx.HTTPError as error:
            if isinstance(error, httpx.ConnectError) and (reason := stopped_local_cloud(self.api)):
                raise Unavailable(reason) from error
            raise Unavailable(f"the API at {self.api} does not answer: {error or type(error).__name__}") from error

    def _post_once(self, path: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        response = self.http.post(
            f"{self.api.rstrip('/')}/v1/sources/{path}",
            content=body,
            headers={
                "authorization": f"Bearer {self.token}",
                "x-correlation-id": self.correlation_id,
                **headers,
            },
        )
        status = response.status_code
        if status in _PROCESSED:
            self.budget.succeeded()
            document: dict[str, Any] = response.json()
            return document
        code, message = _error(response)
        # The receiver's own response of status 403 has another code, and most of the gateway's have none.
        if status == HTTPStatus.FORBIDDEN and code in (None, "blocked"):
            raise PushBlocked(
                f"the API answered 403: {message}: the request did not reach the receiver. AWS WAF "
                f"blocks your IP address, or {self.api} is not the URL of the API (the stack output ApiUrl)"
            )
        if status == HTTPStatus.TOO_MANY_REQUESTS and code == "too_many_requests":
            raise PushRateLimited(f"the API answered 429: {message}")
        error = _TRANSIENT.get(status) or _ERRORS.get(status, CloudError)
        raise error(f"the API answered {status}: {message}")


def _pause(state: RetryCallState) -> float:
    """Return the seconds to wait before the next attempt."""
    return _BACKOFF(state) + (_RATE_WINDOW if _is_rate_limited(state) else 0)


def _is_rate_limited(state: RetryCallState) -> bool:
    """Return whether AWS WAF has refused the latest attempt."""
    return state.outcome is not None and isinstance(state.outcome.exception(), PushRateLimited)


def _error(response: httpx.Response) -> tuple[object, str]:
    """Return the code and the message of an error response, which comes from the API or from the gateway before it.

    The code is None without one, as in most answers of the gateway.
    """
    try:
        document = response.json()
    except ValueError:
        return None, response.text[:200]
    if not isinstance(document, dict):
        return None, str(document)[:200]
    error = document.get("error")
    if isinstance(error, dict):
        return error.get("code"), str(error.get("message"))
    return None, str(document.get("message", document))
