"""Objects in S3."""

from __future__ import annotations

import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from botocore.exceptions import ClientError

from slackwater.aws.clients import client
from slackwater.aws.failures import code_of, error_type, translated
from slackwater.errors import ObjectMissing
from slackwater.storage import ObjectHead, StoredObject, split_uri

# Attempts of a conditional write.
_CONFLICT_ATTEMPTS = 5
# S3 answers 409 while another write or deletion of the same key is in progress, and 404 when the upload of an object in
# parts no longer exists, as after such a conflict: the whole upload has to start again.
_CONFLICTS = frozenset({"ConditionalRequestConflict", "NoSuchUpload"})
# The condition does not hold. With `If-Match`, S3 answers 404 where there is no object.
_REFUSALS = frozenset({"PreconditionFailed", "NoSuchKey"})
# Bytes. Larger files are written in parts, although S3 accepts 5 GB in one call: a single call that breaks off starts
# again from the first byte.
MAX_SINGLE_PUT = 2**30
# Bytes of a part. S3 allows 10,000 parts for an object, so a file may have 640 GB.
PART = 2**26
# Objects that one DeleteObjects call accepts.
_DELETE_LIMIT = 1000
# Raw partitions, rejected events and rows, original files and receipts of a source: `raw/source=orders/...`.
_SOURCE_KEY = re.compile(r"[^/]+/source=(?P<source>[^/]+)/")


