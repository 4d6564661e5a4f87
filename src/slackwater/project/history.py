"""The history of definitions: what stored data was written with, also after its definition was removed.

Once a source has partitions, only new columns are allowed, and no change of its event id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from slackwater.errors import DefinitionError
from slackwater.model import Model
from slackwater.project.project import Project
from slackwater.sources.definition import Source
from slackwater.sources.fields import FieldType


class StoredColumns(Model):
    """What the stored partitions of a source contain."""

    columns: dict[str, FieldType]
    id_column: str | None = None
    """The column that identifies the duplicates among them; None if they were stored without an event id."""

    def including(self, source: Source) -> StoredColumns:
        """Return the columns after the source was deployed: its own, and those that partitions already have."""
        return StoredColumns(columns={**source.columns, **self.columns}, id_column=self.id_column or source.id_column)


def check_evolution(sources: Mapping[str, Source], stored: Mapping[str, StoredColumns]) -> None:
    """Raise `DefinitionError` when a source does not fit its stored partitions; the message names each problem.

    `stored` is by source. New columns are allowed: they are null in objects that are already stored. New and removed
    sources are always allowed.
    """
    problems: list[str] = []
    for name in sorted(sources.keys() & stored.keys()):
        source, before, file = sources[name], stored[name], f"sources/{name}.yaml"
        for column, old_type in before.columns.items():
            new_type = source.columns.get(column)
            if new_type is None:
                problems.append(
                    f"{file}: {column}: the stored partitions have this column: keep it in the definition; "
                    f"events need not have it"
                )
            elif new_type is not old_type:
                problems.append(
                    f"{file}: {column}: the stored partitions have it as {old_type}, which cannot become {new_type}: "
                    f"keep the type, or read the field into a column with another name"
                )
        if before.id_column and before.id_column != source.id_column:
            problems.append(
                f"{file}: event_id: the stored partitions contain duplicates that only {before.id_column} identifies: "
                f"keep `event_id` (or `buffer: queue`) as it was, or start a source with another name"
            )
    if problems:
        raise DefinitionError("\n".join(problems))


class DefinitionHistory(Model):
    """All sources and pipelines that were deployed and have data, with what their data depends on."""

    sources: dict[str, StoredColumns] = {}
    pipelines: dict[str, tuple[str, ...]] = {}
    """The columns of `publish.key`, by pipeline."""
    periods: dict[str, Literal["day", "hour"]] = {}
    """The `period` of pipelines; of one that is missing here, a day."""

    def including(self, project: Project) -> DefinitionHistory:
        """Return the history after the project was deployed."""
        sources, pipelines, periods = dict(self.sources), dict(self.pipelines), dict(self.periods)
        for name, source in project.sources.items():
            sources[name] = sources.get(name, StoredColumns(columns={})).including(source)
        for name, pipeline in project.pipelines.items():
            pipelines[name] = tuple(dict.fromkeys([*pipelines.get(name, ()), *pipeline.publish.key]))
            periods.setdefault(name, pipeline.period)
        return DefinitionHistory(sources=sources, pipelines=pipelines, periods=periods)

    def problems(self, project: Project) -> tuple[str, ...]:
        """Return why definitions do not fit their data, each with its file and the remedy.

        The types of published columns are not defined here: the publishing job compares them with the table.
        """
        problems = []
        try:
            check_evolution(project.sources, self.sources)
        except DefinitionError as error:
            problems += str(error).splitlines()
        for name in sorted(project.pipelines.keys() & self.pipelines.keys()):
            key, file = project.pipelines[name].publish.key, f"pipelines/{project.present_name(name)}.yaml"
            had, has = self.periods.get(name, "day"), project.pipelines[name].period
            if has != had:
                problems.append(
                    f"{file}: period: the published table has {had}s, and cannot get {has}s: keep `period: {had}`, or "
                    "start a pipeline with another name"
                )
            if missing := [column for column in self.pipelines[name] if column not in key]:
                problems.append(
                    f"{file}: publish.key: the rows of the published table are "
                    f"identified with {', '.join(missing)}: keep it in the key (other columns may be added), or start "
                    "a pipeline with another name"
                )
        return tuple(problems)
