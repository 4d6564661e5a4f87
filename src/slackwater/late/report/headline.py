"""How a change is named in a few words, for subjects and headings, and how values of a table become strings."""

from __future__ import annotations

import math

from slackwater.formatting import counted, escape_control_characters, number, number_pair, relative_change
from slackwater.late.comparison import Cause, Comparison, MetricChange, RowCounts, Totals, Value

MAX_CELL = 24
"""Characters of a value in a table."""
# Of a value in a line.
_MAX_VALUE = 40
_CAUSES = {
    Cause.LATE_DATA: "late data",
    Cause.REMOVED_DATA: "removed data",
    Cause.NEW_DEFINITION: "a new definition",
    Cause.NEW_CODE: "new code",
    Cause.ROLLBACK: "a rollback to version {version}",
}


def describe_causes(comparison: Comparison) -> str:
    """Return what has changed the day: `late data`, `late data and a new definition`."""
    names = [_CAUSES[cause].format(version=comparison.after.rollback) for cause in comparison.causes]
    if not names:
        # Without the manifests of both versions, nothing is known about the inputs.
        return "a new run" if comparison.inputs else "a new version"
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def describe_change(comparison: Comparison, what: str) -> str:
    """Return the beginning of a sentence: `Late data and a new definition have changed WHAT`."""
    causes = describe_causes(comparison)
    return f"{causes[0].upper()}{causes[1:]} {'have' if len(comparison.causes) > 1 else 'has'} changed {what}"


def largest_effect(comparison: Comparison) -> str:
    """Return the most important change in ASCII, for a subject line: `flights 831 -> 883 (+6.3 %)`."""
    metric = largest_metric(comparison)
    return metric_effect(metric) if metric else rows_effect(comparison.rows)


def largest_metric(comparison: Comparison) -> MetricChange | None:
    """Return the metric with the most significant change, or None without a change.

    Sums come before means, and means before minima and maxima.
    """
    for total in Totals:
        moved = [metric for metric in comparison.metrics if metric.total is total and metric.moved]
        if moved:
            return max(moved, key=significance)
    return None


def metric_effect(metric: MetricChange) -> str:
    """Return the change of one metric in ASCII: `flights 831 -> 883 (+6.3 %)`."""
    before, after = number_pair(metric.before, metric.after)
    relative = relative_change(metric.before, metric.after)
    name = metric.metric.encode("unicode_escape").decode("ascii")
    return f"{name} {before} -> {after}{f' ({relative})' if relative else ''}"


def rows_effect(rows: RowCounts) -> str:
    """Return the change of the rows: `+3 rows`, `+3 -1 rows`, `2 rows changed`, `no change`."""
    counts = [f"{sign}{count:,}" for sign, count in (("+", rows.added), ("-", rows.removed)) if count]
    if counts:
        return f"{' '.join(counts)} {'row' if rows.added + rows.removed == 1 else 'rows'}"
    return f"{counted(rows.changed, 'row')} changed" if rows.changed else "no change"


def significance(metric: MetricChange) -> float:
    """Return a number that ranks the change of a metric among metrics with the same `total`.

    For a sum it is the change divided by the square root of the larger value: 705 -> 908 ranks above 3 -> 5, although
    its relative change is smaller. For others it is the relative change.
    """
    # The square root of a count is about its standard deviation when events are independent.
    before, after = metric.before or 0.0, metric.after or 0.0
    largest = max(abs(before), abs(after))
    return abs(after - before) / (math.sqrt(largest) if metric.total is Totals.SUM else largest) if largest else 0.0


def cut_value(value: Value, limit: int = _MAX_VALUE) -> str:
    """Return a value as one line of at most `limit` characters.

    Numbers have no thousands separators, because numbers in keys are names: the year 2013 stays 2013.

    >>> cut_value(None), cut_value(2013), cut_value("a long value", limit=6)
    ('none', '2013', 'a l...')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    string = escape_control_characters(str(value))
    return string if len(string) <= limit else f"{string[: limit - 3]}..."


def format_values(*values: Value, limit: int = _MAX_VALUE) -> str:
    """Return one value, or a value before and after: `1,234`, `120 -> 131`. Numbers have thousands separators."""
    numbers = [
        value for value in values if value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    ]
    if len(numbers) < len(values):
        return " -> ".join(cut_value(value, limit) for value in values)
    return " -> ".join(number_pair(*numbers)) if len(numbers) > 1 else number(*numbers)
