"""When the newest object of each source was written, for the alarms for silent sources."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from slackwater.errors import SlackwaterError
from slackwater.late.check.window import CheckedDay
from slackwater.pipeline.definition import Pipeline
from slackwater.project import Project
from slackwater.runs.day import HOUR, Day, day_of
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.inputs.window_listing import WindowListing


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
    day = checked[0].day
    while newest is None and day.start > since:
        day = day_of(day.date - timedelta(days=1), definition.timezone)
        newest = inputs.last_arrival(source, day)
    return newest
