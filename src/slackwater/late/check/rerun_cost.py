"""What a re-run of a day is expected to cost, from the costs of the pipeline's past runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median

from slackwater.runs.record import RunRecord, RunState

_LATEST = 50
"""How many priced runs an estimate is computed from, at most: the latest ones."""


def estimate_rerun_cost(records: Sequence[RunRecord], input_bytes: int) -> float | None:
    """Return the expected price in USD of a run that reads `input_bytes`, from past runs of the same pipeline.

    It is read from a line through the runs: cost = fixed + slope * bytes. The slope is the median of the slopes between
    each two runs of different size, and not negative; the fixed part is the median of what each run has cost beyond
    its bytes (Theil and Sen's estimate). So a few unusual runs, such as one whose job was retried, change little. A
    small day costs a job start: the result is at least the price of the cheapest run, for any number of bytes.

    Only published runs count whose price is known and that have computed all of their stages from all inputs; a
    rollback computes none. None without any.
    """
    latest = sorted(filter(_counts, records), key=lambda record: record.started_at)[-_LATEST:]
    points = [(record.run.bytes, record.cost.usd) for record in latest if record.cost and record.cost.usd is not None]
    if not points:
        return None
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x1 != x2]
    slope = max(median(slopes), 0.0) if slopes else 0.0
    fixed = median(usd - slope * size for size, usd in points)
    return max(fixed + slope * input_bytes, min(usd for _, usd in points))


def _counts(record: RunRecord) -> bool:
    """Return whether a run shows the price of computing a day: published, no rollback, and nothing of earlier runs."""
    references = [stage.reference for stage in record.stages]
    computed = all(item.manifest.startswith(record.run.prefix) and not item.is_merged for item in references)
    priced = record.cost is not None and record.cost.usd is not None
    return record.state is RunState.PUBLISHED and record.rollback is None and computed and priced
