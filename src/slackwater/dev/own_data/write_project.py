"""Write a project for a user's own data: a source, a pipeline and a test for each kind of file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slackwater.dev.new_project import require_new, write_files
from slackwater.dev.own_data.find_samples import find_samples
from slackwater.dev.own_data.source_part import Decision, SourcePart
from slackwater.errors import InputError


@dataclass(frozen=True, kw_only=True)
class OwnProject:
    """A project that was written."""

    files: tuple[str, ...]
    """Relative to the project, sorted."""
    decisions: tuple[Decision, ...]
    """What a person has to decide, in order of the files."""
    next_commands: tuple[str, ...]
    """In the folder of the project, after the decisions."""


def write_own_project(folder: Path, samples: Sequence[str]) -> OwnProject:
    """Write a project for files, folders and URLs with a user's data, into a new or an empty folder.

    Nothing is written unless all samples can be read. Raises `InputError` for a folder that is in use, for samples that
    do not exist and for two with one name, `DataError` for one without a row that can be read, and `PartnerError` for
    one that cannot be downloaded.
    """
    require_new(folder)
    parts = [SourcePart.read(found) for found in find_samples(samples)]
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
    )
