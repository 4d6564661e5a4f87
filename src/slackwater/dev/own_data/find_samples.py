"""Find the files of each source: files, the files of a folder, and those that a web server lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from slackwater.dev.context import outbound_of_environment
from slackwater.dev.infer import is_url, require_http
from slackwater.errors import InputError
from slackwater.receiver.connectors.http_listing import names_in_folder
from slackwater.receiver.connectors.http_session import without_query
from slackwater.receiver.inference.definition_yaml import file_pattern

_SUFFIXES = frozenset({".csv", ".tsv", ".txt", ".json", ".ndjson", ".jsonl", ".parquet", ".xlsx"})
_COMPRESSED = frozenset({".gz", ".zip", ".zst", ".bz2"})
# More sources than that are hardly meant.
_MOST_SOURCES = 20


@dataclass(frozen=True, kw_only=True)
class FoundSample:
    """The files of one source."""

    files: tuple[str, ...]
    """Paths or URLs, in order of their names. The last one is the sample."""
    has_dates: bool
    """Whether their names contain a date, and are otherwise the same."""
    listing: str | None = None
    """How a web server lists them, as in `pull.listing`; None if it was not asked."""

    @property
    def folder(self) -> str:
        """The folder that they are in, or the URL of it."""
        return self.files[-1].rpartition("/")[0]

    @property
    def is_url(self) -> bool:
        """Whether a web server has them."""
        return is_url(self.files[-1])


def find_samples(values: Sequence[str]) -> list[FoundSample]:
    """Return the files that `values` name, by source: files whose names differ in their dates only are one source.

    A value is a file, a folder, the http or https URL of a file, or that of a listing, which ends with a slash. Raises
    `InputError` for one that does not exist or has no file, and `PartnerError` for one that cannot be listed.
    """
    found: dict[tuple[str, str], FoundSample] = {}
    for value in values:
        for folder, name, listing in _files(value):
            pattern, has_date = file_pattern(name)
            key = (folder, pattern if has_date else name)
            files = {*found[key].files} if key in found else set[str]()
            found[key] = FoundSample(
                files=tuple(sorted({*files, f"{folder}{name}"})), has_dates=has_date, listing=listing
            )
    if len(found) > _MOST_SOURCES:
        raise InputError(
            f"--from: {len(found)} kinds of files, each of which would be a source: name the files of one source"
        )
    return list(found.values())


def _files(value: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield the folder, with a slash at the end, and the name of each file, and how it is listed."""
    if is_url(value):
        require_http(value)
        folder, _, name = value.rpartition("/")
        # The name of a URL is quoted already, and may have a query.
        yield from [(f"{folder}/", name, None)] if name else _listed(value)
        return
    path = Path(value)
    if not path.is_dir():
        yield value.removesuffix(path.name), path.name, None
        return
    names = [file.name for file in sorted(path.iterdir()) if file.is_file() and _is_known(file.name)]
    if not names:
        raise InputError(f"--from: {value}: no file with one of the suffixes {', '.join(sorted(_SUFFIXES))}")
    yield from ((f"{path}/", name, None) for name in names)


def _listed(url: str) -> Iterator[tuple[str, str, str | None]]:
    listing, all_names = names_in_folder(url, outbound=outbound_of_environment())
    names = list(filter(_is_known, all_names))
    if not names:
        raise InputError(
            f"--from: {without_query(url)}: it lists no file with one of the suffixes {', '.join(sorted(_SUFFIXES))}: "
            "name the URL of a file"
        )
    yield from ((url, quote(name), listing) for name in names)


def _is_known(name: str) -> bool:
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    while suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return not name.startswith(".") and bool(suffixes) and suffixes[-1] in _SUFFIXES
