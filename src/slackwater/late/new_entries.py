"""Which rows the ledger lacks: the decisions of checks, and the late inputs that runs have read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from slackwater.late.decision import DecisionRule, LateDecision, PendingDay
from slackwater.late.effects import Effect
from slackwater.late.entry import DEFINITION, NOT_CHECKED, InputKey, LateInput, LedgerEntry
from slackwater.late.pending import PendingCheck
from slackwater.runs.inputs.difference import Change
from slackwater.runs.period import HOUR, period_of

_WITHOUT_MANIFEST = frozenset({DecisionRule.NEVER_PUBLISHED, DecisionRule.MANIFEST_GONE})


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """The late inputs that a published run has read, and the run before it has not."""

    date: str
    attempt: int
    started_at: datetime
    inputs: tuple[LateInput, ...]
    cost_usd: float | None
    is_addition: bool = False
    """Whether the run has rows already, whose inputs have its cost."""
    table_rows: int | None
    """Of the version that the run has published."""
    effect: Effect


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The decision of one check about a day."""

    check: PendingCheck
    day: PendingDay


def new_entries(
    known: Iterable[LedgerEntry],
    *,
    pipeline: str,
    timezone: str,
    checks: Sequence[PendingCheck],
    running: Sequence[PendingCheck],
    read_by_runs: Iterable[RunInputs],
) -> list[LedgerEntry]:
    """Return the rows that the ledger lacks, so that a repeated call with their union returns none.

    `known` are the rows of the days in question, in any order. A late input that a run has read gets one row for
    that run. Only additions join the rows of a run: the others are written in one commit, and have its whole cost. For
    any other input, a check adds a row only if its decision or rule is new for the input. `running` are checks of other
    monitorings that have not ended: they may have led to a run, but their decisions add no rows yet.
    """
    known = list(known)
    attempts = {(entry.period, entry.attempt) for entry in known}
    written = {(entry.period, entry.attempt, entry.key) for entry in known}
    decided = _decided(checks)
    led_to_runs = _decided([*checks, *running])
    result = [
        entry
        for item in read_by_runs
        if item.is_addition or (item.date, item.attempt) not in attempts
        for entry in run_entries(item, led_to_runs, pipeline, timezone)
        if (entry.period, entry.attempt, entry.key) not in written
    ]
    history = defaultdict[tuple[str, InputKey], list[LedgerEntry]](list)
    for entry in (*known, *result):
        history[entry.period, entry.key].append(entry)
    for item in decided:
        for late in item.day.inputs:
            entry = _entry(late, item, timezone)
            rows = history[entry.period, entry.key]
            if _is_new(entry, rows, published_attempt=item.day.attempt):
                rows.append(entry)
                result.append(entry)
    return sorted(result, key=lambda entry: (entry.decided_at, entry.period, entry.source, entry.uri, entry.etag))


def _decided(checks: Iterable[PendingCheck]) -> list[Decided]:
    """Return the decisions of the checks, in order of time."""
    decided = [Decided(check=check, day=day) for check in checks for day in check.days]
    return sorted(decided, key=lambda item: item.check.checked_at)


def run_entries(read: RunInputs, decided: Sequence[Decided], pipeline: str, timezone: str) -> list[LedgerEntry]:
    """Return a row for each late input of a run, with the decision of the last check that has led to it."""
    reruns = {
        (late.key): item
        for item in decided
        if item.day.date == read.date
        and item.day.decision is LateDecision.RERUN
        and item.day.attempt < read.attempt
        and item.check.checked_at <= read.started_at
        for late in item.day.inputs
    }
    unchecked = Decided(
        check=PendingCheck(pipeline=pipeline, execution="", checked_at=read.started_at, days=()),
        day=PendingDay(
            date=read.date,
            decision=LateDecision.RERUN,
            rule=NOT_CHECKED,
            reason=f"attempt {read.attempt} has read it, without the decision of a check",
            attempt=read.attempt,
            inputs=(),
        ),
    )
    shares = cost_shares(read.inputs, read.cost_usd)
    entries = []
    for late, share in zip(read.inputs, shares, strict=True):
        entry = _entry(late, reruns.get(late.key, unchecked), timezone)
        entry = entry._replace(attempt=read.attempt, cost_usd=share, table_rows=read.table_rows)
        entries.append(_with_effect(entry, read.effect))
    return entries


