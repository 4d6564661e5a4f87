"""Patterns for the names of a partner's files: literal strings, the date and hour of a file, and `*`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from functools import cached_property
from typing import NamedTuple

# `{date}`, `{hour}` and `*`. A brace that belongs to none of them is matched too, so that it can be refused.
_PLACEHOLDER = re.compile(r"\{(?P<type>date|hour)(:(?P<format>[^{}]*))?\}|(?P<any>\*)|(?P<brace>[{}])")
# Directives of strftime that depend on the date only, and not on a time of day.
_DATE_DIRECTIVES = frozenset("YmdjyHbB%")
_HOURS = tuple(f"{hour:02d}" for hour in range(24))


class _Part(NamedTuple):
    """A literal string and the placeholder that follows it."""

    literal: str
    placeholder: str
    """`date`, `hour` or `any`; empty after the last literal."""
    date_format: str


class FilePattern:
    """A pattern such as `flights-{date}*.csv` or `{date:%Y/%m/%d}/{hour}.json`; `{date}` is YYYY-MM-DD."""

    def __init__(self, pattern: str) -> None:
        """Raises `ValueError` when the pattern has no `{date}` or contains an unknown placeholder."""
        self.pattern = pattern
        self._compiled: dict[date, re.Pattern[str]] = {}
        placeholders = list(_PLACEHOLDER.finditer(pattern))
        if any(match["brace"] or (match["type"] == "hour" and match["format"]) for match in placeholders):
            raise ValueError(f"{pattern!r}: only {{date}}, {{date:%Y%m%d}}, {{hour}} and * are placeholders")
        for match in placeholders:
            letters = re.findall(r"%(.?)", match["format"] or "")
            if any(letter not in _DATE_DIRECTIVES for letter in letters):
                raise ValueError(f"{pattern!r}: {match['format']!r} is not a format of a date (such as %Y/%m/%d)")
        if not any(match["type"] == "date" for match in placeholders):
            raise ValueError(f"{pattern!r} has no {{date}}: every file must belong to a date")

    @property
    def is_exact(self) -> bool:
        """Whether date and hour determine the names, so that no listing is needed."""
        return "*" not in self.pattern

    def names(self, day: date) -> Iterator[str]:
        """Generate the names of the files of `day`. The pattern must be exact."""
        for hour in _HOURS if "{hour}" in self.pattern else ("",):
            yield self._filled(day, hour=hour, any_string="")

    def dated(self, day: date) -> str:
        """Return the pattern with the date of `day` filled in, such as `flights-2013-03-10*.csv`."""
        return self._filled(day, hour="{hour}", any_string="*")

    def matches(self, name: str, day: date) -> bool:
        """Whether `name` is the name of a file of `day`."""
        if day not in self._compiled:
            self._compiled[day] = re.compile(self._expression(day))
        return self._compiled[day].fullmatch(name) is not None

    def of_days(self, days: Iterable[date]) -> re.Pattern[str]:
        """Return the regular expression of the names of all files of `days`, for `fullmatch`.

        For many names it takes a small part of the time of `matches` with each day.
        """
        return re.compile("|".join(dict.fromkeys(self._expression(day) for day in days)))

    def may_hold(self, folder: str, day: date) -> bool:
        """Whether files of `day` may be in `folder` or below it; `folder` is a path without a slash at the end."""
        # A slash before "]" belongs to the expression of "*", not to the path.
        levels = re.split(r"/(?!\])", self._expression(day))[:-1]
        depth = folder.count("/") + 1
        return depth <= len(levels) and re.fullmatch("/".join(levels[:depth]), folder) is not None

    def prefix(self, day: date) -> str:
        """Return the string with which all names of `day` start."""
        prefix = ""
        for part in self._parts:
            prefix += part.literal
            if part.placeholder != "date":
                break
            prefix += day.strftime(part.date_format)
        return prefix

    @cached_property
    def _parts(self) -> list[_Part]:
        parts, position = [], 0
        for match in _PLACEHOLDER.finditer(self.pattern):
            literal = self.pattern[position : match.start()]
            parts.append(_Part(literal, match["type"] or "any", match["format"] or "%Y-%m-%d"))
            position = match.end()
        return [*parts, _Part(self.pattern[position:], "", "")]

    def _expression(self, day: date) -> str:
        """Return the regular expression of the names of `day`."""
        # The hour has two digits, 00 to 23; `*` matches no slash, so it stays within one folder.
        return self._filled(day, hour="(?:[01][0-9]|2[0-3])", any_string="[^/]*", quote=re.escape)

    def _filled(
        self, day: date, *, hour: str, any_string: str, quote: Callable[[str], str] = lambda literal: literal
    ) -> str:
        """Return the pattern with these strings for its placeholders; `quote` is applied to literals and the date."""
        strings = {"hour": hour, "any": any_string, "": ""}
        return "".join(
            quote(literal) + (quote(day.strftime(date_format)) if placeholder == "date" else strings[placeholder])
            for literal, placeholder, date_format in self._parts
        )
