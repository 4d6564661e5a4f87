"""The rule "an event id counts once in its partition" as one SQL expression, for Spark and for DuckDB.

Duplicates of an event are stored, and left out where events are read. When several events of a partition have the same
id, the first one received counts: by `_received_at`, then by position. Events without an id all count.
"""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.sources.event_schema import RECEIVED_AT


def is_first_of_its_id(id_column: str, *, partition: Sequence[str], position: Sequence[str]) -> str:
    """Return the SQL condition that is true for the events that count.

    `id_column`, `partition` and `position` are SQL expressions, quoted as the engine needs it. `partition` identifies
    the partition (source, date and hour). `position` orders events that were received at the same time: the object,
    then the row in it where an object may hold an id twice.
    """
    # Each row without an id gets its own window. Otherwise they would share one, which a single task or thread sorts.
    spread = [f"CASE WHEN {id_column} IS NULL THEN {column} END" for column in position]
    window = f"PARTITION BY {', '.join([*partition, id_column, *spread])}"
    order = f"ORDER BY {', '.join([RECEIVED_AT, *position])}"
    return f"{id_column} IS NULL OR row_number() OVER ({window} {order}) = 1"
