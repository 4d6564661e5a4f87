"""Recording the cost of runs: what AWS reports when a run ends, and the rest when AWS reports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from slackwater.errors import AccessDenied, CloudError, Throttled, Unavailable
from slackwater.runs.cost import RunUsage, give_up, price_run
from slackwater.runs.record import RunRecord

GIVE_UP_AFTER = timedelta(days=7)
"""So long after the end of a run, its cost is no longer asked for."""
RECORDING_TIME = timedelta(seconds=60)
"""So long does one call of `record_due` work by default, and then for one more run."""


class UsageGone(NamedTuple):
    """AWS reports nothing about a run any more."""

    reason: str


class UsageReader(Protocol):
    """Reads what runs have used."""

    def usage(self, record: RunRecord) -> RunUsage | UsageGone:
        """Return what an attempt of a run has used. Raises `CloudError`, `AccessDenied`."""


class CostTable(Protocol):
    """The run table as costs use it. All methods raise `CloudError` when the table cannot be read or written."""

    def costs_due(self, pipeline: str) -> Iterator[tuple[str, int]]:
        """Yield date and attempt of each run that has ended and has no final cost, in order.

        May miss writes of the last seconds.
        """

    def run(self, pipeline: str, date: str, attempt: int) -> RunRecord | None:
        """Return one attempt of the day, or None."""

    def save_cost(self, run: RunRecord) -> None:
        """Write a run that has ended with its new cost, which is no longer due if it is complete."""


class RecordedCosts(NamedTuple):
    """What one call of `record_due` has done."""

    completed: tuple[RunRecord, ...]
    """Runs whose cost is final now."""
    problems: tuple[str, ...]
    """Why costs are still missing: one sentence for each error."""


@dataclass(frozen=True, kw_only=True)
class CostRecorder:
    """Records what runs cost, with the prices of one region and architecture."""

    table: CostTable
    reader: UsageReader
    region: str
    """Such as us-east-1."""
    architecture: str
    """`x86_64` or `arm64`."""
    now: Callable[[], datetime]

    def record(self, record: RunRecord) -> RunRecord:
        """Record what is known about the cost of a run that has ended, and return its record.

        A run is given up, with a final cost that states why, when AWS does not know it any more, and when its cost is
        still not known after seven days. Raises `CloudError`, `AccessDenied`.
        """
        is_old = record.ended_at is not None and self.now() - record.ended_at > GIVE_UP_AFTER
        try:
            usage = self.reader.usage(record)
        except (Throttled, Unavailable):
            raise
        except (AccessDenied, CloudError) as error:
            if not is_old:
                raise
            usage = UsageGone(str(error))
        if isinstance(usage, UsageGone):
            cost = give_up(record.cost, usage.reason)
        else:
            cost = price_run(usage, region=self.region, architecture=self.architecture)
            if is_old and not cost.complete:
                cost = give_up(cost, f"AWS has not reported all of its usage within {GIVE_UP_AFTER.days} days")
        priced = record.model_copy(update={"cost": cost})
        if priced != record:
            self.table.save_cost(priced)
        return priced

    def record_due(self, pipeline: str, *, within: timedelta = RECORDING_TIME) -> RecordedCosts:
        """Record the costs of the pipeline's runs that have ended and have no final cost yet.

        It stops after the time `within`, and when AWS throttles or is unavailable: the next call goes on. Another error
        about a run does not stop the others. Raises `CloudError` when the run table cannot be read.
        """
        until = self.now() + within
        completed, problems = list[RunRecord](), list[str]()
        for date, attempt in self.table.costs_due(pipeline):
            if self.now() > until:
                break
            record = self.table.run(pipeline, date, attempt)
            # The list of due costs may miss writes of the last seconds.
            if record is None or (record.cost and record.cost.complete):
                continue
            try:
                priced = self.record(record)
            except (Throttled, Unavailable) as error:
                problems.append(str(error))
                break
            except (AccessDenied, CloudError) as error:
                problems.append(str(error))
                continue
            if priced.cost and priced.cost.complete:
                completed.append(priced)
        return RecordedCosts(tuple(completed), tuple(problems))
