"""The rules by which an event is rejected."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Rule(StrEnum):
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


class Fault(NamedTuple):
    """Why one event is rejected."""

    rule: Rule
    reason: str
