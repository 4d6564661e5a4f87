"""Fakes of S3, DynamoDB, Glue and partners for the receiver's tests."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

from slackwater.errors import CloudError, FileVanished, ObjectMissing, PartnerError
from slackwater.receiver.connectors.connector import Download, ListedFile
from slackwater.receiver.event_counts import EventCount
from slackwater.receiver.pull.fetch import attempt_id
from slackwater.receiver.pull.file_cache import (
    Content,
    ContentVersion,
    EntryChanged,
    FileCache,
    FileEntry,
    FileOfDate,
    FileState,
)
from slackwater.receiver.push.tokens import Token, token_hash
from slackwater.sources.definition import Source
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.partitions import Partition, object_uri
from slackwater.storage import ObjectHead, StoredObject

RECEIVED = datetime(2013, 3, 12, 9, 30, tzinfo=UTC)

FILE_TABLE: dict[str, Any] = {
    "AttributeDefinitions": [
        {"AttributeName": name, "AttributeType": "S"}
        for name in ("source", "path", "open_source", "due", "not_taken_source", "not_taken_since", "dated")
    ],
    "KeySchema": [{"AttributeName": "source", "KeyType": "HASH"}, {"AttributeName": "path", "KeyType": "RANGE"}],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "due",
            "KeySchema": [
                {"AttributeName": "open_source", "KeyType": "HASH"},
                {"AttributeName": "due", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "ALL"},
        },
        {
            "IndexName": "not-taken",
            "KeySchema": [
                {"AttributeName": "not_taken_source", "KeyType": "HASH"},
                {"AttributeName": "not_taken_since", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "ALL"},
        },
        {
            "IndexName": "dated",
            "KeySchema": [{"AttributeName": "dated", "KeyType": "HASH"}, {"AttributeName": "path", "KeyType": "RANGE"}],
            "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["state", "is_stored", "is_taken"]},
        },
    ],
}
"""Keys and indexes of the file cache's table, as CreateTable and CloudFormation name them."""

