"""A partner's S3 bucket: keys are listed as far as wanted files may be under them, and files go on where they broke."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from time import sleep as wait_for
from typing import Any, BinaryIO

from botocore.exceptions import BotoCoreError, ClientError

from slackwater.aws.failures import code_of
from slackwater.errors import FileTooLarge, FileVanished, PartnerError
from slackwater.receiver.partners.download import PartialDownload, TransientPartnerError, download_with_resume
from slackwater.receiver.partners.partner import Download, ListedFile, bucket_folder, listed_file, plain_etag
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.pull_config import PullConfig

_BLOCK = 2**20
_GONE = frozenset({"NoSuchKey", "404"})
_DENIED = frozenset({"AccessDenied", "403"})
_CHANGED = frozenset({"PreconditionFailed", "412"})


class S3Partner:
    """`slackwater.receiver.partners.partner.Partner` over S3; an object's version is its ETag, whatever that is made of."""

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
        """Return the files of those days. Raises `PartnerError`."""
        prefixes: dict[str, list[date]] = {}
        for day in days:
            prefixes.setdefault(pattern.prefix(day), []).append(day)
        found = [file for prefix, some in prefixes.items() for file in self._under(prefix, pattern, some)]
        return list({file.name: file for file in found}.values())

    def fetch(self, name: str, into: BinaryIO) -> Download:
        """Write the file to the beginning of `into`.

        Raises `FileVanished`, `FileTooLarge`, or `PartnerError` for all else.
        """
        there = download_with_resume(lambda partial: self._rest(name, partial), into, sleep=self._sleep)
        return there.download(etag=plain_etag(str(there.version)))

    def _under(self, prefix: str, pattern: FilePattern, days: Sequence[date]) -> Iterator[ListedFile]:
        with self._told(f"list {self._url}/{prefix}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{self._folder}{prefix}"
            )
            for item in (item for page in pages for item in page.get("Contents", [])):
                name = item["Key"].removeprefix(self._folder)
                if not name.endswith("/") and any(pattern.matches(name, day) for day in days):
                    facts = {"size": item["Size"], "modified": item["LastModified"], "etag": plain_etag(item["ETag"])}
                    yield listed_file(self._url, name, **facts)

    def _rest(self, name: str, partial: PartialDownload) -> Iterator[bytes]:
        """Yield what is still lacking of the file, of the version that is there already or of the newest."""
        address = f"{self._url}/{name}"
        with self._told(f"read {address}"):
            answer = self._get(name, partial)
            body = answer["Body"]
            try:
                total = partial.size + answer["ContentLength"]
                if total > self._max_file_bytes:
                    raise FileTooLarge(f"{address}: {total:,} bytes, where {self._max_file_bytes:,} are taken at most")
                partial.begin(answer["ETag"])
                try:
                    yield from body.iter_chunks(_BLOCK)
                except BotoCoreError as error:
                    raise TransientPartnerError(
                        f"{address}: broke off after {partial.size:,} of {total:,} bytes"
                    ) from error
            finally:
                body.close()

    def _get(self, name: str, partial: PartialDownload) -> Any:
        key = f"{self._folder}{name}"
        try:
            if partial.size:
                going_on = {"IfMatch": partial.version, "Range": f"bytes={partial.size}-"}
                return self._s3.get_object(Bucket=self._bucket, Key=key, **going_on)
            return self._s3.get_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if code_of(error) in _CHANGED:
                partial.forget()
                raise TransientPartnerError(f"{self._url}/{name}: changed while it was fetched") from error
            if code_of(error) in _GONE or (code_of(error) in _DENIED and not self._is_there(key)):
                raise FileVanished(f"{self._url}/{name}: listed, but gone when it was fetched") from error
            raise

    def _is_there(self, key: str) -> bool:
        """Whether the key is listed: to those who may list a prefix only, S3 denies what is not there."""
        found = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=key, MaxKeys=1)
        return any(item["Key"] == key for item in found.get("Contents", []))

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Raise AWS's errors as the partner's."""
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
        where = f"s3://{self._bucket}/{self._folder}"
        if self._pull.role:
            return f" ({self._pull.role} has to be allowed to list and read {where})"
        return f" (the bucket's policy has to let this account list and read {where}; or name a `role` that may)"
