"""The windows of a period whose events are all there, also while its ids have not been read.

What follows from them is a run that finds out itself whether there is anything new. So duplicates may count here: their
ids are read when all windows of the period are known, which is too late for a period that is open.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from slackwater.sources.definition import Source
from slackwater.state.completeness import CountState, count_state
from slackwater.state.fold import PeriodState, WindowState

_STEP = timedelta(minutes=5)
_FULL = frozenset({CountState.COMPLETE, CountState.SURPLUS})


def full_times(source: Source, state: PeriodState) -> frozenset[datetime]:
    """Return the beginnings of all 5 minutes of a period in which no event of any key is missing."""
    found, lacking = set[datetime](), set[datetime]()
    for window in state.windows:
        (found if _is_full(source, window) else lacking).update(_steps(window.start, window.end))
    return frozenset(found - lacking)


def full_spans(
    times: Iterable[frozenset[datetime]], *, start: datetime, end: datetime, length: timedelta
) -> list[datetime]:
    """Return the ends of the spans of this length, from `start` to `end`, of which each of `times` has all."""
    shared = frozenset.intersection(*times)
    found = list[datetime]()
    while start < end:
        after = start + length
        if shared.issuperset(_steps(start, after)):
            found.append(after)
        start = after
    return found


def _is_full(source: Source, window: WindowState) -> bool:
    if window.state in _FULL:
        return True
    if window.state is CountState.SHORT or not window.is_reported:
        return False
    # Unknown, because there may be duplicates.
    return count_state(source, window.sent or 0, window.stored + window.rejected) in _FULL


def _steps(start: datetime, end: datetime) -> list[datetime]:
    return [start + number * _STEP for number in range((end - start) // _STEP)]
