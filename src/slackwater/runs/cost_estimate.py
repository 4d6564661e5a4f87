"""What a run is expected to cost: the rows that it reads, at the median price per million rows of the latest runs."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from slackwater.runs.record import RunRecord, RunState
from slackwater.runs.table import RunTable

_RUNS = 14
"""How many priced runs an estimate is computed from, at most: those that have started last."""
_DAYS = 14
"""The runs of so many days are read."""
_ATTEMPTS = 200
"""If these days have more attempts, only the published ones are read: a running day has one each minute."""


def latest_runs(table: RunTable, pipeline: str, *, last: str) -> list[RunRecord]:
    """Return the runs of the 14 latest days with a run up to the ISO date `last`, with those that were replaced.

    Of days with more than 200 attempts in all, these are the published runs.
    """
    days = table.days(pipeline, "0001-01-01", last, limit=_DAYS, latest_first=True)
    if sum(day.attempts for day in days) > _ATTEMPTS:
        published = ((day.date, day.published.run.attempt) for day in days if day.published)
        return [run for date, attempt in published if (run := table.run(pipeline, date, attempt))]
    return table.runs_between(pipeline, days[-1].date, last) if days else []


def expected_usd(runs: Iterable[RunRecord], rows: int) -> float | None:
    """Return what a run that reads `rows` is expected to cost in USD, from past runs; None if none shows a price.

    It is the median price of a row in the last 14 of the runs that `shows_price` accepts. A few unusual runs, such as
    one whose job was retried, change little.
    """
    priced = sorted(filter(shows_price, runs), key=lambda record: record.started_at)[-_RUNS:]
    prices = [1e6 * usd / record.run.rows for record in priced if (usd := _usd(record)) is not None]
    return round(median(prices) * rows / 1e6, 8) if prices else None


def shows_price(record: RunRecord) -> bool:
    """Return whether a run shows what its rows cost: it has published rows that it has computed, and has a price.

    A run with stages of earlier runs, or of added objects alone, was cheaper than its rows, and so is a rollback. One
    that has measured its steps was more expensive, and one of an open day had few of its rows.
    """
    references = [stage.reference for stage in record.stages]
    computed = all(item.manifest.startswith(record.run.prefix) and not item.is_merged for item in references)
    is_published = record.state is RunState.PUBLISHED and record.rollback is None and not record.run.profiled
    is_whole = record.run.through is None
    return is_published and is_whole and computed and record.run.rows > 0 and _usd(record) is not None


def _usd(record: RunRecord) -> float | None:
    return record.cost.usd if record.cost else None
