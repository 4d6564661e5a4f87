"""Read the partner's files with counts: reports of how many events it has sent."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import NamedTuple, Protocol

from slackwater.errors import FileVanished, PartnerError
from slackwater.receiver.connectors.connector import Connector, ListedFile
from slackwater.sources.definition import Source
from slackwater.state.facts import Report
from slackwater.state.reports import MAX_BYTES, ReportRefused, read_report

MAX_FILE_BYTES = MAX_BYTES
"""A connector that reads these files needs to download no larger ones."""
_MOST_REASONS, _MOST_CHARACTERS = 5, 300


class CountFiles(NamedTuple):
    """The files with counts of a pull."""

    read: int
    """Reports that were stored; those of unchanged files are not read again."""
    refused: tuple[str, ...] = ()
    """Why files were not read, with their names: at most 5."""


class CountTable(Protocol):
    """A table that knows which files were read."""

    def read_files(self, source: str, paths: Sequence[str]) -> dict[str, str]:
        """Return, by path, how files were listed when their reports were read. Raises `CloudError`."""

    def put_file(self, source: str, path: str, listed: str, *, at: datetime) -> None:
        """Record that the report of a file was read at that time, and how the file was listed. Raises `CloudError`."""


NO_COUNT_FILES = CountFiles(0)


def read_count_files(
    source: Source,
    dates: Sequence[date],
    *,
    partner: Connector,
    state: CountTable,
    put_report: Callable[[Report], None],
    now: datetime,
) -> CountFiles:
    """Store the reports in the new and changed files with counts of these dates; nothing without `counts.files`.

    A file that cannot be read stops neither the others nor the pull: the next pull tries it again. Raises `CloudError`.
    """
    pattern = source.counts.pattern if source.counts else None
    if pattern is None:
        return NO_COUNT_FILES
    names = pattern.of_days(dates)
    try:
        files = {file.name: file for file in partner.list(pattern, dates) if names.fullmatch(file.name)}
    except PartnerError as error:
        return CountFiles(0, (f"the files with counts could not be listed: {error}"[:_MOST_CHARACTERS],))
    known = state.read_files(source.source, sorted(files))
    read, refused = 0, list[str]()
    for name, file in sorted(files.items()):
        listed = _identity(file)
        if listed and known.get(name) == listed:
            continue
        try:
            content = io.BytesIO()
            partner.fetch(name, content)
            report = read_report(content.getvalue(), source, principal=f"file:{name}", now=now)
        except FileVanished:  # or it does not exist: without a listing, each possible name is requested
            continue
        except (PartnerError, ReportRefused) as error:
            refused.append(f"{name}: {error}"[:_MOST_CHARACTERS])
            continue
        put_report(report)
        # Afterwards: a pull that ends in between reads the file again, which changes nothing.
        state.put_file(source.source, name, listed, at=now)
        read += 1
    return CountFiles(read, tuple(refused[:_MOST_REASONS]))


def _identity(file: ListedFile) -> str:
    """Return by what a changed file is recognised; empty if the listing shows nothing of it."""
    seen = (file.etag, file.modified and file.modified.isoformat())
    return "/".join(map(str, (*seen, file.size))) if any(seen) else ""
