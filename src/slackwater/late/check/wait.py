"""How long late data has waited, which `max_age_hours` limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.receiver.pull.file_cache import FileCache, version_of
from slackwater.runs.day import HOUR
from slackwater.runs.inputs.difference import first_arrivals
from slackwater.runs.inputs.manifest import InputManifest, InputObject

# Between two daily checks, when the clocks change.
_MOST_HOURS = 25


class MaxAge(NamedTuple):
    """How long late data of an input may wait, and where that is defined."""

    hours: float
    label: str
    """In the words of a reason: `late.max_age_hours 24`."""


def max_ages(definition: Pipeline, project: Project) -> dict[str, MaxAge]:
    """Return how long late data of each input may wait, for those that have a limit: the pipeline's, or their own."""
    own = definition.late.max_age_hours
    if own is not None:
        return dict.fromkeys(definition.rerun_inputs, MaxAge(own, f"late.max_age_hours {own:g}"))
    hours = {name: project.source(name).late_max_age_hours for name in definition.sources}
    return {
        name: MaxAge(limit, f"late_max_age_hours {limit:g} of its source")
        for name, limit in hours.items()
        if limit is not None
    }


def late_waits(
    before: InputManifest, current: InputManifest, definition: Pipeline, *, files: FileCache, now: datetime
) -> dict[str, float]:
    """Return for how many hours the oldest late data of each input of a published day has waited, if there is any.

    `before` are the inputs of the published run, and `current` the present ones. A new object waits since it was
    written; the rows of a dropped file wait since a pull recorded its removal. Raises `CloudError` if the file cache
    fails.
    """
    sources = definition.rerun_inputs
    oldest = first_arrivals(before, current, sources=sources)
    dropped = [item for item in before.objects if current.left_out.get(item.uri) == "drop"]
    for source in {item.source for item in dropped}.intersection(sources):
        removals = _removals(source, [item for item in dropped if item.source == source], files)
        if first := min((*removals, *filter(None, [oldest.get(source)])), default=None):
            oldest[source] = first
    return {source: (now - instant) / HOUR for source, instant in oldest.items()}


def next_age(waits: Mapping[str, float], max_ages: Mapping[str, MaxAge], *, now: datetime) -> datetime | None:
    """Return when late data of an input will have waited for as long as it may, UTC.

    `waits` is for how many hours the oldest late data of each input has waited at the instant `now`. None if the next
    daily check comes before.
    """
    left = [limit.hours - waits[name] for name, limit in max_ages.items() if name in waits]
    hours = min((each for each in left if 0 < each <= _MOST_HOURS), default=None)
    # Objects have whole seconds. The result is the same in each check, in spite of rounded hours.
    return None if hours is None else (now + hours * HOUR + timedelta(seconds=0.5)).replace(microsecond=0)


def _removals(source: str, objects: Sequence[InputObject], files: FileCache) -> Iterator[datetime]:
    """Yield when the removal of each object's files was recorded, UTC: of the last one, if several had its content."""
    ids = {version[0] for item in objects if (version := version_of(item.uri))}
    paths_of = {content.id: content.paths for content in files.contents(source, ids)}
    # A file may have got another content before it was removed, so the content does not always name it.
    groups = {(*paths_of.get(version[0], ()), item.file) for item in objects if (version := version_of(item.uri))}
    entries = files.entries(source, {path for group in groups for path in group if path})
    removed = {entry.path: entry.removed_since for entry in entries if entry.removed_since}
    for group in groups:
        if instants := [removed[path] for path in group if path in removed]:
            yield max(instants)
