"""What the runs and comparisons of each day have cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import fsum
from statistics import median

from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.client.arguments import last_period
from slackwater.costs.cost import RunCost
from slackwater.errors import InputError
from slackwater.runs.comparison_run import ComparisonRun
from slackwater.runs.record import RunReason, RunRecord, RunState

_FIRST, _LAST = "0001-01-01", "9999-12-31"


@dataclass(frozen=True, kw_only=True)
class CostTotals:
    """The costs of some runs that have ended, and of comparisons. A sum covers the known values; None without any."""

    runs: int
    reruns: int
    """Runs after the first attempt of their day."""
    failed: int
    comparisons: int
    """Spark jobs that have compared two versions of a day."""
    vcpu_hours: float | None
    """Billed by EMR Serverless; also the other hours."""
    memory_gb_hours: float | None
    storage_gb_hours: float | None
    usd: float | None
    comparison_usd: float | None
    """The part of `usd` for comparisons; 0 without any."""
    late_data_usd: float | None
    """The part of `usd` for runs that late data has caused, and for comparisons of their versions; 0 without any."""
    unknown: int
    """Runs and comparisons whose price is unknown, so that `usd` lacks it."""
    pending: int
    """Runs and comparisons whose cost is not final yet."""
    estimate_error_percent: float | None
    """By how many percent of its price a run was expected to cost more or less: the median of the runs with an
    estimate; None without any."""


@dataclass(frozen=True, kw_only=True)
class DayCost(CostTotals):
    """The costs of one day of a pipeline."""

    pipeline: str
    date: str
    records: tuple[RunRecord, ...]
    """The runs of the day that have ended."""
    compared: tuple[ComparisonRun, ...]

    @property
    def costs(self) -> list[RunCost]:
        """Of the runs and the comparisons, as far as they were recorded."""
        return _costs(self.records, self.compared)


def costs_of_days(
    table: DynamoRunTable, pipelines: Iterable[str], *, first: str | None, last: str | None
) -> tuple[DayCost, ...]:
    """Return the costs of each day of the pipelines that has runs, in order of pipeline and date.

    `first` and `last` are days or hours, None for no limit. Raises `InputError` for a reversed range, and `CloudError`.
    """
    end = last_period(last) if last else _LAST
    if first and first > end:
        raise InputError(f"from: {first} is after to, {last}: exchange them")
    days = []
    for pipeline in pipelines:
        limits = first or _FIRST, end
        ended = [record for record in table.runs_between(pipeline, *limits) if record.ended_at]
        compared = table.comparisons_between(pipeline, *limits) if ended else []
        for date, of_day in groupby(ended, key=lambda record: record.run.date):
            records, comparisons = tuple(of_day), tuple(item for item in compared if item.date == date)
            totals = vars(total_cost(records, comparisons))
            days.append(DayCost(pipeline=pipeline, date=date, records=records, compared=comparisons, **totals))
    return tuple(days)


def total_cost(records: Sequence[RunRecord], compared: Sequence[ComparisonRun]) -> CostTotals:
    """Return the totals of runs that have ended, and of comparisons."""
    late = [record for record in records if caused_by_late_data(record)]
    late_versions = {(record.run.pipeline, record.run.date, record.run.attempt) for record in late}
    of_late = [item for item in compared if (item.pipeline, item.date, item.after) in late_versions]
    costs = _costs(records, compared)
    count = len(records) + len(compared)
    errors = [
        100 * abs(record.estimated_usd - record.cost.usd) / record.cost.usd
        for record in records
        if record.estimated_usd is not None and record.cost and record.cost.usd
    ]
    return CostTotals(
        runs=len(records),
        reruns=sum(record.run.attempt > 1 for record in records),
        failed=sum(record.state is RunState.FAILED for record in records),
        comparisons=len(compared),
        vcpu_hours=_total(cost.vcpu_hours for cost in costs),
        memory_gb_hours=_total(cost.memory_gb_hours for cost in costs),
        storage_gb_hours=_total(cost.storage_gb_hours for cost in costs),
        usd=_total(cost.usd for cost in costs),
        comparison_usd=_total(cost.usd for cost in _costs([], compared)) if compared else 0.0,
        late_data_usd=_total(cost.usd for cost in _costs(late, of_late)) if late else 0.0,
        unknown=count - sum(cost.usd is not None for cost in costs),
        pending=count - sum(cost.complete for cost in costs),
        estimate_error_percent=round(median(errors), 1) if errors else None,
    )


def _costs(records: Sequence[RunRecord], compared: Sequence[ComparisonRun]) -> list[RunCost]:
    """Return the costs that were recorded."""
    return [cost for cost in (*(item.cost for item in records), *(item.cost for item in compared)) if cost]


def caused_by_late_data(record: RunRecord) -> bool:
    """Return whether late data is a reason of the run; it includes inputs that the partner has removed.

    Older versions recorded no reasons, and no digest of the definition: of their runs, each re-run counts.

    A failed run with this reason counts too: it was started for late data.
    """
    if record.reasons or record.definition:
        return RunReason.LATE_DATA in record.reasons
    return record.run.attempt > 1


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(fsum(known), 8) if known else None
