"""The state of a period follows from its facts: a function of them, whatever their order and number of repetitions.

A period is a UTC hour, or a day of a source that counts by day. Its windows are as long as those of the reports. Other
periods are functions of these windows (`slackwater.state.rollup`).

Of several events with one id in an hour, one counts. The histograms of objects have duplicates. So the states of a
source with event ids are `complete` or `surplus` only by a number of events without duplicates, for which the ids of
all objects are read: once all windows of the period are known, and the number with duplicates is large enough.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from slackwater.sources.definition import Source
from slackwater.state.completeness import (
    CountState,
    KeyCounts,
    WindowCount,
    count_state,
    lacking,
    periods_of,
    total_sent,
    total_state,
    windows_of,
)
from slackwater.state.facts import BINS, HOUR, Coverage, Histogram, HourFacts, added, joined
from slackwater.state.reports import counts_of

BIN = HOUR / BINS
_REACHED = frozenset({CountState.COMPLETE, CountState.SURPLUS})


class WindowState(NamedTuple):
    """The events of one window."""

    start: datetime
    """UTC."""
    end: datetime
    key: str
    """The events of `Counts.keys` that are counted: a window has one of these for each key."""
    sent: int | None
    """None if no report says it."""
    stored: int
    rejected: int
    state: CountState
    is_reported: bool = True
    """Whether the reports say all of what was sent. The state may be unknown then too, because ids were not read."""

    @property
    def missing(self) -> int:
        """How many events are missing; 0 while that is unknown."""
        return max(lacking(self.state, self.sent, self.stored, self.rejected), 0)


class Distinct(NamedTuple):
    """The events of the objects of a period without duplicates."""

    parts: str
    """Digest of the objects, and of the keys."""
    bins: Histogram
    """Of all hours, one after the other."""


class PeriodState(NamedTuple):
    """The state of a period: the derived item of the table."""

    source: str
    start: datetime
    end: datetime
    state: CountState
    windows: tuple[WindowState, ...]
    """In order, and of each time in the order of the keys."""
    keys: tuple[tuple[str, CountState], ...]
    """The state of each key: that of the period is the worst one."""
    facts: str
    """Digest of all that the state follows from: two states with the same digest are equal."""
    parts: str
    """Digest of the objects that count, and of the keys."""
    covered: Coverage | None = None
    """What the reports covered. More of it that concerns the period leads to a message of its own."""
    distinct: Distinct | None = None
    """None if no ids were read."""
    needs_ids: bool = False
    """Whether the ids of the objects decide about the state, and have not been read."""
    version: int = 0
    """0 until the state is stored."""
    announced: int = 0
    """The last version about which a message was sent, if there is anything new in it."""

    @property
    def sent(self) -> int | None:
        """The events sent in the windows with a report; None without one."""
        return total_sent(window.sent for window in self.windows)

    @property
    def stored(self) -> int:
        """The events stored, with duplicates as long as no ids were read."""
        return sum(window.stored for window in self.windows)

    @property
    def rejected(self) -> int:
        """The events rejected."""
        return sum(window.rejected for window in self.windows)

    @property
    def values(self) -> tuple[KeyCounts, ...]:
        """The events of each key."""
        return tuple(
            key_counts(key, state, [window for window in self.windows if window.key == key]) for key, state in self.keys
        )

    @property
    def missing(self) -> int:
        """How many events are missing, also in a period that is complete; 0 while that is unknown."""
        return sum(value.missing for value in self.values)

    @property
    def surplus(self) -> int:
        """How many events there are that were not sent; 0 while that is unknown."""
        return sum(value.surplus for value in self.values)


def key_counts(key: str, state: CountState, windows: Iterable[WindowState]) -> KeyCounts:
    """Return the events of a key in these windows, with this state."""
    windows = list(windows)
    stored, rejected = sum(window.stored for window in windows), sum(window.rejected for window in windows)
    return KeyCounts(key, state, total_sent(window.sent for window in windows), stored, rejected)


class Period(NamedTuple):
    """A period of a source, with the UTC hours whose facts are about it."""

    source: Source
    start: datetime
    end: datetime

    @property
    def hours(self) -> list[datetime]:
        """The hours, in order."""
        return [self.start + number * HOUR for number in range(round((self.end - self.start) / HOUR))]


def periods_with(source: Source, hours: Iterable[datetime]) -> list[Period]:
    """Return the periods of a source with `counts` that have these UTC hours, in order."""
    return [Period(source, start, end) for start, end, _ in periods_of(source, sorted(set(hours)))]


def fold(
    period: Period, facts: Mapping[datetime, HourFacts], coverage: Coverage | None, *, distinct: Distinct | None
) -> PeriodState:
    """Return the state of a period, without version.

    `facts` are those about its hours that count: of pulled files, the objects and the rejected events that readers see
    now. `distinct` is that of an earlier state; it is used as long as the objects are the same.
    """
    counts = list(windows_of(period.source, period.start, period.end, facts, coverage))
    keys = tuple(dict.fromkeys(count.key for count in counts))
    names = [[hour.isoformat(), *sorted(part.name for part in facts[hour].parts)] for hour in period.hours]
    parts = _digest([list(keys), names])
    distinct = distinct if distinct and distinct.parts == parts else None
    rejected = joined((added((item.bins for item in facts[hour].rejected), keys) for hour in period.hours), keys)
    # The receiver stores no id twice in one object.
    has_duplicates = bool(period.source.id_column) and any(len(facts[hour].parts) > 1 for hour in period.hours)
    raw = joined((added((part.bins for part in facts[hour].parts), keys) for hour in period.hours), keys)
    stored = distinct.bins if distinct else raw
    windows = [_window(period, count, stored[count.key], rejected[count.key]) for count in counts]
    unknown = {count.key for count in counts if not count.is_known}
    is_open = has_duplicates and not distinct and any(window.state in _REACHED for window in windows)
    if is_open:
        windows = [
            window._replace(state=CountState.UNKNOWN) if window.state in _REACHED else window for window in windows
        ]
    states = list[tuple[str, CountState]]()
    for key in keys:
        found = key_counts(key, CountState.UNKNOWN, (window for window in windows if window.key == key))
        state = count_state(period.source, found.sent or 0, found.stored + found.rejected)
        is_hidden = key in unknown or (is_open and state in _REACHED)
        states.append((key, CountState.UNKNOWN if is_hidden else state))
    return PeriodState(
        source=period.source.source,
        start=period.start,
        end=period.end,
        state=total_state(state for _, state in states),
        windows=tuple(windows),
        keys=tuple(states),
        facts=_digest_of(period, facts, counts, parts, distinct),
        parts=parts,
        covered=coverage,
        distinct=distinct,
        needs_ids=is_open and not unknown,
    )


def is_news(before: PeriodState | None, after: PeriodState) -> bool:
    """Return whether a state says something new: the state of the period or a window, or what is known of a period."""
    if before is None:
        return any(state is not CountState.UNKNOWN for state in (after.state, *_window_states(after)))
    if (before.keys, _window_states(before)) != (after.keys, _window_states(after)):
        return True
    return after.state is not CountState.UNKNOWN and (before.windows, before.parts) != (after.windows, after.parts)


def _window_states(state: PeriodState) -> list[CountState]:
    return [window.state for window in state.windows]


def _window(period: Period, count: WindowCount, stored: tuple[int, ...], rejected: tuple[int, ...]) -> WindowState:
    inside = slice((count.start - period.start) // BIN, (count.end - period.start) // BIN)
    has, lost = sum(stored[inside]), sum(rejected[inside])
    state = count_state(period.source, count.sent or 0, has + lost) if count.is_known else CountState.UNKNOWN
    return WindowState(count.start, count.end, count.key, count.sent, has, lost, state, count.is_known)


def _digest_of(
    period: Period,
    facts: Mapping[datetime, HourFacts],
    counts: Iterable[WindowCount],
    parts: str,
    distinct: Distinct | None,
) -> str:
    """Return the digest of the facts themselves.

    Not that of the state: a fact may change nothing now, and decide later. Its state is then a new version, so that
    nobody who has not read the fact replaces it.
    """
    return _digest(
        [
            [parts, distinct is not None, counts_of(period.source).percent_units],
            [[count.start.isoformat(), count.key, count.sent, count.is_known] for count in counts],
            *(
                [
                    sorted([report.as_of.isoformat(), report.id] for report in facts[hour].reports),
                    sorted([item.origin, sorted(item.bins.items())] for item in facts[hour].rejected),
                ]
                for hour in period.hours
            ),
        ]
    )


def _digest(content: Iterable[object]) -> str:
    return hashlib.sha256(json.dumps(list(content)).encode()).hexdigest()[:16]
