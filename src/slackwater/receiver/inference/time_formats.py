"""The formats of dates and timestamps that strings may have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from slackwater.receiver.parsing import patterns
from slackwater.sources.fields import FieldDefinition, FieldType
from slackwater.sources.strptime_format import strptime_format

# Distinct strings whose formats are tried on all of them, and the length of the longest one that may be a date.
_TRIED_STRINGS, _LONGEST_DATE = 20, 60
# Day first and month first for each separator, because only the values can decide.
_ORDERS = product("/-.", ("dm", "md"), "Yy")
_DATES = (
    *("%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", *(f"%{o[0]}{separator}%{o[1]}{separator}%{y}" for separator, o, y in _ORDERS)),
    *("%y/%m/%d", "%y-%m-%d", "%y.%m.%d", "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d/%b/%Y", "%b %d, %Y", "%b %d %Y"),
    *("%d %B %Y", "%B %d, %Y", "%B %d %Y", "%a, %d %b %Y", "%A, %d %B %Y", "%A, %B %d, %Y"),
)
_CLOCKS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%H:%M:%S,%f", "%I:%M:%S %p", "%I:%M %p", "%H%M%S")
# Strings that are no offsets for the receiver: they need `timestamp.timezone`.
LITERAL_UTC = (" UTC", " GMT")
_TIMES = [clock + zone for clock in _CLOCKS for zone in ("", "%z", " %z", *LITERAL_UTC)]
_PARTS = re.compile(r"(?P<date>.+?)(?P<separator>[T:]|, ?| )(?P<time>[0-9]{1,2}:[0-9]{2}.*|(?<=T)[0-9]{6}.*)")


def time_fields(texts: Sequence[str]) -> list[FieldDefinition]:
    """Return the dates and timestamps that some of the strings may be; each still has to be tried on all of them."""
    fields = dict.fromkeys(
        field for text in texts[:: max(1, len(texts) // _TRIED_STRINGS)] for field in _formats_of(text)
    )
    # Programs that drop a fraction of zero write two formats.
    for field in [field for field in fields if "%S" in "".join(field.formats)]:
        whole = re.sub("[.,]%f", "", field.formats[0])
        pairs = [(whole, whole.replace("%S", f"%S{point}%f")) for point in ".,"]
        fields |= dict.fromkeys(field.model_copy(update={"formats": pair}) for pair in pairs)
    return list(fields)


def _formats_of(text: str) -> list[FieldDefinition]:
    """Return the dates and timestamps that a string may be, each with its format."""
    if patterns.DATE.fullmatch(text) or patterns.TIMESTAMP.fullmatch(text):
        return [FieldDefinition(type=FieldType.DATE if patterns.DATE.fullmatch(text) else FieldType.TIMESTAMP)]
    # For numbers, the caller tries other formats.
    if len(text) > _LONGEST_DATE or text.isdigit() or not any(map(str.isdigit, text)):
        return []
    fields = [FieldDefinition(type=FieldType.DATE, formats=(format_,)) for format_ in _matching(_DATES, text)]
    if parts := _PARTS.fullmatch(text):
        days, times = _matching(("%Y-%m-%d", *_DATES), parts["date"]), _matching(_TIMES, parts["time"], is_time=True)
        formats = [f"{day}{parts['separator']}{time}" for day, time in product(days, times)]
        fields += [FieldDefinition(type=FieldType.TIMESTAMP, formats=(format_,)) for format_ in formats]
    return fields


def _matching(formats: Sequence[str], text: str, *, is_time: bool = False) -> list[str]:
    """Return the formats that the text has. A time is read after a date, because a format needs one."""
    matching: list[str] = []
    for format_ in formats:
        try:
            parsed = strptime_format(f"%Y%m%d {format_}" if is_time else format_).parse("20000101 " * is_time + text)
        except ValueError:
            continue
        # The month "May" has both formats.
        if parsed and format_.replace("%B", "%b").replace("%A", "%a") not in matching:
            matching.append(format_)
    return matching
