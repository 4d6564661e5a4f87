"""Requests for objects of S3 with the credentials of a job."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import quote

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from slackwater.errors import AccessDenied, CloudError, ObjectMissing
from slackwater.storage import split_uri

_SECONDS = 60
_FORBIDDEN, _NOT_FOUND = 403, 404


def request_object(aws: Mapping[str, str], method: str, uri: str, body: bytes | None = None) -> tuple[str, bytes]:
    """Send one request for the object `uri`. Return the ETag and the body of the response; each may be empty.

    `aws` holds the environment variables with endpoint, region and credentials. Raises `InputError` for a URI that is
    not of S3, `ObjectMissing` for a missing object or bucket, `AccessDenied` when a permission is missing, `CloudError`
    for any other failure.
    """
    bucket, key = split_uri(uri)
    unsigned = AWSRequest(method, f"{aws['AWS_ENDPOINT_URL']}/{bucket}/{quote(key)}", data=body)
    credentials = Credentials(aws["AWS_ACCESS_KEY_ID"], aws["AWS_SECRET_ACCESS_KEY"], aws.get("AWS_SESSION_TOKEN"))
    S3SigV4Auth(credentials, "s3", aws["AWS_REGION"]).add_auth(unsigned)  # adds headers
    headers = dict(unsigned.headers.items())
    request = urllib.request.Request(unsigned.url, data=body, headers=headers, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:  # noqa: S310
            return response.headers.get("ETag", ""), response.read()
    except urllib.error.HTTPError as error:
        if error.code == _NOT_FOUND:
            raise ObjectMissing(f"{uri} does not exist") from error
        if error.code == _FORBIDDEN:
            raise AccessDenied(f"the job's role lacks the permission for {method} {uri}") from error
        raise CloudError(f"{method} {uri}: HTTP {error.code}") from error
    except OSError as error:
        raise CloudError(f"{method} {uri}: {error}") from error
