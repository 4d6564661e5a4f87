from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.sources.strptime_format import StrptimeFormat

pytestmark = pytest.mark.unit

PATTERNS = [
    "%d/%m/%Y",
    "%m/%d/%y %H:%M",
    "%Y%m%d%H%M%S",
    "%Y-%m-%d %H:%M:%S.%f %z",
    "%d %b %Y %I:%M %p",
    "%A, %B %d, %Y %I%p",
    "%a %d-%b-%Y %H.%M",
    "%Y-%j",
    "%y%jT%H%M",
    "100%% %d.%m.%Y (%H h)",
]


@pytest.mark.parametrize("text", PATTERNS)
@settings(deadline=None, max_examples=50)
@given(moment=st.datetimes(datetime(1000, 1, 1)), minutes=st.integers(-1439, 1439))
def test_reads_what_strptime_reads(text, moment, minutes):
    written = moment.replace(tzinfo=timezone(timedelta(minutes=minutes))).strftime(text)
    expected = datetime.strptime(written, text)  # noqa: DTZ007  # most patterns have no offset
    found = StrptimeFormat(text).read(written)
    assert found.local == expected.replace(tzinfo=None)
    assert found.offset == expected.utcoffset()
    assert StrptimeFormat(text).read(written.upper()) == StrptimeFormat(text).read(written.lower()) == found


@pytest.mark.parametrize(
    ("text", "written", "local"),
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
def test_reads(text, written, local):
    assert StrptimeFormat(text).read(written).local == local


@pytest.mark.parametrize(
    ("text", "written"),
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
def test_is_of_another_form(text, written):
    assert StrptimeFormat(text).read(written) is None


@pytest.mark.parametrize(
    ("text", "written"),
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
def test_no_day_or_no_time(text, written):
    with pytest.raises(ValueError, match=r".+"):
        StrptimeFormat(text).read(written)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("%H:%M", "does not tell one day"),
        ("%d/%m", "does not tell one day"),
        ("%m/%Y", "does not tell one day"),
        ("%Y", "does not tell one day"),
        ("%Y-%m-%d %j", "does not tell one day"),
        ("%d/%m/%Y %d", "%d stands there twice"),
        ("%d/%m/%Y %y", "%Y or %y stands there twice"),
        ("%d/%m/%Y %b", "%m or %b or %B stands there twice"),
        ("%d/%m/%Y %I:%M", "%I and %p need each other"),
        ("%d/%m/%Y %H:%M %p", "%I and %p need each other"),
    ],
)
def test_patterns_that_cannot_be(text, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        StrptimeFormat(text)


@pytest.mark.parametrize(
    ("text", "written", "day", "moment"),
    [
        ("%d/%m/%Y", "08/03/2013", "2013-03-08", "2013-03-08T00:00:00"),
        ("%Y%m%dT%H%M%S%z", "20130308T123000Z", "2013-03-08", "2013-03-08T12:30:00Z"),
        ("%S.%f %M:%H %d.%m.%Y", "05.25 30:12 08.03.2013", "2013-03-08", "2013-03-08T12:30:05.25"),
        ("%d.%m.%Y \u00e0 %H (h)", "08.03.2013 \u00e0 12 (h)", "2013-03-08", "2013-03-08T12:00:00"),
    ],
)
def test_rewriting_moves_digits_about(text, written, day, moment):
    form, to_day, to_moment = StrptimeFormat(text).rewriting
    assert re.fullmatch(form, written)
    assert re.sub(form, to_day, written) == day
    assert re.sub(form, to_moment, written) == moment


@pytest.mark.parametrize("text", ["%d/%m/%y", "%d %b %Y", "%Y-%j", "%d/%m/%Y %I %p"])
def test_what_takes_more_than_moving_digits_about(text):
    assert StrptimeFormat(text).rewriting is None
