"""Patterns of strptime's directives, by which moments and days are read; names are English, whatever the locale."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache, cached_property
from typing import NamedTuple

OFFSET = r"[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?"
"""How an offset from UTC is written, in a pattern and in ISO 8601 alike."""
_PIECE = re.compile(r"%([a-zA-Z])|(%%|\s+|[^%\s]+)")
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WIDTHS = {"Y": 4, "j": 3, "y": 2, "m": 2, "d": 2, "H": 2, "I": 2, "M": 2, "S": 2, "f": 6}
"""Digits of the directives that are numbers."""
_TEXTS = {
    "a": "|".join(name[:3] for name in _WEEKDAYS),
    "A": "|".join(_WEEKDAYS),
    "b": "|".join(name[:3] for name in _MONTHS),
    "B": "|".join(_MONTHS),
    "p": "am|pm",
    "z": OFFSET,
}
_SAME = ("Yy", "mbB", "HI", "aA")
"""Directives that say the same thing: one of them is enough."""
_IN_ISO = {
    "Y": "[0-9]{4}",
    "m": "[0-9]{2}",
    "d": "[0-9]{2}",
    "H": "[0-9]{2}",
    "M": "[0-9]{2}",
    "S": "[0-9]{2}",
    "f": "[0-9]{1,6}",
    "z": "Z|[+-][0-9]{2}:?[0-9]{2}",
}
"""Directives whose text stands in ISO 8601 as it is."""
_CENTURY = 69
"""The first year of two digits that is one of the 1900s, as in POSIX."""


class LocalTime(NamedTuple):
    """What a text says of a moment."""

    local: datetime
    """Without a zone."""
    offset: timedelta | None
    """From UTC; None where the text says none."""


class IsoRewrite(NamedTuple):
    """Turns a text of a pattern into ISO 8601: RE2's regular expression, and what replaces it."""

    form: str
    date: str
    moment: str


@dataclass(frozen=True)
class StrptimeFormat:
    """Reads one way to write a day or a moment.

    As strptime it takes names in any case, and numbers with or without their leading zeros; but numbers with nothing
    between them must have all their digits, since `1112013` could be two days. `%f` takes nine digits, and cuts off
    those past the microsecond. Raises `ValueError` for a pattern that does not tell one whole day.
    """

    text: str

    def __post_init__(self) -> None:
        used = [letter for letter, _ in self._pieces if letter]
        for letters in (*_SAME, *"jdIMSfpz"):
            if sum(letter in letters for letter in used) > 1:
                raise ValueError(f"{self.text!r}: {' or '.join(f'%{letter}' for letter in letters)} stands there twice")
        has_day = "d" in used and bool(set("mbB") & set(used))
        if not set("Yy") & set(used) or has_day == ("j" in used):
            raise ValueError(f"{self.text!r} does not tell one day: it needs %Y, and %m with %d or %j")
        if ("I" in used) != ("p" in used):
            raise ValueError(f"{self.text!r}: %I and %p need each other; hours of 0 to 23 are %H")

    def read(self, text: str) -> LocalTime | None:
        """Return what the text says, or None when it is not of this form. Raises `ValueError` for no day."""
        found = self._form.fullmatch(text)
        if found is None:
            return None
        said = {name: value.lower() for name, value in found.groupdict().items()}
        day = _day(said)
        fraction = said.get("f", "0")[:6]
        local = datetime(  # noqa: DTZ001  # what the clock on the wall shows
            day.year,
            day.month,
            day.day,
            _hour(said),
            int(said.get("M", 0)),
            int(said.get("S", 0)),
            int(f"{fraction:0<6}"),
        )
        return LocalTime(local, read_offset(said.get("z")))

    @cached_property
    def rewriting(self) -> IsoRewrite | None:
        """How a whole column of texts becomes ISO 8601; None where it takes more than moving digits about."""
        places: dict[str, str] = {}
        form = ""
        for letter, literal in self._pieces:
            if not letter:
                form += re.escape(literal)
            elif letter in _IN_ISO:
                places[letter] = rf"\{len(places) + 1}"
                form += f"({_IN_ISO[letter]})"
            else:
                return None
        if not {"Y", "m", "d"} <= set(places):
            return None
        day = f"{places['Y']}-{places['m']}-{places['d']}"
        clock = ":".join(places.get(letter, "00") for letter in "HMS")
        fraction = f".{places['f']}" if "f" in places else ""
        return IsoRewrite(form, day, f"{day}T{clock}{fraction}{places.get('z', '')}")

    @property
    def _pieces(self) -> list[tuple[str, str]]:
        """Return each directive's letter, or what stands between two of them."""
        return [(found[1] or "", (found[2] or "").replace("%%", "%")) for found in _PIECE.finditer(self.text)]

    @cached_property
    def _form(self) -> re.Pattern[str]:
        letters = ["", *(letter for letter, _ in self._pieces), ""]
        form = ""
        for (letter, literal), before, after in zip(self._pieces, letters[:-2], letters[2:], strict=True):
            if letter:
                form += f"(?P<{letter}>{_form_of(letter, before, after)})"
            else:
                form += r"\s+" if literal.isspace() else re.escape(literal)
        return re.compile(form, re.ASCII | re.IGNORECASE)


@cache
def strptime_format(text: str) -> StrptimeFormat:
    """Return the pattern, made once."""
    return StrptimeFormat(text)


def read_offset(text: str | None) -> timedelta | None:
    """Return an offset from UTC such as `Z`, `+05:30` or `-05`. Raises `ValueError` for one that no clock has."""
    if not text:
        return None
    if text in {"Z", "z"}:
        return timedelta()
    hours, minutes = int(text[1:3]), int(text[-2:]) if len(text) > len("+05") else 0
    if hours > 23 or minutes > 59:  # noqa: PLR2004
        raise ValueError(f"no such offset: {text}")
    return timedelta(hours=hours, minutes=minutes) * (-1 if text[0] == "-" else 1)


def _form_of(letter: str, before: str, after: str) -> str:
    if letter in _TEXTS:
        return _TEXTS[letter]
    if letter == "f":
        return "[0-9]{6}" if after in _WIDTHS else "[0-9]{1,9}"
    whole = letter in "Yy" or before in _WIDTHS or after in _WIDTHS
    return f"[0-9]{{{'' if whole else '1,'}{_WIDTHS[letter]}}}"


def _day(said: Mapping[str, str]) -> date:
    year = int(said.get("Y") or said["y"])
    if "y" in said:
        year += 1900 if year >= _CENTURY else 2000
    if "j" not in said:
        return date(year, _month(said), int(said["d"]))
    found = date(year, 1, 1) + timedelta(days=int(said["j"]) - 1)
    if found.year != year:
        raise ValueError(f"no day {said['j']} in {year}")
    return found


def _month(said: Mapping[str, str]) -> int:
    name = said.get("b") or said.get("B")
    if name is None:
        return int(said["m"])
    return next(number for number, month in enumerate(_MONTHS, start=1) if month.startswith(name))


def _hour(said: Mapping[str, str]) -> int:
    if "I" not in said:
        return int(said.get("H", 0))
    hour = int(said["I"])
    if not 1 <= hour <= 12:  # noqa: PLR2004
        raise ValueError(f"no hour {hour} on a clock of twelve")
    return hour % 12 + (12 if said["p"] == "pm" else 0)
