"""What load steps have written, as their effects say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from slackwater.arrow.reference import StepRecord


class Written(NamedTuple):
    """A file or a table that a load step has written."""

    kind: Literal["path", "table"]
    target: str
    """The path below the project's files, or the table."""
    rows: int | None
    bytes: int | None


def written_by(step: StepRecord) -> Iterator[Written]:
    """Yield what a load step has written. With several inputs, it has an effect for each of them: `path.NAME`."""
    for key, target in step.effect.items():
        kind, dot, of_input = key.partition(".")
        of = f"{dot}{of_input}"
        if kind == "path":
            yield Written("path", str(target), step.effect.get(f"rows{of}"), step.effect.get(f"bytes{of}"))
        elif kind == "table":
            yield Written("table", str(target), step.effect.get(f"rows_inserted{of}"), None)
