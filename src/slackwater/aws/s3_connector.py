"""A partner's S3 bucket: lists the prefixes that may hold wanted files, and resumes downloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from time import sleep as wait_for
from typing import Any, BinaryIO

from botocore.exceptions import BotoCoreError, ClientError

from slackwater.aws.failures import code_of
from slackwater.errors import FileTooLarge, FileVanished, PartnerError
from slackwater.receiver.connectors.connector import (
    Download,
    ListedFile,
    PartialDownload,
    TransientPartnerError,
    bucket_folder,
    download,
    listed_file,
    plain_etag,
)
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.pull_config import PullConfig

_BLOCK = 2**20  # bytes
_GONE = frozenset({"NoSuchKey", "404"})
_DENIED = frozenset({"AccessDenied", "403"})
_CHANGED = frozenset({"PreconditionFailed", "412"})


class S3Connector:
    """`slackwater.receiver.connectors.connector.Connector` over S3, with the ETag as an object's version."""

    def __init__(
        self, pull: PullConfig, *, s3: Any, max_file_bytes: int, sleep: Callable[[float], None] = wait_for
    ) -> None:
        self._pull = pull
        self._url = pull.url.rstrip("/")
        self._bucket, self._folder = bucket_folder(pull.url)
        self._s3 = s3
        self._max_file_bytes = max_file_bytes
        self._sleep = sleep

    def list(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        """Return the files of the days. Raises `PartnerError`."""
        days_of_prefixes: dict[str, list[date]] = {}
        for day in days:
            days_of_prefixes.setdefault(pattern.prefix(day), []).append(day)
        files: dict[str, ListedFile] = {}
        for prefix, prefix_days in days_of_prefixes.items():
            wanted = pattern.of_days(prefix_days)
            with self._partner_errors(f"list {self._url}/{prefix}"):
                pages = self._s3.get_paginator("list_objects_v2").paginate(
                    Bucket=self._bucket, Prefix=f"{self._folder}{prefix}"
                )
                for item in (item for page in pages for item in page.get("Contents", [])):
                    name = item["Key"].removeprefix(self._folder)
                    # S3's console creates objects that end with a slash, to show an empty folder.
                    if not name.endswith("/") and wanted.fullmatch(name):
                        etag = plain_etag(item["ETag"])
                        files[name] = listed_file(
                            self._url, name, size=item["Size"], modified=item["LastModified"], etag=etag
                        )
        return list(files.values())

    def fetch(self, name: str, into: BinaryIO) -> Download:
        """Write the file to the start of `into`. Raises `FileVanished`, `FileTooLarge` or another `PartnerError`."""
        return download(partial(self._missing_bytes, name), into, sleep=self._sleep)

    def _missing_bytes(self, name: str, received: PartialDownload) -> Iterator[bytes]:
        """Yield the bytes that `received` lacks of the version it began, or the newest version from its start."""
        url = f"{self._url}/{name}"
        with self._partner_errors(f"read {url}"):
            response = self._get(name, received)
            body = response["Body"]
            try:
                total = received.size + response["ContentLength"]
                if total > self._max_file_bytes:
                    raise FileTooLarge(f"{url}: {total:,} bytes, and the limit is {self._max_file_bytes:,}")
                received.resume_or_restart(response["ETag"], etag=response["ETag"])
                try:
                    yield from body.iter_chunks(_BLOCK)
                except BotoCoreError as error:
                    raise TransientPartnerError(
                        f"{url}: broke off after {received.size:,} of {total:,} bytes"
                    ) from error
            finally:
                body.close()

    def _get(self, name: str, received: PartialDownload) -> Any:
        key = f"{self._folder}{name}"
        try:
            if received.size:
                # If-Match: S3 answers 412 when the object is no longer the version that `received` began.
                rest = {"IfMatch": received.version, "Range": f"bytes={received.size}-"}
                return self._s3.get_object(Bucket=self._bucket, Key=key, **rest)
            return self._s3.get_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if code_of(error) in _CHANGED:
                received.restart(None)
                raise TransientPartnerError(f"{self._url}/{name}: changed while it was fetched") from error
            if code_of(error) in _GONE or (code_of(error) in _DENIED and not self._is_listed(key)):
                raise FileVanished(f"{self._url}/{name}: listed, but gone when it was fetched") from error
            raise

    def _is_listed(self, key: str) -> bool:
        """Whether the key exists. A role that may list only a prefix gets 403 for a missing key, not 404."""
        response = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=key, MaxKeys=1)
        return any(item["Key"] == key for item in response.get("Contents", []))

    @contextmanager
    def _partner_errors(self, what: str) -> Iterator[None]:
        """Raise AWS's errors as `PartnerError`, with the remedy."""
        try:
            yield
        except ClientError as error:
            message = f"could not {what}: {code_of(error)}: {error.response.get('Error', {}).get('Message', '')}"
            raise PartnerError(f"{message}{self._remedy(error)}") from error
        except BotoCoreError as error:
            raise PartnerError(f"could not {what}: {error}") from error

    def _remedy(self, error: ClientError) -> str:
        if code_of(error) not in _DENIED:
            return ""
        if error.operation_name == "AssumeRole":
            return f" (the trust policy of {self._pull.role} has to name the roles of list_files and fetch_file)"
        prefix = f"s3://{self._bucket}/{self._folder}"
        if self._pull.role:
            return f" ({self._pull.role} has to be allowed to list and read {prefix})"
        return f" (the bucket's policy has to let this account list and read {prefix}; or name a `role` that may)"
