"""Earlier releases: their names of raw objects, their records, and their pulls.

Names of objects had no rows at first. Until they had the attempt, those of pulled files had a digest of what was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from slackwater.receiver.pull.file_cache import Content, ContentVersion, FileEntry
from slackwater.receiver.pull.stage_file import stage_file
from slackwater.receiver.push.receive import CheckedBatch, Receiver
from slackwater.sources.partitions import object_name, object_uri
from tests.fakes_receiver import MemoryFileCache, MemoryStore
from tests.pulling import Setup


def as_before(
    store: MemoryStore, cache: MemoryFileCache | None = None, *, file: str = "", has_rows: bool = False
) -> None:
    """Change what the receiver has stored into what an earlier release has stored; `file` is the pulled file, if any.

    The release is the one before attempts, if `has_rows`, and the one before names had rows otherwise.
    """
    attempts = dict[str, str]()
    for key, content in list(cache.saved_contents.items()) if cache else ():
        if content.current:
            attempts[content.current.attempt] = content.current.digest
        cache.saved_contents[key] = Content.model_validate_json(json.dumps(content_before(content)))
    for uri, (body, metadata) in list(store.objects.items()):
        if "/raw/source=" in uri:
            del store.objects[uri]
            former = uri if has_rows else uri.rpartition("-")[0] + ".parquet"
            for attempt, digest in attempts.items():
                former = former.replace(f"-{attempt}", f"-{digest}")
            store.objects[former] = body, metadata | ({"file": quote(file)} if file else {})
        elif "/receipts/" in uri:
            receipt = json.loads(body)
            del receipt["rows"]
            store.objects[uri] = json.dumps(receipt).encode(), metadata


def content_before(content: Content, *, written: ContentVersion | None = None, path: str = "") -> dict[str, Any]:
    """Return the record of a content as the release before attempts has it, while the file at `path` writes a version.

    Without `written`, no file writes one.
    """
    versions = [version for version in (content.current, written) if version]
    return {
        **content.model_dump(mode="json", exclude={"current", "changed_at"}),
        "current": content.current.digest if content.current else None,
        "changes": int(content.current is not None),
        "versions": [version.model_dump(mode="json", exclude={"attempt"}) for version in versions],
        "writers": [{"path": path, "version": written.digest}] if written else [],
        "deleting": None,
    }


class ReceiverBefore(Receiver):
    """Receives batches as the version before."""

    def _check(self, *arguments: Any, **named: Any) -> CheckedBatch:
        return super()._check(*arguments, **{**named, "has_named_rows": False})


def attempt_before(setup: Setup, path: str, folder: Path, *, writes: int, fails: bool) -> int:
    """Make the first writes of a pull of a new file by the release before attempts. Return how many a pull has.

    Then the process is killed, or it `fails` and records that.
    """
    body, now = setup.partner.files[path], setup.clock()
    digest = sha256(body).hexdigest()
    (folder / "file").write_bytes(body)
    staged = stage_file(
        folder / "file", setup.source, name=path, content_sha256=digest, received_at=now, first_received_at=None
    )
    version, content = staged.version, Content(source="things", id=digest[:32], received_at=now)
    landing = f"s3://raw/landing/source=things/{digest}/{path}"
    lease = {"owner": "former", "until": (now + timedelta(minutes=16)).isoformat()}
    entry: dict[str, Any] = {"source": "things", "path": path, "dated_pattern": "things-*.csv", "revision": 0}

    def save(record: dict[str, Any] | None = None, /, **changes: Any) -> None:
        entry.update(changes, revision=entry["revision"] + 1)
        setup.cache.saved_entries["things", path] = FileEntry.model_validate_json(json.dumps(entry))
        if record:
            record["revision"] = entry["revision"]
            setup.cache.saved_contents["things", content.id] = Content.model_validate_json(json.dumps(record))

    def commit() -> None:
        stored = content.with_file(path, version, is_new=True, at=now)
        listed = {"etag": digest[:8], "size": len(body), "landing_uri": landing, "stored_at": now.isoformat()}
        save(
            content_before(stored), **listed, state="stored", content=content.id, writing=None, rows=version.rows,
            attempts=0, not_taken_since=None,
        )  # fmt: skip

    def put(number: int) -> None:
        file = staged.files[number]
        name = object_name(f"{content.id}-{version.digest}", file.rows)
        setup.store.put(object_uri("raw", "things", file.partition, name), file.path.read_bytes())

    listed = {"name": path, "size": len(body), "etag": digest[:8]}
    since = {"not_taken_since": now.isoformat(), "due": lease["until"]}
    calls: list[Callable[[], object]] = [
        lambda: save(state="leased", lease=lease, attempts=1, attempted=listed, **since),
        lambda: setup.store.put(landing, body),
        lambda: save(content_before(content)),
        lambda: save(content_before(content, written=version, path=path), writing=content.id),
        *(lambda number=number: put(number) for number in range(len(staged.files))),
        commit,
        lambda: save(lease=None, due=None, attempted=None),
    ]
    for call in calls[:writes]:
        call()
    if fails and writes < len(calls) - 1:
        save(state="failed", lease=None, reason="S3 is down", due=now.isoformat())
    return len(calls)
