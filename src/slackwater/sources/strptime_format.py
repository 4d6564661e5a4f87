"""Patterns of strptime directives, by which strings are parsed as dates and timestamps.

Python's own `strptime` depends on the locale, accepts ambiguous strings such as `1112013` for `%d%m%Y`, and fills in
1900-01-01 when the pattern has no date. This parser uses English names, and rejects both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache, cached_property
from typing import NamedTuple

# An offset from UTC, in patterns (`%z`) and in ISO 8601.
OFFSET = r"[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?"
# A directive; or a literal: `%%`, whitespace, or other characters.
_TOKEN = re.compile(r"%([a-zA-Z])|(%%|\s+|[^%\s]+)")
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
# Number of digits of the numeric directives.
_DIGITS = {"Y": 4, "j": 3, "y": 2, "m": 2, "d": 2, "H": 2, "I": 2, "M": 2, "S": 2, "f": 6}
# Regular expressions of the other directives. Case is ignored.
_STRING_EXPRESSIONS = {
    "a": "|".join(name[:3] for name in _WEEKDAYS),
    "A": "|".join(_WEEKDAYS),
    "b": "|".join(name[:3] for name in _MONTHS),
    "B": "|".join(_MONTHS),
    "p": "am|pm",
    "z": OFFSET,
}
# Directives with the same meaning: a pattern may contain one of each group.
_SYNONYMS = ("Yy", "mbB", "HI", "aA")
# Directives that ISO 8601 writes in the same way. They are narrower than the expressions of `StrptimeFormat.parse`, so
# that a rewritten string needs no further check.
_ISO_EXPRESSIONS = {
    "Y": "[0-9]{4}",
    "m": "[0-9]{2}",
    "d": "[0-9]{2}",
    "H": "[0-9]{2}",
    "M": "[0-9]{2}",
    "S": "[0-9]{2}",
    "f": "[0-9]{1,6}",
    "z": "Z|[+-][0-9]{2}:?[0-9]{2}",
}
# Two-digit years from here on belong to the 1900s, as in POSIX.
_FIRST_YEAR_OF_1900S = 69


class ParsedTime(NamedTuple):
    """A local time and its offset from UTC, as a string states them."""

    local: datetime
    """Naive."""
    offset: timedelta | None
    """Offset from UTC; None when the string has none."""


class IsoRewrite(NamedTuple):
    """How a regular expression rewrites strings of a pattern to ISO 8601, for a whole column in one operation."""

    expression: str
    """Regular expression of the strings, in the syntax of RE2."""
    date: str
    """Replacement that gives a date."""
    timestamp: str
    """Replacement that gives a timestamp."""


@dataclass(frozen=True)
class StrptimeFormat:
    """Parses dates and timestamps that are written by one pattern.

    Names are accepted in any case, and numbers with or without leading zeros. Numbers that follow each other without a
    separator must have all their digits, because `1112013` could be two dates. `%f` accepts nine digits, and drops the
    digits after the microsecond.

    Raises `ValueError` when the pattern does not determine a date.
    """

    pattern: str

    def __post_init__(self) -> None:
        directives = [letter for letter, _ in self._tokens if letter]
        for synonyms in (*_SYNONYMS, *"jdIMSfpz"):
            if sum(letter in synonyms for letter in directives) > 1:
                names = " or ".join(f"%{letter}" for letter in synonyms)
                raise ValueError(f"{self.pattern!r} contains {names} more than once: keep one of them")
        has_month_and_day = "d" in directives and bool(set("mbB") & set(directives))
        if not set("Yy") & set(directives) or has_month_and_day == ("j" in directives):
            raise ValueError(f"{self.pattern!r} does not determine a date: it needs %Y, and either %m with %d or %j")
        if ("I" in directives) != ("p" in directives):
            raise ValueError(f"{self.pattern!r}: %I and %p need each other; use %H for hours from 0 to 23")

    def parse(self, value: str) -> ParsedTime | None:
        """Parse a string.

        Returns None when the string does not match the pattern. Raises `ValueError` when it matches, but there is no
        such date or time.
        """
        match = self._expression.fullmatch(value)
        if match is None:
            return None
        parts = {letter: part.lower() for letter, part in match.groupdict().items()}
        day = _parse_date(parts)
        microsecond = int(f"{parts.get('f', '0')[:6]:0<6}")
        hour, minute, second = (int(parts.get(letter, 0)) for letter in "HMS")
        if "I" in parts:
            hour = int(parts["I"])
            if not 1 <= hour <= 12:  # noqa: PLR2004
                raise ValueError(f"no hour {hour} on a 12-hour clock")
            hour = hour % 12 + (12 if parts["p"] == "pm" else 0)
        local = datetime(day.year, day.month, day.day, hour, minute, second, microsecond)  # noqa: DTZ001
        return ParsedTime(local, parse_offset(parts.get("z")))

    @cached_property
    def iso_rewrite(self) -> IsoRewrite | None:
        """How whole columns are rewritten to ISO 8601; None when reordering digits is not enough."""
        groups: dict[str, str] = {}
        expression = ""
        for letter, literal in self._tokens:
            if not letter:
                expression += re.escape(literal)
            elif letter in _ISO_EXPRESSIONS:
                groups[letter] = rf"\{len(groups) + 1}"
                expression += f"({_ISO_EXPRESSIONS[letter]})"
            else:
                return None
        if not {"Y", "m", "d"} <= set(groups):
            return None
        day = f"{groups['Y']}-{groups['m']}-{groups['d']}"
        local_time = ":".join(groups.get(letter, "00") for letter in "HMS")
        fraction = f".{groups['f']}" if "f" in groups else ""
        return IsoRewrite(expression, day, f"{day}T{local_time}{fraction}{groups.get('z', '')}")

    @property
    def has_offset(self) -> bool:
        """Whether strings of the pattern have an offset from UTC."""
        return any(letter == "z" for letter, _ in self._tokens)

    @property
    def _tokens(self) -> list[tuple[str, str]]:
        """The pattern as pairs: the letter of a directive, or a literal string."""
        return [(match[1] or "", (match[2] or "").replace("%%", "%")) for match in _TOKEN.finditer(self.pattern)]

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        letters = ["", *(letter for letter, _ in self._tokens), ""]
        expression = ""
        for (letter, literal), before, after in zip(self._tokens, letters[:-2], letters[2:], strict=True):
            if letter:
                expression += f"(?P<{letter}>{_directive_expression(letter, before, after)})"
            else:
                expression += r"\s+" if literal.isspace() else re.escape(literal)
        # ASCII: without it, IGNORECASE also accepts letters such as the long s (U+017F) in the place of an "s".
        return re.compile(expression, re.ASCII | re.IGNORECASE)


# Compiles each pattern once: a column is parsed value by value, and a project has few patterns.
strptime_format = cache(StrptimeFormat)


def parse_offset(value: str | None) -> timedelta | None:
    """Parse an offset from UTC such as `Z`, `+05:30` or `-05`; None when `value` is empty or None.

    Raises `ValueError` when hours exceed 23 or minutes exceed 59.
    """
    if not value:
        return None
    if value in {"Z", "z"}:
        return timedelta()
    hours, minutes = int(value[1:3]), int(value[-2:]) if len(value) > len("+05") else 0
    if hours > 23 or minutes > 59:  # noqa: PLR2004
        raise ValueError(f"no such offset: {value}")
    return timedelta(hours=hours, minutes=minutes) * (-1 if value[0] == "-" else 1)


def _directive_expression(letter: str, before: str, after: str) -> str:
    """Return the regular expression of a directive; `before` and `after` are the neighbours' letters, if any."""
    if letter in _STRING_EXPRESSIONS:
        return _STRING_EXPRESSIONS[letter]
    if letter == "f":
        return "[0-9]{6}" if after in _DIGITS else "[0-9]{1,9}"
    # "1112013" could be 1 November or 11 January; years are never shortened, because "13" could mean 0013.
    needs_all_digits = letter in "Yy" or before in _DIGITS or after in _DIGITS
    return f"[0-9]{{{'' if needs_all_digits else '1,'}{_DIGITS[letter]}}}"


def _parse_date(parts: dict[str, str]) -> date:
    """Return the date of a matched string, by the letters of its directives. Raises `ValueError` if there is none."""
    year = int(parts.get("Y") or parts["y"])
    if "y" in parts:
        year += 1900 if year >= _FIRST_YEAR_OF_1900S else 2000
    if "j" in parts:
        day = date(year, 1, 1) + timedelta(days=int(parts["j"]) - 1)
        if day.year != year:
            raise ValueError(f"no day {parts['j']} in {year}")
        return day
    if "m" in parts:
        return date(year, int(parts["m"]), int(parts["d"]))
    name = parts.get("b") or parts["B"]
    month = next(number for number, month in enumerate(_MONTHS, start=1) if month.startswith(name))
    return date(year, month, int(parts["d"]))
