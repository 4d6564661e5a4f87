"""Local times that do not exist, because the clocks of a timezone go forward past them, mostly in spring."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

# Fixed, so that what is computed from them does not depend on the day. Rules of timezones repeat every year.
_FIRST, _LAST = datetime(2026, 1, 1, tzinfo=UTC), datetime(2056, 1, 1, tzinfo=UTC)
# Longer than any change: two hours at Troll, one hour nearly everywhere else.
_LONGEST_CHANGE = timedelta(hours=3)
_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)


def skipped_time(instant: datetime, timezone: str) -> datetime | None:
    """Return the local time that `instant` would have without a clock change just before; None if there was none.

    With clocks that go from 02:00 to 03:00, this is 02:30 at the instant that is 03:30. It has no timezone.
    """
    before = (instant - _LONGEST_CHANGE).astimezone(ZoneInfo(timezone)).utcoffset()
    local = instant.astimezone(UTC).replace(tzinfo=None) + (before or timedelta())
    zone = ZoneInfo(timezone)
    is_skipped = local.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) != local
    return local if is_skipped else None


@cache
def skipped_minutes(timezone: str) -> tuple[tuple[datetime, datetime], ...]:
    """Return each minute that a timezone skips from 2026 to 2055, with the local time that comes instead of it.

    Both have no timezone. The second is later by the length of the change.
    """
    return tuple(pair for change in _changes_forward(timezone) for pair in _minutes_after(change, timezone))


def _changes_forward(timezone: str) -> Iterator[datetime]:
    """Generate the first instant, to the minute, after each change of the clocks to a later time."""
    zone = ZoneInfo(timezone)
    day, offset = _FIRST, _FIRST.astimezone(zone).utcoffset() or timedelta()
    while day < _LAST:
        next_offset = (day + _DAY).astimezone(zone).utcoffset() or timedelta()
        if next_offset > offset:
            minutes = (day + count * _MINUTE for count in range(_DAY // _MINUTE + 1))
            yield next(minute for minute in minutes if minute.astimezone(zone).utcoffset() == next_offset)
        day, offset = day + _DAY, next_offset


def _minutes_after(change: datetime, timezone: str) -> Iterator[tuple[datetime, datetime]]:
    minute = change
    while (skipped := skipped_time(minute, timezone)) is not None:
        yield skipped, minute.astimezone(ZoneInfo(timezone)).replace(tzinfo=None)
        minute += _MINUTE
