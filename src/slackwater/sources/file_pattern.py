"""Patterns for the names of a partner's files: literal strings, the date and hour of a file, and `*`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from functools import cached_property
from typing import NamedTuple, Protocol

# `{date}`, `{hour}` and `*`. A brace that belongs to none of them is matched too, so that it can be refused.
_PLACEHOLDER = re.compile(r"\{(?P<type>date|hour)(:(?P<format>[^{}]*))?\}|(?P<any>\*)|(?P<brace>[{}])")
# Directives of strftime that depend on the date only, and not on a time of day.
_DATE_DIRECTIVES = frozenset("YmdjyHbB%")
# Files beside a file of data: checksums, signatures, marks of complete files, and uploads that go on.
_COMPANION = re.compile(r"\.(asc|ctl|done|md5|ok|part|sha(1|256|512)|sig|tmp)$", re.IGNORECASE)
_HOURS = tuple(f"{hour:02d}" for hour in range(24))


class _Part(NamedTuple):
    """A literal string and the placeholder that follows it."""

    literal: str
    placeholder: str
    """`date`, `hour` or `any`; empty after the last literal."""
    date_format: str


class Names(Protocol):
    """Names of files; a regular expression is one of them."""

    def fullmatch(self, string: str, /) -> re.Match[str] | None:
        """Return a match if it is one of the names."""


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

    def of_days(self, days: Iterable[date]) -> Names:
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


class WatchedPattern(FilePattern):
    """A pattern that records which names of a listing have its beginning and a date of it, but another end.

    Names such as `x.csv.sha256` and `x.done` are not recorded: they have no data.
    """

    _MOST = 1_000

    def __init__(self, pattern: str) -> None:
        """Raises `ValueError` as `FilePattern` does."""
        super().__init__(pattern)
        self.others = set[str]()
        """At most 1,000 such names."""
        end = max(match.end() for match in _PLACEHOLDER.finditer(pattern) if match["type"] == "date")
        folder, slash, _ = pattern[end:].rpartition("/")
        self._beginning = FilePattern(f"{pattern[:end]}{folder}{slash}*")

    def of_days(self, days: Iterable[date]) -> Names:
        """Return the names of all files of `days`, which records the others of these days."""
        days = list(days)
        return _WatchedNames(super().of_days(days), self._beginning.of_days(days), self._add)

    def prefix(self, day: date) -> str:
        """Return the string with which all names of `day` start, and the others that are recorded."""
        return self._beginning.prefix(day)

    def _add(self, name: str) -> None:
        if len(self.others) < self._MOST:
            self.others.add(name)


class _WatchedNames(NamedTuple):
    names: Names
    beginning: Names
    add: Callable[[str], None]

    def fullmatch(self, string: str, /) -> re.Match[str] | None:
        match = self.names.fullmatch(string)
        if match is None and self.beginning.fullmatch(string) and not _COMPANION.search(string):
            self.add(string)
        return match
