"""Counts, sizes and hours in words, as people read them in reasons, in messages and on a screen."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

_HOUR = timedelta(hours=1)
_STEP = 1000


def counted(count: int, thing: str) -> str:
    """Return `1 row`, `1,234 rows`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """Return bytes as people say them: `812 bytes`, `14.2 kB`, `3.1 MB`."""
    if count < _STEP:
        return counted(count, "byte")
    amount, units = float(count), iter(("kB", "MB", "GB", "TB"))
    unit = ""
    # By what will be shown: 999,960 bytes are 1.0 MB, not 1000.0 kB.
    while round(amount, 1) >= _STEP and (larger := next(units, "")):
        amount, unit = amount / _STEP, larger
    return f"{amount:,.1f} {unit}"


def share(part: int, whole: int) -> str:
    """Return a part in percent of the whole, with digits enough to tell it from a threshold: `10.5 %`, `0.996 %`."""
    if not whole:
        return "of none before"
    percent = 100 * part / whole
    return f"{percent:,.1f} %" if percent >= 10 else f"{percent:.3g} %"  # noqa: PLR2004


def span(partitions: Iterable[tuple[str, str]]) -> str:
    """Return UTC hours, each a date and an hour, as the time that they cover: `2013-03-10 12:00 to 14:00 UTC`.

    Where hours are missing in between it says so: `2 hours of 2013-03-10 12:00 to 16:00 UTC`.
    """
    starts = sorted({datetime.fromisoformat(f"{date}T{hour}:00").replace(tzinfo=UTC) for date, hour in partitions})
    first, end = starts[0], starts[-1] + _HOUR
    until = f"{end:%H:%M}" if end.date() == first.date() else f"{end:%Y-%m-%d %H:%M}"
    gaps = "" if len(starts) * _HOUR == end - first else f"{counted(len(starts), 'hour')} of "
    return f"{gaps}{first:%Y-%m-%d %H:%M} to {until} UTC"


def moment(when: datetime) -> str:
    """Return a moment to the minute: `2013-03-11 06:00 UTC`."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
