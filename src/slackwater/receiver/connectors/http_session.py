"""Requests to a partner's HTTP server, with retries, checked redirects, and credentials for its own origin only."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import sleep as wait_for
from typing import BinaryIO, Literal, TypeVar
from urllib.parse import urljoin, urlsplit

import httpx

from slackwater.errors import DefinitionError, OutboundRefused, PartnerError
from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import GuardedTransport, Outbound
from slackwater.receiver.connectors.connector import TransientPartnerError, retrying

Method = Literal["GET", "HEAD"]
_Result = TypeVar("_Result")
# Not found, and gone.
GONE = frozenset({404, 410})
_MAX_REDIRECTS = 5
# The read timeout limits the time between two chunks, not the whole download.
_TIMEOUT = httpx.Timeout(30.0, connect=5.0)
# Statuses that may change at the next attempt. 501 (not implemented) is left out.
_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, *range(502, 600)})


class HttpSession:
    """Sends requests to one partner's server, and to the servers that it redirects or links to."""

    def __init__(
        self,
        url: str,
        *,
        credentials: Credentials | None,
        transport: httpx.BaseTransport,
        sleep: Callable[[float], None],
    ) -> None:
        """Raise `DefinitionError` when HTTP cannot use the `credentials`. `sleep` waits for a number of seconds."""
        self._home = httpx.URL(url)
        self._authorization = {"authorization": authorization_header(credentials, url)} if credentials else {}
        # "identity": sizes and ranges must count the bytes of the file, not those of a compressed body. `trust_env` is
        # off, because proxies from the environment would bypass the guard.
        self._client = httpx.Client(
            timeout=_TIMEOUT, transport=transport, trust_env=False, headers={"accept-encoding": "identity"}
        )
        self._sleep = sleep
        # At the levels info and debug, httpx logs whole URLs and httpcore logs headers, which may contain secrets.
        for name in ("httpx", "httpcore"):
            logger = logging.getLogger(name)
            logger.setLevel(max(logger.level, logging.WARNING))

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def read(
        self,
        url: str,
        reader: Callable[[httpx.Response], _Result],
        *,
        method: Method = "GET",
        headers: Mapping[str, str] | None = None,
    ) -> _Result:
        """Send a request, and return what `reader` returns for the response, whose body is not read before.

        Both are tried again after a failure that may pass. Raises what `request` and `reader` raise.
        """

        def attempt() -> _Result:
            with self.request(method, url, headers) as response:
                return reader(response)

        return retrying(self._sleep)(attempt)

    @contextmanager
    def request(self, method: Method, url: str, headers: Mapping[str, str] | None = None) -> Iterator[httpx.Response]:
        """Send one request, follow redirects, and yield the response before its body is read.

        Raises `TransientPartnerError` for a failure that may pass, `OutboundRefused`, or `PartnerError` for any other.
        """
        try:
            with self._follow(method, url, headers or {}) as response:
                if response.status_code in _TRANSIENT_STATUSES:
                    raise TransientPartnerError(
                        f"{without_query(url)}: answered {response.status_code}", wait=retry_after(response)
                    )
                yield response
        except (httpx.LocalProtocolError, UnicodeEncodeError):
            # `from None`: the library's message quotes the headers, and with them the credentials.
            raise PartnerError(
                f"{without_query(url)}: HTTP cannot send the request's headers: "
                "check the credentials, and the ETag that the server sent"
            ) from None
        except httpx.TransportError as error:
            raise TransientPartnerError(f"{without_query(url)}: {str(error) or type(error).__name__}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise PartnerError(f"{without_query(url)}: {error}") from error

    @contextmanager
    def _follow(self, method: str, url: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        # Not left to httpx, because each redirect has to be checked before credentials are sent along.
        hop = url
        for _ in range(_MAX_REDIRECTS + 1):
            with self._client.stream(method, hop, headers={**headers, **self._credentials_for(hop)}) as response:
                if not response.has_redirect_location:
                    yield response
                    return
                hop = absolute_link(hop, response.headers["location"])
        raise PartnerError(f"{without_query(url)}: redirected more than {_MAX_REDIRECTS} times")

    def _credentials_for(self, url: str) -> Mapping[str, str]:
        """Return the authorization header if the URL has the partner's own scheme, host and port; else no header.

        Raises `OutboundRefused` for an http URL that an https server links to.
        """
        target = httpx.URL(url)
        if self._home.scheme == "https" and target.scheme == "http":
            raise OutboundRefused(f"{without_query(url)}: not encrypted, but an https server links to it")
        own = (target.scheme, target.host, target.port) == (self._home.scheme, self._home.host, self._home.port)
        return self._authorization if own else {}


def absolute_link(page_url: str, link: str) -> str:
    """Return the absolute URL of a link in the page at `page_url`. Raises `PartnerError` for an invalid link."""
    try:
        return urljoin(page_url, link)
    except ValueError as error:
        raise PartnerError(f"{without_query(page_url)}: links to an invalid URL") from error


def without_query(url: str) -> str:
    """Return the URL for messages: without its query and credentials, which may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def expect_ok(url: str, response: httpx.Response) -> None:
    """Raise `PartnerError` unless the status is 200."""
    if response.status_code != httpx.codes.OK:
        raise PartnerError(f"{without_query(url)}: answered {response.status_code}, where 200 is expected")


def header_date(response: httpx.Response, header: str) -> datetime | None:
    """Return a header's date in UTC; None when the header is missing or not a date."""
    try:
        date = parsedate_to_datetime(response.headers.get(header, ""))
        return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None


def content_length(response: httpx.Response) -> int | None:
    """Return the file's size in bytes; None when the server does not send it, or compresses the body."""
    length = response.headers.get("content-length", "")
    return int(length) if length.isdecimal() and not is_encoded(response) else None


def is_encoded(response: httpx.Response) -> bool:
    """Whether the server compressed the body, although the request did not accept that."""
    return bool(response.headers.get("content-encoding", "identity") != "identity")


def authorization_header(credentials: Credentials, url: str) -> str:
    """Return the value of the header `Authorization`. Raises `DefinitionError` for credentials that HTTP cannot use."""
    if credentials.token is not None:
        return f"Bearer {credentials.token.get_secret_value()}"
    if credentials.username is not None and credentials.password is not None:
        if ":" in credentials.username:
            raise DefinitionError(
                f"{without_query(url)}: the `username` of its credentials holds a colon, which HTTP does not allow"
            )
        user = f"{credentials.username}:{credentials.password.get_secret_value()}"
        return f"Basic {b64encode(user.encode()).decode()}"
    raise DefinitionError(f"{without_query(url)}: its credentials need a `token`, or a `username` with a `password`")


def retry_after(response: httpx.Response) -> float | None:
    """Return the seconds of the header `Retry-After`, which is a number or a date; None without the header."""
    seconds = response.headers.get("retry-after", "").strip()
    if seconds.isdecimal():
        return float(seconds)
    date = header_date(response, "retry-after")
    return None if date is None else max(0.0, (date - datetime.now(UTC)).total_seconds())


def download_start(
    url: str, into: BinaryIO, *, outbound: Outbound, max_bytes: int, sleep: Callable[[float], None] = wait_for
) -> bool:
    """Write at most the first `max_bytes` of the file at `url`, and return whether that is the whole file.

    Failures that may pass are retried. Raises `OutboundRefused`, or another `PartnerError`.
    """

    def write_start(response: httpx.Response) -> bool:
        expect_ok(url, response)
        into.seek(0)
        into.truncate()
        for block in response.iter_bytes():
            left = max_bytes - into.tell()
            into.write(block[:left])
            if len(block) > left:
                return False
        return True

    with closing(HttpSession(url, credentials=None, transport=GuardedTransport(outbound), sleep=sleep)) as session:
        return session.read(url, write_start)
