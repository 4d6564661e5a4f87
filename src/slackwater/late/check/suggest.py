"""Proposes thresholds for late data from the past re-runs of a pipeline: what each would have saved and missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slackwater.errors import InputError
from slackwater.late.changes.comparison import Comparison, MetricChange
from slackwater.runs.inputs.manifest import Record
from slackwater.runs.record import RunRecord

_PERCENTAGES = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
_ROWS = (1, 10, 100, 1_000, 10_000, 100_000)
MIN_RERUNS = 5
"""Past re-runs that a proposal needs."""


class PastRerun(Record):
    """A re-run for late data that was compared with the version before it."""

    date: str
    attempt: int
    late_percent: float | None
    """Late rows in percent of those that the version before read, of the source with the most; None if such a source
    had no rows before, so that any percentage is reached."""
    late_rows: int
    """Of the source with the most."""
    usd: float | None
    """What the re-run has cost; None if unknown."""
    effect: float
    """The largest change of a metric's total, in percent; without metrics, the share of rows that differ."""
    differing: int
    """Rows that differ: they may move between keys while no total changes."""


class Candidate(Record):
    """A threshold, and what it would have done with the past re-runs."""

    threshold: str
    """`percent` or `rows`."""
    value: float
    reruns: int
    """Past re-runs that it would have caused as well."""
    usd: float | None
    """What these have cost; None if the cost of one is unknown."""
    missed: int
    """Past re-runs that changed the table and that it would not have caused."""
    largest_missed: float
    """Their largest effect, in percent; 0 without any."""
    largest_missed_date: str | None = None


class Suggestion(Record):
    """The thresholds that were tried, and the proposed one."""

    pipeline: str
    first: str
    """The first day whose re-runs count, an ISO date."""
    reruns: int
    skipped: int
    """Re-runs that were compared only with a version before the previous one, so that their late data is not known."""
    usd: float | None
    """What all of the past re-runs have cost; None if the cost of one is unknown."""
    max_effect: float
    """The largest change that the proposed threshold may miss, in percent."""
    candidates: tuple[Candidate, ...]
    proposed: Candidate | None
    """The percentage with the fewest re-runs that misses no larger effect; None if each misses one."""


def past_rerun(comparison: Comparison, run: RunRecord | None) -> PastRerun | None:
    """Return the re-run of a comparison with the cost of `run`, or None if not only late data has caused it.

    A new definition or other code may have changed the table instead of the late data, or a rollback.
    """
    if run and run.rollback:
        return None
    before, after = comparison.before, comparison.after
    late = [source for source in comparison.inputs if source.late.rows]
    if not late or (before.definition, before.code) != (after.definition, after.code):
        return None
    cost = run.cost if run else None
    return PastRerun(
        date=comparison.date,
        attempt=after.attempt,
        late_percent=max(100 * source.late.rows / source.before.rows for source in late)
        if all(source.before.rows for source in late)
        else None,
        late_rows=max(source.late.rows for source in late),
        differing=comparison.rows.differing,
        usd=cost.usd if cost else None,
        effect=max(map(_effect, comparison.metrics))
        if comparison.metrics
        else 100 * comparison.rows.differing / max(comparison.rows.before, 1),
    )


def suggest(
    pipeline: str, reruns: Sequence[PastRerun], *, first: str, max_effect: float, skipped: int = 0
) -> Suggestion:
    """Return what each threshold would have done, and propose the percentage that misses no effect over `max_effect`.

    `reruns` are those of the days since `first` without `skipped` others. Raises `InputError` when there are fewer than
    `MIN_RERUNS`.
    """
    if len(reruns) < MIN_RERUNS:
        raise InputError(
            f"{pipeline}: {len(reruns)} compared re-runs for late data since {first}, and a proposal needs "
            f"{MIN_RERUNS}: set `late` by hand until there are more; {skipped} others were not compared with the "
            "version before them"
        )
    percentages = [_candidate("percent", value, reruns, _reaches_percent(value)) for value in _PERCENTAGES]
    rows = [_candidate("rows", value, reruns, _reaches_rows(value)) for value in _ROWS]
    fitting = [item for item in percentages if item.largest_missed <= max_effect]
    return Suggestion(
        pipeline=pipeline,
        first=first,
        reruns=len(reruns),
        skipped=skipped,
        usd=_total(reruns),
        max_effect=max_effect,
        candidates=(*percentages, *rows),
        proposed=max(fitting, key=lambda item: item.value, default=None),
    )


def _reaches_percent(value: float) -> Callable[[PastRerun], bool]:
    return lambda rerun: rerun.late_percent is None or rerun.late_percent >= value


def _reaches_rows(value: float) -> Callable[[PastRerun], bool]:
    return lambda rerun: rerun.late_rows >= value


def _candidate(
    threshold: str, value: float, reruns: Sequence[PastRerun], reaches: Callable[[PastRerun], bool]
) -> Candidate:
    caused = [rerun for rerun in reruns if reaches(rerun)]
    missed = [rerun for rerun in reruns if not reaches(rerun) and rerun.differing > 0]
    largest = max(missed, key=lambda rerun: rerun.effect, default=None)
    return Candidate(
        threshold=threshold,
        value=value,
        reruns=len(caused),
        usd=_total(caused),
        missed=len(missed),
        largest_missed=largest.effect if largest else 0.0,
        largest_missed_date=largest.date if largest else None,
    )


def _total(reruns: Sequence[PastRerun]) -> float | None:
    prices = [rerun.usd for rerun in reruns if rerun.usd is not None]
    return sum(prices) if len(prices) == len(reruns) else None


def _effect(metric: MetricChange) -> float:
    """Return the change of a metric's total in percent: 0 if it has not moved, 100 if it appeared or is gone."""
    if not metric.moved:
        return 0.0
    if not metric.before or metric.after is None:
        return 100.0
    return 100 * abs(metric.after - metric.before) / abs(metric.before)
