"""The objects of a day that two definitions both read, and how they differ between two input manifests."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import structs

from slackwater.runs.inputs.difference import SourceDifference, difference
from slackwater.runs.inputs.input_definition import InputDefinition
from slackwater.runs.inputs.manifest import InputManifest, InputObject
from slackwater.runs.period import HOUR, distance, is_hour, local_date, period_of, shifted
from slackwater.sources.partitions import Partition


class SharedInputs(NamedTuple):
    """Two manifests of a day, with only the objects that the definitions of both read."""

    before: InputManifest
    now: InputManifest
    differences: tuple[SourceDifference, ...]
    """The changes of all inputs that the later definition names, in order of name."""


def shared_inputs(
    before: InputManifest, now: InputManifest, *, former: InputDefinition | None, present: InputDefinition
) -> SharedInputs:
    """Return both manifests of a day with only the objects that both definitions read, and the changes of these.

    `before` was listed with the definition `former`, None for a run of an older version, and `now` with `present`. What
    only one of them names was added to or removed from the definition: it is neither late nor lost data.
    """
    if former is None:
        before = _only(before, [present], None)
    elif former != present:
        definitions = [former, present]
        hours = set.intersection(*({*period_of(now.date, each.timezone).partitions()} for each in definitions))
        before, now = _only(before, definitions, hours), _only(now, definitions, hours)
    return SharedInputs(before, now, difference(before, now, sources=present.inputs))


def _only(manifest: InputManifest, definitions: list[InputDefinition], hours: set[Partition] | None) -> InputManifest:
    """Return the manifest with the objects that all definitions name, of these partitions; None for all partitions."""
    objects = tuple(
        item
        for item in manifest.objects
        if (item.tag or hours is None or Partition(item.date, item.hour) in hours)
        and all(_names(each, item, manifest.date) for each in definitions)
    )
    return structs.replace(manifest, objects=objects)


def _names(definition: InputDefinition, item: InputObject, date: str) -> bool:
    table = next((table for table in definition.tables if table.name == item.source), None)
    if table is None:
        # Only an object of a table has a tag: the name may have been that of a table before.
        return item.tag is None and item.source in definition.sources
    if table.days is None:
        return item.file == table.table
    if item.file != f"{table.table} {item.date}":
        return False
    first, last = table.hours or (0, 0) if is_hour(date) and is_hour(item.date) else table.days
    if is_hour(date) and not is_hour(item.date):
        # An hour reads days counted from its own, in the timezone of the pipeline that publishes them.
        date = local_date(period_of(date, "UTC").start, table.timezone or "UTC")
    if is_hour(date) == is_hour(item.date):
        return first <= distance(date, item.date) <= last
    # A day reads the hours of its days.
    start, end = (period_of(shifted(date, offset), definition.timezone).start for offset in (first, last + 1))
    return start - HOUR < period_of(item.date, definition.timezone).start < end
