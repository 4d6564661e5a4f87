"""Fakes for Spark tests: an object store in a folder, which Spark's worker processes can also open."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import md5
from pathlib import Path

from slackwater.arrow.reference import Producer
from slackwater.errors import ObjectMissing
from slackwater.storage import ObjectHead, StoredObject, split_uri

PRODUCER = Producer(pipeline="p", date="2013-03-10", run_id="r", attempt=1, stage="s")
"""The origin of datasets for which it does not matter."""


class FolderStore:
    """An `ObjectStore` that keeps `s3://bucket/key` at `<root>/bucket/key`. It reads `file:///path`, too."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, uri: str) -> Path:
        if uri.startswith("file://"):
            return Path(uri.removeprefix("file://"))
        bucket, key = split_uri(uri)
        return self.root / bucket / key

    def put(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> None:
        assert isinstance(body, bytes)
        path = self.path(uri)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        self._metadata(uri).parent.mkdir(exist_ok=True)
        self._metadata(uri).write_text(json.dumps(dict(metadata or {})))

    def put_new(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> bool:
        if self.path(uri).exists():
            return False
        self.put(uri, body, metadata=metadata)
        return True

    def _metadata(self, uri: str) -> Path:
        return self.root.with_name(f"{self.root.name}-metadata") / md5(uri.encode(), usedforsecurity=False).hexdigest()

    def head(self, uri: str) -> ObjectHead | None:
        path = self.path(uri)
        if not path.exists():
            return None
        kept = self._metadata(uri)
        metadata = json.loads(kept.read_text()) if kept.exists() else {}
        found = path.stat()
        modified = datetime.fromtimestamp(found.st_mtime, UTC)
        return ObjectHead(f"{found.st_mtime_ns}-{found.st_size}", metadata, found.st_size, modified)

    def put_if_match(self, uri: str, body: bytes, *, etag: str, metadata: Mapping[str, str]) -> bool:
        head = self.head(uri)
        if head is None or head.etag != etag:
            return False
        self.put(uri, body, metadata=metadata)
        return True

    def delete_if_match(self, uri: str, *, etag: str) -> bool:
        head = self.head(uri)
        if head is None or head.etag != etag:
            return False
        self.delete([uri])
        return True

    def get(self, uri: str) -> bytes:
        try:
            return self.path(uri).read_bytes()
        except FileNotFoundError as error:
            raise ObjectMissing(f"could not read {uri}: NoSuchKey") from error

    def get_range(self, uri: str, start: int, length: int) -> bytes:
        try:
            with self.path(uri).open("rb") as file:
                file.seek(start)
                return file.read(length)
        except FileNotFoundError as error:
            raise ObjectMissing(f"could not read {uri}: NoSuchKey") from error

    def metadata(self, uri: str) -> Mapping[str, str]:
        return {}

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[StoredObject]:
        for path in sorted(path for path in self.root.rglob("*") if path.is_file()):
            uri = f"s3://{path.relative_to(self.root)}"
            if uri.startswith(prefix) and uri > start_after:
                yield StoredObject(uri, path.stat().st_size, "", datetime.fromtimestamp(path.stat().st_mtime, UTC))

    def delete(self, uris: Iterable[str]) -> None:
        for uri in uris:
            self.path(uri).unlink(missing_ok=True)
