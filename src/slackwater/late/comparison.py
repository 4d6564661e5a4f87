"""What a new version of a day changed: the summary that is stored, shown and told."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from slackwater.arrow.reference import ArrowReference
from slackwater.late.difference import Change, LateRecord, SourceDifference

MAX_ROWS = 100
"""Changed rows that a summary holds; all of them are in its Arrow files."""
MAX_MOVERS = 5

Value = bool | int | float | str | None
"""A table's value as JSON can hold it: dates, timestamps and decimals as text."""


class Version(LateRecord):
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
    """Of the rows that have a value, each counting once: floating-point columns are means and shares already."""


class Mover(LateRecord):
    """One key whose value of a metric has moved."""

    key: dict[str, Value]
    before: float | None
    """None where there was no such row, or no value."""
    after: float | None


class MetricChange(LateRecord):
    """One numeric column of the table, over the whole day."""

    metric: str
    total: Totals
    before: float | None
    """None of a day without a value."""
    after: float | None
    movers: tuple[Mover, ...] = ()
    """The largest differences first, at most `MAX_MOVERS`."""


class RowChange(LateRecord):
    """One row that is new, gone or other."""

    change: Change
    key: dict[str, Value]
    values: dict[str, tuple[Value, Value]]
    """By column, before and after: the columns that differ, or all of them for a row that is new or gone."""


class RowCounts(LateRecord):
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


class Comparison(LateRecord):
    """What the later of two versions of a day changed, and the inputs that explain it."""

    pipeline: str
    date: str
    key: tuple[str, ...]
    before: Version
    after: Version
    rows: RowCounts
    metrics: tuple[MetricChange, ...]
    examples: tuple[RowChange, ...]
    """In order of key, at most `MAX_ROWS`."""
    all_rows: ArrowReference | None
    """All changed rows as Arrow files: the key, `change`, and `<column>_before`, `<column>_after`; None without any."""
    inputs: tuple[SourceDifference, ...]
    seconds: float


class ComparisonReference(LateRecord):
    """What passes through the orchestrator of a comparison."""

    uri: str
    """Of the `Comparison` as JSON; empty when there is nothing to compare."""
    before: int
    after: int
    differing: int
    """Rows."""