DEFINITION = "d" * 12
"""The definition with which `store_file` has read a file."""


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

    def __init__(self, fuse: Fuse | None = None, clock: Callable[[], datetime] = lambda: RECEIVED) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.modified: dict[str, datetime] = {}
        self.clock = clock
        self.fuse = fuse or Fuse()
        self.writes = 0
        self._lock = threading.Lock()

    def put(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> None:
        self.fuse.burn(f"write {uri}")
        self.writes += 1
        self.objects[uri] = (body, dict(metadata or {}))
        self.modified[uri] = self.clock()

    def put_new(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> bool:
        with self._lock:
            if uri in self.objects:
                return False
            self.put(uri, body, metadata=metadata)
            return True

    def put_if_match(self, uri: str, body: bytes, *, etag: str, metadata: Mapping[str, str]) -> bool:
        with self._lock:
            head = self.head(uri)
            if head is None or head.etag != etag:
                return False
            self.put(uri, body, metadata=metadata)
            return True

    def put_new_file(self, uri: str, path: Path, *, metadata: Mapping[str, str] | None = None) -> bool:
        return self.put_new(uri, path.read_bytes(), metadata=metadata)

    def get(self, uri: str) -> bytes:
        if uri not in self.objects:
            raise ObjectMissing(uri)
        return self.objects[uri][0]

    def get_range(self, uri: str, start: int, length: int) -> bytes:
        return self.objects[uri][0][start : start + length]

    def head(self, uri: str) -> ObjectHead | None:
        if uri not in self.objects:
            return None
        body, metadata = self.objects[uri]
        return ObjectHead(hashlib.sha256(body).hexdigest(), metadata, len(body), self.modified.get(uri, RECEIVED))

    def metadata(self, uri: str) -> Mapping[str, str]:
        if uri not in self.objects:
            raise ObjectMissing(uri)
        return self.objects[uri][1]

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[StoredObject]:
        for uri, (body, _) in sorted(self.objects.items()):
            if uri.startswith(prefix) and uri > start_after:
                modified = self.modified.get(uri, RECEIVED)
                yield StoredObject(uri, len(body), hashlib.sha256(body).hexdigest(), modified)

    def delete(self, uris: Iterable[str]) -> None:
        for uri in list(uris):
            self.fuse.burn(f"delete {uri}")
            self.objects.pop(uri, None)

    def uris(self, part: str) -> list[str]:
        return sorted(uri for uri in self.objects if part in uri)


class MemoryBuffer:
    """A queue that stores its messages in a list."""

    def __init__(self, fuse: Fuse | None = None) -> None:
        self.messages: list[str] = []
        self.delays: list[int] = []
        self.fuse = fuse or Fuse()

    def send(self, message: str, *, delay: int) -> None:
        self.fuse.burn("send")
        self.messages.append(message)
        self.delays.append(delay)


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
    """A `FileCache` in a dictionary, with the same optimistic lock, transactions, and DynamoDB's largest item."""

    MAX_ITEM_BYTES = 400_000

    def __init__(self, fuse: Fuse | None = None) -> None:
        self.saved_entries: dict[tuple[str, str], FileEntry] = {}
        self.saved_contents: dict[tuple[str, str], Content] = {}
        self.fuse = fuse or Fuse()
        self._lock = threading.Lock()

    def entries(self, source: str, paths: Iterable[str]) -> list[FileEntry]:
        return [
            self.saved_entries[source, path] for path in dict.fromkeys(paths) if (source, path) in self.saved_entries
        ]

    def contents(self, source: str, ids: Iterable[str]) -> list[Content]:
        return [
            self.saved_contents[source, name] for name in dict.fromkeys(ids) if (source, name) in self.saved_contents
        ]

    def save(self, *records: FileEntry | Content) -> None:
        with self._lock:
            self.fuse.burn(f"save {[record.source for record in records]}")
            for record in records:
                stored = self._table(record).get(self._key(record))
                if (stored.revision if stored else 0) != record.revision:
                    raise EntryChanged(str(self._key(record)))
                if len(record.model_dump_json()) > self.MAX_ITEM_BYTES:
                    raise CloudError(f"{self._key(record)}: item size exceeds 400 kB")
            for record in records:
                written = record.model_copy(update={"revision": record.revision + 1})
                self._table(record)[self._key(record)] = type(record).model_validate_json(written.model_dump_json())

    def due(self, source: str, *, now: datetime, limit: int) -> list[FileEntry]:
        due = [entry for entry in self.all(source) if entry.is_unfinished and entry.due and entry.due <= now]
        return sorted(due, key=lambda entry: entry.due or now)[:limit]

    def longest_not_taken(self, source: str) -> FileEntry | None:
        return next(self.not_taken(source), None)

    def not_taken(self, source: str) -> Iterator[FileEntry]:
        entries = [entry for entry in self.all(source) if not entry.is_taken and entry.not_taken_since]
        yield from sorted(entries, key=lambda entry: entry.not_taken_since or RECEIVED)

    def files_of_date(self, source: str, dated_pattern: str) -> list[FileOfDate]:
        return [
            FileOfDate(entry.path, entry.state, is_stored=entry.content is not None, is_taken=entry.is_taken)
            for entry in self.all(source)
            if entry.dated_pattern == dated_pattern
        ]

    def all(self, source: str) -> list[FileEntry]:
        """All entries of the source. No code under test may read them."""
        return [entry for (owner, _), entry in sorted(self.saved_entries.items()) if owner == source]

    def get(self, source: str, path: str) -> FileEntry | None:
        return self.saved_entries.get((source, path))

    def _table(self, record: FileEntry | Content) -> dict:
        return self.saved_entries if isinstance(record, FileEntry) else self.saved_contents

    def _key(self, record: FileEntry | Content) -> tuple[str, str]:
        return record.source, record.path if isinstance(record, FileEntry) else record.id


def content_id(name: str) -> str:
    """Return the id of the content that a test calls `name`."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def begin_file(
    cache: FileCache,
    source: str,
    path: str,
    content: str,
    partitions: Iterable[Partition] = (),
    *,
    definition: str = DEFINITION,
) -> list[str]:
    """Record what a pull records before it writes a file's content. Return the URIs of the objects in `raw`."""
    begun = _content_of(cache, source, content_id(content))
    if not begun.revision:
        cache.save(begun)
    return _uris(begun, _version(_entry_of(cache, source, path), definition, partitions))


def store_file(
    cache: FileCache,
    source: str,
    path: str,
    content: str,
    partitions: Iterable[Partition] = (),
    *,
    definition: str = DEFINITION,
) -> list[str]:
    """Record that a pull has stored a file's content instead of its former one; return the URIs of its objects."""
    entry = _entry_of(cache, source, path)
    stored, is_new = _content_of(cache, source, content_id(content)), entry.content != content_id(content)
    version = _version(entry, definition, partitions)
    if stored.committed and stored.committed.digest == version.digest:
        version = stored.committed
    records = [stored.with_file(path, version, is_new=is_new, at=RECEIVED)]
    if entry.content and is_new:
        records.append(_content_of(cache, source, entry.content).without_file(path, at=RECEIVED))
    cache.save(entry.model_copy(update={"state": FileState.STORED, "content": stored.id}), *records)
    return _uris(stored, version)


def committed_uris(content: Content) -> list[str]:
    """Return the URIs in `raw` of the objects that readers see, if their names have no rows."""
    return _uris(content, content.committed) if content.committed else []


def _version(entry: FileEntry, definition: str, partitions: Iterable[Partition]) -> ContentVersion:
    return ContentVersion(definition=definition, partitions=tuple(partitions), attempt=attempt_id(entry, "pull"))


def _uris(content: Content, version: ContentVersion) -> list[str]:
    name = f"{content.id}-{version.object_id}"
    return [object_uri("raw", content.source, partition, name) for partition in version.partitions]


def _entry_of(cache: FileCache, source: str, path: str) -> FileEntry:
    return next(iter(cache.entries(source, [path])), FileEntry(source=source, path=path))


def _content_of(cache: FileCache, source: str, id_: str) -> Content:
    return next(iter(cache.contents(source, [id_])), Content(source=source, id=id_, received_at=RECEIVED))


class MemoryEventCounts:
    """The counts of events of each source, by hour since 1970; with `broken`, all calls fail."""

    def __init__(self, *, broken: bool = False) -> None:
        self.by_source: dict[str, dict[int, EventCount]] = {}
        self.broken = broken

    def add(self, source: str, count: EventCount, *, at: datetime) -> None:
        self._require()
        hours, hour = self.by_source.setdefault(source, {}), int(at.timestamp() // 3600)
        before = hours.get(hour, EventCount(0, 0))
        hours[hour] = EventCount(before.events + count.events, before.rejected + count.rejected)

    def hours(self, source: str, *, now: datetime) -> dict[int, EventCount]:
        self._require()
        return self.by_source.get(source, {})

    def _require(self) -> None:
        if self.broken:
            raise CloudError("DynamoDB does not answer")


class MemoryConnector:
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
