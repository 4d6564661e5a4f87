"""Rows of the published run that a source's present definition rejects: their files were read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from slackwater.formatting import counted
from slackwater.receiver.pull.file_cache import FileCache
from slackwater.runs.inputs.difference import SourceDifference
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.sources.partitions import version_of

# Files of each source that are looked at: one explains the others.
_FILES = 20


def describe_rejected(
    before: InputManifest, differences: Iterable[SourceDifference], *, files: FileCache
) -> Iterator[str]:
    """Yield a sentence for each source of whose files the present definition rejects rows that `before` has.

    `differences` are those of the present inputs from `before`. Reads the file cache only if rows of files are lost.
    """
    for source in differences:
        lost = list(islice((item.file for item in source.lost_rows if item.file), _FILES))
        if not lost:
            continue
        name = source.source
        read = dict(filter(None, (version_of(item.uri) for item in before.of_source(name) if item.file in lost)))
        contents = {content.id: content for content in files.contents(name, read)}
        for entry in files.entries(name, lost):
            version = contents[entry.content].committed if entry.content in contents else None
            # The same bytes, and other objects: another definition has read them.
            if version and version.rejected and version.object_id != read[entry.content or ""]:
                yield (
                    f"the definition of {name} has changed and now rejects {counted(version.rejected, 'row')} of "
                    f"{entry.path} (slackwater sideline show {name})"
                )
                break
