"""Objects in S3."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.clients import client
from slackwater.aws.failures import code_of, translated
from slackwater.errors import CloudError
from slackwater.storage import StoredObject, split_uri

_CONFLICTS = 5
"""How often a conditional write is tried that S3 refuses for now, as another one of the same key is under way."""
_DELETE_LIMIT = 1000
"""Objects that one DeleteObjects call takes."""


class S3ObjectStore:
    """`slackwater.storage.ObjectStore` over S3."""

    def __init__(self, s3: Any) -> None:
        self._s3 = s3

    def put(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> None:
        """Write `body` to `uri`, whatever was there."""
        bucket, key = split_uri(uri)
        with translated(f"write {uri}"):
            self._s3.put_object(Bucket=bucket, Key=key, Body=body, Metadata=dict(metadata or {}))

    def put_new(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> bool:
        """Write `body` unless `uri` exists; say whether it was written."""
        bucket, key = split_uri(uri)
        with translated(f"write {uri}"):
            for attempt in range(_CONFLICTS):
                try:
                    self._s3.put_object(
                        Bucket=bucket, Key=key, Body=body, Metadata=dict(metadata or {}), IfNoneMatch="*"
                    )
                except ClientError as error:
                    if code_of(error) == "PreconditionFailed":
                        return False
                    if code_of(error) != "ConditionalRequestConflict" or attempt + 1 == _CONFLICTS:
                        raise
                    time.sleep(0.1 * 2**attempt)
                else:
                    break
        return True

    def get(self, uri: str) -> bytes:
        """Return the whole object. Raises `ObjectMissing`."""
        bucket, key = split_uri(uri)
        with translated(f"read {uri}"):
            body: bytes = self._s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body

    def metadata(self, uri: str) -> Mapping[str, str]:
        """Return the object's user metadata. Raises `ObjectMissing`."""
        bucket, key = split_uri(uri)
        with translated(f"read the metadata of {uri}"):
            found: Mapping[str, str] = self._s3.head_object(Bucket=bucket, Key=key)["Metadata"]
        return found

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Every object whose address starts with `prefix`, in order of address."""
        bucket, key = split_uri(prefix)
        with translated(f"list {prefix}"):
            for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key):
                for item in page.get("Contents", []):
                    yield StoredObject(
                        uri=f"s3://{bucket}/{item['Key']}",
                        size=item["Size"],
                        etag=item["ETag"].strip('"'),
                        modified=item["LastModified"],
                    )

    def delete(self, uris: Iterable[str]) -> None:
        """Delete the objects; one that is not there is no error."""
        keys: dict[str, list[str]] = defaultdict(list)
        for uri in uris:
            bucket, key = split_uri(uri)
            keys[bucket].append(key)
        for bucket, names in keys.items():
            for start in range(0, len(names), _DELETE_LIMIT):
                self._delete_some(bucket, names[start : start + _DELETE_LIMIT])

    def _delete_some(self, bucket: str, keys: Sequence[str]) -> None:
        with translated(f"remove objects of s3://{bucket}"):
            answer = self._s3.delete_objects(
                Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
            )
        for refused in answer.get("Errors", []):
            raise CloudError(
                f"could not remove s3://{bucket}/{refused['Key']}: {refused['Code']}: {refused['Message']}"
            )


def s3_store() -> S3ObjectStore:
    """Return the store of this process's environment; Spark's workers make their own by this function's name."""
    return S3ObjectStore(client("s3"))
