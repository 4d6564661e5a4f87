"""A Lambda function that copies the files of complete periods to another bucket (README.md)."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import boto3
from botocore.config import Config

THREADS = 16


def handler(event: dict[str, Any], _context: object) -> None:
    """Handle an event `Slackwater Period Changed`. After an error, Lambda repeats it, which is safe."""
    s3 = boto3.client("s3", config=Config(max_pool_connections=THREADS))
    copy_period(s3, os.environ["COPY_BUCKET"], event["detail"])


def copy_period(s3: Any, bucket: str, period: dict[str, Any]) -> None:
    """Copy the files of a complete period, unless the copy has this version or a newer one.

    Raises `ValueError` if a file or the number of events is wrong, and `ClientError` if S3 refuses a call.
    """
    if period["state"] != "complete":
        return
    prefix = f"{period['source']}/{period['unit']}/{period['start'][:13]}/"
    try:
        copied, etag = _read(s3, bucket, f"{prefix}manifest.json")
        condition = {"IfMatch": etag}
    except s3.exceptions.NoSuchKey:
        copied, condition = {"version": 0, "files": []}, {"IfNoneMatch": "*"}
    if copied["version"] < period["version"]:
        files = _read(s3, *_place(period["files"]))[0]["files"]
        if sum(file["events"] for file in files) < period["stored"]:
            raise ValueError(f"{period['files']} has fewer events than the {period['stored']} that are stored")
        keys = {file["uri"]: file["key"] for file in copied["files"]}
        folder = f"{prefix}files/{period['version']}/"
        with ThreadPoolExecutor(THREADS) as pool:
            copies = pool.map(lambda file: keys.get(file["uri"]) or _copy(s3, bucket, folder, file), files)
            files = [file | {"key": key} for file, key in zip(files, copies, strict=True)]
        copied = {name: period[name] for name in ("source", "start", "end", "version", "stored")} | {"files": files}
        # Last, and only over the manifest that was read: readers see all files of a version, and never an older one.
        s3.put_object(Bucket=bucket, Key=f"{prefix}manifest.json", Body=json.dumps(copied).encode(), **condition)
    _delete_old(s3, bucket, f"{prefix}files/", copied)


def _copy(s3: Any, bucket: str, folder: str, file: dict[str, Any]) -> str:
    """Copy a file below a folder, unless it has an equal copy there, and return the copy's key."""
    source, key = _place(file["uri"])
    copy, original = folder + key, s3.head_object(Bucket=source, Key=key, ChecksumMode="ENABLED")
    checksum = "ChecksumCRC64NVME" if "ChecksumCRC64NVME" in original else "ETag"

    def is_equal() -> bool:
        copied = s3.head_object(Bucket=bucket, Key=copy, ChecksumMode="ENABLED")
        return bool(copied["ContentLength"] == file["bytes"] and copied.get(checksum) == original[checksum])

    # An attempt that has reached its time limit has copied some files: the next one copies the others.
    with suppress(s3.exceptions.ClientError):  # it is not there
        if is_equal():
            return copy
    s3.copy_object(CopySource={"Bucket": source, "Key": key}, Bucket=bucket, Key=copy)
    if not is_equal():
        raise ValueError(f"s3://{bucket}/{copy} differs from {file['uri']}")
    return copy


def _delete_old(s3: Any, bucket: str, prefix: str, copied: dict[str, Any]) -> None:
    """Delete what the manifest does not name; not the files of newer versions, which may be being copied."""
    kept = {file["key"] for file in copied["files"]}
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for key in {item["Key"] for item in page.get("Contents", ())} - kept:
            if int(key.removeprefix(prefix).partition("/")[0]) <= copied["version"]:
                s3.delete_object(Bucket=bucket, Key=key)


def _read(s3: Any, bucket: str, key: str) -> tuple[dict[str, Any], str]:
    """Return a JSON document and its ETag."""
    found = s3.get_object(Bucket=bucket, Key=key)
    return json.loads(found["Body"].read()), found["ETag"]


def _place(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key
