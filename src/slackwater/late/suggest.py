"""Proposes thresholds for late data from the past re-runs in the ledger: what each would have saved and missed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from slackwater.errors import InputError
from slackwater.late.amounts import LateAmount, reached_thresholds
from slackwater.late.check.window_dates import today
from slackwater.late.entry import DEFINITION
from slackwater.model import Record
from slackwater.pipeline.definition import LEDGER_TABLE, Pipeline
from slackwater.runs.inputs.difference import Amount
from slackwater.sources.late_thresholds import LateThresholds

DAYS = 90
"""The re-runs of so many days before today are read."""
_CANDIDATES: Mapping[str, Sequence[float]] = {
    "percent": (0.1, 0.2, 0.5, 1, 2, 5, 10, 20),
    "rows": (1, 10, 100, 1_000, 10_000, 100_000),
    "bytes": (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000),
    "changed_files": (1, 2, 5, 10),
}
MIN_RERUNS = 5
"""Past re-runs that a proposal needs."""


_QUERY = """
SELECT date, attempt, source,
  max(rows_before) AS rows_before, count(DISTINCT uri) AS objects, sum(rows)::BIGINT AS rows,
  sum(bytes)::BIGINT AS bytes, count(DISTINCT file) FILTER (change <> 'added') AS changed_files,
  CASE WHEN count(*) = count(cost_usd) THEN sum(cost_usd) END AS usd,
  max(rows_differing) AS differing, max(metric) AS metric, max(metric_change_percent) AS change_percent,
  max(table_rows) AS table_rows, bool_or(change = 'removed' AND file IS NULL) AS is_lost
FROM {ledger}
WHERE month >= '{month}' AND pipeline = '{pipeline}' AND date >= DATE '{first}' AND attempt IS NOT NULL
GROUP BY date, attempt, source
ORDER BY date, attempt, source
"""


class LateSource(NamedTuple):
    """What the ledger has of one input of one re-run, in the order of the query's columns."""

    date: Any
    attempt: int
    source: str
    rows_before: int | None
    objects: int
    rows: int
    bytes: int
    changed_files: int
    usd: float | None
    differing: int | None
    metric: str | None
    change_percent: float | None
    table_rows: int | None
    is_lost: bool


class PastRerun(Record):
    """A re-run for late data that was compared with an earlier version."""

    date: str
    late: dict[str, LateAmount]
    """By source or table, without those whose changes decide nothing."""
    usd: float | None
    """What the re-run has cost; None if unknown."""
    change_percent: float
    """The largest change of a metric; without metrics, the rows that differ in percent of all. It may be infinite."""
    differing: int
    """Rows that differ. Rows may move between keys while no total changes."""


class Candidate(Record):
    """A threshold, and what it would have done with the past re-runs."""

    threshold: str
    """`percent`, `rows`, `bytes` or `changed_files`."""
    value: float
    reruns: int
    """Past re-runs that it would have caused as well, some of them with late data that it had skipped before."""
    usd: float | None
    """What these have cost; None if the cost of one is unknown."""
    missed: int
    """Past re-runs that changed the table, and whose late data no later one would have read."""
    largest_missed: float | None
    """The largest effect that these have had on a day together, in percent; 0 without any, None if it is infinite,
    because a metric was 0 or had no value."""
    largest_missed_date: str | None = None


class Suggestion(Record):
    """The thresholds that were tried, and the proposed ones."""

    pipeline: str
    first: str
    """The first day whose re-runs count, an ISO date."""
    reruns: int
    skipped: int
    """Re-runs whose effect is not known: they were not compared, or a release before 0.2.0 has written their rows."""
    usd: float | None
    """What all of the past re-runs have cost; None if the cost of one is unknown."""
    max_effect: float
    """The largest change that a proposed threshold may miss, in percent."""
    candidates: tuple[Candidate, ...]
    proposed: tuple[Candidate, ...]
    """Of each threshold the value with the fewest re-runs that misses no larger effect, if there is one, up to the
    first that no past re-run exceeds. Each is proposed alone, but `changed_files` next to `percent` or `rows`, because
    new data does not reach it: with two of them, a day runs again when it reaches either."""


