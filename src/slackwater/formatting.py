"""Formats numbers, durations, timestamps and hours as plain ASCII, for reasons, messages and screens; checks dates."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

_HOUR = timedelta(hours=1)

# Numbers from _EXACT on and fractions below _TINY are written with an exponent. A double represents every integer up to
# 2**53, about 9e15, so all digits below _EXACT are right.
_EXACT = 1e15
_TINY = 1e-6
# `number_pair` uses more digits only where two different numbers would look the same. 17 digits distinguish any two
# doubles.
_SIGNIFICANT_DIGITS = (4, 7, 10, 13, 17)
# Changes between these percentages are shown with one decimal, others with two significant digits.
_SMALLEST_PERCENT, _LARGEST_PERCENT = 0.1, 1e6
_DURATION_UNITS = ((86_400, "day"), (3_600, "h"), (60, "min"), (1, "s"))

_HOUR_OF_DAY = re.compile(r"[01][0-9]|2[0-3]")
_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
# The control characters of ASCII (C0, DEL) and Unicode (C1), and the two Unicode line separators: terminals interpret
# some of them, mail clients break lines at others.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 row`, `1,234 rows`. The plural is the noun with an `s`.

    >>> counted(1, "row"), counted(1234, "row")
    ('1 row', '1,234 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def unescaped(text: str) -> str:
    r"""Return text of a JSON string with the characters of its escapes. Half of a surrogate pair stays as it is.

    >>> unescaped(r"Ticket N\u00ba")
    'Ticket Nº'
    """
    return _ESCAPES.sub(lambda match: _unescaped(match[0]), text)


def _unescaped(escapes: str) -> str:
    characters = str(json.loads(f'"{escapes}"'))
    return escapes if any("\ud800" <= character <= "\udfff" for character in characters) else characters


def rounded_usd(amount: float) -> str:
    """Return a price with two decimals, or two digits below 1 USD: `12.30 USD`, `0.0042 USD`."""
    return f"{amount:.2f} USD" if amount >= 1 else f"{amount:.2g} USD"


def shortened(value: str, most: int) -> str:
    """Return the string with at most `most` characters, at least 8: the middle of a longer one is left out.

    The beginning of a reason says what has happened, and its end may name the remedy.
    """
    if len(value) <= most:
        return value
    end = most // 4
    return f"{value[: most - end - 5]} ... {value[-end:]}"


def percentage(part: int, whole: int) -> str:
    """Return `part` as a percentage of `whole`, precise enough to compare with a threshold: `10.5 %`, `0.996 %`.

    For a `whole` of 0 the result is `no rows before`.
    """
    if not whole:
        return "no rows before"
    percent = 100 * part / whole
    return f"{percent:,.1f} %" if percent >= 10 else f"{percent:.3g} %"  # noqa: PLR2004


def hour_range(partitions: Iterable[tuple[str, str]]) -> str:
    """Return the time that UTC hours cover: `2013-03-10 12:00 to 14:00 UTC`.

    Each partition is a date and an hour: `("2013-03-10", "12")`. If hours in between are missing, the result says how
    many hours there are: `2 hours of 2013-03-10 12:00 to 16:00 UTC`. Tables of other systems have an empty hour: the
    result is then `the whole table`.
    """
    starts = sorted(
        {datetime.fromisoformat(f"{date}T{hour}:00").replace(tzinfo=UTC) for date, hour in partitions if hour}
    )
    if not starts:
        return "the whole table"
    first, end = starts[0], starts[-1] + _HOUR
    until = f"{end:%H:%M}" if end.date() == first.date() else f"{end:%Y-%m-%d %H:%M}"
    gaps = "" if len(starts) * _HOUR == end - first else f"{counted(len(starts), 'hour')} of "
    return f"{gaps}{first:%Y-%m-%d %H:%M} to {until} UTC"


def timestamp(instant: datetime) -> str:
    """Return an aware timestamp in UTC, to the minute: `2013-03-11 06:00 UTC`."""
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def provisional(through: datetime | None) -> str:
    """Return `provisional, through 15:04 UTC` for the instant at which inputs were listed; empty for None."""
    return f"provisional, through {through.astimezone(UTC):%H:%M} UTC" if through else ""


def duration(length: timedelta) -> str:
    """Return a duration by its two largest units, without its sign: `25 s`, `4 min 10 s`, `2 days 3 h`."""
    # humanize.precisedelta has no short units and no limit on the number of units.
    parts: list[str] = []
    seconds = round(abs(length).total_seconds())
    for size, unit in _DURATION_UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count} {unit}{'s' if unit == 'day' and count != 1 else ''}" if count else "")
        if len(parts) == 2:  # noqa: PLR2004
            break
    return " ".join(part for part in parts if part) or "0 s"


def number(value: float | int | None, *, digits: int = _SIGNIFICANT_DIGITS[0]) -> str:
    """Return a number with thousands separators and `digits` significant digits: `1,234`, `12.63`, `0.0123`.

    Whole numbers keep all their digits; None becomes `none`.
    """
    if value is None:
        return "none"
    if not math.isfinite(value):
        return str(value)
    magnitude = abs(value)
    if magnitude < _EXACT and value == int(value):
        return f"{int(value):,}"
    if not _TINY <= magnitude < _EXACT:
        return f"{value:.{digits}g}"
    decimals = max(2, digits - 1 - math.floor(math.log10(magnitude)))
    return f"{value:,.{decimals}f}".rstrip("0").rstrip(".")


def number_pair(before: float | int | None, after: float | int | None) -> tuple[str, str]:
    """Return two numbers as `number` formats them, with more digits if different numbers would look the same.

    >>> number_pair(0.12345, 0.12346)
    ('0.12345', '0.12346')
    """
    for digits in _SIGNIFICANT_DIGITS:
        strings = number(before, digits=digits), number(after, digits=digits)
        if strings[0] != strings[1] or before == after:
            break
    return strings


def relative_change(before: float | int | None, after: float | int | None) -> str:
    """Return the change from `before` to `after`: `+6.3 %`, or the difference if `before` is 0: `+52`.

    The result is `new` if `before` is None, `gone` if `after` is None, and empty for equal values.
    """
    if before == after:
        return ""
    if before is None or after is None:
        return "new" if before is None else "gone"
    if before == 0:
        return f"{'+' if after > 0 else ''}{number(after)}"
    percent = 100 * (after - before) / abs(before)
    return f"{percent:+,.1f} %" if _SMALLEST_PERCENT <= abs(percent) < _LARGEST_PERCENT else f"{percent:+.2g} %"


def escape_control_characters(value: str) -> str:
    r"""Return the string on one line, with escaped control characters: data cannot add lines or move the cursor.

    >>> print(escape_control_characters("two\nlines"))
    two\nlines
    """
    return _CONTROL.sub(lambda match: repr(match.group())[1:-1], value)


def check_iso_date(value: str) -> str:
    """Return a date such as 2013-03-10 unchanged. Raises `ValueError` for any other string."""
    # Python also accepts 20130310 and 2013-W10-7. The string is part of keys and URIs, so a day has only one.
    try:
        is_date = date.fromisoformat(value).isoformat() == value
    except ValueError:
        is_date = False
    if not is_date:
        raise ValueError(f"{value!r} is not a date such as 2013-03-10")
    return value


def check_period(value: str) -> str:
    """Return the name of a day such as 2013-03-10, or of a UTC hour such as 2013-03-10T15, unchanged.

    Raises `ValueError` for any other string.
    """
    day, separator, hour = value.partition("T")
    try:
        check_iso_date(day)
    except ValueError:
        is_period = False
    else:
        is_period = not separator or _HOUR_OF_DAY.fullmatch(hour) is not None
    if not is_period:
        raise ValueError(f"{value!r} is not a date such as 2013-03-10, or an hour such as 2013-03-10T15")
    return value
