"""The rule "an event id counts once in its partition" as one SQL expression, for Spark and for DuckDB.

Duplicates of an event are stored, and left out where events are read. When several events of a partition have the same
id, the first one received counts: by `_received_at`, then by position. A changed file keeps the order of its first
content, before what other files have received since (docs/decisions/0046). Events without an id all count.
"""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.sources.event_schema import RECEIVED_AT


def is_first_of_its_id(
    id_column: str, *, partition: Sequence[str], position: Sequence[str], first_received: str = ""
) -> str:
    """Return the SQL condition that is true for the events that count.

    `id_column`, `partition` and `position` are SQL expressions, quoted as the engine needs it. `partition` identifies
    the partition (source, date and hour). `position` orders events that were received at the same time: the object,
    then the row in it where an object may hold an id twice. `first_received` is the time at which the first content of
    the event's file was received; null for an event whose `_received_at` is that time. Without it, all are.
    """
    # Each row without an id gets its own window. Otherwise they would share one, which a single task or thread sorts.
    spread = [f"CASE WHEN {id_column} IS NULL THEN {column} END" for column in position]
    window = f"PARTITION BY {', '.join([*partition, id_column, *spread])}"
    # Of two contents whose files begin at the same time, the later one is a correction: the other is that of a copy.
    received = (
        [f"coalesce({first_received}, {RECEIVED_AT})", f"{RECEIVED_AT} DESC"] if first_received else [RECEIVED_AT]
    )
    order = f"ORDER BY {', '.join([*received, *position])}"
    return f"{id_column} IS NULL OR row_number() OVER ({window} {order}) = 1"
