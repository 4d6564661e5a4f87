from __future__ import annotations

import math
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.receiver.columns import Reader
from slackwater.receiver.schema import ARROW_TYPES
from slackwater.receiver.source import FieldType
from slackwater.receiver.values import Unreadable, read_value

pytestmark = pytest.mark.unit

NEW_YORK = ZoneInfo("America/New_York")


def us(*moment: int) -> int:
    return round((datetime(*moment, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000


@pytest.mark.parametrize(
    ("kind", "value", "read"),
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
        ("timestamp", "2013-03-08T12:00:00Z", us(2013, 3, 8, 12)),
        ("timestamp", "2013-03-08 12:00+05:30", us(2013, 3, 8, 6, 30)),
        ("timestamp", "2013-03-08t12:00:00,25z", us(2013, 3, 8, 12) + 250_000),
        ("timestamp", "2013-03-08T12:00:00.123456789-0100", us(2013, 3, 8, 13) + 123_456),
        ("timestamp", "2013-03-08T12:00:00-05", us(2013, 3, 8, 17)),
        ("timestamp", "0001-01-01T00:00:00Z", us(1, 1, 1)),
        ("timestamp", "9999-12-31T23:59:59Z", us(9999, 12, 31, 23, 59, 59)),
    ],
)
def test_read(kind, value, read):
    found = read_value(value, FieldType(kind), None)
    assert found == read
    assert type(found) is type(read)


@pytest.mark.parametrize(
    ("kind", "value", "says"),
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
        ("timestamp", "yesterday", "no timestamp"),
        ("timestamp", "2013-03-08T12:00:00", "has no offset"),
        ("timestamp", "2016-12-31T23:59:60Z", "leap second"),
        ("timestamp", "2013-02-29T00:00:00Z", "no moment"),
        ("timestamp", "2013-03-08T25:00:00Z", "no moment"),
        ("timestamp", "0000-01-01T00:00:00Z", "no moment"),
        ("timestamp", "0001-01-01T00:00:00+05:00", "no moment"),
        ("timestamp", "9999-12-31T23:59:59-05:00", "no moment"),
    ],
)
def test_unreadable(kind, value, says):
    with pytest.raises(Unreadable, match=says):
        read_value(value, FieldType(kind), None)


def test_reasons_do_not_repeat_a_novel():
    with pytest.raises(Unreadable) as error:
        read_value("x" * 10_000, FieldType.INT64, None)
    assert len(str(error.value)) < 120


@pytest.mark.parametrize(
    ("local", "moment"),
    [
        ("2013-03-10T01:59:59", us(2013, 3, 10, 6, 59, 59)),
        ("2013-03-10T03:00:00", us(2013, 3, 10, 7)),
        ("2013-11-03T00:30:00", us(2013, 11, 3, 4, 30)),
        ("2013-11-03T01:30:00", us(2013, 11, 3, 5, 30)),
        ("2013-11-03T02:00:00", us(2013, 11, 3, 7)),
        ("2013-11-03T01:30:00-05:00", us(2013, 11, 3, 6, 30)),
    ],
)
def test_local_times_of_a_zone(local, moment):
    assert read_value(local, FieldType.TIMESTAMP, NEW_YORK) == moment


def test_a_local_time_that_never_was():
    with pytest.raises(Unreadable, match=r"2013-03-10T02:30:00 never was in America/New_York"):
        read_value("2013-03-10T02:30:00", FieldType.TIMESTAMP, NEW_YORK)


_texts = st.one_of(
    st.sampled_from(
        ["", "NA", "true", "TRUE", "1362700800", "2013-02-30", "2013-03-10T02:30:00", "0001-01-01T00:00:00+01:00"]
    ),
    st.text(max_size=8),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(str),
    st.from_regex(r"[+-]?[0-9]{1,25}(\.[0-9]{0,3})?", fullmatch=True),
    st.from_regex(
        r"[0-9]{4}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?"
        r"(Z|[+-][0-2][0-9]:?[0-9]{2})?",
        fullmatch=True,
    ),
    st.dates().map(str),
)
_anything = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), _texts, st.just({}), st.just(["x"])
)


@pytest.mark.parametrize("kind", list(FieldType))
@pytest.mark.parametrize("zone", [None, NEW_YORK])
@settings(deadline=None)
@given(values=st.one_of(st.lists(_texts, max_size=12), st.lists(_anything, max_size=12), st.lists(st.integers())))
def test_a_column_is_read_as_its_values_are(kind, zone, values):
    column = Reader(null_values=("", "NA"), zone=zone).values(values, kind)
    assert column.array.type == ARROW_TYPES[kind]
    plain = column.array.cast(pa.int64()) if kind is FieldType.TIMESTAMP else column.array
    for index, (value, found) in enumerate(zip(values, plain.to_pylist(), strict=True)):
        if value is None or value in ("", "NA"):
            assert found is None
            assert index not in column.faults
            continue
        expected, fault = _one(value, kind, zone)
        assert (found, column.faults.get(index)) == (expected, fault)


def _one(value, kind, zone):
    try:
        return read_value(value, kind, zone), None
    except Unreadable as error:
        return None, str(error)
