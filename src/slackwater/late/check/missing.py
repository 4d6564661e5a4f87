"""How much more late data a day needs to run again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

from slackwater.formatting import counted
from slackwater.late.amounts import late_amount, threshold_label
from slackwater.late.check.facts import SourceThresholds
from slackwater.runs.inputs.difference import SourceDifference


def missing_late_data(source: SourceDifference, thresholds: SourceThresholds) -> Iterator[str]:
    """Yield, for each threshold of a source below them, how much more late data reaches it. Nothing without late data.

    `13 more rows of flights (rows 25 of its source)`.
    """
    amount, (limits, origin) = late_amount(source), thresholds
    late = amount.late
    if not late.objects:
        return
    for name, value in limits:
        if value is None:
            continue
        if name == "percent":
            noun, least = "row", math.ceil(Decimal(str(value)) * amount.rows_before / 100)
        else:
            noun, least = name.removesuffix("s").replace("_", " "), int(value)
        present = {"row": late.rows, "byte": late.bytes}.get(noun, amount.changed_files)
        missing = counted(least - present, f"more {noun}")
        yield f"{missing} of {source.source} ({threshold_label(name, value)} of {origin})"
