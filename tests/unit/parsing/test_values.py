from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.receiver.parsing.columns import ColumnReader
from slackwater.receiver.parsing.rejections import InvalidValue, Rejection, RejectionRule
from slackwater.receiver.parsing.values import read_value
from slackwater.sources.event_schema import ARROW_TYPES
from slackwater.sources.fields import FieldDefinition, FieldType
from tests.rejections import by_index

pytestmark = pytest.mark.unit

NEW_YORK = ZoneInfo("America/New_York")


def microseconds(*timestamp: int) -> int:
    return round((datetime(*timestamp, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("string", "x", "x"),
        ("string", "nul \x00", "nul \x00"),
        ("string", 1545, "1545"),
        ("int64", 5, 5),
        ("int64", 5.0, 5),
        ("int64", "517", 517),
        ("int64", " +5 ", 5),
        ("int64", "-5.00", -5),
        ("int64", 2**63 - 1, 2**63 - 1),
        ("int64", str(-(2**63)), -(2**63)),
        ("double", 3, 3.0),
        ("double", "1.5e3", 1500.0),
        ("double", "-.5", -0.5),
        ("double", 2**70, float(2**70)),
        ("boolean", True, True),
        ("boolean", "False", False),
        ("date", "2013-03-08", date(2013, 3, 8)),
        ("timestamp", "2013-03-08T12:00:00Z", microseconds(2013, 3, 8, 12)),
        ("timestamp", "2013-03-08 12:00+05:30", microseconds(2013, 3, 8, 6, 30)),
        ("timestamp", "2013-03-08t12:00:00,25z", microseconds(2013, 3, 8, 12) + 250_000),
        ("timestamp", "2013-03-08T12:00:00.123456789-0100", microseconds(2013, 3, 8, 13) + 123_456),
        ("timestamp", "2013-03-08T12:00:00-05", microseconds(2013, 3, 8, 17)),
        ("timestamp", "0001-01-01T00:00:00Z", microseconds(1, 1, 1)),
        ("timestamp", "9999-12-31T23:59:59Z", microseconds(9999, 12, 31, 23, 59, 59)),
    ],
)
def test_each_type_accepts_its_values(type_, value, expected):
    result = read_value(value, FieldDefinition(type=type_), None)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        ("string", {"a": 1}, "nested object"),
        ("string", [1], "nested array"),
        ("string", 1.5, "a string is expected, not 1.5"),
        ("string", True, "not true"),
        ("string", "\ud800", "surrogate"),
        ("int64", 5.5, "not a whole number"),
        ("int64", True, "true is not a whole number"),
        ("int64", "five", "'five' is not a whole number"),
        ("int64", "5_000", "not a whole number"),
        ("int64", "\u0665", "not a whole number"),
        ("int64", 2**63, "64 bits"),
        ("int64", "9223372036854775808", "64 bits"),
        ("int64", 1e300, "64 bits"),
        ("int64", math.nan, "not a whole number"),
        ("int64", "9" * 5000, "not a whole number"),
        ("double", math.nan, "nan is not a finite number"),
        ("double", -math.inf, "not a finite number"),
        ("double", "NaN", "not a number"),
        ("double", "1e400", "not a finite number"),
        ("double", 10**400, "not a finite number"),
        ("double", "1,5", "not a number"),
        ("double", False, "false is not a number"),
        ("boolean", 1, "neither true nor false"),
        ("boolean", "yes", "neither true nor false"),
        ("date", 20130308, "not a date"),
        ("date", "2013-02-29", "calendar"),
        ("date", "2013-03-08T00:00:00Z", "not a date"),
        ("timestamp", 1362700800, "a number"),
        ("timestamp", 1362700800.5, "a number"),
        ("timestamp", "1362700800", "a number"),
        ("timestamp", "2013-03-08", "a date without a time"),
        ("timestamp", "yesterday", "not a timestamp"),
        ("timestamp", "2013-03-08T12:00:00", "has no offset"),
        ("timestamp", "2016-12-31T23:59:60Z", "leap second"),
        ("timestamp", "2013-02-29T00:00:00Z", "not a valid timestamp"),
        ("timestamp", "2013-03-08T25:00:00Z", "not a valid timestamp"),
        ("timestamp", "0000-01-01T00:00:00Z", "not a valid timestamp"),
        ("timestamp", "0001-01-01T00:00:00+05:00", "not a valid timestamp"),
        ("timestamp", "9999-12-31T23:59:59-05:00", "not a valid timestamp"),
    ],
)
def test_each_type_rejects_other_values(type_, value, message):
    with pytest.raises(InvalidValue, match=message):
        read_value(value, FieldDefinition(type=type_), None)


