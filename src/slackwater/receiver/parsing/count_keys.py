"""Which of the keys of a source counts an event: `slackwater.sources.counts.Counts.keys`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.parsing.rejections import RejectionRule
from slackwater.sources.counts import column_of

KEY_NUMBER = "_key_number"
"""The column of rejected events with the position of their key; null if their value is not readable."""
# Of such an event no field is readable, or its cells may be those of other columns.
_UNREADABLE = [
    RejectionRule.NOT_JSON,
    RejectionRule.NOT_UTF8,
    RejectionRule.NOT_AN_OBJECT,
    RejectionRule.TOO_DEEP,
    RejectionRule.WRONG_WIDTH,
]


def key_numbers(events: pa.Table, keys: tuple[str, ...]) -> pa.ChunkedArray:
    """Return for each event the position in `keys` of the one that counts it."""
    column, others = column_of(keys), len(keys) - 1
    if column is None or column[0] not in events.column_names:
        return pa.chunked_array([pa.repeat(pa.scalar(others, pa.int64()), events.num_rows)])
    values = pc.index_in(events[column[0]].cast(pa.string()), value_set=pa.array(column[1], pa.string()))
    return pc.fill_null(values.cast(pa.int64()), others)


def rejected_key_numbers(
    events: pa.Table, rejected: pa.Table, keys: tuple[str, ...], *, invalid: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Return the `KEY_NUMBER` of rejected events. `invalid` has the indexes of events whose value is not a string."""
    if column_of(keys) is None:
        return key_numbers(rejected, keys)
    numbers = key_numbers(events, keys).take(rejected["index"])
    is_unreadable = pc.is_in(rejected["rule"], value_set=pa.array(_UNREADABLE, pa.string()))
    is_unreadable = pc.or_(is_unreadable, pc.is_in(rejected["index"], value_set=invalid.cast(pa.int64())))
    return pc.if_else(is_unreadable, pa.scalar(None, pa.int64()), numbers)
