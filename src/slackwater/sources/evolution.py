"""Which changes of a source are allowed once it has partitions: new columns only, and no change of its event id."""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.errors import DefinitionError
from slackwater.model import Model
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
