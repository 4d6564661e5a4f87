"""The rule of event ids as SQL, in DuckDB with the position of a row; tests/spark/test_inputs.py has it in Spark."""

from __future__ import annotations

import duckdb
import pytest

from slackwater.sources.first_by_id import is_first_of_its_id

pytestmark = pytest.mark.unit

EVENTS = """
    (VALUES ('a', 0, 2, 'x', 0, 'later'), ('a', 0, 1, 'y', 0, 'a: first received'), ('a', 1, 9, 'z', 0, 'other hour'),
            ('b', 0, 1, 'y', 1, 'later object'), ('b', 0, 1, 'x', 1, 'later row'), ('b', 0, 1, 'x', 0, 'b: first row'),
            (NULL, 0, 1, 'x', 2, 'no id'), (NULL, 0, 1, 'x', 3, 'no id'))
    AS events("order", hour, _received_at, _object, _row, what)
"""


def test_the_first_received_of_each_id_and_partition_counts_and_every_event_without_an_id():
    condition = is_first_of_its_id('"order"', partition=["hour"], position=["_object", "_row"])
    rows = duckdb.sql(f"SELECT what FROM {EVENTS} QUALIFY {condition} ORDER BY what").fetchall()
    assert [row[0] for row in rows] == ["a: first received", "b: first row", "no id", "no id", "other hour"]
