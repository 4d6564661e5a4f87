"""List the formats by which strings, and numbers such as 20130308, may be read as dates and timestamps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from slackwater.receiver.parsing.inference.names import identifier
from slackwater.receiver.parsing.patterns import DATE, EPOCH_UNITS, TIMESTAMP
from slackwater.sources.fields import ISO, FieldDefinition, FieldType
from slackwater.sources.strptime_format import strptime_format

# Day first and month first for each separator, because only the values can decide.
_DATES = (
    *("%Y/%m/%d", "%Y.%m.%d", "%Y%m%d"),
    *(
        f"%{first}{separator}%{second}{separator}%{year}"
        for separator, (first, second), year in product(("/", "-", "."), (("d", "m"), ("m", "d")), ("Y", "y"))
    ),
    *("%y/%m/%d", "%y-%m-%d", "%y.%m.%d"),
    *("%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d/%b/%Y", "%b %d, %Y", "%b %d %Y"),
    *("%d %B %Y", "%B %d, %Y", "%B %d %Y"),
    *("%a, %d %b %Y", "%A, %d %B %Y", "%A, %B %d, %Y"),
)
_TIMES = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%H:%M:%S,%f", "%I:%M:%S %p", "%I:%M %p", "%H%M%S")
# The strings "UTC" and "GMT" are no offsets for the receiver: they need `timestamp.timezone`.
_ZONES = ("", "%z", " %z", " UTC", " GMT")
_PARTS = re.compile(r"(?P<date>.+?)(?P<separator>[T:]|, ?| )(?P<time>[0-9]{1,2}:[0-9]{2}.*|(?<=T)[0-9]{6}.*)")
_LITERAL_UTC = (" UTC", " GMT")
# Distinct strings whose formats are tried on all of them.
_TRIED_STRINGS = 20
_LONGEST = 60

# Words in names of columns with times.
_TIME_WORDS = frozenset(
    {"at", "created", "date", "datetime", "day", "dt", "epoch", "modified", "occurred", "time", "timestamp", "ts"}
    | {"unix", "updated", "when"}
)
# Numbers in these ranges may be dates: the years 1900 to 2100, and for epochs the years 1990 to 2100.
_COMPACT_FORMATS = (
    (FieldType.DATE, "%Y%m%d", 19_000_101, 21_001_231),
    (FieldType.TIMESTAMP, "%Y%m%d%H%M", 190_001_010_000, 210_012_312_359),
    (FieldType.TIMESTAMP, "%Y%m%d%H%M%S", 19_000_101_000_000, 21_001_231_235_959),
)
_FIRST_EPOCH, _LAST_EPOCH = 631_152_000, 4_102_444_800


class FormatCandidate(NamedTuple):
    """Formats that together may read all values of a column."""

    type: FieldType
    formats: tuple[str, ...]

    @property
    def field(self) -> FieldDefinition:
        """The definition of a field with these formats."""
        return FieldDefinition(type=self.type, formats=() if self.formats == (ISO,) else self.formats)

    @property
    def is_utc(self) -> bool:
        """Whether the values say that they are in UTC, without an offset."""
        return all(format_.endswith(_LITERAL_UTC) for format_ in self.formats)


def has_time_name(name: str) -> bool:
    """Return whether a column is named like one with dates or timestamps."""
    words = identifier(name).split("_")
    return bool(_TIME_WORDS.intersection(words)) or any(word.endswith(("time", "date", "timestamp")) for word in words)


def string_candidates(strings: Sequence[str]) -> list[FormatCandidate]:
    """Return the formats of some of the strings, which are distinct. Each still has to be tried on all strings."""
    step = max(1, len(strings) // _TRIED_STRINGS)
    candidates: dict[FormatCandidate, None] = {}
    for string in strings[::step]:
        candidates |= dict.fromkeys(_candidates_of(string))
    # Programs that drop a fraction of zero write two formats.
    for data_type, formats in list(candidates):
        (format_,) = formats
        if "%S" in format_:
            whole = re.sub("[.,]%f", "", format_)
            fractions = [whole.replace("%S", f"%S{point}%f") for point in ".,"]
            candidates |= dict.fromkeys(FormatCandidate(data_type, (whole, fraction)) for fraction in fractions)
    return list(candidates)


def _candidates_of(string: str) -> list[FormatCandidate]:
    if len(string) > _LONGEST or not any(character.isdigit() for character in string):
        return []
    if DATE.fullmatch(string):
        return [FormatCandidate(FieldType.DATE, (ISO,))]
    if TIMESTAMP.fullmatch(string):
        return [FormatCandidate(FieldType.TIMESTAMP, (ISO,))]
    if string.isdigit():  # see `number_candidates`
        return []
    formats = [FormatCandidate(FieldType.DATE, (day,)) for day in _matching(_DATES, string)]
    if parts := _PARTS.fullmatch(string):
        times = _matching([f"{time}{zone}" for time in _TIMES for zone in _ZONES], parts["time"], before="%Y%m%d ")
        formats += [
            FormatCandidate(FieldType.TIMESTAMP, (day + parts["separator"] + time,))
            for day, time in product(_matching(("%Y-%m-%d", *_DATES), parts["date"]), times)
        ]
    return formats


def _matching(formats: Sequence[str], string: str, *, before: str = "") -> list[str]:
    """Return the formats that the string has; `before` is the format of a date to put in front of each."""
    matching: list[str] = []
    for format_ in formats:
        try:
            parsed = strptime_format(before + format_).parse(("20000101 " if before else "") + string)
        except ValueError:
            continue
        # The month "May" has both formats.
        if parsed and format_.replace("%B", "%b").replace("%A", "%a") not in matching:
            matching.append(format_)
    return matching


def number_candidates(smallest: float, largest: float) -> list[FormatCandidate]:
    """Return the formats by which numbers between these two may be dates or timestamps."""
    for data_type, format_, first, last in _COMPACT_FORMATS:
        if first <= smallest <= largest <= last:
            return [FormatCandidate(data_type, (format_,))]
    scales = (1_000, 1)
    if any(_FIRST_EPOCH * scale <= smallest <= largest <= _LAST_EPOCH * scale for scale in scales):
        # Both: the range makes one of them unlikely, and not impossible.
        return [FormatCandidate(FieldType.TIMESTAMP, (unit,)) for unit in EPOCH_UNITS]
    return []


def is_microseconds_or_nanoseconds(smallest: float, largest: float) -> bool:
    """Whether the numbers may be microseconds or nanoseconds since 1970, which no format reads."""
    return any(_FIRST_EPOCH * scale <= smallest <= largest <= _LAST_EPOCH * scale for scale in (10**6, 10**9))
