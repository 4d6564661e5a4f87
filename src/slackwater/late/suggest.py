"""Proposes thresholds for late data from the past re-runs of a pipeline: what each would have saved and missed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from slackwater.errors import InputError
from slackwater.late.check.thresholds import LateAmount, late_amount, reached_thresholds
from slackwater.late.comparison import Comparison, MetricChange, RowCounts
from slackwater.late.effect import effect_of
from slackwater.model import Record
from slackwater.runs.record import RunRecord
from slackwater.sources.late_thresholds import LateThresholds

_CANDIDATES: Mapping[str, Sequence[float]] = {
    "percent": (0.1, 0.2, 0.5, 1, 2, 5, 10, 20),
    "rows": (1, 10, 100, 1_000, 10_000, 100_000),
    "bytes": (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000),
    "changed_files": (1, 2, 5, 10),
}
MIN_RERUNS = 5
"""Past re-runs that a proposal needs."""


class PastRerun(Record):
    """A re-run for late data that was compared with the version before it."""

    date: str
    before: int
    """The attempt of the version before."""
    attempt: int
    late: dict[str, LateAmount]
    """By source or table, without those whose changes decide nothing."""
    usd: float | None
    """What the re-run has cost; None if unknown."""
    metrics: tuple[MetricChange, ...]
    rows: RowCounts
    """Rows may move between keys while no total changes."""


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
    """Past re-runs that changed the table, and whose late data no later one would have taken in."""
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
    """Re-runs that were compared only with a version before the previous one, so that their late data is not known."""
    usd: float | None
    """What all of the past re-runs have cost; None if the cost of one is unknown."""
    max_effect: float
    """The largest change that a proposed threshold may miss, in percent."""
    candidates: tuple[Candidate, ...]
    proposed: tuple[Candidate, ...]
    """Of each threshold the value with the fewest re-runs that misses no larger effect, if there is one, up to the
    first that no past re-run exceeds. Each is proposed alone, but `changed_files` next to `percent` or `rows`, because
    new data does not reach it: with two of them, a day runs again when it reaches either."""


def past_rerun(comparison: Comparison, run: RunRecord | None, *, inputs: Collection[str]) -> PastRerun | None:
    """Return the re-run of a comparison with the cost of `run`, or None if not only late data has caused it.

    A new definition or other code may have changed the table instead of the late data, lost rows, or a rollback.
    `inputs` are the sources and tables whose changes decide about a day.
    """
    if run and run.rollback:
        return None
    before, after = comparison.before, comparison.after
    differences = [source for source in comparison.inputs if source.source in inputs]
    late = {source.source: late_amount(source) for source in differences if source.unprocessed.objects}
    has_lost_rows = any(source.lost_rows for source in differences)
    if not late or has_lost_rows or (before.definition, before.code) != (after.definition, after.code):
        return None
    return PastRerun(
        date=comparison.date,
        before=before.attempt,
        attempt=after.attempt,
        late=late,
        usd=run.cost.usd if run and run.cost else None,
        metrics=comparison.metrics,
        rows=comparison.rows,
    )


def suggest(
    pipeline: str, reruns: Sequence[PastRerun], *, first: str, max_effect: float, skipped: int = 0
) -> Suggestion:
    """Return what each threshold would have done, and propose those that miss no effect over `max_effect` percent.

    `reruns` are those of the days since `first` without `skipped` others. Raises `InputError` when there are fewer than
    `MIN_RERUNS`.
    """
    if len(reruns) < MIN_RERUNS:
        raise InputError(
            f"{pipeline}: {len(reruns)} compared re-runs for late data since {first}, and a proposal needs "
            f"{MIN_RERUNS}: set `late` by hand until there are more; {skipped} others were not compared with the "
            "version before them"
        )
    sequences = list(_sequences(reruns))
    candidates = [_candidate(name, value, sequences) for name, values in _CANDIDATES.items() for value in values]
    return Suggestion(
        pipeline=pipeline,
        first=first,
        reruns=len(reruns),
        skipped=skipped,
        usd=_total(reruns),
        max_effect=max_effect,
        candidates=tuple(candidates),
        proposed=tuple(_proposed(candidates, reruns, max_effect=max_effect)),
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


def _sequences(reruns: Iterable[PastRerun]) -> Iterator[list[PastRerun]]:
    """Yield the re-runs of each day that follow each other without another version in between, in order."""
    for _, of_day in groupby(sorted(reruns, key=lambda rerun: (rerun.date, rerun.attempt)), lambda rerun: rerun.date):
        sequence = list[PastRerun]()
        for rerun in of_day:
            if sequence and rerun.before != sequence[-1].attempt:
                # Another version has taken in all late data before it.
                yield sequence
                sequence = []
            sequence.append(rerun)
        yield sequence


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
        if any(rerun.rows.differing for rerun in waiting):
            missed.append(waiting)
    largest = max(missed, key=_effect, default=None)
    effect = _effect(largest) if largest else 0.0
    return Candidate(
        threshold=threshold,
        value=value,
        reruns=len(caused),
        usd=_total(caused),
        missed=sum(1 for waiting in missed for rerun in waiting if rerun.rows.differing),
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
    """Return the effect of re-runs that follow each other, in percent: of their first version compared with the last.

    Without metrics it is an upper bound, because a row may have changed more than once.
    """
    first, last = sequence[0], sequence[-1]
    before = {metric.metric: metric.before for metric in first.metrics}
    metrics = [
        item.model_copy(update={"before": before[item.metric]}) for item in last.metrics if item.metric in before
    ]
    rows = RowCounts(
        before=first.rows.before,
        after=last.rows.after,
        added=sum(rerun.rows.added for rerun in sequence),
        removed=sum(rerun.rows.removed for rerun in sequence),
        changed=sum(rerun.rows.changed for rerun in sequence),
    )
    return effect_of(metrics, rows)


def _total(reruns: Sequence[PastRerun]) -> float | None:
    prices = [rerun.usd for rerun in reruns if rerun.usd is not None]
    return sum(prices) if len(prices) == len(reruns) else None
