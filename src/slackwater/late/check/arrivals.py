"""When the objects of each source were written, for the alarms for silent sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from slackwater.errors import SlackwaterError
from slackwater.late.check.window import CheckedDay
from slackwater.late.silence import usual_silence
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.day import HOUR, Day, day_of
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.inputs.window_listing import WindowListing
from slackwater.runs.table import RunTable


def arrivals_of_day(
    definition: Pipeline,
    day: Day,
    manifest: InputManifest | None,
    window: WindowListing | None,
    *,
    inputs: InputListing,
) -> tuple[dict[str, datetime | None], SlackwaterError | None]:
    """Return the last arrivals of a day by source, without sources that cannot be listed, and the first error.

    `manifest` are the day's inputs, and `window` is a listing that has the day; without both, the day is listed.
    """
    if manifest is not None:
        newest: dict[str, datetime | None] = dict.fromkeys(definition.sources)
        for item in manifest.objects:
            if item.source in newest:
                newest[item.source] = max(newest[item.source] or item.arrived, item.arrived)
        return newest, None
    answers = inputs.last_arrivals(definition.sources, day, window=window)
    errors = [answer for answer in answers.values() if isinstance(answer, SlackwaterError)]
    arrivals = {name: answer for name, answer in answers.items() if not isinstance(answer, SlackwaterError)}
    return arrivals, errors[0] if errors else None


def arrival_hours(
    definition: Pipeline, day: Day, manifest: InputManifest | None, window: WindowListing | None
) -> dict[str, set[datetime]]:
    """Return the hours in which objects of a day were written, by source, from what the check has listed anyway."""
    objects = manifest.by_source() if manifest else {}
    hours: dict[str, set[datetime]] = {}
    for name in definition.sources:
        if manifest is not None:
            times = [item.arrived for item in objects.get(name, ())]
        else:
            listing = window.of_day(name, day) if window else None
            times = [item.modified for item in listing.objects] if listing else []
        hours[name] = {at.replace(minute=0, second=0, microsecond=0) for at in times}
    return hours


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
    for name, hours in seen.items():
        hours.update(*(item.arrival_hours.get(name, ()) for item in checked))
        if last := arrivals.get(name):
            hours.add(last)
    try:
        history = table.arrival_history(definition.pipeline).with_arrivals(seen, now=now)
        table.save_arrival_history(history)
    except SlackwaterError:
        return {}
    usual = {name: usual_silence(history.hours(name), now=now, timezone=definition.timezone) for name in arrivals}
    return {name: hours for name, hours in usual.items() if hours is not None}


def last_arrivals(
    definition: Pipeline, checked: Sequence[CheckedDay], *, project: Project, inputs: InputListing, now: datetime
) -> dict[str, datetime | None]:
    """Return the last arrival of each source, in order of name, without sources that could not be listed.

    `checked` are the checked days in order of date.
    """
    arrivals: dict[str, datetime | None] = {}
    for name in sorted(definition.sources):
        if all(name in item.arrivals for item in checked):
            since = now - project.source(name).silent_hours * HOUR
            # Without a new value, the alarm for a silent source keeps its state.
            with suppress(SlackwaterError):
                arrivals[name] = _last_arrival(definition, checked, name, since=since, inputs=inputs)
    return arrivals


def _last_arrival(
    definition: Pipeline, checked: Sequence[CheckedDay], source: str, *, since: datetime, inputs: InputListing
) -> datetime | None:
    """Return when the newest object of the source was written, UTC, or None.

    Reads the checked days first. Only if they have no object, it lists earlier days, one by one, as far back as
    `since`: an older object would fire the alarm anyway.
    """
    newest = max((arrived for item in checked if (arrived := item.arrivals[source])), default=None)
    day = checked[0].facts.day
    while newest is None and day.start > since:
        day = day_of(day.date - timedelta(days=1), definition.timezone)
        newest = inputs.last_arrival(source, day)
    return newest
