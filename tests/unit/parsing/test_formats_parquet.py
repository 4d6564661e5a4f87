from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from slackwater.errors import DataError
from slackwater.receiver.formats import parquet_file
from slackwater.receiver.formats.parquet_file import parse_parquet
from slackwater.receiver.formats.read import check_rows
from slackwater.receiver.parsing.event_checks import CheckedEvents
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import event_schema
from tests.fakes_receiver import RECEIVED, a_source
from tests.memory import arrow_peak

pytestmark = pytest.mark.unit

NOON = datetime(2013, 3, 8, 12, tzinfo=UTC)
ONE = {"id": pa.array(["a"]), "at": pa.array([NOON], pa.timestamp("us", "UTC"))}
SOURCE = a_source()


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "file"


def read(file: Path, source: Source = SOURCE) -> list[CheckedEvents]:
    return list(check_rows(parse_parquet(file, source, name="things.parquet"), source, received_at=RECEIVED))


def accepted(result: Sequence[CheckedEvents]) -> list[dict[str, object]]:
    return [row for block in result for row in block.table.to_pylist()]


def rejected(result: Sequence[CheckedEvents]) -> list[tuple[int, str, object]]:
    return [(item.index, str(item.rule), json.loads(item.text or "")) for block in result for item in block.rejected]


def test_a_file_without_rows(file):
    pq.write_table(pa.table(ONE).slice(0, 0), file)
    assert read(file) == []


def test_a_file_from_another_program_is_read(file):
    duckdb.sql(
        f"""COPY (SELECT 'ä' AS id, 9223372036854775807 AS count, 1.25::DECIMAL(9, 2) AS size, true AS good,
                  DATE '2013-03-08' AS day, TIMESTAMPTZ '2013-03-08 07:00:00-05' AS at, INTERVAL 3 DAY AS span,
                  [1, NULL] AS list, {{'t': TIMESTAMP_NS '2013-03-08 12:00:00.123456789'}} AS nest, NULL AS nothing
            UNION ALL SELECT NULL, 1, 1, false, NULL, NULL, NULL, NULL, NULL, NULL)
            TO '{file}' (FORMAT parquet)"""
    )
    result = read(file, a_source(unknown_fields="ignore"))
    [row] = accepted(result)
    own = {"id": "ä", "count": 2**63 - 1, "size": 1.25, "good": True, "day": date(2013, 3, 8), "at": NOON}
    assert row == {**own, "_event_time": NOON, "_extra": None}
    assert result[0].table.schema == event_schema(SOURCE)
    [(index, rule, record)] = rejected(result)
    assert (index, rule) == (1, "missing")
    assert record == {
        **dict.fromkeys([*own, "span", "list", "nest", "nothing"]),
        "count": 1,
        "size": "1.00",
        "good": False,
    }


UTF8 = ["a", "ü", "日本"]


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(UTF8),
        pa.array(UTF8, pa.large_string()),
        pa.array(UTF8, pa.string_view()),
        pa.array([string.encode() for string in UTF8], pa.binary()),
        pa.array([string.encode() for string in UTF8], pa.binary_view()),
        pa.array(UTF8).dictionary_encode(),
    ],
    ids=lambda ids: str(ids.type.__class__.__name__),
)
def test_strings_of_any_arrow_type_are_read(file, ids):
    pq.write_table(pa.table({"id": ids, "at": [NOON] * 3}), file)
    assert [row["id"] for row in accepted(read(file))] == UTF8


def test_uuids_become_strings(file):
    ids = ["f47ac10b-58cc-4372-a567-0e02b2c3d479", None]
    values = pa.array([UUID(ids[0]).bytes, None], pa.uuid())
    pq.write_table(pa.table({"id": values, "at": [NOON] * 2}), file)
    result = read(file)
    assert [row["id"] for row in accepted(result)] == ids[:1]
    assert rejected(result) == [(1, "missing", {"id": None, "at": "2013-03-08T12:00:00Z"})]


def test_bytes_of_fixed_width_are_strings_if_they_are_utf8(file):
    pq.write_table(pa.table({"id": pa.array([b"ab", b"\xff\xfe"], pa.binary(2)), "at": [NOON] * 2}), file)
    result = read(file)
    assert [row["id"] for row in accepted(result)] == ["ab"]
    assert rejected(result) == [(1, "not_utf8", {"id": "\\xff\\xfe", "at": "2013-03-08T12:00:00Z"})]


