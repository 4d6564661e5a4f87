"""Names in a definition: of fields, of the source, and the pattern of file names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime

_MAX_LENGTH = 63
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Dates in names of files, with the placeholder for each.
_DATES = (
    (re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)"), "%Y-%m-%d", "{date}"),
    (re.compile(r"(?<!\d)\d{4}_\d{2}_\d{2}(?!\d)"), "%Y_%m_%d", "{date:%Y_%m_%d}"),
    (re.compile(r"(?<!\d)\d{8}(?!\d)"), "%Y%m%d", "{date:%Y%m%d}"),
)
# A number after the date, such as an hour or the number of a part.
_NUMBER_AFTER_DATE = re.compile(r"^[-_T.]?\d+")


def unique_names(partner_names: Sequence[str]) -> list[str]:
    """Return valid names of fields, in lower case and with underscores, for a partner's names; no two are the same."""
    names: list[str] = []
    for position, partner_name in enumerate(partner_names, start=1):
        name = identifier(partner_name) or f"column_{position}"
        if not name[0].isalpha():
            name = f"column_{name}"
        candidate, number = name[:_MAX_LENGTH], 2
        while candidate in names:
            candidate, number = f"{name[: _MAX_LENGTH - 5]}_{number}", number + 1
        names.append(candidate)
    return names


def source_name(file_name: str) -> str:
    """Return a name for the source of a file: its name without suffixes, dates and other numbers."""
    name = identifier(re.sub(r"[^A-Za-z]+", " ", file_name.partition(".")[0]))
    return name[:_MAX_LENGTH] or "source"


def file_pattern(file_name: str) -> tuple[str, bool]:
    """Return a pattern such as `flights-{date}*.csv` for a file's name, and whether the name contains a date."""
    name = re.sub(r"[{}*]", "*", file_name)
    for expression, date_format, placeholder in _DATES:
        match = expression.search(name)
        if match and _is_date(match[0], date_format):
            return name[: match.start()] + placeholder + _NUMBER_AFTER_DATE.sub("*", name[match.end() :]), True
    stem, dot, suffixes = name.partition(".")
    return f"{stem}-{{date}}{dot}{suffixes}", False


def identifier(name: str) -> str:
    """Return the words of a name in lower case, with underscores between them; empty if it has no letter or digit."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "_", _CAMEL_CASE.sub("_", ascii_name).lower()).strip("_")


def _is_date(value: str, date_format: str) -> bool:
    try:
        datetime.strptime(value, date_format)  # noqa: DTZ007 - only whether it is a date
    except ValueError:
        return False
    return True
