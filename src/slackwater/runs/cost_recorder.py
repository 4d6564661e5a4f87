"""Recording the cost of runs and comparisons: what AWS reports when they end, and the rest when AWS reports it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

from slackwater.costs.cost import RunUsage, final_cost, price_run
from slackwater.errors import AccessDenied, CloudError, Throttled, Unavailable
from slackwater.metrics import Metric, PutsMetric
from slackwater.runs.comparison_run import AttemptCosts, ComparisonRun, DueCost, attempt_costs
from slackwater.runs.cost_estimate import expected_usd, latest_runs, shows_price
from slackwater.runs.record import RunRecord
from slackwater.runs.table import RunTable

KNOWN_WITHIN = timedelta(days=7)
"""So long after the end of a run, its cost is no longer asked for."""
RECORDING_TIME = timedelta(seconds=60)
"""So long does one call of `record_due` work by default, and then for one more run."""

Priced = TypeVar("Priced", RunRecord, ComparisonRun)


class UsageGone(NamedTuple):
    """AWS reports nothing about a run any more."""

    reason: str


class UsageReader(Protocol):
    """Reads what runs and comparisons have used."""

    def usage(self, record: RunRecord | ComparisonRun) -> RunUsage | UsageGone:
        """Return what an attempt of a run, or a comparison, has used. Raises `CloudError`, `AccessDenied`."""


class RecordedCosts(NamedTuple):
    """What one call of `record_due` has done."""

    completed: tuple[RunRecord | ComparisonRun, ...]
    """Runs and comparisons whose cost is final now."""
    errors: tuple[str, ...]
    """Why costs are still missing: one sentence for each error."""


@dataclass(frozen=True, kw_only=True)
class CostRecorder:
    """Records what runs and comparisons cost, with the prices of one region and architecture."""

    table: RunTable
    reader: UsageReader
    region: str
    """Such as us-east-1."""
    architecture: str
    """`x86_64` or `arm64`."""
    now: Callable[[], datetime]
    put_metric: PutsMetric | None = None
    """Called when this recorder has made a cost final: of all processes, only one writes it."""

    def price(self, record: Priced) -> Priced:
        """Return the record of a run that has ended, or of a comparison, with what is known about its cost now.

        The cost is final, and states what is missing, when AWS does not know it any more, and when its cost is
        still not known after seven days. Raises `CloudError`, `AccessDenied`, and `InputError` if the price
        file is not valid.
        """
        end = record.ended_at if isinstance(record, RunRecord) else record.started_at
        is_old = end is not None and self.now() - end > KNOWN_WITHIN
        try:
            usage = self.reader.usage(record)
        except (Throttled, Unavailable):
            raise
        except (AccessDenied, CloudError) as error:
            if not is_old:
                raise
            usage = UsageGone(str(error))
        if isinstance(usage, UsageGone):
            cost = final_cost(record.cost, usage.reason)
        else:
            cost = price_run(usage, region=self.region, architecture=self.architecture)
            if is_old and not cost.complete:
                cost = final_cost(cost, f"AWS has not reported all of its usage within {KNOWN_WITHIN.days} days")
        return record.model_copy(update={"cost": cost})

    def record(self, record: Priced) -> Priced | None:
        """Record what `price` returns, and return it; None if another process has recorded a cost meanwhile.

        A final cost is put as a metric. A run gets what it was expected to cost beside its first price. Raises
        `CloudError`, `AccessDenied`, and `InputError` if the price file is not valid.
        """
        priced = self.price(record)
        if isinstance(priced, RunRecord) and priced.estimated_usd is None and shows_price(priced):
            runs = latest_runs(self.table, priced.run.pipeline, last=priced.run.date)
            earlier = [run for run in runs if run.started_at < priced.started_at]
            priced = priced.model_copy(update={"estimated_usd": expected_usd(earlier, priced.run.rows)})
        if priced == record:
            return priced
        if not self.table.save_cost(priced):
            return None
        if is_final(priced):
            self._put_metrics(priced)
        return priced

    def _put_metrics(self, record: RunRecord | ComparisonRun) -> None:
        cost, pipeline = record.cost, record.run.pipeline if isinstance(record, RunRecord) else record.pipeline
        if self.put_metric is None or cost is None:
            return
        if cost.usd is not None:
            self.put_metric(Metric.RUN_COST, cost.usd, pipeline=pipeline)
        if cost.jobs:
            self.put_metric(Metric.JOB_QUEUE_MINUTES, cost.queued_seconds / 60, pipeline=pipeline)

    def attempt_costs(self, pipeline: str, date: str, *, before: int, after: int) -> AttemptCosts:
        """Return what is known now about the cost of the attempt `after`, and of comparing it with `before`.

        Records nothing. Raises `CloudError`, `AccessDenied`.
        """
        run = self.table.run(pipeline, date, after)
        pairs = self.table.comparisons(pipeline, date)
        comparisons = [item for item in pairs if (item.before, item.after) == (before, after)]
        return attempt_costs(self._priced(run) if run else None, [self._priced(item) for item in comparisons])

    def _priced(self, record: Priced) -> Priced:
        return record if is_final(record) else self.price(record)

    def record_due(self, pipeline: str, *, within: timedelta = RECORDING_TIME) -> RecordedCosts:
        """Record the costs of the pipeline's ended runs and comparisons that have no final cost yet.

        It stops after the time `within`, and when AWS throttles or is unavailable: the next call goes on. Another error
        about one of them does not stop the others. Raises `CloudError` when the run table cannot be read.
        """
        until = self.now() + within
        completed, errors = list[RunRecord | ComparisonRun](), list[str]()
        for due in self.table.costs_due(pipeline):
            if self.now() > until:
                break
            try:
                recorded = self._record_due(pipeline, due)
            except (Throttled, Unavailable) as error:
                errors.append(str(error))
                break
            except (AccessDenied, CloudError) as error:
                errors.append(str(error))
                continue
            if recorded is not None and is_final(recorded):
                completed.append(recorded)
        return RecordedCosts(tuple(completed), tuple(errors))

    def _record_due(self, pipeline: str, due: DueCost) -> RunRecord | ComparisonRun | None:
        """Record one due cost. Return None if it is not due any more, or if another process has recorded one meanwhile.

        The list may miss writes of the last seconds.
        """
        if due.comparison:
            comparison = self.table.comparison(pipeline, due)
            return None if comparison is None or is_final(comparison) else self.record(comparison)
        run = self.table.run(pipeline, due.date, due.attempt)
        return None if run is None or is_final(run) else self.record(run)


def is_final(record: RunRecord | ComparisonRun) -> bool:
    """Return whether the recorded cost is final."""
    return record.cost is not None and record.cost.complete
