"""The rule of `first_by_id` over an Arrow table: without a shuffle, which takes longer than all else for few events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.sources.event_schema import EVENT_TIME, RECEIVED_AT

_HOUR = 3_600_000_000
# A whole number of hours. Arrow divides towards zero, so times before 1970 would get the hour after theirs.
_SHIFT = 20_000_000 * _HOUR


def first_events(
    events: pa.Table, id_column: str, *, position: Sequence[str], first_received: Mapping[str, datetime]
) -> pa.Table:
    """Return the events of a source that count, in their order: of those of one hour and id, the first received one.

    `position` are the columns with the object and the row in it, and `first_received` the times at which the first
    contents of changed files were received, by the names of their objects. Events without an id all count.
    """
    if not len(events):
        return events
    # pyarrow's `coalesce` returns 1970 for columns whose chunks differ.
    events = events.combine_chunks()
    received, ids = events[RECEIVED_AT], events[id_column]
    hours = pc.divide(pc.add(events[EVENT_TIME].cast(pa.timestamp("us", "UTC")).cast(pa.int64()), _SHIFT), _HOUR)
    columns = {"hour": hours, "id": ids}
    if first_received:
        found = pc.index_in(events[position[0]], value_set=pa.array([*first_received]))
        times = pa.array([*first_received.values()], received.type).take(found)
        columns["first received"] = pc.coalesce(times, received)
    columns |= {"received": received, **{name: events[name] for name in position}}
    # Of two contents whose files begin at the same time, the later one is a correction.
    later = {"received"} if first_received else set()
    keys = [(name, "descending" if name in later else "ascending") for name in columns]
    order = pc.sort_indices(pa.table(columns), sort_keys=keys)
    is_same = [pc.equal(sorted_[1:], sorted_[:-1]) for sorted_ in (hours.take(order), ids.take(order))]
    # Null for an event without an id.
    is_first = pc.invert(pc.fill_null(pc.and_(*is_same), False))
    chosen = order.filter(pa.chunked_array([pa.array([True]), *is_first.chunks]).combine_chunks())
    return events.take(chosen.take(pc.sort_indices(chosen)))
