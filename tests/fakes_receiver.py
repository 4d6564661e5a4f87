"""Fakes of S3, DynamoDB, Glue and partners for the receiver's tests."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from slackwater.errors import CloudError, FileVanished, ObjectMissing, PartnerError
from slackwater.receiver.partners.partner import Download, ListedFile
from slackwater.receiver.pull.file_cache import Content, EntryChanged, FileEntry
from slackwater.receiver.push.tokens import Token, token_hash
from slackwater.sources.definition import Source
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.partitions import Partition
from slackwater.storage import StoredObject

RECEIVED = datetime(2013, 3, 12, 9, 30, tzinfo=UTC)


class Crash(CloudError):
    """Simulates the end of the process."""


class Fuse:
    """Allows a number of writes, and crashes at the next one; without a number, it allows all."""

    def __init__(self, writes: int | None = None) -> None:
        self.left = writes
        self._lock = threading.Lock()

    def burn(self, what: str) -> None:
        with self._lock:
            if self.left is None:
                return
            if self.left <= 0:
                raise Crash(f"before {what}")
            self.left -= 1


class MemoryStore:
    """An `ObjectStore` in a dictionary."""

    def __init__(self, fuse: Fuse | None = None) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.fuse = fuse or Fuse()
        self.writes = 0
        self._lock = threading.Lock()

    def put(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> None:
        self.fuse.burn(f"write {uri}")
        self.writes += 1
        self.objects[uri] = (body, dict(metadata or {}))

    def put_new(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> bool:
        with self._lock:
            if uri in self.objects:
                return False
            self.put(uri, body, metadata=metadata)
            return True

    def put_new_file(self, uri: str, path: Path, *, metadata: Mapping[str, str] | None = None) -> bool:
        return self.put_new(uri, path.read_bytes(), metadata=metadata)

    def get(self, uri: str) -> bytes:
        if uri not in self.objects:
            raise ObjectMissing(uri)
        return self.objects[uri][0]

    def metadata(self, uri: str) -> Mapping[str, str]:
        if uri not in self.objects:
            raise ObjectMissing(uri)
        return self.objects[uri][1]

    def list(self, prefix: str) -> Iterator[StoredObject]:
        for uri, (body, _) in sorted(self.objects.items()):
            if uri.startswith(prefix):
                yield StoredObject(uri, len(body), hashlib.sha256(body).hexdigest(), RECEIVED)

    def delete(self, uris: Iterable[str]) -> None:
        for uri in list(uris):
            self.fuse.burn(f"delete {uri}")
            self.objects.pop(uri, None)

    def uris(self, part: str) -> list[str]:
        return sorted(uri for uri in self.objects if part in uri)


class MemoryPartitions:
    """A catalogue in memory."""

    def __init__(self, fuse: Fuse | None = None) -> None:
        self.known: set[tuple[str, Partition]] = set()
        self.fuse = fuse or Fuse()

    def register(self, source: str, partitions: Iterable[Partition]) -> None:
        self.fuse.burn("register")
        self.known.update((source, partition) for partition in partitions)


class MemoryBuffer:
    """A queue that stores its messages in a list."""

    def __init__(self, fuse: Fuse | None = None) -> None:
        self.messages: list[str] = []
        self.fuse = fuse or Fuse()

    def send(self, message: str) -> None:
        self.fuse.burn("send")
        self.messages.append(message)


class MemoryTokens:
    """Tokens in memory, by their secret."""

    def __init__(self, tokens: Mapping[str, Sequence[str]], **more: object) -> None:
        self.tokens = {
            plain: Token(
                token_hash=token_hash(plain), partner="acme", sources=frozenset(sources), created_at=RECEIVED, **more
            )
            for plain, sources in tokens.items()
        }

    def find(self, token: str) -> Token | None:
        return self.tokens.get(token)


class MemoryFileCache:
    """A `FileCache` in a dictionary, with the same optimistic lock."""

    def __init__(self, fuse: Fuse | None = None) -> None:
        self.saved_entries: dict[tuple[str, str], FileEntry] = {}
        self.contents: dict[tuple[str, str], Content] = {}
        self.fuse = fuse or Fuse()
        self._lock = threading.Lock()

    def entries(self, source: str) -> list[FileEntry]:
        return [entry for (owner, _), entry in sorted(self.saved_entries.items()) if owner == source]

    def get(self, source: str, path: str) -> FileEntry | None:
        return self.saved_entries.get((source, path))

    def save(self, entry: FileEntry) -> FileEntry:
        return self._save(self.saved_entries, (entry.source, entry.path), entry)

    def content(self, source: str, content_sha256: str) -> Content | None:
        return self.contents.get((source, content_sha256))

    def save_content(self, content: Content) -> Content:
        return self._save(self.contents, (content.source, content.content_sha256), content)

    def _save(self, records: dict, key: tuple[str, str], record):
        with self._lock:
            self.fuse.burn(f"save {key[1]}")
            saved_revision = records[key].revision if key in records else 0
            if saved_revision != record.revision:
                raise EntryChanged(key[1])
            written = record.model_copy(update={"revision": record.revision + 1})
            records[key] = type(record).model_validate_json(written.model_dump_json())
            return written


class MemoryPartner:
    """A partner's files in a dictionary."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self.files = dict(files or {})
        self.broken: set[str] = set()
        self.fetched: list[str] = []

    def list(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        return [listed(name, content) for name, content in self.files.items()]

    def fetch(self, name: str, into: BinaryIO) -> Download:
        self.fetched.append(name)
        if name in self.broken:
            raise PartnerError(f"{name}: answered 500")
        if name not in self.files:
            raise FileVanished(f"{name}: gone")
        content = self.files[name]
        into.write(content)
        into.flush()
        digest = hashlib.sha256(content).hexdigest()
        return Download(sha256=digest, size=len(content), etag=digest[:8])


def listed(name: str, content: bytes) -> ListedFile:
    return ListedFile(name=name, size=len(content), etag=hashlib.sha256(content).hexdigest()[:8])


class Clock:
    """A clock whose time a test sets."""

    def __init__(self, now: datetime = RECEIVED) -> None:
        self.time = now

    def __call__(self) -> datetime:
        return self.time

    def pass_by(self, **span: float) -> None:
        self.time += timedelta(**span)


def a_source(**changes: object) -> Source:
    """Return a source with a field of every type."""
    definition = {
        "source": "things",
        "timestamp": {"field": "at"},
        "fields": {
            "id": {"type": "string", "required": True},
            "count": "int64",
            "size": "double",
            "good": "boolean",
            "day": "date",
            "at": "timestamp",
        },
        "null_values": ["", "NA"],
        "push": {},
        "pull": {"url": "http://127.0.0.1:1/things", "files": "things-{date}.csv", "lookback_days": 3},
    }
    return Source.model_validate({**definition, **changes})
