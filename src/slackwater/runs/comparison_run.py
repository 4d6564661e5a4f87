"""An execution that compares two versions of a day, as the run table stores it for its cost."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from slackwater.costs.cost import RunCost, total_usd
from slackwater.model import UpdatedRecord
from slackwater.runs.record import RunRecord


class ComparisonRun(UpdatedRecord):
    """One execution that starts a Spark job to compare two versions of a day.

    An execution that finds the comparison, or waits for the job of another one, has no record.
    """

    pipeline: str
    date: str
    before: int
    """The attempt that published the earlier version."""
    after: int
    execution: str
    """ARN of the Step Functions execution."""
    started_at: datetime
    cost: RunCost | None = None
    """None until AWS was first asked."""
    cost_version: int = 0
    """Counts the writes of the cost, as in `RunRecord`."""

    @property
    def execution_name(self) -> str:
        """The last part of the execution's ARN, which is unique among the comparisons."""
        return self.execution.rpartition(":")[2]


class DueCost(NamedTuple):
    """A run that has ended, or a comparison, whose cost is not final."""

    date: str
    attempt: int
    """Of a comparison: that of the later version."""
    comparison: str = ""
    """`ComparisonRun.execution_name`; empty for a run."""


class AttemptCosts(NamedTuple):
    """What a run has cost, and comparing its version with an earlier one."""

    run: RunCost | None
    comparison_usd: float | None
    """None without a comparison, and while its cost is unknown."""


def attempt_costs(run: RunRecord | None, comparisons: Iterable[ComparisonRun]) -> AttemptCosts:
    """Return the costs of a run, and of these comparisons of its version."""
    return AttemptCosts(run.cost if run else None, total_usd(item.cost for item in comparisons))


def attempt_usd(run: RunRecord, comparisons: Iterable[ComparisonRun]) -> float | None:
    """Return the cost in USD of a run and of all comparisons of the version that it published.

    `comparisons` are those of the run's day. None if the cost of one is unknown.
    """
    of_version = [item.cost for item in comparisons if item.after == run.run.attempt]
    return total_usd([run.cost, *of_version])
