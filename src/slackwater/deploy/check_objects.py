"""Check of the raw objects: sources whose partitions have so many small ones that runs and queries take longer."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import NamedTuple

from slackwater.deploy.finding import Finding, ok, warning
from slackwater.formatting import counted
from slackwater.project.project import Project
from slackwater.runs.inputs.partition_objects import list_partitions
from slackwater.runs.period import HOUR, partition_of
from slackwater.sources.definition import LONGEST_BUFFER, Source
from slackwater.sources.partitions import partition_value
from slackwater.storage import ObjectStore

MANY_OBJECTS = 300
"""More small objects of an hour than this are worth a remedy: `buffer: queue` alone makes up to 720."""
# Bytes. An object of this size is read as fast as its bytes allow.
_SMALL = 2**20
_HOURS, _READERS, _NAMED = 24, 16, 5


class ManyObjects(NamedTuple):
    """An hour with more small objects than `MANY_OBJECTS`; its further objects were not counted."""

    source: Source
    hour: str

    @property
    def remedy(self) -> str:
        """What makes fewer objects in the future, as keys of the definition."""
        push, file = self.source.push, f"sources/{self.source.source}.yaml"
        if push and push.buffer == "none":
            return f"{file}: set push.buffer to queue"
        if push and push.buffer_seconds < LONGEST_BUFFER:
            return f"{file}: raise push.buffer_seconds from {push.buffer_seconds} to up to {LONGEST_BUFFER}"
        return f"{file}: pack the objects of finished hours (`pack: {{max_objects: 100}}`)"


def check_objects(project: Project, store: ObjectStore, *, raw_bucket: str, now: datetime) -> Finding:
    """Count the small objects of each source in the last 24 hours, up to the first hour that has many.

    Those of sources with `pack` are packed, and are not counted.
    A source takes at most 8 requests of 1,000 objects, unless its objects are large. Raises `CloudError`.
    """
    sources = sorted(
        (source for source in project.sources.values() if not source.pack), key=lambda source: source.source
    )
    with ThreadPoolExecutor(_READERS) as pool:
        found = [many for many in pool.map(lambda source: _first_of(source, store, raw_bucket, now), sources) if many]
    if not found:
        return ok(f"no hour of {counted(len(sources), 'source')} has more than {MANY_OBJECTS} small ones")
    hours = ", ".join(f"{many.source.source} in {many.hour}" for many in found[:_NAMED])
    more = f", and {counted(len(found) - _NAMED, 'more source')}" if len(found) > _NAMED else ""
    return warning(
        f"more than {MANY_OBJECTS} objects below 1 MB in an hour: {hours}{more}; whatever reads them takes longer",
        "; ".join(many.remedy for many in found[:_NAMED]),
    )


def _first_of(source: Source, store: ObjectStore, raw_bucket: str, now: datetime) -> ManyObjects | None:
    partitions = {partition_of(now - hours * HOUR) for hours in range(_HOURS)}
    counts = Counter[str]()
    for item in list_partitions(source.source, partitions, store=store, raw_bucket=raw_bucket):
        hour = f"{partition_value(item.uri, 'date')}T{partition_value(item.uri, 'hour')}"
        counts[hour] += item.size < _SMALL
        if counts[hour] > MANY_OBJECTS:
            return ManyObjects(source, hour)
    return None
