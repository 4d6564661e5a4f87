"""Write a project for a user's own data: a source, a pipeline and a test for each kind of file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slackwater.dev.new_project import require_new, write_files
from slackwater.dev.own_data.count_files import CountFiles
from slackwater.dev.own_data.find_samples import FoundSample, find_samples
from slackwater.dev.own_data.same_columns import merge_names
from slackwater.dev.own_data.source_part import Decision, SourcePart
from slackwater.errors import DataError, InputError, PartnerError, SlackwaterError
from slackwater.receiver.connectors.http_session import without_query


@dataclass(frozen=True)
class UnreadFile:
    """A file that could not be read."""

    file: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class OwnProject:
    """A project that was written."""

    files: tuple[str, ...]
    """Relative to the project, sorted."""
    decisions: tuple[Decision, ...]
    """What a person has to decide, in order of the files."""
    next_commands: tuple[str, ...]
    """In the folder of the project, after the decisions."""
    unread: tuple[UnreadFile, ...] = ()
    """Files that are no part of the project, because they could not be read."""


def write_own_project(folder: Path, samples: Sequence[str]) -> OwnProject:
    """Write a project for files, folders and URLs with a user's data, into a new or an empty folder.

    A sample without a row that can be read, or that cannot be downloaded, is left out. Raises `InputError` for a folder
    that is in use, for samples that do not exist and for two with one name, and `DataError` or `PartnerError` if none
    of the samples can be read.
    """
    require_new(folder)
    parts, unread = _read_parts(find_samples(samples))
    name, count = Counter(part.name for part in parts).most_common(1)[0]
    if count > 1:
        same = " or ".join(part.found.files[-1] for part in parts if part.name == name)
        raise InputError(f"--from: {count} kinds of files make a source {name!r}: name only {same}")
    files = write_files(folder, {path: content for part in parts for path, content in part.contents().items()})
    commands = ["slackwater pipeline validate"]
    if any(part.has_test for part in parts):
        commands.append("slackwater test")
    commands += [command for part in parts for command in part.trial_commands(folder)]
    commands += ["slackwater local up", "slackwater deploy"]
    commands += [command for part in parts for command in part.run_commands(folder)]
    return OwnProject(
        files=tuple(files),
        decisions=tuple(decision for part in parts for decision in part.decisions()),
        next_commands=tuple(commands),
        unread=unread,
    )


def _merged(parts: Sequence[SourcePart], others: Sequence[FoundSample]) -> list[SourcePart]:
    """Return the parts with one for those of a folder whose columns are equal, and whose names have words in common."""
    groups: dict[tuple[object, ...], list[SourcePart]] = {}
    for part in parts:
        groups.setdefault((part.found.folder, part.columns), []).append(part)
    merged: list[SourcePart] = []
    for group in groups.values():
        group.sort(key=lambda part: -part.options)
        rest = [*others, *(part.found for part in parts if part not in group)]
        alike: list[list[SourcePart]] = []
        for part in group:
            for same_words in alike:
                if merge_names([each.found for each in (*same_words, part)], rest):
                    same_words.append(part)
                    break
            else:
                alike.append([part])
        for same_words in alike:
            same = merge_names([part.found for part in same_words], rest)
            one = SourcePart.read(same.found, same) if same else None
            merged += [one] if isinstance(one, SourcePart) else same_words
    return merged


def _read_parts(samples: Sequence[FoundSample]) -> tuple[list[SourcePart], tuple[UnreadFile, ...]]:
    parts, counts, unread = list[SourcePart](), list[CountFiles](), list[UnreadFile]()
    first: SlackwaterError | None = None
    for found in samples:
        try:
            part = SourcePart.read(found)
        except (DataError, PartnerError) as error:
            first = first or error
            file = found.files[-1]
            unread.append(UnreadFile(without_query(file) if found.is_url else file, str(error)))
            continue
        if isinstance(part, CountFiles):
            counts.append(part)
        else:
            parts.append(part)
    if not parts:
        raise first or InputError("--from: only files with counts of events: name those with the events too")
    parts = _merged(parts, [files.found for files in counts])
    for files in counts:
        owners = files.owners([part.found for part in parts])
        for index, part in enumerate(parts):
            if [part.found] == owners and not part.counts and files.found.has_dates:
                parts[index] = replace(part, counts=files)
            elif part.found in owners:
                parts[index] = replace(part, possible_counts=(*part.possible_counts, files))
    return parts, tuple(unread)
