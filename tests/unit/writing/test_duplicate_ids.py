"""Duplicate ids are found exactly, with any number of ids in a bounded memory."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.receiver.writing import duplicate_ids
from slackwater.receiver.writing.duplicate_ids import duplicate_rows
from tests.memory import arrow_peak

pytestmark = pytest.mark.unit


def block(ids, first_row=0, id_type=None):
    return pa.table({"id": pa.array(ids, id_type), "row": pa.array(range(first_row, first_row + len(ids)), pa.int64())})


@given(
    blocks=st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=8),
    budget=st.sampled_from([0, 200, 10**6]),
    groups=st.sampled_from([1, 3, 256]),
    id_type=st.sampled_from([pa.string(), pa.int64()]),
)
def test_every_row_but_the_first_of_its_id_is_found(tmp_path_factory, blocks, budget, groups, id_type):
    ids = [str(number) if id_type == pa.string() else number for numbers in blocks for number in numbers]
    tables, start = [], 0
    for numbers in blocks:
        tables.append(block(ids[start : start + len(numbers)], start, id_type))
        start += len(numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicate_ids, "BUDGET", budget)
        patch.setattr(duplicate_ids, "GROUPS", groups)
        found = [
            row for table in duplicate_rows(tables, tmp_path_factory.mktemp("ids")) for row in table["row"].to_pylist()
        ]
    assert sorted(found) == [row for row, value in enumerate(ids) if value in ids[:row]]


@pytest.mark.parametrize("distinct", [80_000, 7], ids=["distinct", "repeated"])
def test_memory_is_bounded_for_any_number_of_ids(tmp_path, monkeypatch, distinct):
    monkeypatch.setattr(duplicate_ids, "BUDGET", 2**18)
    rows, step = 80_000, 2_000
    with arrow_peak() as peak:
        blocks = (
            block([f"{row % distinct:036}" for row in range(row, row + step)], row) for row in range(0, rows, step)
        )
        duplicates = sum(table.num_rows for table in duplicate_rows(blocks, tmp_path))
    assert duplicates == rows - distinct
    assert peak.bytes < 3 * 2**20  # the ids alone have 3.5 MiB