def test_invalid_values_reject_only_their_row(file):
    table = pa.table(
        {
            "id": ["a", "b", "c", "d", "e"],
            "at": [NOON] * 5,
            "count": pa.array([1, 2**63, 3, 4, 5], pa.uint64()),
            "size": [1.5, 1.0, float("nan"), float("-inf"), 5.0],
            "good": [[True], None, None, None, None],
            "day": [None, None, None, None, datetime(2013, 3, 8, 1)],
        }
    )
    pq.write_table(table, file)
    result = read(file)
    assert accepted(result) == []
    reasons = [item.reason for block in result for item in block.rejected]
    assert [rule for _, rule, _ in rejected(result)] == ["wrong_type"] * 5
    assert [reason.partition(":")[0] for reason in reasons] == ["good", "count", "size", "size", "day"]
    assert "not list<" in reasons[0]
    assert result[0].rejected[2].text == (
        '{"id":"c","at":"2013-03-08T12:00:00Z","count":3,"size":NaN,"good":null,"day":null}'
    )


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_timestamps_without_offset_are_in_the_timezone_of_the_source(file, unit):
    naive = pa.array([datetime(2013, 3, 8, 7), datetime(2013, 3, 10, 2, 30)], pa.timestamp(unit))
    pq.write_table(pa.table({"id": ["a", "b"], "at": naive}), file)
    result = read(file, a_source(timestamp={"field": "at", "timezone": "America/New_York"}))
    assert [row["at"] for row in accepted(result)] == [NOON]
    [(_, rule, _)] = rejected(result)
    assert rule == "wrong_type"
    assert "does not exist" in result[0].rejected[0].reason
    assert [rule for _, rule, _ in rejected(read(file))] == ["wrong_type"] * 2


def test_int96_timestamps_do_not_overflow(file):
    timestamps = [datetime(1, 1, 1, tzinfo=UTC), datetime(2500, 1, 1, tzinfo=UTC)]
    naive = [timestamp.replace(tzinfo=None) for timestamp in timestamps]
    pq.write_table(pa.table({"id": ["a", "b"], "at": naive}), file, use_deprecated_int96_timestamps=True)
    assert [
        row["at"] for row in accepted(read(file, a_source(timestamp={"field": "at", "timezone": "UTC"})))
    ] == timestamps


NESTS = {
    "n": ([{"x": [1, None], "t": NOON}], pa.struct({"x": pa.list_(pa.int8()), "t": pa.timestamp("ns", "Asia/Tokyo")})),
    "m": ([[("k", 3_723_000_000_001)]], pa.map_(pa.string(), pa.time64("ns"))),
    "v": ([[{"s": "ü"}]], pa.large_list(pa.struct({"s": pa.string_view()}))),
    "p": ([[timedelta(seconds=90)]], pa.list_(pa.duration("ns"), 1)),
    "d": ([Decimal("1.50")], pa.decimal128(9, 2)),
}
EXTRA = {
    "n": {"x": [1, None], "t": "2013-03-08T12:00:00+00:00"},
    "m": {"k": "01:02:03"},
    "v": [{"s": "ü"}],
    "p": ["0:01:30"],
    "d": "1.50",
}


def test_nested_values_are_kept_as_json(file):
    pq.write_table(pa.table({**ONE, **{name: pa.array(*nest) for name, nest in NESTS.items()}}), file)
    assert [json.loads(row["_extra"]) for row in accepted(read(file))] == [EXTRA]


def test_nested_nanoseconds_are_truncated(file):
    # Only pandas can hold nanoseconds, and it is not installed in the functions.
    nest = pa.array([{"t": 1_234}] * 2, pa.struct({"t": pa.timestamp("ns")}))
    pq.write_table(pa.table({"id": ["a", None], "at": [NOON] * 2, "nest": nest}), file)
    result = read(file)
    assert [json.loads(row["_extra"]) for row in accepted(result)] == [{"nest": {"t": "1970-01-01T00:00:00.000001"}}]
    assert rejected(result)[0][2]["nest"] == {"t": "1970-01-01 00:00:00.000001"}


