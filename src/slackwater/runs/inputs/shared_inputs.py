"""The objects of a day that two definitions both read, and how they differ between two input manifests."""

from __future__ import annotations

from datetime import date as date_type
from typing import NamedTuple

from slackwater.runs.day import day_of, parse_date
from slackwater.runs.inputs.difference import SourceDifference, difference
from slackwater.runs.inputs.input_definition import InputDefinition
from slackwater.runs.inputs.manifest import InputManifest, InputObject
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
        day, definitions = parse_date(now.date), [former, present]
        hours = set(day_of(day, former.timezone).partitions()) & set(day_of(day, present.timezone).partitions())
        before, now = _only(before, definitions, hours), _only(now, definitions, hours)
    return SharedInputs(before, now, difference(before, now, sources=present.inputs))


def _only(manifest: InputManifest, definitions: list[InputDefinition], hours: set[Partition] | None) -> InputManifest:
    """Return the manifest with the objects that all definitions name, of these partitions; None for all partitions."""
    day = parse_date(manifest.date)
    objects = tuple(
        item
        for item in manifest.objects
        if (item.tag or hours is None or Partition(item.date, item.hour) in hours)
        and all(_names(each, item, day) for each in definitions)
    )
    return manifest.model_copy(update={"objects": objects})


def _names(definition: InputDefinition, item: InputObject, day: date_type) -> bool:
    table = next((table for table in definition.tables if table.name == item.source), None)
    if table is None:
        # Only an object of a table has a tag: the name may have been that of a table before.
        return item.tag is None and item.source in definition.sources
    if table.days is None:
        return item.file == table.table
    first, last = table.days
    return item.file == f"{table.table} {item.date}" and first <= (parse_date(item.date) - day).days <= last
