"""Columns as Python's values, which have not all that a nested column of Arrow's may hold."""

from __future__ import annotations

import pyarrow as pa

from slackwater.receiver.parsing.columns import NOT_UTF8


def python_values(array: pa.Array) -> tuple[list[object], dict[int, str]]:
    """Return a column's values, and by its place why one is none of Python's; there is None in its place."""
    try:
        return array.to_pylist(), {}
    except (OverflowError, ValueError):  # All are asked one by one, which takes longer.
        pass
    values: list[object] = [None] * len(array)
    faults: dict[int, str] = {}
    for place, scalar in enumerate(array):
        try:
            values[place] = scalar.as_py()
        except UnicodeDecodeError:
            faults[place] = NOT_UTF8
        except (OverflowError, ValueError):
            faults[place] = "holds a date or a time outside of the years 1 to 9999"
    return values, faults
