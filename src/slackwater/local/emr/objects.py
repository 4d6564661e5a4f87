"""Objects in the local cloud's own S3, over plain HTTP."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPResponse
from typing import NamedTuple
from urllib.parse import quote

from slackwater.errors import CloudError, ObjectMissing
from slackwater.storage import split_uri

_SECONDS = 60
_NOT_FOUND = 404


class Fetched(NamedTuple):
    """An object's content, with its ETag."""

    body: bytes
    etag: str


class Objects:
    """Reads and writes the objects of one endpoint."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def get(self, uri: str) -> Fetched:
        """Return an object. Raises `ObjectMissing`, `CloudError` or, for an address that is not S3's, `InputError`."""
        with self._request("GET", uri, None) as response:
            return Fetched(response.read(), response.headers["ETag"].strip('"'))

    def put(self, uri: str, body: bytes) -> None:
        """Write an object. Raises `ObjectMissing` when its bucket is not there, or `CloudError`."""
        self._request("PUT", uri, body).close()

    def make_bucket(self, bucket: str) -> None:
        """Make a bucket. Raises `CloudError`."""
        self._request("PUT", f"s3://{bucket}/", b"").close()

    def _request(self, method: str, uri: str, body: bytes | None) -> HTTPResponse:
        bucket, key = split_uri(uri)
        request = urllib.request.Request(f"{self._endpoint}/{bucket}/{quote(key)}", data=body, method=method)  # noqa: S310
        try:
            response: HTTPResponse = urllib.request.urlopen(request, timeout=_SECONDS)  # noqa: S310
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                raise ObjectMissing(f"{uri} does not exist") from error
            raise CloudError(f"{method} {uri}: HTTP {error.code}") from error
        except OSError as error:
            raise CloudError(f"{method} {uri}: {error}") from error
        return response