def test_reasons_truncate_long_values():
    with pytest.raises(InvalidValue) as error:
        read_value("x" * 10_000, FieldDefinition(type="int64"), None)
    assert len(str(error.value)) < 120


@pytest.mark.parametrize(
    ("local", "timestamp"),
    [
        ("2013-03-10T01:59:59", microseconds(2013, 3, 10, 6, 59, 59)),
        ("2013-03-10T03:00:00", microseconds(2013, 3, 10, 7)),
        ("2013-11-03T00:30:00", microseconds(2013, 11, 3, 4, 30)),
        ("2013-11-03T01:30:00", microseconds(2013, 11, 3, 5, 30)),
        ("2013-11-03T02:00:00", microseconds(2013, 11, 3, 7)),
        ("2013-11-03T01:30:00-05:00", microseconds(2013, 11, 3, 6, 30)),
    ],
)
def test_local_times_are_converted_from_their_timezone(local, timestamp):
    assert read_value(local, FieldDefinition(type="timestamp"), NEW_YORK) == timestamp


def test_a_local_time_that_does_not_exist_is_rejected():
    with pytest.raises(InvalidValue, match=r"2013-03-10T02:30:00 does not exist in America/New_York"):
        read_value("2013-03-10T02:30:00", FieldDefinition(type="timestamp"), NEW_YORK)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ({"type": "int64", "thousands": ","}, "1,234,567", 1234567),
        ({"type": "int64", "decimal": ",", "thousands": "."}, "-1.234", -1234),
        ({"type": "int64", "thousands": " "}, "1 234", 1234),
        ({"type": "int64", "thousands": " "}, "1\u00a0234\u202f567", 1234567),
        ({"type": "int64", "thousands": "'"}, "1234", 1234),
        ({"type": "int64", "decimal": ",", "thousands": "."}, "1.234,00", 1234),
        ({"type": "int64", "decimal": ","}, 5.0, 5),
        ({"type": "double", "decimal": ","}, "1,5", 1.5),
        ({"type": "double", "decimal": ","}, " +,5 ", 0.5),
        ({"type": "double", "decimal": ","}, 1.5, 1.5),
        ({"type": "double", "decimal": ",", "thousands": "."}, "1.234,5", 1234.5),
        ({"type": "double", "decimal": ",", "thousands": "."}, "1234,5e-1", 123.45),
        ({"type": "double", "thousands": ","}, "1,234.5", 1234.5),
        ({"type": "boolean", "true_values": ["Yes", "1"], "false_values": ["no"]}, "YES", True),
        ({"type": "boolean", "true_values": ["Yes", "1"], "false_values": ["no"]}, "nO", False),
        ({"type": "boolean", "true_values": ["Yes", "1"], "false_values": ["no"]}, "TRUE", True),
        ({"type": "boolean", "true_values": ["Yes", "1"], "false_values": ["no"]}, 1, True),
        ({"type": "boolean", "true_values": ["stra\u00dfe"]}, "STRASSE", True),
        ({"type": "date", "formats": ["%d/%m/%Y"]}, "08/03/2013", date(2013, 3, 8)),
        ({"type": "date", "formats": ["%d/%m/%Y", "iso8601"]}, "2013-03-08", date(2013, 3, 8)),
        ({"type": "date", "formats": ["%d/%m/%Y", "%m/%d/%Y"]}, "03/25/2013", date(2013, 3, 25)),
        ({"type": "date", "formats": ["%Y%m%d"]}, 20130308, date(2013, 3, 8)),
        ({"type": "date", "formats": ["%Y%m%d"]}, 20130308.0, date(2013, 3, 8)),
        ({"type": "date", "formats": ["%d/%m/%Y %H:%M %z"]}, "08/03/2013 23:30 -05:00", date(2013, 3, 8)),
        ({"type": "date"}, date(2013, 3, 8), date(2013, 3, 8)),
        ({"type": "date"}, datetime(2013, 3, 8), date(2013, 3, 8)),
        ({"type": "timestamp", "formats": ["epoch_s"]}, 1362700800, microseconds(2013, 3, 8)),
        ({"type": "timestamp", "formats": ["epoch_s"]}, "1362700800", microseconds(2013, 3, 8)),
        ({"type": "timestamp", "formats": ["epoch_s"]}, 1362700800.123456, microseconds(2013, 3, 8) + 123456),
        ({"type": "timestamp", "formats": ["epoch_s"]}, "1362700800.123456", microseconds(2013, 3, 8) + 123456),
        (
            {"type": "timestamp", "formats": ["epoch_s"]},
            "1362700800.1234569999999999999999999999",
            microseconds(2013, 3, 8) + 123456,
        ),
        ({"type": "timestamp", "formats": ["epoch_s"]}, "-0.5", -500_000),
        ({"type": "timestamp", "formats": ["epoch_s"]}, "-0.0000001", -1),
        ({"type": "timestamp", "formats": ["epoch_s"]}, "1.3627008e9", microseconds(2013, 3, 8)),
        ({"type": "timestamp", "formats": ["epoch_s"]}, -62135596800, microseconds(1, 1, 1)),
        (
            {"type": "timestamp", "formats": ["epoch_s"]},
            "253402300799.9999999",
            microseconds(9999, 12, 31, 23, 59, 59) + 999_999,
        ),
        ({"type": "timestamp", "formats": ["epoch_ms"]}, 1362700800123, microseconds(2013, 3, 8) + 123_000),
        ({"type": "timestamp", "formats": ["epoch_ms", "epoch_s"]}, 1362700800123, microseconds(2013, 3, 8) + 123_000),
        ({"type": "timestamp", "formats": ["epoch_ms", "epoch_s"]}, "1362700800", microseconds(2013, 3, 8)),
        ({"type": "timestamp", "formats": ["epoch_s", "epoch_ms"]}, 99_999_999_999, 99_999_999_999_000_000),
        ({"type": "timestamp", "formats": ["epoch_s", "epoch_ms"]}, 100_000_000_000, 100_000_000_000_000),
        ({"type": "timestamp", "formats": ["epoch_s", "epoch_ms"]}, -100_000_000_000, -100_000_000_000_000),
        ({"type": "timestamp", "formats": ["epoch_ms"]}, 1362700800123.4565, microseconds(2013, 3, 8) + 123_456),
        ({"type": "timestamp", "formats": ["epoch_ms"]}, "1362700800123.456", microseconds(2013, 3, 8) + 123_456),
        (
            {"type": "timestamp", "formats": ["iso8601", "epoch_ms"]},
            "1362700800123",
            microseconds(2013, 3, 8) + 123_000,
        ),
        ({"type": "timestamp", "formats": ["epoch_ms", "iso8601"]}, "2013-03-08T00:00:00Z", microseconds(2013, 3, 8)),
        (
            {"type": "timestamp", "formats": ["%d.%m.%Y %H:%M:%S %z"]},
            "8.3.2013 12:00:00 +0530",
            microseconds(2013, 3, 8, 6, 30),
        ),
        (
            {"type": "timestamp", "formats": ["%b %d %Y %I:%M %p %z"]},
            "MAR 08 2013 12:05 am Z",
            microseconds(2013, 3, 8, 0, 5),
        ),
        ({"type": "timestamp"}, datetime(2013, 3, 8, tzinfo=NEW_YORK), microseconds(2013, 3, 8, 5)),
    ],
    ids=str,
)
def test_the_options_of_a_field_accept_values(field, value, expected):
    result = read_value(value, FieldDefinition(**field), None)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ({"type": "int64", "thousands": ","}, "1,23", "'1,23' is not a whole number such as 1,234"),
        ({"type": "int64", "thousands": ","}, "12,34,567", "not a whole number"),
        ({"type": "int64", "decimal": ",", "thousands": "."}, 1.5, "1.5 is not a whole number"),
        ({"type": "double", "decimal": ","}, "1.5", "'1.5' is not a number such as 1234,5"),
        ({"type": "double", "decimal": ",", "thousands": "."}, "1.5", "'1.5' is not a number such as 1.234,5"),
        ({"type": "double", "decimal": ",", "thousands": "."}, "1,234.5", "not a number"),
        ({"type": "double", "thousands": ","}, ",", "not a number"),
        ({"type": "boolean", "true_values": ["Y"]}, "N", "'N' is neither true nor false"),
        ({"type": "boolean", "true_values": ["1"]}, 1.5, "1.5 is neither true nor false"),
        ({"type": "date", "formats": ["%d/%m/%Y"]}, "2013-03-08", r"'2013-03-08' is not a date (%d/%m/%Y)"),
        ({"type": "date", "formats": ["%d/%m/%Y", "iso8601"]}, "x", r"'x' is not a date (%d/%m/%Y or YYYY-MM-DD)"),
        ({"type": "date", "formats": ["%d/%m/%Y"]}, "29/02/2013", "'29/02/2013' is not a date of the calendar"),
        ({"type": "date", "formats": ["%d%m%Y"]}, 1122013, "1122013 is not a date (%d%m%Y)"),
        ({"type": "date", "formats": ["%Y%m%d"]}, True, "true is not a date"),
        ({"type": "date"}, datetime(2013, 3, 8, 12), "2013-03-08T12:00:00 is not a date"),
        ({"type": "timestamp"}, date(2013, 3, 8), "2013-03-08 is a date without a time"),
        ({"type": "timestamp"}, datetime(2013, 3, 8), "2013-03-08T00:00:00 has no offset"),
        (
            {"type": "timestamp", "formats": ["epoch_s"]},
            "yesterday",
            "is not a timestamp; expected: seconds since 1970",
        ),
        ({"type": "timestamp", "formats": ["epoch_s"]}, True, "true is not a string; expected: seconds since 1970"),
        ({"type": "timestamp", "formats": ["epoch_s"]}, 1362700800123, "1362700800123 is not a valid timestamp (years"),
        ({"type": "timestamp", "formats": ["epoch_s"]}, "1e999999999", "not a valid timestamp"),
        ({"type": "timestamp", "formats": ["epoch_s", "epoch_ms"]}, "1e999999999", "not a valid timestamp"),
        ({"type": "timestamp", "formats": ["epoch_s"]}, "1e9999999999999999999999", "not a valid timestamp"),
        ({"type": "timestamp", "formats": ["epoch_s"]}, math.inf, "inf is a number; expected: seconds"),
        ({"type": "timestamp", "formats": ["epoch_s"]}, 253402300800, "not a valid timestamp"),
        ({"type": "timestamp", "formats": ["epoch_ms"]}, -62135596800001, "not a valid timestamp"),
        (
            {"type": "timestamp", "formats": ["iso8601", "epoch_ms", "%d/%m/%Y"]},
            "soon",
            "expected: ISO 8601 such as 2013-03-08T12:00:00Z or milliseconds since 1970 or %d/%m/%Y",
        ),
        ({"type": "timestamp", "formats": ["%d/%m/%Y"]}, "08/03/2013", "'08/03/2013' has no offset"),
        ({"type": "timestamp", "formats": ["%d/%m/%Y %z"]}, "08/03/2013 +24:00", "not a valid timestamp"),
        ({"type": "timestamp", "formats": ["iso8601", "epoch_s"]}, "2013-03-08T12:00:00", "has no offset"),
    ],
    ids=str,
)
def test_the_options_of_a_field_reject_values(field, value, message):
    with pytest.raises(InvalidValue, match=re.escape(message)):
        read_value(value, FieldDefinition(**field), None)


