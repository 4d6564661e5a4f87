"""Read one page of a JSON listing while it arrives: memory holds one entry and the files that are wanted.

The standard library's decoder reads one entry in C. CPU time and memory for 1 million entries of 145 bytes: 1.7 s and
12 MB, against 2.5 s and 14 MB with ijson's C backend, and 1.1 s and 1,032 MB with orjson, which needs the whole body.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pydantic import ValidationError

from slackwater.errors import PartnerError
from slackwater.receiver.connectors.connector import ListedFile

# Files of the look-back window: each takes about 1 kB of memory.
MAX_FILES = 200_000
# Characters of one entry of a page, or of a value beside the files.
MAX_VALUE = 2**20
_NO_BLANK = re.compile(r"[^ \t\n\r]")


class JsonPage(NamedTuple):
    """The wanted files of one page of a JSON listing."""

    files: list[ListedFile]
    next: str | None
    """Link to the next page, absolute or relative; None or empty on the last page."""


def read_json_page(url: str, blocks: Iterable[bytes], wanted: re.Pattern[str], *, found: int) -> JsonPage:
    """Return the files of a page whose whole names match `wanted`; other entries are skipped, and need only a name.

    A page is an array of files, or an object with the array in `files`. `found` is the number of files on earlier
    pages. Raises `PartnerError` that names `url` and the first invalid field, and for more than `MAX_FILES` files.
    """
    try:
        return _read_page(JsonReader(blocks), wanted, MAX_FILES - found)
    except InvalidJson as error:
        raise PartnerError(f"{url}: not a listing of files: (whole): Invalid JSON: {error}") from error
    except InvalidField as error:
        raise PartnerError(f"{url}: not a listing of files: {error}") from error
    except TooManyFiles as error:
        raise PartnerError(
            f"{url}: it lists more than {MAX_FILES:,} files of the look-back window: set fewer `lookback_days`"
        ) from error


class InvalidJson(Exception):
    """The text is not JSON, or a value in it is too large."""


class InvalidField(Exception):
    """A value is not what a listing has there; the message begins with the field."""


class TooManyFiles(Exception):
    """More files are wanted than fit into memory."""


class JsonReader:
    """Reads a JSON document from its blocks, one value at a time."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._texts: Iterator[str] = codecs.iterdecode(iter(blocks), "utf-8")
        self._decode = json.JSONDecoder().raw_decode
        self._text, self._position, self._is_complete = "", 0, False

    def peek(self) -> str:
        """Move to the next character that is not blank, and return it; empty at the end of the document."""
        while True:
            match = _NO_BLANK.search(self._text, self._position)
            if match:
                self._position = match.start()
                return match[0]
            self._position = len(self._text)
            if not self._read_block():
                return ""

    def value(self) -> Any:
        """Read the next value. Raises `InvalidJson`."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self._text, self._position)
            except RecursionError as error:
                raise InvalidJson("nested too deeply") from error
            except ValueError as error:
                # The text may only be incomplete: Python's decoder does not distinguish that.
                problem = str(getattr(error, "msg", error))
                if self._is_complete:
                    raise InvalidJson(problem) from error
            else:
                # A number may go on in the next block: `1`, `1.` and `1e` may be the start of `1.5e3`.
                is_number = isinstance(value, int | float)
                if self._is_complete or not is_number or self._text[end : end + 1] not in {"", ".", "e", "E"}:
                    self._position = end
                    return value
                problem = ""
            if len(self._text) - self._position > MAX_VALUE:
                raise InvalidJson(f"no complete value in {MAX_VALUE:,} characters {problem}".rstrip())
            self._read_block()

    def key(self) -> str:
        """Read the next key of an object, and its colon. Raises `InvalidJson`."""
        key = self.value()
        if not isinstance(key, str) or self.peek() != ":":
            raise InvalidJson("a key in double quotes and a colon are expected")
        self._position += 1
        return key

    def elements(self, end: str) -> Iterator[None]:
        """Yield at each element of the array or object that begins here, so that the caller reads the element.

        `end` is its closing bracket. Raises `InvalidJson`.
        """
        self._position += 1
        if self.peek() == end:
            self._position += 1
            return
        while True:
            yield
            separator = self.peek()
            if separator not in {",", end}:
                raise InvalidJson(f"a comma or {end} is expected")
            self._position += 1
            if separator == end:
                return

    def _read_block(self) -> bool:
        """Append the next block to the text; return False at the end of the document."""
        try:
            text = next(self._texts, None)
        except UnicodeDecodeError as error:
            raise InvalidJson(str(error)) from error
        if text is None:
            self._is_complete = True
            return False
        self._text, self._position = self._text[self._position :] + text, 0
        return True


def _read_page(reader: JsonReader, wanted: re.Pattern[str], max_files: int) -> JsonPage:
    """Read the page. Raises `InvalidJson`, `InvalidField`, or `TooManyFiles` beyond `max_files`."""
    files: list[ListedFile] | None = None
    link: Any = None
    start = reader.peek()
    if start == "[":
        files = _read_files(reader, "", wanted, max_files)
    elif start == "{":
        for _ in reader.elements("}"):
            key = reader.key()
            if key == "files":
                files = _read_files(reader, "files.", wanted, max_files)
            elif key == "next":
                link = reader.value()
            else:
                reader.value()
    else:
        raise InvalidJson("an array of files, or an object with `files`, is expected")
    if reader.peek():
        raise InvalidJson("there is text after the end of the listing")
    if files is None:
        raise InvalidField("files: Field required")
    if not isinstance(link, str | None):
        raise InvalidField(f"next: a string or null is expected, not {type(link).__name__}")
    return JsonPage(files, link)


def _read_files(reader: JsonReader, prefix: str, wanted: re.Pattern[str], max_files: int) -> list[ListedFile]:
    """Read the array of files that begins here. Errors name an entry by its index after `prefix`."""
    if reader.peek() != "[":
        raise InvalidField("files: an array is expected")
    files: list[ListedFile] = []
    for index, _ in enumerate(reader.elements("]")):
        try:
            entry = reader.value()
        except InvalidJson as error:
            raise InvalidField(f"{prefix}{index}: Invalid JSON: {error}") from error
        if not isinstance(entry, dict):
            raise InvalidField(f"{prefix}{index}: an object is expected, not {type(entry).__name__}")
        name = entry.get("name")
        if isinstance(name, str) and name and not wanted.fullmatch(name):
            continue
        if len(files) == max_files:
            raise TooManyFiles
        try:
            files.append(ListedFile.model_validate(entry))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join([f"{prefix}{index}", *(str(part) for part in first["loc"])])
            raise InvalidField(f"{field}: {first['msg']}") from error
    return files
