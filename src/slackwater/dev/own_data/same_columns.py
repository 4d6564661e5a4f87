"""Files whose names differ in a word, such as a shop or a region, and whose columns are equal: one source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import commonprefix
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from slackwater.dev.own_data.find_samples import FoundSample
from slackwater.receiver.inference.definition_yaml import file_date, file_pattern
from slackwater.sources.file_pattern import FilePattern


class SameColumns(NamedTuple):
    """The files of one source, whose names differ in more than their dates."""

    found: FoundSample
    name: str
    """The name of the last file, with `*` for what differs."""
    patterns: tuple[str, ...]
    """The patterns of the files before they were one source."""


def merge_names(group: Sequence[FoundSample], others: Sequence[FoundSample]) -> SameColumns | None:
    """Return the files of a group as those of one source; None if no pattern with `*` has them and none of `others`.

    The names have whole words in common, beside a date and the suffix. The last file of the first sample is the last
    one of the result.
    """
    patterns = [file_pattern(_name(found))[0] for found in group]
    if len(group) < 2 or not all(found.has_dates for found in group):  # noqa: PLR2004 - one has nothing to merge with
        return None
    # Up to and from a separator: `*` stands for whole words.
    start = re.sub(r"[^-_.]*$", "", commonprefix(patterns))  # noqa: RUF071 - of names, character by character
    end = re.sub(r"^[^-_.]*", "", commonprefix([p[::-1] for p in patterns])[::-1])  # noqa: RUF071
    if len(start) + len(end) > min(map(len, patterns)) or "{" in start or "{date" not in end:
        return None
    if not re.search("[A-Za-z]", start + end.partition("{date")[0]):
        return None
    merged = FilePattern(f"{start}*{end}")
    for name in map(_name, others):
        date = file_date(name)
        if date and merged.matches(name, date):
            return None
    last = group[0].files[-1]
    files = {file for found in group for file in found.files} - {last}
    name = _name(group[0])
    middle = name[len(start) : len(patterns[0]) - len(end)]
    return SameColumns(
        FoundSample(files=(*sorted(files), last), has_dates=True, listing=group[0].listing),
        f"{start}*{name[len(start) + len(middle) :]}",
        tuple(patterns),
    )


def _name(found: FoundSample) -> str:
    return unquote(Path(found.files[-1]).name)
