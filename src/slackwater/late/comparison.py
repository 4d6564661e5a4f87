"""The comparison of two versions of a day: the summary that is stored, shown and sent."""

from __future__ import annotations

import math
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from slackwater.arrow.reference import ArrowReference
from slackwater.costs.cost import RunCost
from slackwater.model import Record
from slackwater.pipeline.definition import NotifyRules
from slackwater.runs.comparison_run import AttemptCosts
from slackwater.runs.inputs.difference import Change, SourceDifference
from slackwater.runs.inputs.input_definition import InputDefinition, described_changes
from slackwater.state.completeness import SourceCounts

MAX_ROWS = 100
"""Changed rows in a summary; all of them are in its Arrow files."""
MAX_MOVERS = 5
MAX_STRING_LENGTH = 200
"""Characters of a string in a summary; it bounds the size of the summary for any data."""

TOLERANCE = 1e-9
"""Relative tolerance below which two floating-point values are equal: Spark may sum the same numbers in another order.
"""

Value = bool | int | float | str | None
"""A table's value as JSON can represent it.

Dates, timestamps, decimals, NaN, the infinities and nested values are strings.
"""


class PublishedVersion(Record):
    """One published version of a day."""

    attempt: int
    run_id: str
    tag: str
    """The Iceberg tag: `VERSION AS OF '<tag>'` reads this version."""
    snapshot_id: str
    published_at: datetime
    frozen_at: datetime
    """When its inputs were listed."""
    manifest: str
    files_not_taken: dict[str, int] = Field(default_factory=dict)
    """For each source: files of the day that were not stored when its inputs were listed, if there were any."""
    counts: tuple[SourceCounts, ...] = ()
    """What the sources with `counts` had sent when its inputs were listed."""
    definition: str = ""
    """Digest of the pipeline's definition; empty if it is unknown."""
    code: str = ""
    """Digest of the code that the run executed; empty if it is unknown."""
    reads: InputDefinition | None = None
    """The inputs that the definition names; None if they are unknown."""
    rollback: int = 0
    """Number of the version that the run published again; 0 for a run that is no rollback."""
    cost: RunCost | None = None
    """Of the run, as far as it was known when the versions were chosen."""


class Cause(StrEnum):
    """Why two versions of a day may differ."""

    LATE_DATA = "late_data"
    """Inputs were added or changed."""
    REMOVED_DATA = "removed_data"
    """Inputs are gone."""
    NEW_DEFINITION = "new_definition"
    """The pipeline or the columns of its sources have changed."""
    NEW_CODE = "new_code"
    """The code of the pipeline's steps or of the Spark job has changed."""
    ROLLBACK = "rollback"
    """An earlier version was published again: the only cause, because its inputs, definition and code are those of the
    earlier version."""


class Totals(StrEnum):
    """How the values of a metric are aggregated over the day, as `publish.metrics` of the pipeline declares it.

    Null, NaN and the infinities are left out. The sum and the mean of integers and decimals come from an exact sum.
    """

    SUM = "sum"
    """Without a declaration: every column of numbers."""
    MEAN = "mean"
    """Over the rows."""
    MIN = "min"
    MAX = "max"


class Mover(Record):
    """One key of the table for which the value of a metric has changed."""

    key: dict[str, Value]
    before: float | None
    """None where the version has no row or no finite value. The movers of a mean have both values."""
    after: float | None


class HourTotals(Record):
    """A metric's total of one hour of the day, in both versions."""

    hour: str | None
    """The start of the hour in local time as ISO 8601, with its UTC offset if the column of hours is a timestamp:
    `2013-11-03T01:00-05:00`. None for all rows without an hour of the day."""
    before: float | None
    """As the total of the day."""
    after: float | None


class MetricChange(Record):
    """One numeric column of the table, over the whole day and by hour."""

    metric: str
    total: Totals
    exact: bool = False
    """Whether the column has integers or decimals, so that any difference of the totals is a change."""
    before: float | None
    """The double nearest to the total. None without a finite value, such as in a version without the column, or if the
    total is too large for a double."""
    after: float | None
    movers: tuple[Mover, ...] = ()
    """At most `MAX_MOVERS` keys whose value has changed: the largest differences first; for a minimum the smallest
    values, and for a maximum the largest values, so that the first one explains a change."""
    hours: tuple[HourTotals, ...] = ()
    """The hours of the day in order, with and without rows: at most 25, and then the rows without an hour, if there are
    any. Empty if the table has no column of hours."""

    @property
    def moved(self) -> bool:
        """Whether the day's total has changed; that of a floating-point column by more than `TOLERANCE`."""
        return self._differs(self.before, self.after)

    @property
    def moved_hours(self) -> tuple[HourTotals, ...]:
        """The hours whose total has changed, in the same sense."""
        return tuple(hour for hour in self.hours if self._differs(hour.before, hour.after))

    def _differs(self, before: float | None, after: float | None) -> bool:
        if before is None or after is None or self.exact:
            return before != after
        return not math.isclose(before, after, rel_tol=TOLERANCE)


class RowChange(Record):
    """One row that was added, removed or changed."""

    change: Change
    key: dict[str, Value]
    values: dict[str, tuple[Value, Value]]
    """Before and after by column: the columns that differ, or all columns of an added or removed row."""


