"""A JSON file read into checked events: the elements of one array, taken while it is read."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from slackwater.errors import DataError
from slackwater.receiver.parsing.event_checks import CheckedEvents, check_events
from slackwater.receiver.parsing.formats.blocks import BLOCK, MOST_RECORD
from slackwater.receiver.parsing.formats.compression import Stream
from slackwater.sources.definition import Source

_MORE = re.compile(r"[^ \t\r\n]")
_DECODER = json.JSONDecoder()


class _Element(NamedTuple):
    value: object
    text: str
    """As it stands in the file."""


def read_json(stream: Stream, source: Source, *, name: str, received_at: datetime) -> Iterator[CheckedEvents]:
    """Read and check a file, some elements at a time; `name` is what errors call it.

    An element that is no event is rejected with its reason. Raises `DataError` where the file is no JSON array.
    """
    index = 0
    for elements in _some(_Array(stream, name).elements()):
        checked = check_events([element.value for element in elements], source, received_at=received_at)
        rejected = [
            replace(item, index=index + item.index, text=elements[item.index].text) for item in checked.rejected
        ]
        yield CheckedEvents(checked.table, rejected)
        index += len(elements)


def _some(elements: Iterator[_Element]) -> Iterator[list[_Element]]:
    taken: list[_Element] = []
    size = 0
    for element in elements:
        taken.append(element)
        size += len(element.text)
        if size >= BLOCK:
            yield taken
            taken, size = [], 0
    if taken:
        yield taken


class _Array:
    """A JSON array, of which no more than an element and a block is in memory."""

    def __init__(self, stream: Stream, name: str) -> None:
        self._stream, self._name = stream, name
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._place, self._passed = "", 0, 0

    def elements(self) -> Iterator[_Element]:
        """Return the elements one by one."""
        if self._take() != "[":
            raise self._error("a JSON array is expected: put the events in [ ], or name the format ndjson")
        mark = self._peek()
        if mark == "]":
            self._take()
        while mark != "]":
            yield self._element()
            mark = self._take()
            if mark not in {",", "]"}:
                raise self._error("not JSON: a comma or the end of the array is expected")
        if self._peek():
            raise self._error("not JSON: something stands behind the array; events on lines are of the format ndjson")

    def _element(self) -> _Element:
        self._peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._place)
            except json.JSONDecodeError as error:
                at, is_long = error.pos - self._place, len(self._text) - self._place > MOST_RECORD
                if is_long or not self._read():
                    long = f", or an event of more than {MOST_RECORD:,} characters" if is_long else ""
                    raise self._error(f"not JSON: {error.msg}{long}", at=at) from error
            except (ValueError, RecursionError) as error:
                raise self._error(f"not JSON that can be read: {error}") from error
            else:
                size = end - self._place
                # A number may go on in what is still to be read: with e+5, or less.
                if len(self._text) > end + 2 or not self._read():
                    text = self._text[self._place : self._place + size]
                    self._place += size
                    return _Element(value, text)

    def _peek(self) -> str:
        """Pass over blanks and return the next character; none at the end."""
        while not (found := _MORE.search(self._text, self._place)):
            self._place = len(self._text)
            if not self._read():
                return ""
        self._place = found.start()
        return found[0]

    def _take(self) -> str:
        """Take the next character that is no blank."""
        taken = self._peek()
        self._place += len(taken)
        return taken

    def _read(self) -> bool:
        """Forget what has been taken, and read on; say whether there was more."""
        rest = self._text[self._place :]
        chunk = self._stream.read(max(BLOCK, len(rest)))
        try:
            more = self._decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            raise self._error(f"not UTF-8: {error.reason}", at=len(rest)) from error
        self._text, self._place, self._passed = rest + more, 0, self._passed + self._place
        return bool(chunk)

    def _error(self, what: str, *, at: int = 0) -> DataError:
        return DataError(f"{self._name}: {what} (about character {self._passed + self._place + at:,})")
