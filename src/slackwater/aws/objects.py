"""Objects in S3."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from botocore.exceptions import ClientError

from slackwater.aws.clients import client
from slackwater.aws.failures import code_of, translated
from slackwater.errors import CloudError
from slackwater.storage import StoredObject, split_uri

_CONFLICTS = 5
"""How often a conditional write is tried that S3 refuses for now, as another one of the same key is under way."""
ONE_CALL = 2**30
"""Bytes of a file that is written by one call: what breaks off is sent again from its beginning."""
PART = 2**26
"""Bytes of a part of a larger one: an object has 10,000 parts at most."""
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
        return self._put_new(uri, lambda: body, metadata)

    def put_new_file(self, uri: str, path: Path, *, metadata: Mapping[str, str] | None = None) -> bool:
        """As `put_new`, with a file's content, which is never in memory as a whole."""
        with path.open("rb") as file:
            if path.stat().st_size > ONE_CALL:
                return self._put_new_parts(uri, file, metadata)
            return self._put_new(uri, lambda: _from_start(file), metadata)

    def _put_new(self, uri: str, body: Callable[[], bytes | BinaryIO], metadata: Mapping[str, str] | None) -> bool:
        bucket, key = split_uri(uri)
        with translated(f"write {uri}"):
            return _unless_there(
                lambda: self._s3.put_object(
                    Bucket=bucket, Key=key, Body=body(), Metadata=dict(metadata or {}), IfNoneMatch="*"
                )
            )

    def _put_new_parts(self, uri: str, file: BinaryIO, metadata: Mapping[str, str] | None) -> bool:
        """Write a file of any size; what is left of one that breaks off goes by the bucket's own rule."""
        bucket, key = split_uri(uri)
        with translated(f"write {uri}"):
            made = self._s3.create_multipart_upload(Bucket=bucket, Key=key, Metadata=dict(metadata or {}))
            upload = {"Bucket": bucket, "Key": key, "UploadId": made["UploadId"]}
            parts = []
            for number, body in enumerate(iter(lambda: file.read(PART), b""), start=1):
                part = self._s3.upload_part(**upload, PartNumber=number, Body=body)
                parts.append({"PartNumber": number, "ETag": part["ETag"]})
            return _unless_there(
                lambda: self._s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
            )

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


def _unless_there(write: Callable[[], object]) -> bool:
    """Do a conditional write; say whether its object was not there."""
    for attempt in range(_CONFLICTS):
        try:
            write()
        except ClientError as error:
            if code_of(error) == "PreconditionFailed":
                return False
            if code_of(error) != "ConditionalRequestConflict" or attempt + 1 == _CONFLICTS:
                raise
            time.sleep(0.1 * 2**attempt)
        else:
            break
    return True


def _from_start(file: BinaryIO) -> BinaryIO:
    file.seek(0)
    return file


def s3_store() -> S3ObjectStore:
    """Return the store of this process's environment; Spark's workers make their own by this function's name."""
    return S3ObjectStore(client("s3"))
