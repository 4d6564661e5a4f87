"""How large the effect of a change is, which decides whether people are notified, and with which severity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from slackwater.late.comparison import Comparison, MetricChange, RowCounts


class Severity(StrEnum):
    """The severity of a message about a changed day."""

    INFO = "info"
    WARNING = "warning"


def effect_percent(comparison: Comparison) -> float:
    """Return the largest relative change between two versions in percent, without its sign."""
    return effect_of(comparison.metrics, comparison.rows)


def effect_of(metrics: Sequence[MetricChange], rows: RowCounts) -> float:
    """Return the largest relative change of a metric in percent, without its sign, infinite as `change_percent`.

    For a table without metrics, it is the share of the rows that differ, of the rows of the larger version.
    """
    if metrics:
        return max(abs(change_percent(metric)) for metric in metrics)
    return 100 * rows.differing / max(rows.before, rows.after, 1)


def severity(comparison: Comparison) -> Severity:
    """Return the severity of a change, by `late.notify.warning_percent` of the pipeline."""
    is_warning = effect_percent(comparison) >= comparison.notify.warning_percent
    return Severity.WARNING if is_warning else Severity.INFO


def needs_message(comparison: Comparison) -> bool:
    """Whether rows differ, and the effect reaches `late.notify.min_effect_percent` of the pipeline."""
    return comparison.rows.differing > 0 and effect_percent(comparison) >= comparison.notify.min_effect_percent


def change_percent(metric: MetricChange) -> float:
    """Return the change of a metric in percent of its earlier total; infinite if that is 0 or one of both is None."""
    if not metric.moved:
        return 0.0
    if metric.before is None or metric.after is None or not metric.before:
        return math.inf
    return 100 * (metric.after - metric.before) / abs(metric.before)
