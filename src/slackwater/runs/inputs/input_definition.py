"""The inputs that a definition names, as a run records them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slackwater.model import UpdatedRecord
from slackwater.pipeline.definition import Pipeline


class NamedTable(UpdatedRecord):
    """A table that a definition names."""

    name: str
    """With which the pipeline's steps read it."""
    table: str
    """The pipeline that publishes it, or `database.table` of an Iceberg table."""
    days: tuple[int, int] | None = None
    """The first and the last published day, counted from the day of the run; None for an Iceberg table."""
    hours: tuple[int, int] | None = None
    """The same in hours, of an hourly pipeline."""
    timezone: str | None = None
    """Of days that an hourly pipeline reads: that of the pipeline that publishes them."""


class InputDefinition(UpdatedRecord):
    """Which objects a run lists for a date."""

    timezone: str
    sources: tuple[str, ...]
    tables: tuple[NamedTable, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the sources, then of the tables."""
        return (*self.sources, *(table.name for table in self.tables))


def input_definition(pipeline: Pipeline, pipelines: Mapping[str, Pipeline]) -> InputDefinition:
    """Return what the pipeline's definition names. `pipelines` are those of the project, by stored name."""
    hourly = pipeline.period == "hour"
    published = [
        NamedTable(
            name=name,
            table=item.table,
            days=item.days,
            hours=item.hours,
            timezone=table.timezone if hourly and (table := pipelines[item.table]).period == "day" else None,
        )
        for name, item in pipeline.published_tables.items()
    ]
    foreign = [NamedTable(name=name, table=item.iceberg) for name, item in pipeline.foreign_tables.items()]
    # An hour has the same objects in each timezone.
    timezone = "UTC" if pipeline.period == "hour" else pipeline.timezone
    return InputDefinition(timezone=timezone, sources=pipeline.sources, tables=(*published, *foreign))


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
    days = {item.name: _described_periods(item) for item in definition.tables}
    tables = {item.name: f"table {item.table}{days[item.name]}" for item in definition.tables}
    return {**dict.fromkeys(definition.sources, "source"), **tables}


def _described_periods(table: NamedTable) -> str:
    if table.hours:
        return f", hours {list(table.hours)}"
    of_timezone = f" of {table.timezone}" if table.timezone else ""
    return f", days {list(table.days)}{of_timezone}" if table.days else ""