FIELDS = [
    *({"type": str(type_)} for type_ in FieldType),
    {"type": "int64", "thousands": ","},
    {"type": "int64", "thousands": " "},
    {"type": "double", "decimal": ",", "thousands": "."},
    {"type": "double", "decimal": ","},
    {"type": "boolean", "true_values": ["Y", "1"], "false_values": ["n", "0"]},
    {"type": "date", "formats": ["%d/%m/%Y"]},
    {"type": "date", "formats": ["%Y%m%d", "iso8601"]},
    {"type": "timestamp", "formats": ["epoch_s"]},
    {"type": "timestamp", "formats": ["epoch_ms", "iso8601"]},
    {"type": "timestamp", "formats": ["iso8601", "epoch_s", "%d/%m/%Y %H:%M"]},
    {"type": "timestamp", "formats": ["epoch_s", "%Y%m%d", "epoch_ms"]},
    {"type": "timestamp", "formats": ["%d/%m/%Y %H:%M"]},
    {"type": "timestamp", "formats": ["%Y-%m-%dT%H:%M:%S.%f%z"]},
    {"type": "timestamp", "formats": ["%d %b %Y %I:%M %p"]},
]
_strings = st.one_of(
    st.sampled_from(["", "NA", " NA ", "true", "TRUE", "y", "0", "0x1F", "1362700800", "\u00a01\t"]),
    st.sampled_from(["2013-02-30", "2013-03-10T02:30:00", "10/03/2013 02:30", "2013-03-08T12Z", "01/01/0001 00:00"]),
    st.sampled_from(["0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59", "0000-01-01T00:00:00"]),
    st.text(max_size=8),
    st.integers(-(2**70), 2**70).map(str),
    st.integers(10**11 - 3, 10**11 + 3).map(str),
    st.integers(0, 10**9).map("{:,}".format),
    st.floats(-(10**7), 10**7).map(lambda number: f"{number:,.3f}".translate(str.maketrans(",.", ".,"))),
    st.floats().map(str),
    st.floats(-(10**12), 10**12).map(str),
    st.from_regex(r"[+-]?[0-9]{1,25}(\.[0-9]{0,8})?", fullmatch=True),
    st.from_regex(r"[0-9]{1,3}([,. ][0-9]{3}){0,3}([.,][0-9]{1,3})?", fullmatch=True),
    st.from_regex(
        r"[0-9]{4}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?"
        r"(Z|[+-][0-2][0-9]:?[0-9]{2})?",
        fullmatch=True,
    ),
    st.from_regex(r"[0-3]?[0-9]/[01]?[0-9]/[0-9]{4}( [0-2]?[0-9]:[0-6][0-9])?", fullmatch=True),
    st.datetimes().map("{:%d %b %Y %I:%M %p}".format),
    st.dates().map("{:%Y%m%d}".format),
    st.dates().map(str),
)
_anything = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), _strings, st.just({}), st.just(["x"])
)
_lists = st.one_of(
    st.lists(_strings, max_size=12),
    st.lists(_anything, max_size=12),
    st.lists(st.integers()),
    st.lists(st.one_of(st.floats(-(10**10), 10**10), st.integers(0, 10), st.booleans(), st.none())),
)


@pytest.mark.parametrize("definition", FIELDS, ids=str)
@given(values=_lists, timezone=st.sampled_from([None, NEW_YORK]), trim=st.booleans())
def test_columns_and_values_give_the_same_result(definition, values, timezone, trim):
    field = FieldDefinition(**definition)
    reader = ColumnReader(trim=trim, null_values=("", "NA"), timezone=timezone)
    assert_column_equals_values(reader.read_values(values, field), values, field, reader)


def assert_column_equals_values(column, values, field, reader):
    assert column.array.type == ARROW_TYPES[field.type]
    plain = column.array.cast(pa.int64()) if field.type is FieldType.TIMESTAMP else column.array
    rejections = by_index(column.rejections)
    for index, (value, result) in enumerate(zip(values, plain.to_pylist(), strict=True)):
        rejection = rejections.get(index)
        assert (result, rejection) == _read_one(value, field, reader)


def _read_one(value, field, reader):
    if reader.trim and isinstance(value, str):
        value = value.strip(" \t\n\r\f\v\u00a0")
    if value is None or value in ("", "NA"):
        return None, None
    try:
        return read_value(value, field, reader.timezone), None
    except InvalidValue as error:
        return None, Rejection(RejectionRule.WRONG_TYPE, str(error))
