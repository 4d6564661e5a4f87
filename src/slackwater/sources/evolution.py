"""How a source may change once it has partitions: by new columns alone, and never by another id."""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.errors import DefinitionError
from slackwater.sources.definition import Source


def check_evolution(sources: Mapping[str, Source], deployed: Mapping[str, Source]) -> None:
    """Raise `DefinitionError` naming each column that partitions hold in another way than a source now says.

    New columns are null in older objects; new sources, and sources that are gone, have nothing to agree with.
    """
    faults = [
        fault for name in sorted(sources.keys() & deployed.keys()) for fault in _faults(sources[name], deployed[name])
    ]
    if faults:
        raise DefinitionError("\n".join(faults))


def _faults(source: Source, deployed: Source) -> list[str]:
    faults = []
    for name, kind in deployed.columns.items():
        where, now = f"sources/{source.source}.yaml: {name}", source.columns.get(name)
        if now is None:
            faults.append(f"{where}: its partitions hold this column: leave it declared, events may do without it")
        elif now is not kind:
            faults.append(
                f"{where}: its partitions hold it as {kind}, which cannot become {now}: "
                f"keep the type, or read it into a column of another name"
            )
    if deployed.id_column and deployed.id_column != source.id_column:
        faults.append(
            f"sources/{source.source}.yaml: event_id: its partitions hold copies that {deployed.id_column} tells "
            f"apart: keep `event_id` (or `buffer: queue`) as it was, or start a source of another name"
        )
    return faults
