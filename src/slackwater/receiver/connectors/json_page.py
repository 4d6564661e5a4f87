"""Read one page of a JSON listing while it arrives: memory holds one entry and the files that are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pydantic import ValidationError

from slackwater.errors import PartnerError
from slackwater.receiver.connectors.connector import ListedFile
from slackwater.receiver.parsing.json_stream import InvalidJson, JsonStream
from slackwater.sources.file_pattern import Names

# Files of the look-back window: each takes about 1 kB of memory.
MAX_FILES = 200_000
# Characters of one entry of a page, or of a value beside the files.
MAX_VALUE = 2**20


class JsonPage(NamedTuple):
    """The wanted files of one page of a JSON listing."""

    files: list[ListedFile]
    next: str | None
    """Link to the next page, absolute or relative; None or empty on the last page."""


class _InvalidField(Exception):
    """A value is not what a listing has there; the message begins with the field."""


def read_json_page(url: str, blocks: Iterable[bytes], wanted: Names, *, found: int) -> JsonPage:
    """Return the files of a page whose whole names match `wanted`; other entries are skipped, and need only a name.

    A page is an array of files, or an object with the array in `files`. `found` is the number of files on earlier
    pages. Raises `PartnerError` that names `url` and the first invalid field, and for more than `MAX_FILES` files.
    """
    files: list[ListedFile] = []
    try:
        link = None
        for file_or_link in _read_page(JsonStream(blocks, max_value=MAX_VALUE), wanted):
            if not isinstance(file_or_link, ListedFile):
                link = file_or_link
            elif found + len(files) == MAX_FILES:
                raise PartnerError(
                    f"{url}: it lists more than {MAX_FILES:,} files of the look-back window: set fewer `lookback_days`"
                )
            else:
                files.append(file_or_link)
    except InvalidJson as error:
        raise PartnerError(f"{url}: not a listing of files: (whole): Invalid JSON: {error}") from error
    except _InvalidField as error:
        raise PartnerError(f"{url}: not a listing of files: {error}") from error
    return JsonPage(files, link)


def _read_page(page: JsonStream, wanted: Names) -> Iterator[ListedFile | str | None]:
    """Yield the wanted files of a page, and the link to the next page where it has one."""
    start = page.peek()
    if start == "[":
        yield from _read_files(page, "", wanted)
    elif start == "{":
        has_files = False
        for _ in page.elements("}"):
            key = page.key()
            if key == "files":
                has_files = True
                yield from _read_files(page, "files.", wanted)
                continue
            value = page.value().value
            if key == "next":
                if not isinstance(value, str | None):
                    raise _InvalidField(f"next: a string or null is expected, not {type(value).__name__}")
                yield value
        if not has_files:
            raise _InvalidField("files: Field required")
    else:
        raise page.invalid("an array of files, or an object with `files`, is expected")
    if page.peek():
        raise page.invalid("there is text after the end of the listing")


def _read_files(page: JsonStream, prefix: str, wanted: Names) -> Iterator[ListedFile]:
    """Yield the wanted files of the array that begins here. Errors name an entry by its index after `prefix`."""
    if page.peek() != "[":
        raise _InvalidField("files: an array is expected")
    for index, _ in enumerate(page.elements("]")):
        try:
            entry: Any = page.value().value
        except InvalidJson as error:
            raise _InvalidField(f"{prefix}{index}: Invalid JSON: {error}") from error
        if not isinstance(entry, dict):
            raise _InvalidField(f"{prefix}{index}: an object is expected, not {type(entry).__name__}")
        name = entry.get("name")
        if isinstance(name, str) and name and not wanted.fullmatch(name):
            continue
        try:
            yield ListedFile.model_validate(entry)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join([f"{prefix}{index}", *(str(part) for part in first["loc"])])
            raise _InvalidField(f"{field}: {first['msg']}") from error
