"""Which days of a range a backfill runs, and what they are expected to take and cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from statistics import median

from slackwater.errors import InputError
from slackwater.late.decision import DayDecision, DecisionRule, LateDecision
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.cost_estimate import expected_usd
from slackwater.runs.period import check_kind, distance, is_hour, period_of, shifted
from slackwater.runs.record import ActiveRun, DayRecord, Run, RunRecord
from slackwater.runs.table import RunTable

MAX_DAYS = 366
"""The most days of a backfill: their events fit into the history of an execution, their outcomes into a payload."""
MAX_PARALLEL = 40
"""The most days at the same time: the limit of Step Functions for an inline `Map` state."""
_SAMPLE = 20
"""How many published runs an estimate is computed from, at most."""
FIRST_DATE, LAST_DATE = date.min.isoformat(), date.max.isoformat()
"""The ends of a range with all days."""
# A run of such an hour does not need a person's decision: it says what is wrong, or reads the data as it is.
_RUN_BY_HAND = frozenset({DecisionRule.FAILED, DecisionRule.UNREADABLE, DecisionRule.CHANGING})
_UNREAD = frozenset({DecisionRule.UNREADABLE, DecisionRule.CHANGING})


class DayKind(StrEnum):
    """The state of a day before the backfill."""

    MISSING = "missing"
    """It was never run."""
    FAILED = "failed"
    """Its last run has failed, or was stopped."""
    STALE = "stale"
    """It is published from an older definition or older code, and such days run too."""
    CHANGED = "changed"
    """It is an hour that is published, and its inputs have changed since. No check runs hours again."""
    HELD = "held"
    """It is a published hour that a person has to decide about, such as one whose objects are gone."""
    CLAIMED = "claimed"
    """Another execution runs it now, so the backfill does not."""
    PUBLISHED = "published"
    """It is published, and does not run."""

    @property
    def runs(self) -> bool:
        """Whether a backfill runs such days."""
        return self not in {DayKind.HELD, DayKind.CLAIMED, DayKind.PUBLISHED}


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a backfill is expected to take and cost."""

    runs: int
    """How many published runs it is computed from."""
    seconds: float
    """Until the last day is published."""
    usd: float | None
    """The price of all days; None if none of the runs shows a price."""


@dataclass(frozen=True, kw_only=True)
class BackfillPlan:
    """The days of a range, and what a backfill does with them."""

    pipeline: str
    first: str
    last: str
    parallel: int
    """How many days run at the same time."""
    concurrent_runs: int
    """How many Spark jobs of the deployment run at the same time. The jobs of further days wait in the queue."""
    days: Mapping[str, DayKind]
    """Every day of the range, in order."""
    estimate: Estimate | None
    """None if the pipeline has no published run."""

    @property
    def unit(self) -> str:
        """What the pipeline runs for: day or hour."""
        return "hour" if is_hour(self.first) else "day"

    @property
    def to_run(self) -> tuple[str, ...]:
        """The days that run, in order."""
        return tuple(day for day, kind in self.days.items() if kind.runs)

    def count(self, kind: DayKind) -> int:
        """Return how many days are of a kind."""
        return list(self.days.values()).count(kind)


def days_of_range(
    first: str, last: str, *, pipeline: Pipeline, now: datetime, names: tuple[str, str] = ("first", "last")
) -> tuple[str, ...]:
    """Return the days or hours from `first` to `last`, both included.

    Raises `InputError`, with the arguments' names, for a name that is no period of the pipeline, for a range that is
    reversed or too long, and for a last period that has not begun at `now`.
    """
    for value, name in zip((first, last), names, strict=True):
        check_kind(value, pipeline, argument=name)
    if first > last:
        raise InputError(f"{names[0]}: {first} is after {names[1]}, {last}: exchange them")
    count, unit, timezone = distance(first, last) + 1, pipeline.period, pipeline.timezone
    if count > MAX_DAYS:
        raise InputError(f"{names[1]}: {first} to {last} are {count} {unit}s, and a backfill has at most {MAX_DAYS}")
    # The year 9999 has no day after its last one.
    if last >= LAST_DATE or period_of(last, timezone).start > now:
        raise InputError(f"{names[1]}: {last} has not begun in {timezone}")
    return tuple(shifted(first, number) for number in range(count))


def kinds_of_days(
    dates: Sequence[str],
    records: Iterable[DayRecord],
    *,
    is_claimed: Callable[[ActiveRun], bool],
    is_stale: Callable[[Run], bool],
) -> dict[str, DayKind]:
    """Return the kind of each date. `records` are those of the days that were run.

    `is_claimed` decides whether the execution of an active run still works, and `is_stale` about published runs.
    """
    by_date = {record.date: record for record in records}

    def kind(record: DayRecord | None) -> DayKind:
        if record is None or record.attempts == 0:
            return DayKind.MISSING
        if record.active and is_claimed(record.active):
            return DayKind.CLAIMED
        if record.active or record.outcome_unknown or not record.published:
            return DayKind.FAILED
        return DayKind.STALE if is_stale(record.published.run) else DayKind.PUBLISHED

    return {day: kind(by_date.get(day)) for day in dates}


def kind_of_hour(decision: DayDecision) -> DayKind:
    """Return the kind of a published hour, from the decision about its present inputs."""
    rule = decision.rule
    if rule is DecisionRule.KEPT:
        return DayKind.PUBLISHED
    if decision.decision is LateDecision.HOLD and rule not in _RUN_BY_HAND:
        return DayKind.HELD
    has_changed = rule in _UNREAD or any(source.changes for source in decision.sources)
    return DayKind.CHANGED if has_changed else DayKind.PUBLISHED


def published_runs(
    table: RunTable, pipeline: str, within: Sequence[DayRecord], dates: Sequence[str]
) -> list[RunRecord]:
    """Return the published runs of at most 20 days: those within or nearest to the range `dates`, later days first.

    `within` are the records of the range's days. The number of reads does not depend on the age of the pipeline.
    """
    first, last = dates[0], dates[-1]
    records = list(within)
    if sum(record.published is not None for record in within) < _SAMPLE:
        records += table.days(pipeline, FIRST_DATE, first, limit=_SAMPLE, latest_first=True)
        records += table.days(pipeline, last, LAST_DATE, limit=_SAMPLE)
    published = {record.date: record.published.run for record in records if record.published}

    def nearness(day: str) -> tuple[int, int]:
        after = distance(last, day)
        return max(distance(day, first), after, 0), -after

    nearest = sorted(published, key=nearness)[:_SAMPLE]
    runs = (table.run(pipeline, day, published[day].attempt) for day in nearest)
    return [run for run in runs if run]


def estimate(runs: Sequence[RunRecord], *, days: int, parallel: int) -> Estimate | None:
    """Return what `days` are expected to take and cost, if each is like the median of `runs`; None without any.

    The time is that of the days that run one after the other, and the price that of the rows of all.
    """
    ended = [(run.ended_at - run.started_at).total_seconds() for run in runs if run.ended_at]
    if not ended:
        return None
    return Estimate(
        runs=len(ended),
        seconds=math.ceil(days / parallel) * median(ended),
        usd=expected_usd(runs, round(days * median(run.run.rows for run in runs))),
    )
