"""What the runs of each day have cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import fsum
from typing import Protocol

from slackwater.errors import InputError
from slackwater.runs.record import RunReason, RunRecord, RunState

_FIRST, _LAST = "0001-01-01", "9999-12-31"


class RunsOfDays(Protocol):
    """The run table as this module uses it."""

    def runs_between(self, pipeline: str, first: str, last: str) -> list[RunRecord]:
        """Return the runs of the days from `first` to `last`, in order of date and attempt. Raises `CloudError`."""


@dataclass(frozen=True, kw_only=True)
class CostTotals:
    """The costs of some runs that have ended. A sum covers the runs whose value is known; None if there is none."""

    runs: int
    reruns: int
    """Runs after the first attempt of their day."""
    failed: int
    vcpu_hours: float | None
    """Billed by EMR Serverless; also the other hours."""
    memory_gb_hours: float | None
    storage_gb_hours: float | None
    usd: float | None
    late_data_usd: float | None
    """Of the runs that late data has caused; 0 if it has caused none."""
    unknown: int
    """Runs whose price is unknown, so that `usd` lacks it."""
    pending: int
    """Runs whose cost is not final yet."""


@dataclass(frozen=True, kw_only=True)
class DayCost(CostTotals):
    """The costs of one day of a pipeline."""

    pipeline: str
    date: str
    records: tuple[RunRecord, ...]
    """The runs of the day that have ended."""


def costs_of_days(
    table: RunsOfDays, pipelines: Iterable[str], *, first: str | None, last: str | None
) -> tuple[DayCost, ...]:
    """Return the costs of each day of the pipelines that has runs, in order of pipeline and date.

    `first` and `last` are ISO dates, None for no limit. Raises `InputError` for a reversed range, and `CloudError`.
    """
    if first and last and first > last:
        raise InputError(f"from: {first} is after to, {last}: exchange them")
    days = []
    for pipeline in pipelines:
        records = table.runs_between(pipeline, first or _FIRST, last or _LAST)
        ended = [record for record in records if record.ended_at]
        for date, of_day in groupby(ended, key=lambda record: record.run.date):
            chosen = tuple(of_day)
            days.append(DayCost(pipeline=pipeline, date=date, records=chosen, **vars(total_cost(chosen))))
    return tuple(days)


def total_cost(records: Sequence[RunRecord]) -> CostTotals:
    """Return the totals of runs that have ended."""
    costs = [record.cost for record in records if record.cost]
    late = [record for record in records if caused_by_late_data(record)]
    return CostTotals(
        runs=len(records),
        reruns=sum(record.run.attempt > 1 for record in records),
        failed=sum(record.state is RunState.FAILED for record in records),
        vcpu_hours=_total(cost.vcpu_hours for cost in costs),
        memory_gb_hours=_total(cost.memory_gb_hours for cost in costs),
        storage_gb_hours=_total(cost.storage_gb_hours for cost in costs),
        usd=_total(cost.usd for cost in costs),
        late_data_usd=_total(record.cost.usd if record.cost else None for record in late) if late else 0.0,
        unknown=sum(not record.cost or record.cost.usd is None for record in records),
        pending=sum(not record.cost or not record.cost.complete for record in records),
    )


def caused_by_late_data(record: RunRecord) -> bool:
    """Return whether late data is a reason of the run. Of runs without reasons, of older versions, each re-run counts.

    A failed run with this reason counts too: it was started for late data.
    """
    return RunReason.LATE_DATA in record.reasons if record.reasons else record.run.attempt > 1


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(fsum(known), 8) if known else None
