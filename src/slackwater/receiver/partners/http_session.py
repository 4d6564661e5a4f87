"""Requests to a partner's HTTP server: tried again, redirected, and with credentials for its own origin alone."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal
from urllib.parse import urljoin, urlsplit

import httpx
from tenacity import Retrying

from slackwater.errors import DefinitionError, OutboundRefused, PartnerError
from slackwater.receiver.partners.credentials import Credentials
from slackwater.receiver.partners.download import TransientPartnerError, retry_attempts

Method = Literal["GET", "HEAD"]
GONE = frozenset({404, 410})
_REDIRECTS = 5
_TIMEOUT = httpx.Timeout(30.0, connect=5.0)
"""Seconds without a byte, not for the whole file."""
_PASSING = frozenset({408, 425, 429, 500, *range(502, 600)})
"""Statuses that may be gone when asked again: 501 stays."""

# Below that, one writes whole addresses, and the other what was wrong with a header, with all that is secret in them.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class HttpSession:
    """Asks one partner's server, and whatever it redirects or links to."""

    def __init__(
        self,
        url: str,
        *,
        credentials: Credentials | None,
        transport: httpx.BaseTransport,
        sleep: Callable[[float], None],
    ) -> None:
        """Raise `DefinitionError` when `credentials` are none that HTTP has."""
        self._home = httpx.URL(url)
        self._authorization = {"authorization": _authorization(credentials, url)} if credentials else {}
        self._client = httpx.Client(
            timeout=_TIMEOUT, transport=transport, trust_env=False, headers={"accept-encoding": "identity"}
        )
        self._sleep = sleep

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def attempts(self) -> Retrying:
        """Return the attempts at one file or page: each is entered, and left for the next one by `TransientPartnerError`."""
        return retry_attempts(self._sleep)

    @contextmanager
    def answer(
        self, method: Method, address: str, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        """Yield the answer, its body not yet read. Raises `TransientPartnerError`, or `PartnerError` for what will not pass."""
        try:
            with self._follow(method, address, headers or {}) as answer:
                if answer.status_code in _PASSING:
                    raise TransientPartnerError(
                        f"{shown(address)}: answered {answer.status_code}", wait=_retry_after(answer)
                    )
                yield answer
        except (httpx.LocalProtocolError, UnicodeEncodeError):
            # Without their words, which quote the headers, and with them our credentials.
            raise PartnerError(
                f"{shown(address)}: HTTP cannot send its headers: see its credentials, or the ETag that the server gave"
            ) from None
        except httpx.TransportError as error:
            raise TransientPartnerError(f"{shown(address)}: {str(error) or type(error).__name__}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise PartnerError(f"{shown(address)}: {error}") from error

    @contextmanager
    def _follow(self, method: str, address: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        to = address
        for _ in range(_REDIRECTS + 1):
            with self._client.stream(method, to, headers={**headers, **self._authorized(to)}) as answer:
                if not answer.has_redirect_location:
                    yield answer
                    return
                to = link(to, answer.headers["location"])
        raise PartnerError(f"{shown(address)}: redirected more than {_REDIRECTS} times")

    def _authorized(self, address: str) -> Mapping[str, str]:
        """The headers for this address: credentials are for the partner's own origin, over TLS if it has that."""
        to = httpx.URL(address)
        if self._home.scheme == "https" and to.scheme == "http":
            raise OutboundRefused(f"{shown(address)}: linked to from https, and not encrypted itself")
        same = (to.scheme, to.host, to.port) == (self._home.scheme, self._home.host, self._home.port)
        return self._authorization if same else {}


def link(page: str, to: str) -> str:
    """Return the address that a page's link leads to. Raises `PartnerError` for one that is none."""
    try:
        return urljoin(page, to)
    except ValueError as error:
        raise PartnerError(f"{shown(page)}: links to what is no address") from error


def shown(address: str) -> str:
    """Return the address without its query, which may be secret."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def expect_ok(address: str, answer: httpx.Response) -> None:
    """Raise `PartnerError` unless the answer is 200."""
    if answer.status_code != httpx.codes.OK:
        raise PartnerError(f"{shown(address)}: answered {answer.status_code}, where 200 is expected")


def date_of(answer: httpx.Response, header: str) -> datetime | None:
    """Return a header's date in UTC; None when it is not there, or none."""
    try:
        found = parsedate_to_datetime(answer.headers.get(header, ""))
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None


def length_of(answer: httpx.Response) -> int | None:
    """Return the file's bytes, as far as the answer tells; what is encoded on the way has another length."""
    length = answer.headers.get("content-length", "")
    return int(length) if length.isdecimal() and not is_encoded(answer) else None


def is_encoded(answer: httpx.Response) -> bool:
    """Whether the body is compressed for the way, although that is not asked for."""
    return bool(answer.headers.get("content-encoding", "identity") != "identity")


def _authorization(credentials: Credentials, url: str) -> str:
    if credentials.token is not None:
        return f"Bearer {credentials.token.get_secret_value()}"
    if credentials.username is not None and credentials.password is not None:
        if ":" in credentials.username:
            raise DefinitionError(f"{shown(url)}: the `username` of its credentials holds a colon, where HTTP ends it")
        user = f"{credentials.username}:{credentials.password.get_secret_value()}"
        return f"Basic {b64encode(user.encode()).decode()}"
    raise DefinitionError(f"{shown(url)}: its credentials need a `token`, or a `username` with a `password`")


def _retry_after(answer: httpx.Response) -> float | None:
    seconds = answer.headers.get("retry-after", "").strip()
    if seconds.isdecimal():
        return float(seconds)
    date = date_of(answer, "retry-after")
    return None if date is None else max(0.0, (date - datetime.now(UTC)).total_seconds())
