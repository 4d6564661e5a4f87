"""What a reason says of a value that cannot be read."""

from __future__ import annotations

import json
from bisect import bisect_right
from datetime import date

_SHOWN = 60
"""Characters of a value that a reason quotes, as JSON writes them: a control sign takes six."""


class Unreadable(ValueError):
    """A value is not of its field's type; the message says why."""


def shown(value: object) -> str:
    """Return the value as a reason quotes it, cut short when it is long."""
    match value:
        case str():
            text = repr(value[: _SHOWN + 1])
        case bool():
            text = str(value).lower()
        case date():
            text = value.isoformat()
        case _:
            text = str(value)
    return cut(text, _SHOWN)


def named(name: str) -> str:
    """Return a partner's name for a field as a reason has it: text that UTF-8 can hold, cut short when it is long."""
    return cut(name[: _SHOWN + 1].encode(errors="backslashreplace").decode(), _SHOWN)


def cut(text: str, most: int) -> str:
    """Return the text, or where it is longer its beginning and "...", of at most so many ASCII characters in JSON."""
    head = text[: most + 1]
    if _length(head) <= most:
        return text
    kept = bisect_right(range(len(head)), most, key=lambda end: _length(head[:end])) - 1
    return f"{head[:kept]}..."


def _length(text: str) -> int:
    return len(json.dumps(text)) - len('""')
