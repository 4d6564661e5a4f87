"""`read_api`: read records from an HTTP API that answers with JSON, page by page.

Connections go through the outbound guard, as to partners: a host with a private address has to be in the setting
`outbound_allow`, redirects are checked, and credentials are sent to the host of `url` only. Failures that may pass are
retried. A page has at most 64 MB, all pages 2 GB, and there are at most 10,000 pages.

Up to 32 MB are read by the driver. For a larger result, one task reads all pages, and the first ones a second time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import pyarrow as pa
from pydantic import AfterValidator, Field, model_validator

from slackwater.errors import DataError, InputError, PartnerError
from slackwater.model import Model
from slackwater.sources.pull_config import CredentialsReference, check_url
from slackwater.steps.io.frames import frame_of_parts
from slackwater.steps.io.typed_rows import TypedRows, check_rows, declared_columns
from slackwater.steps.step import Extract, StepContext

if TYPE_CHECKING:
    import httpx
    from pyspark.sql import DataFrame

    from slackwater.outbound.credentials import Credentials, Secrets
    from slackwater.outbound.guard import Outbound
    from slackwater.receiver.connectors.http_session import HttpSession

_MAX_PAGES = 10_000
# Bytes.
_MAX_PAGE, _MAX_PAGES_TOGETHER = 64 * 2**20, 2 * 2**30
_BLOCK = 2**16
_DATE = "{date}"


def _check_api_url(url: str) -> str:
    check_url(url)
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or parts.fragment or "{" in parts.netloc:
        raise ValueError(f"{url!r} is not a URL such as https://host/path?day={_DATE}")
    if "{" in url.replace(_DATE, ""):
        raise ValueError(f"{_DATE} is the only placeholder of a URL")
    return url


JsonPath = Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)*$")]
"""Keys of nested objects with dots between them, such as `data.items`."""


class NextLink(Model):
    """Each page links to the next one. Pages end at the first without a link."""

    by: Literal["next_link"]
    link: JsonPath | None = None
    """Where the URL of the next page is in a page. Without it, the header `Link` with `rel="next"` is read."""


class NextCursor(Model):
    """Each page holds a value for the request of the next one. Pages end at the first without it."""

    by: Literal["cursor"]
    cursor: JsonPath
    """Where the value is in a page."""
    parameter: Annotated[str, Field(min_length=1)]
    """The parameter of the URL that gets the value."""


class PageNumber(Model):
    """Pages are numbered. They end at the first without records."""

    by: Literal["number"]
    parameter: Annotated[str, Field(min_length=1)]
    """The parameter of the URL that gets the number."""
    first: int = 1
    """Number of the first page."""


_EXAMPLE = {
    "url": "https://api.example/v1/rates?day={date}",
    "records": "data.rates",
    "pages": {"by": "next_link", "link": "links.next"},
    "fields": {"currency": "string", "rate": "double"},
    "credentials": "secretsmanager:rates/api",
}


class ReadApi(TypedRows, json_schema_extra={"examples": [_EXAMPLE]}):
    """Parameters of `read_api`."""

    url: Annotated[str, AfterValidator(_check_api_url)]
    """URL of the first page. `{date}` is the day of the run."""
    records: JsonPath | None = None
    """Where the array of records is in a page. Without it, a page is an array of records."""
    pages: Annotated[NextLink | NextCursor | PageNumber, Field(discriminator="by")] | None = None
    """How the next page is found. Without it, there is one page."""
    credentials: CredentialsReference | None = None
    """`secretsmanager:<name>` or `ssm:<name>`: a JSON object with a `token`, or with `username` and `password`."""

    @model_validator(mode="after")
    def _check_credentials(self) -> ReadApi:
        if self.credentials and urlsplit(self.url).scheme == "http":
            raise ValueError("http would send the credentials unencrypted: use https")
        return self


@dataclass(frozen=True)
class ApiAccess:
    """What requests need besides the parameters. Executors use it too."""

    outbound: Outbound
    secrets: Secrets | None
    sleep: Callable[[float], None] = time.sleep
    """Waits for a number of seconds, before a request is repeated."""

    def credentials(self, reference: str | None) -> Credentials | None:
        """Return the credentials, or None without a reference. Raises `InputError` where there are no secrets."""
        if reference is None:
            return None
        if self.secrets is None:
            raise InputError("credentials: there are no secrets here: run the step in a pipeline")
        return self.secrets.read(reference)


def read(parameters: ReadApi, context: StepContext) -> DataFrame:
    """Return the records of all pages.

    Raises `PartnerError` for a server that refuses or fails, and `DataError` for a page or a record that does not fit.
    """
    from slackwater.outbound.guard import Outbound

    day = context.day.date if context.day else None
    access = ApiAccess(context.outbound or Outbound(), context.secrets)
    return frame_of_parts(context.spark, [parameters], partial(read_pages, day=day, access=access))


def read_pages(parameters: ReadApi, *, day: date | None, access: ApiAccess) -> Iterator[pa.Table]:
    """Yield the records of each page; the first table is empty. Raises what `read` raises."""
    from slackwater.outbound.guard import GuardedTransport
    from slackwater.receiver.connectors.http_session import HttpSession, without_query

    yield parameters.schema.empty_table()
    session = HttpSession(
        parameters.url,
        credentials=access.credentials(parameters.credentials),
        transport=GuardedTransport(access.outbound),
        sleep=access.sleep,
    )
    with closing(session):
        visited: set[str] = set()
        url: str | None = _first_url(parameters, day)
        rows, bytes_left = 0, _MAX_PAGES_TOGETHER
        while url:
            if url in visited or len(visited) == _MAX_PAGES:
                raise PartnerError(f"{without_query(url)}: more than {_MAX_PAGES:,} pages, or pages link in a circle")
            visited.add(url)
            name = without_query(url)
            response, body = _get(session, url)
            bytes_left -= len(body)
            if bytes_left < 0:
                raise PartnerError(f"{name}: all pages together are larger than {_MAX_PAGES_TOGETHER:,} bytes")
            page = _parse(body, name)
            records = _records(page, parameters.records, name)
            yield check_rows(records, parameters, name=name, before=rows)
            rows += len(records)
            url = _next_url(parameters.pages, url, response, page, is_empty=not records)


def _first_url(parameters: ReadApi, day: date | None) -> str:
    import httpx

    url = parameters.url
    if _DATE in url:
        if day is None:
            raise InputError(f"url: it contains {_DATE}, which only a run of a pipeline has")
        url = url.replace(_DATE, day.isoformat())
    if isinstance(parameters.pages, PageNumber):
        url = str(httpx.URL(url).copy_merge_params({parameters.pages.parameter: parameters.pages.first}))
    return url


def _get(session: HttpSession, url: str) -> tuple[httpx.Response, bytes]:
    """Return the response and its body. Raises `PartnerError`, also for a body of more than `_MAX_PAGE` bytes."""
    from slackwater.receiver.connectors.http_session import expect_ok, without_query

    def read_body(response: httpx.Response) -> tuple[httpx.Response, bytes]:
        expect_ok(url, response)
        body = bytearray()
        for block in response.iter_bytes(_BLOCK):
            body += block
            if len(body) > _MAX_PAGE:
                raise PartnerError(f"{without_query(url)}: larger than {_MAX_PAGE:,} bytes: ask for smaller pages")
        return response, bytes(body)

    return session.read(url, read_body, headers={"accept": "application/json"})


def _parse(body: bytes, name: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: not JSON: {error}") from error


def _records(page: Any, path: str | None, name: str) -> list[Mapping[str, Any]]:
    records = _value_at(page, path) if path else page
    if not isinstance(records, list):
        place = f"at {path} of the page" if path else "as the page: set `records` to where it is"
        raise DataError(f"{name}: an array of records is expected {place}")
    return records


def _value_at(page: Any, path: str) -> Any:
    """Return the value at a `JsonPath`; None if there is none."""
    for key in path.split("."):
        page = page.get(key) if isinstance(page, dict) else None
    return page


def _next_url(
    pages: NextLink | NextCursor | PageNumber | None, url: str, response: httpx.Response, page: Any, *, is_empty: bool
) -> str | None:
    """Return the URL of the next page; None after the last one."""
    import httpx

    from slackwater.receiver.connectors.http_session import absolute_link

    match pages:
        case NextLink(link=path):
            link = _value_at(page, path) if path else response.links.get("next", {}).get("url")
            return absolute_link(str(response.url), str(link)) if link else None
        case NextCursor():
            value = _value_at(page, pages.cursor)
            if isinstance(value, (dict, list)):
                raise DataError(
                    f"pages.cursor: {pages.cursor} is {str(value)[:100]}, and a string or number is expected"
                )
            # 0 and false are values too.
            return None if value in (None, "") else str(httpx.URL(url).copy_merge_params({pages.parameter: value}))
        case PageNumber() if not is_empty:
            number = int(httpx.URL(url).params[pages.parameter]) + 1
            return str(httpx.URL(url).copy_merge_params({pages.parameter: number}))
    return None


STEP = Extract(name="read_api", parameters=ReadApi, read=read, columns=declared_columns)
