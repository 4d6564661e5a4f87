"""What a comparison comes to in a few words, and numbers as people write them. All of it is ASCII."""

from __future__ import annotations

import math
from datetime import timedelta

from slackwater.late.comparison import Comparison, MetricChange, RowCounts, Totals

_EXACT = 1e15
"""Above it, and below `_TINY`, numbers are written with an exponent."""
_TINY = 1e-6
_DIGITS = (4, 7, 10, 13, 17)
"""Significant digits: the first, unless two numbers that differ would look alike."""
_SMALL, _LARGE = 0.1, 1e6
"""Percentages between which one decimal says enough."""
_UNITS = ((86_400, "day"), (3_600, "h"), (60, "min"), (1, "s"))


def largest_effect(comparison: Comparison) -> str:
    """Return the effect that matters most, for a subject line: `flights 831 -> 883 (+6.3 %)`."""
    metric = largest_metric(comparison)
    return effect(metric) if metric else rows_effect(comparison.rows)


def largest_metric(comparison: Comparison) -> MetricChange | None:
    """Return the metric whose move stands out most, if one has moved: sums, which are quantities, before means."""
    for total in (Totals.SUM, Totals.MEAN):
        moved = [metric for metric in comparison.metrics if metric.total is total and metric.moved]
        if moved:
            return max(moved, key=_size)
    return None


def effect(metric: MetricChange) -> str:
    """Return one metric's change: `flights 831 -> 883 (+6.3 %)`."""
    before, after = pair(metric.before, metric.after)
    relative = change(metric.before, metric.after)
    name = metric.metric.encode("unicode_escape").decode("ascii")
    return f"{name} {before} -> {after}{f' ({relative})' if relative else ''}"


def rows_effect(rows: RowCounts) -> str:
    """Return what has become of the rows: `+3 rows`, `+3 -1 rows`, `2 rows changed`, `no change`."""
    come = [f"{sign}{count:,}" for sign, count in (("+", rows.added), ("-", rows.removed)) if count]
    if come:
        return f"{' '.join(come)} {_rows(rows.added + rows.removed)}"
    return f"{rows.changed:,} {_rows(rows.changed)} changed" if rows.changed else "no change"


def number(value: float | int | None) -> str:
    """Return a number as people read it: `1,234`, `12.63`, `0.0123`; `none` for none."""
    return _written(value, _DIGITS[0])


def pair(before: float | int | None, after: float | int | None) -> tuple[str, str]:
    """Return two numbers as `number` writes them, with as many more digits as tell them apart."""
    for digits in _DIGITS:
        texts = _written(before, digits), _written(after, digits)
        if texts[0] != texts[1] or before == after:
            break
    return texts


def change(before: float | int | None, after: float | int | None) -> str:
    """Return the relative change, `+6.3 %`; the difference from zero, `+52`; `new` or `gone`; nothing for no change."""
    if before == after:
        return ""
    if before is None or after is None:
        return "new" if before is None else "gone"
    if before == 0:
        return f"{'+' if after > 0 else ''}{number(after)}"
    percent = 100 * (after - before) / abs(before)
    return f"{percent:+,.1f} %" if _SMALL <= abs(percent) < _LARGE else f"{percent:+.2g} %"


def duration(span: timedelta) -> str:
    """Return a span by its two largest units, without its sign: `25 s`, `4 min 10 s`, `2 days 3 h`."""
    parts: list[str] = []
    seconds = round(abs(span).total_seconds())
    for size, name in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count} {name}{'s' if name == 'day' and count != 1 else ''}" if count else "")
        if len(parts) == 2:  # noqa: PLR2004
            break
    return " ".join(part for part in parts if part) or "0 s"


def _size(metric: MetricChange) -> float:
    """Return how much a change stands out; of counts, beside the root of the larger: 3 -> 5 less than 705 -> 908."""
    before, after = metric.before or 0.0, metric.after or 0.0
    largest = max(abs(before), abs(after))
    return abs(after - before) / (math.sqrt(largest) if metric.total is Totals.SUM else largest) if largest else 0.0


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


def _written(value: float | int | None, digits: int) -> str:
    if value is None:
        return "none"
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size < _EXACT and value == int(value):
        return f"{int(value):,}"
    if not _TINY <= size < _EXACT:
        return f"{value:.{digits}g}"
    decimals = max(2, digits - 1 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}".rstrip("0").rstrip(".")
