"""Sends events to a receiver of OpenLineage over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Self

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from slackwater.errors import CloudError, Unavailable
from slackwater.lineage.datasets import Json
from slackwater.outbound.credentials import Credentials

PATH = "/api/v1/lineage"
"""Below the receiver's URL, as in the clients of OpenLineage."""
_ATTEMPTS, _LONGEST_PAUSE = 3, 5.0
_SECONDS = httpx.Timeout(10.0)
_REQUEST_TIMEOUT, _TOO_MANY, _SERVER_ERROR = 408, 429, 500


class LineageReceiver:
    """A receiver of OpenLineage, such as Marquez."""

    def __init__(
        self,
        url: str,
        *,
        transport: httpx.BaseTransport,
        credentials: Credentials | None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Send to the path `/api/v1/lineage` below `url`, with a bearer token or with user and password, if any."""
        headers, auth = {}, None
        if credentials and credentials.token:
            headers["authorization"] = f"Bearer {credentials.token.get_secret_value()}"
        elif credentials and credentials.username and credentials.password:
            auth = httpx.BasicAuth(credentials.username, credentials.password.get_secret_value())
        self._sleep = sleep
        self._url = url.rstrip("/") + PATH
        self._http = httpx.Client(transport=transport, headers=headers, auth=auth, timeout=_SECONDS)

    def send(self, events: Iterable[Json]) -> int:
        """Send events in order, and return how many.

        A request is made three times at most. Raises `Unavailable` if the receiver cannot be reached or is busy, and
        `CloudError` if it refuses an event; the events before have been sent. The same events can be sent again.
        """
        count = 0
        for event in events:
            again = Retrying(
                stop=stop_after_attempt(_ATTEMPTS),
                wait=wait_random_exponential(max=_LONGEST_PAUSE),
                retry=retry_if_exception_type(Unavailable),
                sleep=self._sleep,
                reraise=True,
            )
            again(self._post, event)
            count += 1
        return count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def _post(self, event: Json) -> None:
        try:
            response = self._http.post(self._url, json=event)
        except httpx.TransportError as error:
            raise Unavailable(f"{self._url}: {error or type(error).__name__}") from error
        if response.is_success:
            return
        status = response.status_code
        message = f"{self._url} answered {status}: {response.text[:300]}"
        if status in {_REQUEST_TIMEOUT, _TOO_MANY} or status >= _SERVER_ERROR:
            raise Unavailable(message)
        raise CloudError(message)