def suggest_thresholds(
    definition: Pipeline, *, query: Callable[[str], Sequence[tuple[Any, ...]]], now: datetime, max_effect: float
) -> Suggestion:
    """Return the thresholds that the re-runs of the latest `DAYS` days suggest, by one query of the ledger.

    `query` returns the rows of a SQL statement. The proposed thresholds miss no change above `max_effect` percent.
    Raises `InputError` when there are too few re-runs.
    """
    first = (today(definition, now) - timedelta(days=DAYS)).isoformat()
    sql = _QUERY.format(ledger=LEDGER_TABLE, pipeline=definition.pipeline, first=first, month=first[:7])
    return suggest(definition, [LateSource(*row) for row in query(sql)], first=first, max_effect=max_effect)


def suggest(definition: Pipeline, rows: Iterable[LateSource], *, first: str, max_effect: float) -> Suggestion:
    """Return what each threshold would have done, and propose those that miss no effect over `max_effect` percent.

    `rows` are those of the days since `first`, in order of date and attempt. Raises `InputError` when there are fewer
    than `MIN_RERUNS`.
    """
    runs = [tuple(of_run) for _, of_run in groupby(rows, lambda row: (row.date, row.attempt))]
    skipped = sum(1 for of_run in runs if not _is_known(of_run) and _late_amounts(definition, of_run))
    sequences = list(_sequences(definition, runs))
    reruns = [rerun for sequence in sequences for rerun in sequence]
    if len(reruns) < MIN_RERUNS:
        raise InputError(
            f"{definition.pipeline}: {len(reruns)} compared re-runs for late data since {first}, and a proposal needs "
            f"{MIN_RERUNS}: set `late` by hand until there are more; the effect of {skipped} others is not known"
        )
    candidates = [_candidate(name, value, sequences) for name, values in _CANDIDATES.items() for value in values]
    return Suggestion(
        pipeline=definition.pipeline,
        first=first,
        reruns=len(reruns),
        skipped=skipped,
        usd=_total(reruns),
        max_effect=max_effect,
        candidates=tuple(candidates),
        proposed=tuple(_proposed(candidates, reruns, max_effect=max_effect)),
    )


def _sequences(definition: Pipeline, runs: Iterable[Sequence[LateSource]]) -> Iterator[list[PastRerun]]:
    """Yield the re-runs of each day that follow each other without another version in between, in order.

    A version that does not count has read all late data before it.
    """
    for _, of_day in groupby(runs, lambda of_run: of_run[0].date):
        for counts, sequence in groupby((_past_rerun(definition, of_run) for of_run in of_day), bool):
            if counts:
                yield [rerun for rerun in sequence if rerun]


def _is_known(of_run: Sequence[LateSource]) -> bool:
    late = (row for row in of_run if row.source != DEFINITION)
    return all(None not in (row.rows_before, row.differing, row.table_rows) for row in late)


def _late_amounts(definition: Pipeline, of_run: Iterable[LateSource]) -> dict[str, LateAmount]:
    """Return the late data of the sources and tables that decide about a day."""
    return {
        row.source: LateAmount(
            rows_before=row.rows_before or 0,
            late=Amount(objects=row.objects, rows=row.rows, bytes=row.bytes),
            changed_files=row.changed_files,
        )
        for row in of_run
        if row.source in definition.rerun_inputs
    }


def _past_rerun(definition: Pipeline, of_run: Sequence[LateSource]) -> PastRerun | None:
    """Return a re-run of the ledger, or None if its effect is not known, or if not only late data has caused it.

    A new definition may have changed the table instead, or objects that are gone. The ledger has neither new code nor
    the rows that a file had before it shrank, so such re-runs count.
    """
    late = _late_amounts(definition, of_run)
    if not late or not _is_known(of_run) or any(row.is_lost or row.source == DEFINITION for row in of_run):
        return None
    row, prices = of_run[0], [row.usd for row in of_run]
    differing = row.differing or 0
    change = math.inf if row.change_percent is None else row.change_percent
    if not definition.publish.metrics:
        change = 100 * differing / max(row.table_rows or 0, 1)
    elif row.metric is None:
        change = 0.0
    return PastRerun(
        date=str(row.date),
        late=late,
        usd=None if None in prices else sum(filter(None, prices)),
        change_percent=change,
        differing=differing,
    )


