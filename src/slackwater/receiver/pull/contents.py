"""Contents that several files may have: their objects are stored once, and deleted when no file needs them any more.

A pull that deletes may meet one that finds the objects there and counts on them. Each writes before it reads: the one
marks the content, and then reads which files need it; the other announces that its file needs it, and then reads
whether the content is marked. So at least one of them sees the other, and lets the objects be, or waits for the mark to
go. A mark goes with the lease of the pull that left it, at the latest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from slackwater.receiver.pull.file_cache import Content, EntryChanged, FileCache, FileVersion, Lease
from slackwater.storage import ObjectStore


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a source's files, as one pull works on them."""

    source: str
    cache: FileCache
    store: ObjectStore
    raw_bucket: str
    now: Callable[[], datetime]

    def received_at(self, content_sha256: str, path: str) -> datetime:
        """Return when a file first had that content: now, unless one did before."""
        return self._change(content_sha256, path, lambda content: content).received_at

    def is_swept(self, content_sha256: str, path: str) -> bool:
        """Say whether another file's pull may be deleting its objects, which `path` has announced to need."""
        content = self.cache.content(self.source, content_sha256)
        return content is not None and bool(self._sweeps_of_others(content, path))

    def original(self, content_sha256: str, path: str) -> str | None:
        """Return the path of the file that has that content already, if it is another one; or else make it `path`."""
        first = self._change(content_sha256, path, lambda content: content).first
        other = self.cache.get(self.source, first)
        if other is None or content_sha256 not in other.contents:

            def take_over(content: Content) -> Content:
                return content.model_copy(update={"first": path}) if content.first == first else content

            first = self._change(content_sha256, path, take_over).first
        return first if first != path else None

    def sweep(self, version: FileVersion, path: str, *, until: datetime) -> None:
        """Delete the objects of a content that `path` does not need any more, unless another file does.

        Raises `EntryChanged` when `until`, the end of this pull's lease, has passed: another one may be at work.
        """
        sha256, mark = version.content_sha256, Lease(owner=path, until=until)
        self._change(sha256, path, lambda content: self._with_sweeps(content, path, mark))
        if not any(sha256 in entry.contents for entry in self.cache.entries(self.source)):
            if self.now() >= until:
                raise EntryChanged(f"{self.source}: {path}: the lease is over")
            self.store.delete(version.objects(self.raw_bucket, self.source))
        self._change(sha256, path, lambda content: self._with_sweeps(content, path))

    def _with_sweeps(self, content: Content, path: str, *own: Lease) -> Content:
        return content.model_copy(update={"sweeps": (*self._sweeps_of_others(content, path), *own)})

    def _sweeps_of_others(self, content: Content, path: str) -> list[Lease]:
        return [sweep for sweep in content.sweeps if sweep.owner != path and self.now() < sweep.until]

    def _change(self, content_sha256: str, path: str, change: Callable[[Content], Content]) -> Content:
        """Change what is known of a content, which may be nothing yet, however often others change it in between."""
        while True:
            found = self.cache.content(self.source, content_sha256)
            known = found or Content(
                source=self.source, content_sha256=content_sha256, received_at=self.now(), first=path
            )
            wanted = change(known)
            if wanted == found:
                return wanted
            try:
                return self.cache.save_content(wanted)
            except EntryChanged:
                continue  # By another pull, or by this one if an answer was lost: what is there tells.
