"""The partition writer: it writes each event once and in order, for any hours and any memory budget."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DataError
from slackwater.receiver.writing import duplicate_ids, partition_writer
from slackwater.receiver.writing.partition_writer import PartitionWriter
from slackwater.sources.counts import ALL
from slackwater.sources.event_schema import EVENT_TIME, TIMESTAMP

pytestmark = pytest.mark.unit

START = datetime(2013, 3, 11, tzinfo=UTC)


def block(rows: list[tuple[int, str]]) -> pa.Table:
    """Return a block of rows, each with an hour and an id."""
    timestamps = [START + timedelta(hours=hour, minutes=number % 60) for number, (hour, _) in enumerate(rows)]
    return pa.table(
        {"id": pa.array([name for _, name in rows], pa.string()), EVENT_TIME: pa.array(timestamps, TIMESTAMP)}
    )


def write(folder: Path, blocks: list[pa.Table], **options: object) -> dict[tuple[str, str], list[str]]:
    """Write the blocks; return the ids in each partition's file, and check its number of rows."""
    with PartitionWriter(folder, lambda table: table, name="f", **options) as writer:
        for table in blocks:
            writer.add(table)
        files = writer.finish()
    assert [file.partition for file in files] == sorted(file.partition for file in files)
    ids_by_hour = {tuple(file.partition): pq.read_table(file.path)["id"].to_pylist() for file in files}
    assert [file.rows for file in files] == [len(ids) for ids in ids_by_hour.values()]
    minutes = [[at.minute for at in pq.read_table(file.path)[EVENT_TIME].to_pylist()] for file in files]
    assert [file.bins for file in files] == [
        {ALL: tuple(sum(minute // 5 == number for minute in of_file) for number in range(12))} for of_file in minutes
    ]
    return ids_by_hour


def by_hour(rows: list[tuple[int, str]]) -> dict[tuple[str, str], list[str]]:
    ids = defaultdict(list)
    for hour, name in rows:
        ids[f"2013-03-{11 + hour // 24}", f"{hour % 24:02d}"].append(name)
    return dict(ids)


_ROWS = st.lists(st.tuples(st.sampled_from([0, 1, 2, 30]), st.sampled_from("abcde")), max_size=12)


@given(
    blocks=st.lists(_ROWS, max_size=8),
    budget=st.sampled_from([0, 100, 400, 10**6]),
    row_group=st.sampled_from([1, 3, 5]),
    once=st.booleans(),
)
def test_every_event_is_written_once_and_in_order(tmp_path_factory, blocks, budget, row_group, once):
    rows = [row for rows in blocks for row in rows]
    expected = by_hour(rows)
    if once:
        expected = {partition: list(dict.fromkeys(ids)) for partition, ids in expected.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_writer, "BUDGET", budget)
        patch.setattr(partition_writer, "ROW_GROUP", row_group)
        folder = tmp_path_factory.mktemp("spill")
        assert write(folder, [block(rows) for rows in blocks], id_column="id" if once else None) == expected


def test_few_events_of_an_hour_are_buffered_for_a_larger_row_group(tmp_path, monkeypatch):
    monkeypatch.setattr(partition_writer, "BUDGET", 0)
    monkeypatch.setattr(partition_writer, "ROW_GROUP", 10)
    hours = 50
    blocks = [block([(hour, str(turn)) for hour in range(hours)]) for turn in range(25)]
    assert write(tmp_path, blocks) == by_hour([(hour, str(turn)) for turn in range(25) for hour in range(hours)])
    groups = [pq.ParquetFile(path).metadata for path in tmp_path.glob("*.parquet")]
    assert {tuple(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)) for metadata in groups} == {
        (10, 10, 5)
    }


def test_many_events_of_an_hour_are_written_immediately(tmp_path, monkeypatch):
    monkeypatch.setattr(partition_writer, "BUDGET", 0)
    monkeypatch.setattr(partition_writer, "ROW_GROUP", 10)
    with PartitionWriter(tmp_path, lambda table: table, name="f") as writer:
        for _ in range(2):
            writer.add(block([(0, "a")] * 10))
        assert [path.name for path in tmp_path.iterdir()] == ["2013-03-11-00.parquet"]
        (file,) = writer.finish()
    assert pq.ParquetFile(file.path).num_row_groups == 2


def test_wide_events_of_an_hour_make_several_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(partition_writer, "BUDGET", 0)
    monkeypatch.setattr(partition_writer, "ROW_GROUP_BYTES", 5_000)
    blocks = [block([(hour, "x" * 1_000 + str(turn)) for hour in range(2)]) for turn in range(20)]
    expected = by_hour([(hour, "x" * 1_000 + str(turn)) for turn in range(20) for hour in range(2)])
    assert write(tmp_path, blocks) == expected
    assert {pq.ParquetFile(path).num_row_groups for path in tmp_path.glob("*.parquet")} == {4}


def test_an_id_of_many_row_groups_counts_once_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(duplicate_ids, "BUDGET", 10_000)
    monkeypatch.setattr(partition_writer, "BUDGET", 0)
    monkeypatch.setattr(partition_writer, "ROW_GROUP", 100)
    blocks = [block([(0, str(number)) for number in range(start, start + 200)]) for start in range(0, 3_000, 100)]
    assert write(tmp_path, blocks, id_column="id") == by_hour([(0, str(number)) for number in range(3_100)])


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are listed by Linux only")
def test_events_of_many_hours_need_few_open_files(tmp_path, monkeypatch):
    monkeypatch.setattr(partition_writer, "BUDGET", 0)
    monkeypatch.setattr(partition_writer, "ROW_GROUP", 1)
    before = open_files()
    with PartitionWriter(tmp_path, lambda table: table, name="f") as writer:
        writer.add(block([(hour, "a") for hour in range(300)]))
        assert len(list(tmp_path.glob("*.parquet"))) == 300
        assert open_files() <= before + 2
        writer.finish()


def test_too_many_hours_are_refused_before_any_file_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(partition_writer, "MAX_PARTITIONS", 20)
    with pytest.raises(DataError, match=r"^f: its rows are from more than 20 hours: send it in parts"):
        write(tmp_path, [block([(hour, "a") for hour in range(21)])])
    assert list(tmp_path.iterdir()) == []


def test_after_an_error_no_file_is_open(tmp_path, monkeypatch):
    monkeypatch.setattr(partition_writer, "BUDGET", 0)
    monkeypatch.setattr(partition_writer, "ROW_GROUP", 2)
    monkeypatch.setattr(partition_writer, "MAX_PARTITIONS", 2)
    with pytest.raises(DataError):
        write(tmp_path, [block([(0, "a"), (0, "b"), (1, "c")]), block([(2, "d")])])
    assert pq.read_table(tmp_path / "2013-03-11-00.parquet").num_rows == 2


def test_no_events_write_no_files(tmp_path):
    assert write(tmp_path, []) == {}
    assert list(tmp_path.iterdir()) == []
