"""Find duplicate event ids among any number of events: memory is bounded, and other ids are on local disk.

The ids are compared themselves, not their hashes, so the result is exact. A hash only decides in which group on disk an
id is. Equal ids are in the same group, so each group can be searched alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.receiver.writing.partitioning import first_rows, row_indexes
from slackwater.receiver.writing.spill_file import SpillFile

# Bytes of ids that are searched together. Arrow needs up to four times as much meanwhile.
BUDGET = 16 * 2**20
# Groups of ids on disk: each is within `BUDGET` up to about 40 million ids of 36 characters.
GROUPS = 256
# Rows that are added at a time.
_PART_ROWS = 2**14
# Bytes that Arrow's hash table adds to each id.
_ROW_BYTES = 48


def duplicate_rows(blocks: Iterable[pa.Table], folder: Path) -> Iterator[pa.Table]:
    """Yield the rows whose `id` an earlier row has, as tables; the order of rows is not kept.

    `blocks` have the column `id`, without nulls, and columns by which the caller recognises a row. Ids beyond `BUDGET`
    bytes are stored in `folder`, a local folder. Raises `OSError` when its disk is full.
    """
    spill: SpillFile[int] = SpillFile(folder / "ids.arrow")
    pending: list[pa.Table] = []
    size = 0
    try:
        for part in _parts(blocks):
            pending.append(part)
            size += part.nbytes + _ROW_BYTES * part.num_rows
            if size > BUDGET:
                yield _spill_distinct(pending, spill)
                pending, size = [], 0
        if pending and not spill:
            yield _split(pending)[1]
            return
        if pending:
            yield _spill_distinct(pending, spill)
        for group in range(GROUPS):
            if group in spill:
                yield _split(spill.tables(group))[1]
    finally:
        spill.close()


def _parts(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows in tables of up to `_PART_ROWS`."""
    for table in tables:
        for start in range(0, table.num_rows, _PART_ROWS):
            yield table.slice(start, _PART_ROWS)


def _spill_distinct(tables: Iterable[pa.Table], spill: SpillFile[int]) -> pa.Table:
    """Add the first row of each id to `spill`, and return the other rows.

    Without the other rows, an id that repeats in every event cannot make its group large.
    """
    distinct, duplicates = _split(tables)
    ids = (part["id"].cast(pa.string()).to_pylist() for part in _parts([distinct]))
    numbers = [hash(value) % GROUPS for values in ids for value in values]
    groups = pa.array(numbers, pa.int32())
    order = pc.sort_indices(groups)  # stable: within a group, the rows keep their order
    ordered, runs = distinct.take(order), pc.run_end_encode(groups.take(order))
    for group, (start, end) in zip(runs.values.to_pylist(), pairwise([0, *runs.run_ends.to_pylist()]), strict=True):
        spill.add(group, ordered.slice(start, end - start))
    return duplicates


def _split(tables: Iterable[pa.Table]) -> tuple[pa.Table, pa.Table]:
    """Split the rows into those whose `id` no earlier row has, and the others."""
    table = pa.concat_tables(tables)
    # Usually no id repeats, and counting the distinct ids is much faster than finding the first row of each.
    if pc.count_distinct(table["id"]).as_py() == table.num_rows:
        return table, table.slice(0, 0)
    is_first = pc.is_in(row_indexes(table.num_rows), value_set=first_rows(table.select(["id"])))
    return table.filter(is_first), table.filter(pc.invert(is_first))
