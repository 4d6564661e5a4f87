"""Reads the past re-runs of a pipeline, and proposes thresholds for its late data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise

from pydantic import ValidationError

from slackwater.late.changes.pairs import comparisons_prefix, stored_pairs
from slackwater.late.check.window import today
from slackwater.late.comparison import Comparison, comparison_uri
from slackwater.late.suggest import PastRerun, Suggestion, past_rerun, suggest
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.record import DayRecord, RunState
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

    The proposed ones miss no change above `max_effect` percent. Reads the records of these days, and the comparisons
    of those that have run more than once. Raises `InputError` when too few have.
    """
    last = today(definition, now)
    first = (last - timedelta(days=DAYS)).isoformat()
    reruns, skipped = list[PastRerun](), 0
    for day in table.days(definition.pipeline, first, last.isoformat()):
        if day.published and day.published.run.attempt > 1:
            of_day, skipped_of_day = _past_reruns(
                day, definition.rerun_inputs, table=table, store=store, exchange_bucket=exchange_bucket
            )
            reruns, skipped = [*reruns, *of_day], skipped + skipped_of_day
    return suggest(definition.pipeline, reruns, first=first, max_effect=max_effect, skipped=skipped)


def _past_reruns(
    day: DayRecord, inputs: Sequence[str], *, table: RunTable, store: ObjectStore, exchange_bucket: str
) -> tuple[list[PastRerun], int]:
    """Return the re-runs of a day that were compared with the version before, and the number of other compared ones.

    `inputs` are the sources and tables whose changes decide about a day.

    After a small change that nobody was notified of, a message compares with an earlier version: such a comparison has
    the late data of several re-runs.
    """
    comparisons: dict[int, list[Comparison]] = {}
    for pair in stored_pairs(store, comparisons_prefix(exchange_bucket, day.pipeline, day.date)):
        if (uri := comparison_uri(pair.prefix)) in pair.uris:
            # An older version of this package may have written it: then it does not count as a re-run.
            with suppress(ValidationError):
                comparisons.setdefault(pair.after, []).append(Comparison.model_validate_json(store.get(uri)))
    published = [run for run in table.runs(day.pipeline, day.date) if run.state is RunState.PUBLISHED]
    reruns, skipped = list[PastRerun](), 0
    for before, run in pairwise(published):
        compared = comparisons.get(run.run.attempt, [])
        late = {item.before.attempt: rerun for item in compared if (rerun := past_rerun(item, run, inputs=inputs))}
        if before.run.attempt in late:
            reruns.append(late[before.run.attempt])
        elif late:
            skipped += 1
    return reruns, skipped