@pytest.mark.parametrize(
    ("nest", "expected"),
    [
        (pa.list_(pa.timestamp("us")), "[[<value out of range: 4611686018427387904>]]"),
        (pa.list_(pa.timestamp("us", "UTC")), "[[<value out of range: 4611686018427387904>]]"),
        (pa.list_(pa.date32()), "[[<value out of range: 1073741824>]]"),
    ],
    ids=str,
)
def test_a_nested_time_outside_the_calendar_rejects_only_its_row(file, nest, expected):
    bits = nest.value_type.bit_width
    counts = pa.array([[0], [2 ** (bits - 2)], None], pa.list_(pa.int32() if bits == 32 else pa.int64()))
    pq.write_table(pa.table({"id": ["a", "b", "c"], "at": [NOON] * 3, "nest": counts.cast(nest)}), file)
    [block] = result = read(file)
    assert [row["id"] for row in accepted(result)] == ["a", "c"]
    assert block.rejected[0].reason == "nest: holds a date or time outside the years 1 to 9999"
    [(index, rule, record)] = rejected(result)
    assert (index, rule, record["nest"]) == (1, "wrong_type", expected)


def test_a_nested_string_that_is_not_utf8_rejects_only_its_row(file):
    nest = pa.array([[b"\xff"], [b"a"]], pa.list_(pa.binary())).view(pa.list_(pa.string()))
    pq.write_table(pa.table({"id": ["a", "b"], "at": [NOON] * 2, "nest": nest}), file)
    result = read(file)
    assert [row["id"] for row in accepted(result)] == ["b"]
    assert [(index, rule) for index, rule, _ in rejected(result)] == [(0, "not_utf8")]


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (pa.map_(pa.string(), pa.int64()), [("k", 1), ("l", None)], {"k": 1, "l": None}),
        (pa.map_(pa.string(), pa.int64()), [], {}),
        (pa.map_(pa.string(), pa.int64()), None, None),
        (pa.map_(pa.int64(), pa.int64()), [(1, 2)], [[1, 2]]),
    ],
    ids=["strings", "empty", "none", "numbers"],
)
def test_maps_are_objects_if_their_keys_are_strings(file, type_, value, expected):
    pq.write_table(pa.table({**ONE, "m": pa.array([value], type_)}), file)
    assert [json.loads(row["_extra"]) for row in accepted(read(file))] == [{"m": expected}]


@pytest.mark.parametrize("key", [pa.string(), pa.int64()], ids=str)
def test_a_map_with_nan_is_not_json(file, key):
    name = "k" if key == pa.string() else 1
    pq.write_table(pa.table({**ONE, "m": pa.array([[(name, float("nan"))]], pa.map_(key, pa.float64()))}), file)
    assert [rule for _, rule, _ in rejected(read(file))] == ["not_json"]


@pytest.mark.parametrize(("rows", "groups"), [(1, 100), (7, 3), (7, 100), (64, 5)])
def test_indexes_continue_from_block_to_block(file, monkeypatch, rows, groups):
    monkeypatch.setattr(parquet_file, "_BATCH_ROWS", rows)
    table = pa.table({"id": [None if number % 5 == 3 else str(number) for number in range(23)], "at": [NOON] * 23})
    pq.write_table(table, file, row_group_size=groups)
    result = read(file)
    assert max(block.table.num_rows + len(block.rejected) for block in result) <= rows
    assert [row["id"] for row in accepted(result)] == [str(index) for index in range(23) if index % 5 != 3]
    assert [index for index, _, _ in rejected(result)] == [3, 8, 13, 18]


def test_wide_rows_are_read_in_smaller_blocks(file, monkeypatch):
    monkeypatch.setattr(parquet_file, "_BATCH_BYTES", 10_000)
    wide = [f"{index:05}" * 200 for index in range(50)]
    pq.write_table(pa.table({"id": wide, "at": [NOON] * 50}), file, use_dictionary=False)
    result = read(file)
    assert [row["id"] for row in accepted(result)] == wide
    assert max(block.table.num_rows for block in result) < 12


def test_a_missing_required_column_is_an_error(file):
    pq.write_table(pa.table({"ID": ["a"], "at": [NOON]}), file)
    with pytest.raises(DataError, match=r"^things\.parquet: its schema lacks id \(it has: ID, at\)$"):
        read(file)


def test_two_columns_with_the_same_name_are_an_error(file):
    table = pa.table([pa.array(["a"]), ONE["at"], pa.array([1]), pa.array([2])], names=["id", "at", "x", "x"])
    pq.write_table(table, file)
    with pytest.raises(DataError, match=r"^things\.parquet: two columns have the same name: x: rename one of them$"):
        read(file)


