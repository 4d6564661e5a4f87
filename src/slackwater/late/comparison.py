"""What a new version of a day changed: the summary that is stored, shown and told."""

from __future__ import annotations

import math
from datetime import datetime
from enum import StrEnum

from slackwater.arrow.reference import ArrowReference
from slackwater.runs.difference import Change, SourceDifference
from slackwater.runs.manifest import Record

MAX_ROWS = 100
"""Changed rows that a summary holds; all of them are in its Arrow files."""
MAX_MOVERS = 5
MAX_TEXT = 200
"""Characters of a value that a summary holds, so that its size is bounded whatever the rows hold."""

TOLERANCE = 1e-9
"""Floating-point values that differ by no more than this part of the larger one are the same value.

A run that is repeated may add the same numbers up in another order.
"""

Value = bool | int | float | str | None
"""A table's value as JSON can hold it.

Dates, timestamps and decimals are text; so are NaN and the infinities, and all that is not a single value.
"""


class PublishedVersion(Record):
    """One published version of a day."""

    attempt: int
    run_id: str
    tag: str
    """By which the table shows it: `VERSION AS OF '<tag>'`."""
    snapshot_id: str
    published_at: datetime
    frozen_at: datetime
    """When its inputs were listed."""
    manifest: str


class Totals(StrEnum):
    """How a metric's rows are put into one number."""

    SUM = "sum"
    """Of whole numbers and decimals."""
    MEAN = "mean"
    """Of the rows that have a finite value, each counting once: floating-point columns are means and shares already."""


class Mover(Record):
    """One key whose value of a metric has moved."""

    key: dict[str, Value]
    before: float | None
    """None, for a sum, where there was no such row, or no value; a mean's movers have a value on both sides."""
    after: float | None


class MetricChange(Record):
    """One numeric column of the table, over the whole day."""

    metric: str
    total: Totals
    before: float | None
    """None of a day without a value."""
    after: float | None
    movers: tuple[Mover, ...] = ()
    """The largest differences first, at most `MAX_MOVERS`."""

    @property
    def moved(self) -> bool:
        """Whether the day's number is another one; of a mean, by more than the order of adding up explains."""
        if self.before is None or self.after is None or self.total is Totals.SUM:
            return self.before != self.after
        return not math.isclose(self.before, self.after, rel_tol=TOLERANCE)


class RowChange(Record):
    """One row that is new, gone or other."""

    change: Change
    key: dict[str, Value]
    values: dict[str, tuple[Value, Value]]
    """By column, before and after: the columns that differ, or all of them for a row that is new or gone."""


class RowCounts(Record):
    """Rows of the day, by the table's key."""

    before: int
    after: int
    added: int
    removed: int
    changed: int

    @property
    def differing(self) -> int:
        """Rows that are not what they were."""
        return self.added + self.removed + self.changed


class Comparison(Record):
    """What the later of two versions of a day changed, and the inputs that explain it."""

    pipeline: str
    date: str
    key: tuple[str, ...]
    """What tells rows of the day apart: the table's key without `date`."""
    before: PublishedVersion
    after: PublishedVersion
    rows: RowCounts
    metrics: tuple[MetricChange, ...]
    examples: tuple[RowChange, ...]
    """In order of key, at most `MAX_ROWS`."""
    all_rows: ArrowReference | None
    """All changed rows as Arrow files: the key, `change`, and `<column>_before`, `<column>_after`; None without any."""
    inputs: tuple[SourceDifference, ...]
    seconds: float


class ComparisonReference(Record):
    """What passes through the orchestrator of a comparison."""

    uri: str
    """Of the `Comparison` as JSON; empty when there is nothing to compare."""
    before: int
    after: int
    differing: int
    """Rows."""
    why: str = ""
    """In words, when there is nothing to compare."""


def comparison_uri(prefix: str) -> str:
    """Return the address of the `Comparison` of two versions that is kept under `prefix`."""
    return f"{prefix}comparison.json"


def reference_to(comparison: Comparison, prefix: str) -> ComparisonReference:
    """Return what passes through the orchestrator of a comparison that is kept under `prefix`."""
    return ComparisonReference(
        uri=comparison_uri(prefix),
        before=comparison.before.attempt,
        after=comparison.after.attempt,
        differing=comparison.rows.differing,
    )
