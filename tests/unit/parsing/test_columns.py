"""Typed columns, and which values the fast paths read."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slackwater.receiver.parsing.columns import ColumnReader
from slackwater.receiver.parsing.rejections import NOT_UTF8, InvalidValue, Rejection, RejectionRule
from slackwater.receiver.parsing.string_columns import read_string_column
from slackwater.receiver.parsing.timezones import to_local_time, to_utc
from slackwater.receiver.parsing.values import read_value
from slackwater.sources.event_schema import ARROW_TYPES
from slackwater.sources.fields import FieldDefinition
from tests.rejections import by_index

pytestmark = pytest.mark.unit

NEW_YORK = ZoneInfo("America/New_York")
READER = ColumnReader(trim=False, null_values=("", "NA"), timezone=None)
NOON = datetime(2013, 3, 8, 12, tzinfo=UTC)
ISO = {"type": "timestamp"}
DAY = {"type": "date"}


def read(array: pa.Array, definition: dict[str, object], *, timezone: ZoneInfo | None = None):
    reader = ColumnReader(trim=False, null_values=("", "NA"), timezone=timezone)
    column = reader.read_array(array, FieldDefinition(**definition))
    assert column.array.type == ARROW_TYPES[FieldDefinition(**definition).type]
    assert len(column.array) == len(array)
    return column.array.to_pylist(), by_index(column.rejections)


def strings(*values: bytes | None) -> pa.Array:
    """Return strings of any bytes, as some programs write them to Parquet."""
    raw = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(raw), raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])


@pytest.mark.parametrize(
    ("array", "definition", "values"),
    [
        (pa.array([1, None, -5], pa.int8()), {"type": "int64"}, [1, None, -5]),
        (pa.array([2**63 - 1], pa.uint64()), {"type": "int64"}, [2**63 - 1]),
        (pa.array([1, None], pa.uint32()), {"type": "double"}, [1.0, None]),
        (pa.array([2**53 + 1]), {"type": "double"}, [float(2**53 + 1)]),
        (pa.array([1545, None]), {"type": "string"}, ["1545", None]),
        (pa.array([0, 1]), {"type": "boolean", "true_values": ["1"], "false_values": ["0"]}, [False, True]),
        (pa.array([20130308]), {"type": "date", "formats": ["%Y%m%d"]}, [date(2013, 3, 8)]),
        (pa.array([1362744000]), {"type": "timestamp", "formats": ["epoch_s"]}, [NOON]),
        (pa.array([1362744000000], pa.uint64()), {"type": "timestamp", "formats": ["epoch_ms"]}, [NOON]),
        (
            pa.array([1362744000.123456, -0.5]),
            {"type": "timestamp", "formats": ["epoch_s"]},
            [NOON + timedelta(microseconds=123456), datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)],
        ),
        (pa.array([5.0, None]), {"type": "int64"}, [5, None]),
        (pa.array([0.5], pa.float32()), {"type": "double"}, [0.5]),
        (pa.array([1.5]), {"type": "double", "decimal": ","}, [1.5]),
        (pa.array([Decimal("1234.50")]), {"type": "double", "decimal": ",", "thousands": "."}, [1234.5]),
        (pa.array([Decimal("5.00"), Decimal("12.00")]), {"type": "int64"}, [5, 12]),
        (pa.array([Decimal("1.50")]), {"type": "string"}, ["1.50"]),
        (pa.array([Decimal("1e-8")]), {"type": "double"}, [1e-8]),
        (pa.array([True, None, False]), {"type": "boolean"}, [True, None, False]),
        (pa.array(["EWR", "NA", None], pa.large_string()), {"type": "string"}, ["EWR", None, None]),
        (pa.array([b"EWR", b""]), {"type": "string"}, ["EWR", None]),
        (pa.array(["5", "NA", "5", None]).dictionary_encode(), {"type": "int64"}, [5, None, 5, None]),
        (pa.array([7, None, 7]).dictionary_encode(), {"type": "double"}, [7.0, None, 7.0]),
        (pa.nulls(2), {"type": "date"}, [None, None]),
        (pa.array([date(2013, 3, 8), None]), DAY, [date(2013, 3, 8), None]),
        (pa.array([date(2013, 3, 8)], pa.date64()), DAY, [date(2013, 3, 8)]),
        (pa.array([datetime(2013, 3, 8)], pa.timestamp("ns")), DAY, [date(2013, 3, 8)]),
        (pa.array([NOON], pa.timestamp("s", tz="America/New_York")), ISO, [NOON]),
        (pa.array([NOON, None], pa.timestamp("ms", tz="+01:00")), ISO, [NOON, None]),
        (
            pa.array([-1, 1_999], pa.timestamp("ns", tz="UTC")),
            ISO,
            [datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)
def test_values_of_typed_columns_are_accepted(array, definition, values):
    assert read(array, definition) == (values, {})


@pytest.mark.parametrize(
    ("array", "definition", "values", "reasons"),
    [
        (
            pa.array([5.5, 6.0, math.nan, 1e300]),
            {"type": "int64"},
            [None, 6, None, None],
            {0: "5.5 is not a whole number", 2: "nan is not a whole number", 3: "1e+300 does not fit into 64 bits"},
        ),
        (
            pa.array([math.nan, 1.5, -math.inf]),
            {"type": "double"},
            [None, 1.5, None],
            {0: "nan is not a finite number", 2: "-inf is not a finite number"},
        ),
        (
            pa.array([2**64 - 1, 1], pa.uint64()),
            {"type": "int64"},
            [None, 1],
            {0: "18446744073709551615 does not fit into 64 bits"},
        ),
        (pa.array([1.5, None]), {"type": "string"}, [None, None], {0: "a string is expected, not 1.5"}),
        (pa.array([True]), {"type": "int64"}, [None], {0: "true is not a whole number"}),
        (pa.array([2]), {"type": "boolean"}, [None], {0: "2 is neither true nor false"}),
        (pa.array([2]), DAY, [None], {0: "2 is not a date (YYYY-MM-DD)"}),
        (
            pa.array([1362744000123, 0]),
            {"type": "timestamp", "formats": ["epoch_s"]},
            [None, datetime(1970, 1, 1, tzinfo=UTC)],
            {0: "1362744000123 is not a valid timestamp (years 1 to 9999, UTC)"},
        ),
        (
            pa.array(["1362744000123", "0"]),
            {"type": "timestamp", "formats": ["epoch_s"]},
            [None, datetime(1970, 1, 1, tzinfo=UTC)],
            {0: "'1362744000123' is not a valid timestamp (years 1 to 9999, UTC)"},
        ),
        (
            pa.array(["x", "5", "x"]).dictionary_encode(),
            {"type": "int64"},
            [None, 5, None],
            {0: "'x' is not a whole number", 2: "'x' is not a whole number"},
        ),
        (strings(b"\xff", b"EWR", None), {"type": "string"}, [None, "EWR", None], {0: NOT_UTF8}),
        (pa.array([b"\xff", b"5"]), {"type": "int64"}, [None, 5], {0: NOT_UTF8}),
        (
            pa.array([datetime(2013, 3, 8, 12)]),
            ISO,
            [None],
            {0: "2013-03-08T12:00:00 has no offset, and the source has no `timestamp.timezone` for it"},
        ),
        (
            pa.array([datetime(2013, 3, 8, 12), datetime(2013, 3, 8)]),
            DAY,
            [None, date(2013, 3, 8)],
            {0: "2013-03-08T12:00:00 is not a date (YYYY-MM-DD)"},
        ),
        (pa.array([2**62, 0], pa.timestamp("s")), DAY, [None, date(1970, 1, 1)], {0: "is outside the years 1 to 9999"}),
        (pa.array([2**62], pa.timestamp("us", "UTC")), ISO, [None], {0: "is outside the years 1 to 9999"}),
        (pa.array([2**30, 0], pa.date32()), DAY, [None, date(1970, 1, 1)], {0: "is outside the years 1 to 9999"}),
        (pa.array([NOON]), DAY, [None], {0: "a date is expected, not timestamp[us, tz=UTC]"}),
        (pa.array([date(2013, 3, 8)]), ISO, [None], {0: "a timestamp is expected, not date32[day]"}),
        (pa.array([time(5)]), {"type": "string"}, [None], {0: "a string is expected, not time64[us]"}),
        (pa.array([[1], None]), {"type": "int64"}, [None, None], {0: "a int64 is expected, not list<item: int64>"}),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)
def test_invalid_values_of_typed_columns_are_rejected(array, definition, values, reasons):
    rejections = {
        index: reason if isinstance(reason, Rejection) else Rejection(RejectionRule.WRONG_TYPE, reason)
        for index, reason in reasons.items()
    }
    assert read(array, definition) == (values, rejections)


DIGIT = st.sampled_from("0123456789")
ALIKE = st.sampled_from(
    [
        "2013-03-0dT1d:00:00Z", "2013-03-0d 1d:dd:dd.ddddddZ", "dd13-0d-d8T12:00:dd.d+0d:dd",
        "2013-03-08T12:00:00-dddd", "dddd-03-08T12:00:00+dd:dd", "2013-03-08T12:00:00,dZ", "2013-03-08T12:00Z",
        "2013-03-08T12:00:00", "2013-03-08T12:00:00.dddddddZ", "d",
    ]
)  # fmt: skip


@settings(max_examples=300)
@given(
    data=st.data(),
    pattern=ALIKE,
    null_values=st.sampled_from([("",), ("", "NA", "2013-03-08T12:00:00-0100", "2013-03-00T10:00:00Z")]),
)
def test_timestamps_that_are_written_alike_are_read_as_single_ones(data, pattern, null_values):
    digits = st.lists(DIGIT, min_size=pattern.count("d"), max_size=pattern.count("d"))
    values = [
        None if filling is None else pattern.replace("d", "{}").format(*filling)
        for filling in data.draw(st.lists(st.none() | digits, max_size=4))
    ]
    values += data.draw(st.sampled_from([[], [""], ["x"], ["2013-03-08T12:00:00Z"], values[:1]]))
    field = FieldDefinition(type="timestamp")
    reader = ColumnReader(trim=False, null_values=null_values, timezone=None)
    column = reader.read_array(pa.array(values, pa.string()), field)
    expected, reasons = [], {}
    for index, value in enumerate(values):
        expected.append(None)
        try:
            if value is not None and value not in null_values:
                expected[-1] = read_value(value, field, None)
        except InvalidValue as error:
            reasons[index] = str(error)
    assert column.array.cast(pa.int64()).to_pylist() == expected
    assert {index: rejection.reason for index, rejection in by_index(column.rejections).items()} == reasons
    sliced = pa.array(["2013-03-08T12:00:00Z", *values], pa.string()).slice(1)
    assert reader.read_array(sliced, field).array.equals(column.array)


LOCAL_TIMES = st.builds(
    "{}{}{}".format,
    st.dates(max_value=date(9999, 12, 31)),
    st.sampled_from(["T", " ", "t", ""]),
    st.sampled_from(["12:00:00", "12:00:00.123456", "23:59:59.1", "12:00", "24:00:00", "12:00:60", "12:00:00,5"]),
) | st.sampled_from(["0000-01-01T12:00:00", "2013-02-30T12:00:00", "2013-03-08T12:00:00Z", "x'y", "", "2013-03-08"])


@pytest.mark.parametrize("formats", [(), ("iso8601",), ("iso8601", "%d.%m.%Y"), ("%Y-%m-%dT%H:%M:%S",), ("epoch_s",)])
@given(values=st.lists(LOCAL_TIMES | st.none(), max_size=4), is_alike=st.booleans())
def test_timestamps_without_offset_are_rejected_with_the_reason_of_each_value(formats, values, is_alike):
    if is_alike:
        values = [value and f"2013-03-{day + 1:02d}T12:00:00" for day, value in enumerate(values)]
    field = FieldDefinition(type="timestamp", formats=formats)
    expected: dict[int, str] = {}
    for index, value in enumerate(values):
        try:
            read_value(value, field, None) if value else None
        except InvalidValue as error:
            expected[index] = str(error)
    _, rejections = read(pa.array(values, pa.string()), {"type": "timestamp", "formats": formats})
    assert {index: rejection.reason for index, rejection in rejections.items()} == expected


def test_timestamps_without_offset_are_in_the_timezone_of_the_source():
    local_times = [datetime(2013, 3, 10, 1, 30), datetime(2013, 3, 10, 2, 30), datetime(2013, 11, 3, 1, 30), None]
    values, rejections = read(pa.array(local_times, pa.timestamp("ms")), ISO, timezone=NEW_YORK)
    hours = [datetime(2013, 3, 10, 6, 30, tzinfo=UTC), None, datetime(2013, 11, 3, 5, 30, tzinfo=UTC), None]
    assert values == hours
    (rejection,) = rejections.values()
    assert list(rejections) == [1]
    assert rejection.reason == (
        "2013-03-10T02:30:00 does not exist in America/New_York: clocks were set forward past it"
    )


_DEFINITIONS = [
    {"type": "string"},
    {"type": "int64"},
    {"type": "double"},
    {"type": "boolean", "true_values": ["1"]},
    {"type": "timestamp"},
    {"type": "timestamp", "formats": ["epoch_s"]},
    {"type": "timestamp", "formats": ["epoch_ms", "iso8601"]},
    {"type": "timestamp", "formats": ["epoch_ms", "%Y%m%d", "epoch_s"]},
    {"type": "date", "formats": ["%Y%m%d"]},
]
_floats = st.one_of(st.floats(), st.floats(-(10**12), 10**12), st.integers(-(10**9), 10**9).map(float))
_near_both_epochs = st.builds(
    lambda number, sign: sign * number, st.integers(10**11 - 3, 10**11 + 3), st.sampled_from([1, -1])
)
_integers = st.one_of(
    _near_both_epochs, st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**41), st.integers(10**7, 10**8)
)


@pytest.mark.parametrize("definition", _DEFINITIONS, ids=str)
@given(array=st.one_of(st.lists(_integers).map(lambda v: pa.array(v, pa.int64())), st.lists(_floats).map(pa.array)))
def test_numbers_are_read_the_same_from_columns_and_from_values(definition, array):
    field = FieldDefinition(**definition)
    column = READER.read_array(array, field)
    plain = column.array.cast(pa.int64()) if column.array.type == ARROW_TYPES["timestamp"] else column.array
    rejections = by_index(column.rejections)
    for index, (value, result) in enumerate(zip(array.to_pylist(), plain.to_pylist(), strict=True)):
        try:
            expected = read_value(value, field, None), None
        except InvalidValue as error:
            expected = None, Rejection(RejectionRule.WRONG_TYPE, str(error))
        assert (result, rejections.get(index)) == expected


@pytest.mark.parametrize(
    ("definition", "values"),
    [
        ({"type": "int64"}, ["0", "-517", "007", "999999999999999999"]),
        ({"type": "int64", "thousands": ","}, ["0", "-1,234,567", "1234"]),
        ({"type": "double"}, ["0", "-1.5", "1400.0", "100000000000000000000"]),
        ({"type": "double", "decimal": ",", "thousands": "."}, ["-1.234,5", "0,25", "1234"]),
        ({"type": "date"}, ["2013-03-08", "0001-01-01", "9999-12-31"]),
        ({"type": "date", "formats": ["%d/%m/%Y %H:%M"]}, ["08/03/2013 12:30"]),
        ({"type": "timestamp"}, ["2013-03-08T12:00:00Z", "2013-03-08 12:00:00.123456+05:30", "2013-03-08T12:00:00"]),
        ({"type": "timestamp", "formats": ["%d/%m/%Y %H:%M"]}, ["08/03/2013 12:30"]),
        ({"type": "timestamp", "formats": ["%Y%m%d%H%M%S.%f%z"]}, ["20130308123000.25+0530"]),
        ({"type": "timestamp", "formats": ["epoch_s"]}, ["1362744000", "-1.5", "1362744000.123456"]),
        ({"type": "timestamp", "formats": ["epoch_ms"]}, ["1362744000123", "1362744000123.25"]),
        (
            {"type": "timestamp", "formats": ["epoch_ms", "epoch_s"]},
            ["1362744000123", "1362744000.123456", "-62135596800", "100000000000"],
        ),
    ],
    ids=str,
)
def test_usual_formats_are_read_by_the_fast_path(definition, values):
    array = pa.array([*values, None])
    assert read_string_column(array, FieldDefinition(**definition), NEW_YORK).is_valid().to_pylist() == [True] * len(
        values
    ) + [False]


_ZONES = ["America/New_York", "Australia/Lord_Howe", "Africa/Monrovia", "Asia/Kathmandu", "Pacific/Apia", "UTC"]
_near_changes = st.builds(
    lambda change, off: change + timedelta(microseconds=off),
    st.sampled_from(
        [
            datetime(2013, 3, 10, 7),
            datetime(2013, 11, 3, 6),
            datetime(2013, 10, 5, 15, 30),
            datetime(2013, 4, 6, 15),
            datetime(1883, 11, 18, 17),
            datetime(1972, 1, 7, 0, 44, 30),
            datetime(2011, 12, 30, 10),
        ]
    ),
    st.integers(-7_200_000_000, 7_200_000_000),
)
_local_times = st.lists(st.one_of(_near_changes, st.datetimes(), st.none()), max_size=6)


@pytest.mark.parametrize("name", _ZONES)
@given(local_times=_local_times)
@example(local_times=[datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)])
def test_local_times_and_timestamps_of_a_column_equal_those_of_python(name, local_times):
    timezone = ZoneInfo(name)
    array = pa.array(local_times, pa.timestamp("us"))
    results = to_local_time(array.cast(pa.int64()).cast(ARROW_TYPES["timestamp"]), timezone).to_pylist()
    for local, result in zip(local_times, results, strict=True):
        assert result == _local_time_at(local, timezone)
    counts = to_utc(array, timezone).cast(pa.int64()).to_pylist()
    for local, count in zip(local_times, counts, strict=True):
        if local is not None and count is not None:
            offset = local.replace(tzinfo=timezone).utcoffset()
            assert offset == local.replace(tzinfo=timezone, fold=1).utcoffset()
            assert count == (local - datetime(1970, 1, 1) - offset) // timedelta(microseconds=1)


def test_only_hours_with_a_change_of_offset_are_null():
    local_times = [datetime(2013, 3, 10, hour, 30) for hour in range(24)]
    remaining = to_utc(pa.array(local_times), NEW_YORK).is_null().to_pylist()
    assert [hour for hour, is_remaining in enumerate(remaining) if is_remaining] == [2]
    local_times = [datetime(2013, 11, 3, hour, 30) for hour in range(24)]
    remaining = to_utc(pa.array(local_times), NEW_YORK).is_null().to_pylist()
    assert [hour for hour, is_remaining in enumerate(remaining) if is_remaining] == [1]


def _local_time_at(utc: datetime | None, timezone: ZoneInfo) -> datetime | None:
    try:
        return utc and utc.replace(tzinfo=UTC).astimezone(timezone).replace(tzinfo=None)
    except OverflowError:
        return None