@pytest.mark.parametrize("content", [b"", b"id,at\n1,2\n", b"PAR1 and nothing else PAR1"])
def test_a_file_that_is_not_parquet_is_an_error(file, content):
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"^things\.parquet: not readable as Parquet: .*: send it again"):
        read(file)


def test_a_file_that_is_broken_in_the_middle_is_an_error(file):
    pq.write_table(pa.table({"id": [str(index) for index in range(5_000)], "at": [NOON] * 5_000}), file)
    content = bytearray(file.read_bytes())
    content[100:4_000] = bytes(3_900)
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"^things\.parquet: not readable as Parquet: "):
        read(file)
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"^things\.parquet: not readable as Parquet: "):
        read(file)


class _NoKeys(pe.KmsClient):
    def wrap_key(self, key_bytes, master_key_identifier):
        return key_bytes

    def unwrap_key(self, wrapped_key, master_key_identifier):
        raise AssertionError("nobody asks for a key")


def test_an_encrypted_file_is_an_error(file):
    factory = pe.CryptoFactory(lambda _: _NoKeys())
    properties = factory.file_encryption_properties(
        pe.KmsConnectionConfig(), pe.EncryptionConfiguration(footer_key="k", column_keys={"k": ["id"]})
    )
    with pq.ParquetWriter(file, pa.table(ONE).schema, encryption_properties=properties) as writer:
        writer.write_table(pa.table(ONE))
    with pytest.raises(DataError, match=r"^things\.parquet: not readable as Parquet: "):
        read(file)


class TestMemory:
    def test_a_value_that_repeats_in_every_row_does_not_fill_the_memory(self, file):
        rows = 1_000
        notes = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * 200_000])
        table = pa.table({"id": ["a"] * rows, "at": [NOON] * rows, "note": notes})
        pq.write_table(table, file, store_schema=False)
        assert file.stat().st_size < 50_000
        with arrow_peak() as peak:
            for block in check_rows(parse_parquet(file, SOURCE, name="f"), SOURCE, received_at=RECEIVED):
                rows -= block.table.num_rows
        assert rows == 0
        assert peak.bytes < 100 * 2**20

    def test_long_values_in_lists_count_even_if_the_first_lists_are_empty(self, file):
        lists = [None, []] * 200 + [["x" * 50_000] * 4] * 400
        table = pa.table({"id": ["a"] * 800, "at": [NOON] * 800, "list": lists})
        pq.write_table(table, file)
        with pq.ParquetFile(file) as opened:
            assert parquet_file.longest_in_dictionary(file, 0, "list.list.element", opened.metadata) == 50_000
            batches = list(parquet_file.read_batches(opened, file, "f"))
        assert sum(batch.num_rows for batch in batches) == 800
        assert max(batch.nbytes for batch in batches) <= 2 * parquet_file._BATCH_BYTES

    def test_many_small_columns_make_small_batches(self, file):
        columns = {f"c{number}": pa.array([True] * 5_000) for number in range(200)}
        pq.write_table(pa.table(columns), file)
        with pq.ParquetFile(file) as opened:
            sizes = [batch.num_rows for batch in parquet_file.read_batches(opened, file, "f")]
        assert sum(sizes) == 5_000
        assert max(sizes) * 200 <= parquet_file._BATCH_VALUES

    def test_rows_that_are_longer_than_others_are_checked_in_smaller_blocks(self, file, monkeypatch):
        monkeypatch.setattr(parquet_file, "_BATCH_BYTES", 10_000)
        ids = [*(str(number) for number in range(3_000)), *(str(number) * 500 for number in range(3_000, 3_100))]
        pq.write_table(pa.table({"id": ids, "at": [NOON] * len(ids)}), file, use_dictionary=False)
        result = read(file)
        assert [row["id"] for row in accepted(result)] == ids
        assert len(result) > 10

    def test_a_row_of_too_many_bytes_is_an_error(self, file, monkeypatch):
        monkeypatch.setattr(parquet_file, "MAX_RECORD_BYTES", 1_000)
        pq.write_table(pa.table({"id": ["a", "b" * 2_000], "at": [NOON] * 2}), file)
        with pytest.raises(DataError, match=r"^things\.parquet: a row has more than 1,000 bytes"):
            read(file)
