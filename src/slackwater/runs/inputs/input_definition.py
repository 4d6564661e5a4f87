"""The inputs that a definition names, as a run records them, and the objects that two definitions both read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import date as date_type

from slackwater.model import UpdatedRecord
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.day import day_of, parse_date
from slackwater.runs.inputs.difference import SourceDifference, difference
from slackwater.runs.inputs.manifest import InputManifest, InputObject
from slackwater.sources.partitions import Partition


class NamedTable(UpdatedRecord):
    """A table that a definition names."""

    name: str
    """With which the pipeline's steps read it."""
    table: str
    """The pipeline that publishes it, or `database.table` of an Iceberg table."""
    days: tuple[int, int] | None = None
    """The first and the last published day, counted from the day of the run; None for an Iceberg table."""


class InputDefinition(UpdatedRecord):
    """Which objects a run lists for a date."""

    timezone: str
    sources: tuple[str, ...]
    tables: tuple[NamedTable, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the sources, then of the tables."""
        return (*self.sources, *(table.name for table in self.tables))

    def unread_tables(self, present: InputDefinition) -> frozenset[str]:
        """Return the names of the tables that another definition names, and this one does not, or with other days."""
        return frozenset(table.name for table in present.tables if table not in self.tables)


def input_definition(pipeline: Pipeline) -> InputDefinition:
    """Return what the pipeline's definition names."""
    published = [NamedTable(name=name, table=it.table, days=it.days) for name, it in pipeline.published_tables.items()]
    foreign = [NamedTable(name=name, table=item.iceberg) for name, item in pipeline.foreign_tables.items()]
    return InputDefinition(timezone=pipeline.timezone, sources=pipeline.sources, tables=(*published, *foreign))


def shared_inputs(
    before: InputManifest, now: InputManifest, *, former: InputDefinition | None, present: InputDefinition
) -> tuple[InputManifest, InputManifest]:
    """Return both manifests of a day with only the objects that both definitions read.

    `before` was listed with the definition `former`, None for a run of an older version, and `now` with `present`. What
    only one of them names was added to or removed from the definition: it is neither late nor lost data.
    """
    if former is None:
        return _only(before, [present], hours=None), now
    if former == present:
        return before, now
    day = parse_date(now.date)
    hours = set(day_of(day, former.timezone).partitions()) & set(day_of(day, present.timezone).partitions())
    return _only(before, [former, present], hours=hours), _only(now, [former, present], hours=hours)


def shared_differences(
    before: InputManifest, now: InputManifest, *, former: InputDefinition | None, present: InputDefinition
) -> tuple[SourceDifference, ...]:
    """Return the changes of all inputs that `present` names, in the objects that both definitions read."""
    return difference(*shared_inputs(before, now, former=former, present=present), sources=present.inputs)


def described_changes(former: InputDefinition, present: InputDefinition) -> tuple[str, ...]:
    """Return what differs between two definitions that are not equal, one line for each input; never empty."""
    changes = list(_changes(former, present))
    return tuple(changes or ["the steps, the published key or the columns of the sources have changed"])


def _changes(former: InputDefinition, present: InputDefinition) -> Iterator[str]:
    if former.timezone != present.timezone:
        yield f"timezone: {former.timezone} -> {present.timezone}"
    old, new = _inputs_by_name(former), _inputs_by_name(present)
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield f"{name} ({new[name]}): added"
        elif name not in new:
            yield f"{name} ({old[name]}): removed"
        elif old[name] != new[name]:
            yield f"{name}: {old[name]} -> {new[name]}"


def _inputs_by_name(definition: InputDefinition) -> dict[str, str]:
    days = {item.name: f", days {list(item.days)}" if item.days else "" for item in definition.tables}
    tables = {item.name: f"table {item.table}{days[item.name]}" for item in definition.tables}
    return {**dict.fromkeys(definition.sources, "source"), **tables}


def _only(
    manifest: InputManifest, definitions: Collection[InputDefinition], *, hours: Collection[Partition] | None
) -> InputManifest:
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
