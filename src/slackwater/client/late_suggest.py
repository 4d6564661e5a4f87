"""Reads the past re-runs of a pipeline, and proposes thresholds for its late data."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from pydantic import ValidationError

from slackwater.late.changes.comparison import Comparison
from slackwater.late.check.suggest import PastRerun, Suggestion, past_rerun, suggest
from slackwater.late.check.window import today
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.record import DayRecord
from slackwater.runs.table import RunTable
from slackwater.storage import ObjectStore

DAYS = 90
"""How many days before today are read."""


def suggest_thresholds(
    definition: Pipeline,
    *,
    table: RunTable,
    store: ObjectStore,
    exchange_bucket: str,
    now: datetime,
    max_effect: float,
) -> Suggestion:
    """Return the thresholds that the re-runs of the latest `DAYS` days suggest.

    The proposed one misses no change above `max_effect` percent. Reads the records of these days, and the comparisons
    of those that have run more than once. Raises `InputError` when too few have.
    """
    last = today(definition, now)
    first = (last - timedelta(days=DAYS)).isoformat()
    reruns = [
        rerun
        for day in table.days(definition.pipeline, first, last.isoformat())
        if day.published and day.published.run.attempt > 1
        for rerun in _past_reruns(day, table=table, store=store, exchange_bucket=exchange_bucket)
    ]
    return suggest(definition.pipeline, reruns, first=first, max_effect=max_effect)


def _past_reruns(day: DayRecord, *, table: RunTable, store: ObjectStore, exchange_bucket: str) -> Iterator[PastRerun]:
    """Yield the compared re-runs of a day. Of several comparisons of a version, the latest pair counts."""
    comparisons: dict[int, Comparison] = {}
    for stored in store.list(f"s3://{exchange_bucket}/comparisons/{day.pipeline}/{day.date}/"):
        if not stored.uri.endswith("/comparison.json"):
            continue
        try:
            comparison = Comparison.model_validate_json(store.get(stored.uri))
        except ValidationError:
            # An older version of this package wrote it: it does not count as a re-run.
            continue
        known = comparisons.get(comparison.after.attempt)
        if known is None or known.before.attempt < comparison.before.attempt:
            comparisons[comparison.after.attempt] = comparison
    for attempt, comparison in sorted(comparisons.items()):
        rerun = past_rerun(comparison, table.run(day.pipeline, day.date, attempt))
        if rerun:
            yield rerun
