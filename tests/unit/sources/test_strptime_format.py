from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.sources.strptime_format import StrptimeFormat

pytestmark = pytest.mark.unit

PATTERNS = [
    "%d/%m/%Y", "%m/%d/%y %H:%M", "%Y%m%d%H%M%S", "%Y-%m-%d %H:%M:%S.%f %z", "%d %b %Y %I:%M %p", "%A, %B %d, %Y %I%p",
    "%a %d-%b-%Y %H.%M", "%Y-%j", "%y%jT%H%M", "100%% %d.%m.%Y (%H h)",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@given(timestamp=st.datetimes(datetime(1000, 1, 1)), minutes=st.integers(-1439, 1439))
def test_results_are_those_of_strptime(pattern, timestamp, minutes):
    value = timestamp.replace(tzinfo=timezone(timedelta(minutes=minutes))).strftime(pattern)
    expected = datetime.strptime(value, pattern)  # noqa: DTZ007  # most patterns have no offset
    result = StrptimeFormat(pattern).parse(value)
    assert result.local == expected.replace(tzinfo=None)
    assert result.offset == expected.utcoffset()
    assert StrptimeFormat(pattern).parse(value.upper()) == StrptimeFormat(pattern).parse(value.lower()) == result


@pytest.mark.parametrize(
    ("pattern", "value", "local"),
    [
        ("%d/%m/%Y", "8/3/2013", datetime(2013, 3, 8)),
        ("%d %b  %Y", "8 mar 2013", datetime(2013, 3, 8)),
        ("%d %b %Y", "8   mar\t2013", datetime(2013, 3, 8)),
        ("%d.%m.%y", "08.03.68", datetime(2068, 3, 8)),
        ("%d.%m.%y", "08.03.69", datetime(1969, 3, 8)),
        ("%Y-%j", "2012-366", datetime(2012, 12, 31)),
        ("%d/%m/%Y %I %p", "08/03/2013 12 AM", datetime(2013, 3, 8)),
        ("%d/%m/%Y %I %p", "08/03/2013 12 pm", datetime(2013, 3, 8, 12)),
        ("%d/%m/%Y %S.%f", "08/03/2013 05.123456789", datetime(2013, 3, 8, 0, 0, 5, 123456)),
        ("%A %d/%m/%Y", "Monday 08/03/2013", datetime(2013, 3, 8)),
    ],
)
def test_parsed_strings(pattern, value, local):
    assert StrptimeFormat(pattern).parse(value).local == local


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("%d/%m/%Y", "08/03/13"),
        ("%d/%m/%Y", "08/03/2013 "),
        ("%d/%m/%Y", "\u0660\u0668/03/2013"),
        ("%d%m%Y", "832013"),
        ("%d%m%Y", "1122013"),
        ("%d %b %Y", "8 M\u00e4r 2013"),
        ("%d %b %Y", "8 March 2013"),
        ("%d.%m.%Y", "08x03x2013"),
        ("%H:%M %d/%m/%Y", "12 08/03/2013"),
    ],
)
def test_strings_that_do_not_match(pattern, value):
    assert StrptimeFormat(pattern).parse(value) is None


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("%d/%m/%Y", "29/02/2013"),
        ("%d/%m/%Y", "03/13/2013"),
        ("%d/%m/%Y", "08/03/0000"),
        ("%Y-%j", "2013-366"),
        ("%Y-%j", "2013-000"),
        ("%d/%m/%Y %H", "08/03/2013 24"),
        ("%d/%m/%Y %I %p", "08/03/2013 0 am"),
        ("%d/%m/%Y %I %p", "08/03/2013 13 am"),
        ("%d/%m/%Y %H:%M:%S", "08/03/2013 23:59:60"),
        ("%d/%m/%Y %z", "08/03/2013 +05:75"),
    ],
)
def test_strings_without_a_valid_date_or_time(pattern, value):
    with pytest.raises(ValueError, match=r".+"):
        StrptimeFormat(pattern).parse(value)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("%H:%M", "does not determine a date"),
        ("%d/%m", "does not determine a date"),
        ("%m/%Y", "does not determine a date"),
        ("%Y", "does not determine a date"),
        ("%Y-%m-%d %j", "does not determine a date"),
        ("%d/%m/%Y %d", "contains %d more than once"),
        ("%d/%m/%Y %y", "contains %Y or %y more than once"),
        ("%d/%m/%Y %b", "contains %m or %b or %B more than once"),
        ("%d/%m/%Y %I:%M", "%I and %p need each other"),
        ("%d/%m/%Y %H:%M %p", "%I and %p need each other"),
    ],
)
def test_invalid_patterns(pattern, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        StrptimeFormat(pattern)


@pytest.mark.parametrize(
    ("pattern", "value", "day", "timestamp"),
    [
        ("%d/%m/%Y", "08/03/2013", "2013-03-08", "2013-03-08T00:00:00"),
        ("%Y%m%dT%H%M%S%z", "20130308T123000Z", "2013-03-08", "2013-03-08T12:30:00Z"),
        ("%S.%f %M:%H %d.%m.%Y", "05.25 30:12 08.03.2013", "2013-03-08", "2013-03-08T12:30:05.25"),
        ("%d.%m.%Y \u00e0 %H (h)", "08.03.2013 \u00e0 12 (h)", "2013-03-08", "2013-03-08T12:00:00"),
    ],
)
def test_patterns_that_are_rewritten_to_iso(pattern, value, day, timestamp):
    iso_pattern, to_day, to_timestamp = StrptimeFormat(pattern).iso_rewrite
    assert re.fullmatch(iso_pattern, value)
    assert re.sub(iso_pattern, to_day, value) == day
    assert re.sub(iso_pattern, to_timestamp, value) == timestamp


@pytest.mark.parametrize("pattern", ["%d/%m/%y", "%d %b %Y", "%Y-%j", "%d/%m/%Y %I %p"])
def test_patterns_that_cannot_be_rewritten_to_iso(pattern):
    assert StrptimeFormat(pattern).iso_rewrite is None
