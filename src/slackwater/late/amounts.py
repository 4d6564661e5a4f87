"""How much late data a source has, and which of its thresholds that reaches."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from slackwater.formatting import hour_range
from slackwater.model import Record
from slackwater.runs.inputs.difference import Amount, FileChange, SourceDifference
from slackwater.sources.late_thresholds import LateThresholds


def late_percent(differences: Sequence[SourceDifference]) -> float | None:
    """Return the late rows in percent of the rows before, of the source with the most; None if one had none before."""
    late = [item for item in differences if item.unprocessed.rows]
    if not all(item.before.rows for item in late):
        return None
    return max((100 * item.unprocessed.rows / item.before.rows for item in late), default=0.0)


class LateAmount(Record):
    """What the thresholds of a source are compared with."""

    rows_before: int
    """That the published run has read."""
    late: Amount
    """Late data, and the rows of dropped files."""
    changed_files: int
    """Changed and removed files."""


def late_amount(source: SourceDifference) -> LateAmount:
    """Return what the thresholds of the source are compared with."""
    return LateAmount(rows_before=source.before.rows, late=source.unprocessed, changed_files=changed_file_count(source))


def reached_thresholds(amount: LateAmount, thresholds: LateThresholds) -> tuple[str, ...]:
    """Return the thresholds that the late data of a source reaches, such as `percent 1`; empty without late data.

    Any late data reaches a threshold of zero, including objects without rows. Rows of dropped files count like late
    ones.
    """
    late = amount.late
    if not late.objects:
        return ()

    def is_reached(name: str, value: float) -> bool:
        if name == "changed_files":
            return amount.changed_files >= value
        if name == "percent":
            # Decimals are exact: in floating point, 11 of 1,000 rows would be below 1.1 percent.
            return late.rows > 0 and 100 * late.rows >= Decimal(str(value)) * amount.rows_before
        return (late.bytes if name == "bytes" else late.rows) >= value

    return tuple(
        threshold_label(name, value)
        for name, value in thresholds
        if value is not None and (value == 0 or is_reached(name, value))
    )


def threshold_label(name: str, value: float) -> str:
    """Return a threshold in the words of a reason: `percent 1`, `rows 1,000`."""
    return f"{name} {value:g}" if name == "percent" else f"{name} {value:,}"


def file_label(change: FileChange) -> str:
    """Return the name of a changed file, or the hour of pushed events that were overwritten."""
    return change.file or f"data pushed for {hour_range(change.hours)}"


def changed_file_count(source: SourceDifference) -> int:
    """Return how many files of a source were changed or removed."""
    removed = {item.file for item in source.removed if item.file}
    return len(removed | {file_label(item) for item in source.changed_files})
