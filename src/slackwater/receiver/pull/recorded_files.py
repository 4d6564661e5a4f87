"""List the files of a source that pulls have recorded, for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from itertools import islice
from typing import NamedTuple

from slackwater.receiver.pull.file_cache import Content, FileCache, FileEntry, FileState
from slackwater.receiver.pull.plan import lookback_dates
from slackwater.sources.definition import Source

_NOT_TAKEN = {FileState.LISTED, FileState.FAILED, FileState.LEASED}
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


class RecordedFiles(NamedTuple):
    """A bounded list of files, and whether there are more."""

    entries: list[FileEntry]
    more: bool


def recorded_files(
    source: Source, *, cache: FileCache, state: FileState | None, as_of: date | None, now: datetime, limit: int
) -> RecordedFiles:
    """Return recorded files of a source, at most `limit`, with one state or with any.

    Files that are not taken come first, whatever their date, oldest first; then other files that a pull has to repair;
    then the files of the look-back window that ends on `as_of` (None for today), the latest date first. A file whose
    attempt was interrupted counts as failed. The rows of a file, and the reason why it is rejected as a whole, are
    those of its content, which may have been read again for another file. Raises `DefinitionError` for a source without
    `pull`.
    """
    pull, name, most = source.require_pull(), source.source, limit + 1
    files: dict[str, FileEntry] = {}
    if state is None or state in _NOT_TAKEN:
        not_taken = (_as_shown(entry, now) for entry in cache.not_taken(name))
        files |= {entry.path: entry for entry in islice((e for e in not_taken if state in {None, e.state}), most)}
    if state is None:
        unfinished = (_as_shown(entry, now) for entry in cache.due(name, now=_END_OF_TIME, limit=most))
        files |= {entry.path: entry for entry in unfinished if entry.path not in files}
    if state not in _NOT_TAKEN:
        days = reversed(list(lookback_dates(source, as_of, now)))
        dated_patterns = dict.fromkeys(pull.pattern.dated(day) for day in days)
        of_window = (file for dated in dated_patterns for file in cache.files_of_date(name, dated))
        paths = [file.path for file in of_window if file.path not in files and state in {None, file.state}]
        # Only the entries that are shown are read: a window may have many thousands of files.
        wanted = paths[: max(0, most - len(files))]
        entries = {entry.path: _as_shown(entry, now) for entry in cache.entries(name, wanted)}
        files |= {path: entries[path] for path in wanted if path in entries}
    shown = list(files.values())[:limit]
    ids = dict.fromkeys(entry.content for entry in shown if entry.content)
    contents = {content.id: content for content in cache.contents(name, ids)}
    return RecordedFiles([_as_read(entry, contents) for entry in shown], more=len(files) > limit)


def _as_read(entry: FileEntry, contents: Mapping[str, Content]) -> FileEntry:
    """Return the entry with the rows of its content, as readers see them."""
    content = contents.get(entry.content or "")
    version = content.committed if content else None
    if version is None:
        return entry
    changes = {"rows": version.rows, "rejected": version.rejected, "reason": entry.reason or version.rejection}
    return entry.model_copy(update=changes)


def _as_shown(entry: FileEntry, now: datetime) -> FileEntry:
    """Return the entry; a file whose last attempt ended without an outcome is shown as failed."""
    if entry.is_taken or entry.state in {FileState.LISTED, FileState.FAILED} or entry.is_leased(now):
        return entry
    return entry.model_copy(update={"state": FileState.FAILED, "reason": "the attempt was interrupted"})
