"""The version before names of raw objects had rows: its names, records and processes."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from slackwater.receiver.pull import fetch
from slackwater.receiver.pull.file_cache import ContentVersion
from slackwater.receiver.pull.stage_file import StagedFile, stage_file
from slackwater.receiver.push.receive import CheckedBatch, Receiver
from tests.fakes_receiver import MemoryFileCache, MemoryStore


def as_before(store: MemoryStore, cache: MemoryFileCache | None = None, *, file: str = "") -> None:
    """Change what the receiver has stored into what the version before has stored; `file` is the pulled file, if any.

    The names of objects lose their last part.
    """
    for uri, (body, metadata) in list(store.objects.items()):
        if "/raw/source=" in uri:
            del store.objects[uri]
            former = uri.rpartition("-")[0] + ".parquet"
            store.objects[former] = body, metadata | ({"file": quote(file)} if file else {})
        elif "/receipts/" in uri:
            receipt = json.loads(body)
            del receipt["rows"]
            store.objects[uri] = json.dumps(receipt).encode(), metadata
    if cache:
        for key, content in cache.saved_contents.items():
            versions = tuple(version_before(version) for version in content.versions)
            cache.saved_contents[key] = content.model_copy(update={"versions": versions})


def version_before(version: ContentVersion) -> ContentVersion:
    return version.model_copy(update={"partition_rows": ()})


class ReceiverBefore(Receiver):
    """Receives batches as the version before."""

    def _check(self, *arguments: Any, **named: Any) -> CheckedBatch:
        return super()._check(*arguments, **{**named, "has_named_rows": False})


def stage_as_before(patch: pytest.MonkeyPatch) -> None:
    """Let pulls announce the versions of the version before, and so write objects with its names."""

    def stage(*arguments: Any, **named: Any) -> StagedFile:
        staged = stage_file(*arguments, **named)
        return StagedFile(version=version_before(staged.version), files=staged.files, rejects=staged.rejects)

    patch.setattr(fetch, "stage_file", stage)