def _proposed(
    candidates: Iterable[Candidate], reruns: Sequence[PastRerun], *, max_effect: float
) -> Collection[Candidate]:
    largest = _largest_amounts(reruns)
    proposed = {
        # The values of a threshold are in order, so the last one has the fewest re-runs.
        item.threshold: item
        for item in candidates
        if item.largest_missed is not None
        and item.largest_missed <= max_effect
        # Nothing is known about late data beyond the first value that no past re-run exceeds.
        and all(other >= item.value or other < largest[item.threshold] for other in _CANDIDATES[item.threshold])
    }
    # New data does not reach `changed_files`: alone, it would end all re-runs but those for changed files.
    has_changed_files = all(any(late.changed_files for late in rerun.late.values()) for rerun in reruns)
    if not has_changed_files or not {"percent", "rows"} & proposed.keys():
        proposed.pop("changed_files", None)
    return proposed.values()


def _largest_amounts(reruns: Iterable[PastRerun]) -> Mapping[str, float]:
    """Return by threshold the largest amount of a source in one re-run; 0 percent if no source had rows before."""
    amounts = [late for rerun in reruns for late in rerun.late.values()]
    return {
        "percent": max((100 * item.late.rows / item.rows_before for item in amounts if item.rows_before), default=0),
        "rows": max(item.late.rows for item in amounts),
        "bytes": max(item.late.bytes for item in amounts),
        "changed_files": max(item.changed_files for item in amounts),
    }


def _candidate(threshold: str, value: float, sequences: Iterable[Sequence[PastRerun]]) -> Candidate:
    thresholds = LateThresholds.model_validate({threshold: value})
    caused, missed = list[PastRerun](), list[list[PastRerun]]()
    for sequence in sequences:
        waiting, amounts = list[PastRerun](), dict[str, LateAmount]()
        for rerun in sequence:
            # As in a check, late data that was skipped counts together with later data of its day.
            waiting.append(rerun)
            amounts |= {name: _added(amounts.get(name), late) for name, late in rerun.late.items()}
            if any(reached_thresholds(amount, thresholds) for amount in amounts.values()):
                caused.append(rerun)
                waiting, amounts = [], {}
        if any(rerun.differing for rerun in waiting):
            missed.append(waiting)
    largest = max(missed, key=_effect, default=None)
    effect = _effect(largest) if largest else 0.0
    return Candidate(
        threshold=threshold,
        value=value,
        reruns=len(caused),
        usd=_total(caused),
        missed=sum(1 for waiting in missed for rerun in waiting if rerun.differing),
        largest_missed=effect if math.isfinite(effect) else None,
        largest_missed_date=largest[0].date if largest else None,
    )


def _added(earlier: LateAmount | None, late: LateAmount) -> LateAmount:
    """Return the late data of both; without the run between them, the rows before are those of the first."""
    if earlier is None:
        return late
    files = earlier.changed_files + late.changed_files
    return LateAmount(rows_before=earlier.rows_before, late=earlier.late + late.late, changed_files=files)


def _effect(sequence: Sequence[PastRerun]) -> float:
    """Return the effect of re-runs that follow each other, in percent: their changes one upon the other.

    It is an upper bound: a later change may undo an earlier one, and may be of another metric or of the same rows.
    """
    return 100 * (math.prod(1 + abs(rerun.change_percent) / 100 for rerun in sequence) - 1)


def _total(reruns: Sequence[PastRerun]) -> float | None:
    prices = [rerun.usd for rerun in reruns if rerun.usd is not None]
    return sum(prices) if len(prices) == len(reruns) else None
