"""The files of a partner that say how many events were sent: they belong to a source, and are no source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from slackwater.dev.infer import LocalSample
from slackwater.dev.own_data.find_samples import FoundSample
from slackwater.receiver.inference.definition_yaml import file_pattern, flow
from slackwater.receiver.inference.sample import identifier
from slackwater.sources.counts import WINDOW_MINUTES
from slackwater.state.reports import MAX_BYTES, REPORT_KEYS

_DATE_LENGTH = 10


@dataclass(frozen=True)
class CountFiles:
    """Files with counts, as `counts.files` of a source reads them."""

    found: FoundSample
    window: str

    @property
    def pattern(self) -> str:
        """The pattern of their names."""
        return file_pattern(_name(self.found))[0]

    def definition(self, *, is_pulled: bool) -> str:
        """Return the line of the source that they belong to. Only a pulled source reads such files."""
        files = {"files": self.pattern} if is_pulled else {}
        return f"counts: {flow({'window': self.window, **files})}"

    def owners(self, sources: Sequence[FoundSample]) -> list[FoundSample]:
        """Return the sources whose names begin with most of the words of these files; several if that is not clear."""
        shared = [_shared_words(self.found, source) for source in sources]
        return [source for source, words in zip(sources, shared, strict=True) if words == max(shared)]


def read_count_files(sample: LocalSample, found: FoundSample) -> CountFiles | None:
    """Return the files with counts that the sample is one of; None if it is another file."""
    if sample.path.stat().st_size > MAX_BYTES:
        return None
    try:
        document = json.loads(sample.path.read_bytes())
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.keys() != REPORT_KEYS or not isinstance(document["counts"], dict):
        return None
    return CountFiles(found, _window(document["counts"]))


def _window(counts: dict[str, Any]) -> str:
    """Return the longest window with which all keys can begin."""
    if counts and all(len(key) == _DATE_LENGTH for key in counts):
        return "day"
    minutes = set[int]()
    for key in counts:
        try:
            minutes.add(datetime.fromisoformat(key).minute)
        except ValueError:
            return "1h"
    longest_first = reversed(WINDOW_MINUTES.items())
    return next((name for name, length in longest_first if all(minute % length == 0 for minute in minutes)), "1h")


def _name(found: FoundSample) -> str:
    return unquote(Path(found.files[-1]).name)


def _shared_words(counts: FoundSample, source: FoundSample) -> int:
    if Path(counts.files[-1]).parent != Path(source.files[-1]).parent:
        return 0
    words = (identifier(file_pattern(_name(found))[0].partition("{")[0]).split("_") for found in (counts, source))
    shared = 0
    for a, b in zip(*words, strict=False):
        if a != b:
            break
        shared += 1
    return shared
