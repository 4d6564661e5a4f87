"""How long late data has waited, which `late.max_age_hours` limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from slackwater.pipeline.definition import Pipeline
from slackwater.receiver.pull.file_cache import FileCache, version_of
from slackwater.runs.day import HOUR
from slackwater.runs.inputs.difference import oldest_arrival
from slackwater.runs.inputs.manifest import InputManifest, InputObject


def oldest_wait_hours(
    before: InputManifest, current: InputManifest, definition: Pipeline, *, files: FileCache, now: datetime
) -> float | None:
    """Return for how many hours the oldest late data of a published day has waited, or None without any.

    `before` are the inputs of the published run, and `current` the present ones. A new object waits since it was
    written; the rows of a dropped file wait since a pull recorded its removal. Raises `CloudError` if the file cache
    fails.
    """
    sources = definition.deciding_inputs
    instants = [oldest_arrival(before, current, sources=sources)]
    for source in sources:
        dropped = [item for item in before.of_source(source) if current.left_out.get(item.uri) == "drop"]
        if dropped:
            instants += _removals(source, dropped, files)
    oldest = min((instant for instant in instants if instant), default=None)
    return None if oldest is None else (now - oldest) / HOUR


def _removals(source: str, objects: Sequence[InputObject], files: FileCache) -> Iterator[datetime]:
    """Yield when the removal of each object's files was recorded, UTC: of the last one, if several had its content."""
    ids = {version[0] for item in objects if (version := version_of(item.uri))}
    paths_of = {content.id: content.paths for content in files.contents(source, ids)}
    # A file may have got another content before it was removed, so the content does not always name it.
    groups = {(*paths_of.get(version[0], ()), item.file) for item in objects if (version := version_of(item.uri))}
    entries = files.entries(source, {path for group in groups for path in group if path})
    removed = {entry.path: entry.removed_since for entry in entries if entry.removed_since}
    for group in groups:
        if instants := [removed[path] for path in group if path in removed]:
            yield max(instants)
