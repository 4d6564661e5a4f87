"""Rejections of events: the rule that an event breaks, and the reason as a message for people."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import date
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

REJECTIONS = pa.schema([("index", pa.int64()), ("reason", pa.string()), ("rule", pa.string())])
"""The columns of a table of rejections: millions of rows may be rejected, too many for an object of each."""
NO_REJECTIONS = REJECTIONS.empty_table()

# Longest quoted value in a reason, in ASCII characters of its JSON form, in which a control character takes six.
_QUOTED_LENGTH = 60
# Number of names that a message lists.
_LISTED_NAMES = 10


class RejectionRule(StrEnum):
    """The rule that a rejected event breaks."""

    NOT_JSON = "not_json"
    NOT_UTF8 = "not_utf8"
    NOT_AN_OBJECT = "not_an_object"
    TOO_DEEP = "too_deep"
    WRONG_WIDTH = "wrong_width"
    """A row of a file has more or fewer cells than the header."""
    WRONG_TYPE = "wrong_type"
    MISSING = "missing"
    UNKNOWN_FIELD = "unknown_field"
    TOO_OLD = "too_old"
    IN_THE_FUTURE = "in_the_future"


class Rejection(NamedTuple):
    """Why an event, or one value of it, is rejected."""

    rule: RejectionRule
    reason: str
    """For people; quotes the value."""


# The rejection of bytes that are not UTF-8, in pushed lines and in every format of files.
NOT_UTF8 = Rejection(RejectionRule.NOT_UTF8, "not UTF-8")


class InvalidValue(ValueError):
    """A value does not have its field's type. The message is the reason of a rejection with the rule `WRONG_TYPE`."""


def reject(indices: pa.Array, reasons: pa.Array | str, rule: RejectionRule) -> pa.Table:
    """Return the rejections of the values or events at `indices` by one rule, with a reason of each or of all."""
    if isinstance(reasons, str):
        reasons = pa.repeat(pa.scalar(reasons, pa.string()), len(indices))
    rules = pa.repeat(pa.scalar(rule, pa.string()), len(indices))
    return pa.table([indices.cast(pa.int64()), reasons, rules], schema=REJECTIONS)


def rejections_table(rejections: Mapping[int, Rejection]) -> pa.Table:
    """Return rejections by index as a table, in the same order."""
    if not rejections:
        return NO_REJECTIONS
    rules, reasons = zip(*rejections.values(), strict=True)
    return pa.table([list(rejections), reasons, rules], schema=REJECTIONS)


def first_rejections(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the first rejection of each index, in order of index; those of an earlier table come first."""
    tables = [table for table in tables if table.num_rows]
    if not tables:
        return NO_REJECTIONS
    rejections = pa.concat_tables(tables).combine_chunks()
    indices = rejections["index"].combine_chunks()
    if not pc.any(pc.less_equal(indices[1:], indices[:-1])).as_py():
        return rejections
    rejections = rejections.take(pc.sort_indices(indices))  # a stable sort
    indices = rejections["index"].combine_chunks()
    is_repeated = pc.equal(indices[1:], indices[:-1])
    return rejections.filter(pa.concat_arrays([pa.array([True]), pc.invert(is_repeated)]))


def quote_value(value: object) -> str:
    """Return a value as reasons quote it; long values are truncated.

    >>> quote_value("ten"), quote_value(True), quote_value(date(2013, 11, 3))
    ("'ten'", 'true', '2013-11-03')
    """
    match value:
        case str():
            quoted = repr(value[: _QUOTED_LENGTH + 1])
        case bool():
            quoted = str(value).lower()
        case date():
            quoted = value.isoformat()
        case _:
            quoted = str(value)
    return truncate(quoted, _QUOTED_LENGTH)


def quote_name(name: str) -> str:
    """Return a partner's name for a field as reasons quote it: valid UTF-8, and truncated when it is long."""
    return truncate(name[: _QUOTED_LENGTH + 1].encode(errors="backslashreplace").decode(), _QUOTED_LENGTH)


def list_names(names: Sequence[str]) -> str:
    """Return a partner's names as messages list them: the first ten, each truncated, then "...".

    >>> list_names(["origin", "carrier"])
    'origin, carrier'
    """
    return ", ".join([*map(quote_name, names[:_LISTED_NAMES]), *(["..."] if len(names) > _LISTED_NAMES else [])])


def truncate(string: str, max_length: int) -> str:
    """Truncate a string, and add "..." if it was longer. Lengths are measured in ASCII characters of its JSON form."""
    head = string[: max_length + 1]
    if _json_length(head) <= max_length:
        return string
    # The longest beginning that fits. Only `head` is measured, so a value of megabytes costs no more than a short one.
    kept = bisect_right(range(len(head)), max_length, key=lambda end: _json_length(head[:end])) - 1
    return f"{head[:kept]}..."


def _json_length(string: str) -> int:
    """Return the length of the string in JSON, without its quotes; all characters are escaped to ASCII."""
    if string.isascii() and string.isprintable():  # as most values are; millions of rows may be rejected
        return len(string) + string.count('"') + string.count("\\")
    return len(json.dumps(string)) - len('""')
