"""The attempts of a day after its published one: how many have failed alike, and when the day was last run again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from slackwater.project.project import Project
from slackwater.runs.record import DayRecord, RunReason, RunRecord, RunState, run_identity
from slackwater.runs.table import RunTable


def attempts_after_published(record: DayRecord, table: RunTable) -> list[RunRecord]:
    """Return the attempts of a published day after the published one, in order; read only if there are any.

    All of them have failed, or ended without an outcome. Raises `CloudError`.
    """
    if record.published is None or record.attempts <= record.published.run.attempt:
        return []
    published = record.published.run.attempt
    return [run for run in table.runs(record.pipeline, record.date) if run.run.attempt > published]


def latest_failures(attempts: Sequence[RunRecord], inputs: str, project: Project) -> list[RunRecord]:
    """Return the latest of the attempts of a day, in order, that have failed with the identity of a new run.

    `inputs` is the digest of the day's present inputs. An attempt that is still recorded as running counts, because no
    execution of the day is alive.
    """
    # A rollback that was refused says nothing about a run.
    attempts = [attempt for attempt in attempts if attempt.rollback is None]
    if not attempts:
        return []
    run = attempts[-1].run
    definition = project.definition_digest(run.pipeline)
    identity = run_identity(pipeline=run.pipeline, date=run.date, manifest=inputs, definition=definition)
    failed = takewhile(
        lambda run: run.state is not RunState.PUBLISHED and run.run.run_id == identity, reversed(attempts)
    )
    return list(failed)[::-1]


def last_rerun_at(published: RunRecord | None, later: Sequence[RunRecord]) -> datetime | None:
    """Return when the latest re-run of a day started, also one that failed; None if the day was never run again.

    `published` is the published run, None if its record is missing, and `later` are the attempts after it.
    """
    if later:
        return later[-1].started_at
    if published is None:
        return None
    # Not by the replaced rows: the version before may have had none. Only runs of older versions record no reason.
    is_rerun = RunReason.FIRST not in published.reasons
    if not (published.reasons or published.definition):
        is_rerun = published.publication is not None and published.publication.replaced > 0
    return published.started_at if is_rerun else None


def table_reruns(record: DayRecord, table: RunTable, names: Collection[str], *, now: datetime) -> int:
    """Return how many runs of the day have started within 24 hours after one of these tables had changed.

    Raises `CloudError`.
    """
    since = now - timedelta(hours=24)
    runs = table.runs(record.pipeline, record.date)
    return sum(1 for run in runs if run.started_at > since and not set(names).isdisjoint(run.changed_inputs))
