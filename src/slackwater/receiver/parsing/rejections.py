"""Why an event is rejected: the rule that it breaks, and a reason for people."""

from __future__ import annotations

import json
from bisect import bisect_right
from datetime import date
from enum import StrEnum
from typing import NamedTuple

_SHOWN = 60
"""Characters of a value that a reason quotes, as JSON writes them: a control sign takes six."""


class RejectionRule(StrEnum):
    """The rule that a rejected event broke; the reason says how."""

    NOT_JSON = "not_json"
    NOT_UTF8 = "not_utf8"
    NOT_AN_OBJECT = "not_an_object"
    TOO_DEEP = "too_deep"
    WRONG_WIDTH = "wrong_width"
    """A row of a text file has more cells than its header, or fewer."""
    WRONG_TYPE = "wrong_type"
    MISSING = "missing"
    UNKNOWN_FIELD = "unknown_field"
    TOO_OLD = "too_old"
    IN_THE_FUTURE = "in_the_future"


class Rejection(NamedTuple):
    """Why one event is rejected."""

    rule: RejectionRule
    reason: str


class InvalidValue(ValueError):
    """A value is not of its field's type; the message says why."""


def quote_value(value: object) -> str:
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
    return truncate(text, _SHOWN)


def quote_name(name: str) -> str:
    """Return a partner's name for a field as a reason has it: text that UTF-8 can hold, cut short when it is long."""
    return truncate(name[: _SHOWN + 1].encode(errors="backslashreplace").decode(), _SHOWN)


def truncate(text: str, most: int) -> str:
    """Return the text, or where it is longer its beginning and "...", of at most so many ASCII characters in JSON."""
    head = text[: most + 1]
    if _length(head) <= most:
        return text
    kept = bisect_right(range(len(head)), most, key=lambda end: _length(head[:end])) - 1
    return f"{head[:kept]}..."


def _length(text: str) -> int:
    return len(json.dumps(text)) - len('""')