class RowCounts(Record):
    """Number of rows of the day, matched by the table's key."""

    before: int
    after: int
    added: int
    removed: int
    changed: int

    @property
    def differing(self) -> int:
        """Rows that were added, removed or changed."""
        return self.added + self.removed + self.changed


class MetricSplit(Record):
    """How much of a metric's change the data has caused, and how much the definition and the code.

    Both are differences of totals, whatever the aggregation is: together they are `after` - `before`.
    """

    metric: str
    total: Totals
    before: float | None
    between: float | None
    """With the inputs of the later version, and the definition and code of the earlier one."""
    after: float | None
    data: float | None
    """`between` - `before`; None if one of them is."""
    definition: float | None
    """`after` - `between`; None if one of them is."""
    data_percent: float | None
    """Of `before`; None without it, and if it is 0."""
    definition_percent: float | None

    @classmethod
    def of(cls, metric: MetricChange, between: float | None) -> MetricSplit:
        """Return the parts of a metric's change. Totals that `MetricChange.moved` would call equal are equal here."""
        before, after = metric.before, metric.after
        for known in (after, before):
            if not metric.model_copy(update={"before": known, "after": between}).moved:
                between = known
        data = None if before is None or between is None else between - before
        definition = None if between is None or after is None else after - between
        data_percent, definition_percent = (
            None if part is None or not before else 100 * part / abs(before) for part in (data, definition)
        )
        values = {"before": before, "between": between, "after": after, "data": data, "definition": definition}
        percents = {"data_percent": data_percent, "definition_percent": definition_percent}
        return cls(metric=metric.metric, total=metric.total, **values, **percents)


class Split(Record):
    """What the data has changed between two versions, and what the definition and the code.

    The rows between them are those of the later version's inputs, with the definition and code of the earlier version.
    """

    metrics: tuple[MetricSplit, ...]
    """Those of the comparison, in its order."""
    data: RowCounts
    """From the rows of the earlier version to the rows between."""
    definition: RowCounts
    """From the rows between to the rows of the later version."""
    seconds: float
    """Of the job that has counted them."""


class Comparison(Record):
    """The changes between two versions of a day, and the changes of the inputs that explain them."""

    pipeline: str
    date: str
    correlation_id: str = ""
    """Of the execution that has compared the versions, as in its logs."""
    key: tuple[str, ...]
    """Columns that identify a row of the day: the table's key without `date`."""
    before: PublishedVersion
    after: PublishedVersion
    rows: RowCounts
    metrics: tuple[MetricChange, ...]
    """In the order of their declaration, or of the table's columns."""
    examples: tuple[RowChange, ...]
    """In order of key, at most `MAX_ROWS`."""
    all_rows: ArrowReference | None
    """All changed rows as Arrow files: the key, `change`, and `<column>_before`, `<column>_after`. None without any."""
    inputs: tuple[SourceDifference, ...]
    """By source, of what the definitions of both versions read; empty when an input manifest is gone."""
    seconds: float
    team: str = ""
    """The team that owns the pipeline; empty if the definition names none."""
    notify: NotifyRules = NotifyRules()
    """Of the pipeline's definition, at the time of the comparison."""
    comparison_usd: float | None = None
    """What this comparison and its split have cost in USD; None while that is unknown, and in the summary that the job
    stores."""
    split: Split | None = None
    """None where nobody has asked for it, and in the summary that the job stores."""
    split_reason: str = ""
    """Why there is no split, if somebody has asked for it."""

    def with_costs(self, costs: AttemptCosts) -> Comparison:
        """Return the comparison with costs that are known by now."""
        after = self.after.model_copy(update={"cost": costs.run or self.after.cost})
        return self.model_copy(update={"after": after, "comparison_usd": costs.comparison_usd})

    @property
    def causes(self) -> tuple[Cause, ...]:
        """What has changed between the runs of the versions; empty if nothing has, or if it is unknown."""
        before, after = self.before, self.after
        if after.rollback:
            return (Cause.ROLLBACK,)
        applies = {
            Cause.LATE_DATA: any(source.late.objects for source in self.inputs),
            Cause.REMOVED_DATA: any(source.removed for source in self.inputs),
            Cause.NEW_DEFINITION: bool(before.definition and after.definition)
            and before.definition != after.definition,
            Cause.NEW_CODE: bool(before.code and after.code) and before.code != after.code,
        }
        return tuple(cause for cause, is_cause in applies.items() if is_cause)

    @property
    def definition_changes(self) -> tuple[str, ...]:
        """What differs between the definitions of the versions, in words; empty if nothing does or it is unknown."""
        before, after = self.before.reads, self.after.reads
        if before is None or after is None or Cause.NEW_DEFINITION not in self.causes:
            return ()
        return described_changes(before, after)


class ComparisonReference(Record):
    """A comparison as Step Functions receives it."""

    uri: str
    """URI of the `Comparison` as JSON; empty when there is nothing to compare."""
    before: int
    after: int
    differing: int
    """Number of rows that differ."""
    reason: str = ""
    """Why there is nothing to compare."""
    split_reason: str = ""
    """Why there is no split, if one was asked for."""
