"""The names of a partner's files: text, the date and hour that a file belongs to, and `*` for what differs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from functools import cached_property

_PLACE = re.compile(r"\{(?P<what>date|hour)(:(?P<form>[^{}]*))?\}|(?P<any>\*)|(?P<brace>[{}])")
_DIRECTIVES = frozenset("YmdjyHbB%")
_HOURS = tuple(f"{hour:02d}" for hour in range(24))


class FilePattern:
    """A pattern such as `flights-{date}*.csv` or `{date:%Y/%m/%d}/{hour}.json`; `{date}` is YYYY-MM-DD."""

    def __init__(self, pattern: str) -> None:
        """Raise `ValueError` for a pattern that has no `{date}` or that is not well formed."""
        self.pattern = pattern
        self._compiled: dict[date, re.Pattern[str]] = {}
        places = list(_PLACE.finditer(pattern))
        if any(place["brace"] for place in places) or any(
            place["what"] == "hour" and place["form"] for place in places
        ):
            raise ValueError(f"{pattern!r}: only {{date}}, {{date:%Y%m%d}}, {{hour}} and * stand for something")
        for place in places:
            letters = re.findall(r"%(.?)", place["form"] or "")
            if any(letter not in _DIRECTIVES for letter in letters):
                raise ValueError(f"{pattern!r}: {place['form']!r} is no form of a date (such as %Y/%m/%d)")
        if not any(place["what"] == "date" for place in places):
            raise ValueError(f"{pattern!r} has no {{date}}: a file must belong to a date")

    @property
    def is_exact(self) -> bool:
        """Whether date and hour alone make the names, so that a server need not list them."""
        return "*" not in self.pattern

    def names(self, day: date) -> Iterator[str]:
        """The names of a date's files, of an exact pattern alone."""
        for hour in _HOURS if "{hour}" in self.pattern else ("",):
            yield "".join(
                text + {"date": day.strftime(form), "hour": hour}.get(kind, "") for text, kind, form in self._pieces
            )

    def matches(self, name: str, day: date) -> bool:
        """Whether a name is one of the date's."""
        if day not in self._compiled:
            self._compiled[day] = re.compile(self._expression(day))
        return self._compiled[day].fullmatch(name) is not None

    def may_hold(self, folder: str, day: date) -> bool:
        """Whether a folder's path is one that the date's files may be below."""
        levels = re.split(r"/(?!\])", self._expression(day))[:-1]
        depth = folder.count("/") + 1
        return depth <= len(levels) and re.fullmatch("/".join(levels[:depth]), folder) is not None

    def prefix(self, day: date) -> str:
        """The text that all names of the date begin with."""
        found = ""
        for text, kind, form in self._pieces:
            found += text
            if kind != "date":
                break
            found += day.strftime(form)
        return found

    @cached_property
    def _pieces(self) -> list[tuple[str, str, str]]:
        """Each placeholder's kind and form, and the text before it; the last has no kind."""
        pieces, at = [], 0
        for place in _PLACE.finditer(self.pattern):
            pieces.append((self.pattern[at : place.start()], place["what"] or "any", place["form"] or "%Y-%m-%d"))
            at = place.end()
        return [*pieces, (self.pattern[at:], "", "")]

    def _expression(self, day: date) -> str:
        kinds = {"hour": "(?:[01][0-9]|2[0-3])", "any": "[^/]*", "": ""}
        return "".join(
            re.escape(text) + (re.escape(day.strftime(form)) if kind == "date" else kinds[kind])
            for text, kind, form in self._pieces
        )