def is_complete(entry: LedgerEntry, *, is_first: bool) -> bool:
    """Return whether nothing about the run of a row can become known any more: its cost, its effect and its message.

    The first version of a day, `is_first`, is compared with none.
    """
    has_effect = is_first or (entry.rows_differing is not None and entry.notified)
    return entry.cost_usd is not None and has_effect


def waiting_inputs(known: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    """Return a row of each input of one day that a check has found without an earlier run, or without its manifest.

    `known` are all rows of the day. The difference between two manifests does not show which run has read such an
    input. Inputs that a run has taken in are left out.
    """
    taken_in = {entry.key for entry in known if entry.attempt is not None}
    rows = {entry.key: entry for entry in known if entry.rule in _WITHOUT_MANIFEST and entry.key not in taken_in}
    return list(rows.values())


def input_of(entry: LedgerEntry) -> LateInput:
    """Return the input that a row is about."""
    return LateInput(**{name: getattr(entry, name) for name in LateInput.model_fields})


def completed_entries(entries: Sequence[LedgerEntry], *, cost_usd: float | None, effect: Effect) -> list[LedgerEntry]:
    """Return all rows of one attempt with what is known by now; equal rows if that has not changed.

    `cost_usd` is that of the run and of the comparisons of its version. If it is unknown, a known cost stays, unless
    there is a first comparison now, whose cost it lacks. An effect whose comparison is gone stays.
    """
    is_new = effect.rows_differing is not None and all(entry.rows_differing is None for entry in entries)
    shares = cost_shares(entries, cost_usd)
    return [
        _with_effect(entry._replace(cost_usd=entry.cost_usd if share is None and not is_new else share), effect)
        for entry, share in zip(entries, shares, strict=True)
    ]


def _with_effect(entry: LedgerEntry, effect: Effect) -> LedgerEntry:
    entry = entry._replace(notified=entry.notified or effect.notified)
    if effect.rows_differing is None:
        return entry
    return entry._replace(
        rows_differing=effect.rows_differing,
        metric=effect.metric,
        metric_change_percent=effect.metric_change_percent,
    )


def cost_shares(inputs: Sequence[LateInput] | Sequence[LedgerEntry], cost_usd: float | None) -> list[float | None]:
    """Divide the cost of a run among its late inputs by their rows; equally if none of them has rows.

    Removed inputs are not late rows: they have a share only if there are no others.
    """
    if cost_usd is None:
        return [None] * len(inputs)
    weights = [0 if item.change == Change.REMOVED else item.rows for item in inputs]
    weights = weights if any(weights) else [1] * len(inputs)
    return [cost_usd * weight / sum(weights) for weight in weights]


def _is_new(entry: LedgerEntry, rows: Sequence[LedgerEntry], *, published_attempt: int) -> bool:
    """Return whether the decision of a row differs from those before and after it, among the rows of its input.

    The decision for a re-run that has published is not new: it has the row of its attempt.
    """
    if entry.decision == LateDecision.RERUN and any((row.attempt or 0) > published_attempt for row in rows):
        return False
    earlier = [row for row in rows if row.decided_at <= entry.decided_at]
    later = [row for row in rows if row.decided_at > entry.decided_at]
    neighbours = [max(earlier, key=_place, default=None), min(later, key=_place, default=None)]
    handling = entry.decision, entry.rule, entry.attempt
    return all(row is None or (row.decision, row.rule, row.attempt) != handling for row in neighbours)


def _place(row: LedgerEntry) -> tuple[datetime, int]:
    """Return the place of a row among those of its input: a run that starts when a check is made comes after it."""
    return row.decided_at, row.attempt or 0


def _entry(late: LateInput, decided: Decided, timezone: str) -> LedgerEntry:
    """Return the row of a decision about a late input, which no run has read yet."""
    check, day = decided.check, decided.day
    period = period_of(day.date, timezone)
    lateness = (late.arrived - period.end) / HOUR
    return LedgerEntry(
        **late.model_dump(exclude={"change"}),
        change=str(late.change),
        pipeline=check.pipeline,
        date=period.date,
        lateness_hours=None if late.change in {Change.REMOVED, DEFINITION} else lateness,
        decided_at=check.checked_at,
        decision=str(day.decision),
        rule=day.rule,
        reason=day.reason,
        execution=check.execution.rpartition(":")[2] or None,
        attempt=None,
        cost_usd=None,
        rows_differing=None,
        metric=None,
        metric_change_percent=None,
        notified=False,
        month=check.checked_at.astimezone(UTC).strftime("%Y-%m"),
        hour=period.hour,
    )