class S3ObjectStore:
    """`slackwater.storage.ObjectStore` over S3."""

    def __init__(self, s3: Any, *, source_keys: Mapping[str, str] | None = None) -> None:
        """Create the store. `source_keys` are the KMS keys, by source, that encrypt the objects it writes of them."""
        self._s3 = s3
        self._source_keys = source_keys or {}

    def put(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> None:
        """Write `body` to `uri`, over an object that exists there."""
        bucket, key = split_uri(uri)
        with translated(f"write {uri}"):
            self._s3.put_object(Body=body, **self._new_object(bucket, key, metadata))

    def put_new(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> bool:
        """Write `body` unless `uri` exists; return whether it was written."""
        return self._put_new(uri, lambda: body, metadata)

    def put_new_file(self, uri: str, path: Path, *, metadata: Mapping[str, str] | None = None) -> bool:
        """Write a file's content as `put_new` does, without reading all of it into memory."""
        with path.open("rb") as file:
            if path.stat().st_size > MAX_SINGLE_PUT:
                return self._put_parts(uri, lambda: _blocks(file), metadata, IfNoneMatch="*")

            def content() -> BinaryIO:
                file.seek(0)  # an earlier attempt has read to the end
                return file

            return self._put_new(uri, content, metadata)

    def _put_new(self, uri: str, body: Callable[[], bytes | BinaryIO], metadata: Mapping[str, str] | None) -> bool:
        bucket, key = split_uri(uri)
        with translated(f"write {uri}"):
            return _condition_holds(
                lambda: self._s3.put_object(Body=body(), IfNoneMatch="*", **self._new_object(bucket, key, metadata))
            )

    def put_if_match(self, uri: str, body: bytes, *, etag: str, metadata: Mapping[str, str]) -> bool:
        """Write `body` if the object at `uri` has this ETag; return whether it was written. Its ETag is another one."""
        # The ETag of an object that is written whole may be the MD5 of its content. If it stayed the same, a writer
        # that has read the ETag before this call would replace the object after it.
        if hashlib.md5(body, usedforsecurity=False).hexdigest() == etag:
            return self._put_parts(uri, lambda: [body], metadata, IfMatch=f'"{etag}"')
        bucket, key = split_uri(uri)
        with translated(f"write {uri}"):
            return _condition_holds(
                lambda: self._s3.put_object(Body=body, IfMatch=f'"{etag}"', **self._new_object(bucket, key, metadata))
            )

    def delete_if_match(self, uri: str, *, etag: str) -> bool:
        """Delete the object if it has this ETag; return whether it was deleted."""
        bucket, key = split_uri(uri)
        with translated(f"delete {uri}"):
            return _condition_holds(lambda: self._s3.delete_object(Bucket=bucket, Key=key, IfMatch=f'"{etag}"'))

    def head(self, uri: str) -> ObjectHead | None:
        """Return what S3 keeps with the object; None if there is no object."""
        bucket, key = split_uri(uri)
        try:
            with translated(f"read the metadata of {uri}"):
                response = self._s3.head_object(Bucket=bucket, Key=key)
        except ObjectMissing:
            return None
        size, modified = response["ContentLength"], response["LastModified"]
        return ObjectHead(response["ETag"].strip('"'), response["Metadata"], size, modified)

    def _put_parts(
        self, uri: str, blocks: Callable[[], Iterable[bytes]], metadata: Mapping[str, str] | None, **condition: str
    ) -> bool:
        """Upload an object in parts; return whether it was written. A conflict repeats the whole upload."""
        with translated(f"write {uri}"):
            return _condition_holds(lambda: self._upload_parts(uri, blocks(), metadata, condition))

    def _upload_parts(
        self, uri: str, blocks: Iterable[bytes], metadata: Mapping[str, str] | None, condition: Mapping[str, str]
    ) -> None:
        bucket, key = split_uri(uri)
        created = self._s3.create_multipart_upload(**self._new_object(bucket, key, metadata))
        upload = {"Bucket": bucket, "Key": key, "UploadId": created["UploadId"]}
        parts = []
        try:
            for number, body in enumerate(blocks, start=1):
                part = self._s3.upload_part(**upload, PartNumber=number, Body=body)
                parts.append({"PartNumber": number, "ETag": part["ETag"]})
            self._s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, **condition)
        except ClientError:
            # After a conflict the upload may be gone already. The bucket's lifecycle rule removes parts that remain.
            with suppress(ClientError):
                self._s3.abort_multipart_upload(**upload)
            raise

    def _new_object(self, bucket: str, key: str, metadata: Mapping[str, str] | None) -> dict[str, Any]:
        """Return the arguments of S3 for the object: with the key of its source, if that source has one."""
        arguments: dict[str, Any] = {"Bucket": bucket, "Key": key, "Metadata": dict(metadata or {})}
        match = _SOURCE_KEY.match(key)
        if match and (arn := self._source_keys.get(match["source"])):
            # Without a bucket key, each object costs a request to KMS.
            arguments |= {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": arn, "BucketKeyEnabled": True}
        return arguments

    def get(self, uri: str) -> bytes:
        """Return the whole object. Raises `ObjectMissing`."""
        bucket, key = split_uri(uri)
        with translated(f"read {uri}"):
            body: bytes = self._s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body

    def get_range(self, uri: str, start: int, length: int) -> bytes:
        """Return `length` bytes of the object from `start`. Raises `ObjectMissing`."""
        bucket, key = split_uri(uri)
        with translated(f"read {uri}"):
            response = self._s3.get_object(Bucket=bucket, Key=key, Range=f"bytes={start}-{start + length - 1}")
            body: bytes = response["Body"].read()
        return body

    def metadata(self, uri: str) -> Mapping[str, str]:
        """Return the object's user metadata. Raises `ObjectMissing`."""
        bucket, key = split_uri(uri)
        with translated(f"read the metadata of {uri}"):
            metadata: Mapping[str, str] = self._s3.head_object(Bucket=bucket, Key=key)["Metadata"]
        return metadata

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[StoredObject]:
        """Yield every object whose URI starts with `prefix` and sorts after `start_after`, in order of URI."""
        bucket, key = split_uri(prefix)
        start = {"StartAfter": split_uri(start_after)[1]} if start_after else {}
        with translated(f"list {prefix}"):
            for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key, **start):
                for item in page.get("Contents", []):
                    yield StoredObject(
                        uri=f"s3://{bucket}/{item['Key']}",
                        size=item["Size"],
                        etag=item["ETag"].strip('"'),
                        modified=item["LastModified"],
                    )

    def delete(self, uris: Iterable[str]) -> None:
        """Delete the objects; an object that does not exist is no error."""
        keys: dict[str, list[str]] = defaultdict(list)
        for uri in uris:
            bucket, key = split_uri(uri)
            keys[bucket].append(key)
        for bucket, names in keys.items():
            for start in range(0, len(names), _DELETE_LIMIT):
                batch = [{"Key": key} for key in names[start : start + _DELETE_LIMIT]]
                with translated(f"delete objects of s3://{bucket}"):
                    response = self._s3.delete_objects(Bucket=bucket, Delete={"Objects": batch, "Quiet": True})
                for refused in response.get("Errors", []):
                    raise error_type(refused["Code"])(
                        f"could not delete s3://{bucket}/{refused['Key']}: {refused['Code']}: {refused['Message']}"
                    )


def _blocks(file: BinaryIO) -> Iterable[bytes]:
    file.seek(0)  # an earlier attempt has read a part of it
    return iter(lambda: file.read(PART), b"")


def _condition_holds(write: Callable[[], object]) -> bool:
    """Do a conditional write or deletion; return False when S3 refuses it because the condition does not hold.

    A conflict with another write repeats the whole `write`, after a pause.
    """
    for attempt in range(_CONFLICT_ATTEMPTS):
        try:
            write()
        except ClientError as error:
            if code_of(error) in _REFUSALS:
                return False
            if code_of(error) not in _CONFLICTS or attempt + 1 == _CONFLICT_ATTEMPTS:
                raise
            time.sleep(0.1 * 2**attempt)
        else:
            break
    return True


def s3_store(source_keys: Mapping[str, str] | None = None) -> S3ObjectStore:
    """Return the store of this process's environment. Spark's workers import this function and build their own.

    `source_keys` are the KMS keys, by source, that encrypt the objects it writes of them.
    """
    return S3ObjectStore(client("s3"), source_keys=source_keys)
