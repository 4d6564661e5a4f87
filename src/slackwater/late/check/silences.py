"""When the objects of each source were written, for the alarms for silent sources."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import NamedTuple
from zoneinfo import ZoneInfo

from slackwater.errors import SlackwaterError
from slackwater.late.check.facts import DayFacts
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.inputs.listing import DayListing, InputListing
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.period import HOUR, Period, period_of, shifted
from slackwater.runs.pipeline_records import HISTORY_DAYS
from slackwater.runs.table import RunTable

# Threads that list the sources of a day.
_READERS = 16
_WEEKS = range(1, HISTORY_DAYS // 7 + 1)
# Deliveries are not punctual to the minute, so the hours before and after count as the same hour of the week.
_NEIGHBOURS = (-1, 0, 1)
# One week may be a holiday.
_FEWEST_WEEKS = 2
# Arrivals are known by the hour, and a pull of every hour may be late: below this, a silence means nothing.
_SHORTEST_HOURS = 2.0


class CheckedDay(NamedTuple):
    """A day of the window whose inputs were compared, if they decide about it."""

    facts: DayFacts
    arrivals: dict[str, Collection[datetime]]
    """By source: the hours, UTC, in which objects of the day were written, and when the newest one was. A source that
    could not be listed is left out."""
    error: SlackwaterError | None = None
    """Why the day's inputs or its arrivals could not be read, or its record not be written."""
    missing: Mapping[str, int] = {}
    """By source with `counts`: events that are missing for longer than its `within`, as far as they are known."""


def arrivals_of_day(
    definition: Pipeline,
    day: Period,
    manifest: InputManifest | None,
    listed: DayListing | None,
    *,
    inputs: InputListing,
) -> tuple[dict[str, Collection[datetime]], SlackwaterError | None]:
    """Return the arrivals of a day by source, without sources that cannot be listed, and the first error.

    `manifest` are the day's inputs, and `listed` is a listing of the day; without both, the day is listed.
    """

    def listed_times(name: str) -> Collection[datetime] | SlackwaterError:
        if listed and name in listed.sources:
            return [item.modified for item in listed.sources[name].objects]
        try:
            return inputs.arrivals(name, day)
        except SlackwaterError as error:
            return error

    times_of: Mapping[str, Collection[datetime] | SlackwaterError]
    if manifest:
        objects = manifest.by_source()
        times_of = {name: [item.arrived for item in objects.get(name, ())] for name in definition.sources}
    else:
        with ThreadPoolExecutor(_READERS) as pool:
            times_of = dict(zip(definition.sources, pool.map(listed_times, definition.sources), strict=True))
    arrivals, first = dict[str, Collection[datetime]](), None
    for name, times in times_of.items():
        if isinstance(times, SlackwaterError):
            first = first or times
            continue
        hours = {at.replace(minute=0, second=0, microsecond=0) for at in times}
        arrivals[name] = hours.union([max(times)] if times else [])
    return arrivals, first


def last_arrivals(
    definition: Pipeline, checked: Sequence[CheckedDay], *, project: Project, inputs: InputListing, now: datetime
) -> dict[str, datetime | None]:
    """Return the last arrival of each source, in order of name, without sources that could not be listed.

    `checked` are the checked days in order of date. Only if they have no object of a source, earlier days are listed,
    one by one, as far back as `silent_hours` of the source: an older object would fire the alarm anyway.
    """
    arrivals: dict[str, datetime | None] = {}
    for name in sorted(definition.sources):
        if not all(name in item.arrivals for item in checked):
            continue
        newest = max((at for item in checked for at in item.arrivals[name]), default=None)
        day, since = checked[0].facts.day, now - project.source(name).silent_hours * HOUR
        # Without a new value, the alarm for a silent source keeps its state.
        with suppress(SlackwaterError):
            while newest is None and day.start > since:
                day = period_of(shifted(day.name, -1), definition.timezone)
                newest = max(inputs.arrivals(name, day), default=None)
            arrivals[name] = newest
    return arrivals


def usual_silences(
    definition: Pipeline,
    checked: Sequence[CheckedDay],
    arrivals: Mapping[str, datetime | None],
    *,
    table: RunTable,
    now: datetime,
) -> dict[str, float]:
    """Add the arrivals of the checked days to the pipeline's history, and return the usual silence of each source.

    It is in hours, at the instant `now`; a source with too short a history is left out, and all are if the history
    cannot be read or written. `arrivals` are the last arrivals of all sources that could be listed.
    """
    seen: dict[str, set[datetime]] = {name: set() for name in definition.sources}
    for name, times in seen.items():
        times.update(*(item.arrivals.get(name, ()) for item in checked), filter(None, [arrivals.get(name)]))
    try:
        history = table.arrival_history(definition.pipeline).with_arrivals(seen, now=now)
        table.save_arrival_history(history)
    except SlackwaterError:
        return {}
    usual = {name: usual_silence(history.hours(name), now=now, timezone=definition.timezone) for name in arrivals}
    return {name: hours for name, hours in usual.items() if hours is not None}


def usual_silence(hours: Collection[int], *, now: datetime, timezone: str) -> float | None:
    """Return the usual silence of a source at this hour of the week, in hours: at least 2.

    It is the median of the longest silences of each of the last four weeks at the same local time, an hour before and
    an hour after. So the outage of one week does not count as usual. `hours` are those in which the source has
    delivered, in hours since 1970, UTC. None with fewer than two complete weeks.
    """
    local = now.astimezone(ZoneInfo(timezone))
    longest = list[float]()
    for week in _WEEKS:
        # Local time, so that the clocks may change in between.
        at = (local - timedelta(weeks=week)).astimezone(UTC)
        silences = [_silence(hours, at + shift * HOUR) for shift in _NEIGHBOURS]
        known = [silence for silence in silences if silence is not None]
        if len(known) == len(_NEIGHBOURS):
            longest.append(max(known))
    return max(median(longest), _SHORTEST_HOURS) if len(longest) >= _FEWEST_WEEKS else None


def _silence(hours: Collection[int], at: datetime) -> float | None:
    """Return the hours from the start of the latest hour with an arrival; None before the first known arrival."""
    now = at.timestamp() / 3600
    return min((now - hour for hour in hours if hour <= now), default=None)
