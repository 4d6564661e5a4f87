"""A rollback: a run that publishes an earlier version of its day again, instead of reading the day's inputs."""

from __future__ import annotations

from datetime import datetime

from slackwater.errors import InputError
from slackwater.runs.holds import ROLLED_BACK, refuse_long_reason
from slackwater.runs.record import DayRecord, Hold, Rollback, Run, RunReason, RunRecord, RunState


def version_to_restore(day: DayRecord, earlier: RunRecord | None, *, to: int, reason: str) -> RunRecord:
    """Return the run whose version a rollback publishes again: `earlier`, the day's attempt `to`, if there is one.

    Raises `InputError` if the version was never published, or is the published one, and without a reason or with one
    that is too long.
    """
    if not reason.strip():
        raise InputError("reason: missing: say why the day is rolled back")
    refuse_long_reason(reason)
    if earlier is None or earlier.state is not RunState.PUBLISHED:
        raise InputError(
            f"to: {day.pipeline} has no published version {to} of {day.date}: slackwater history "
            f"{day.pipeline} --date {day.date} lists the versions"
        )
    if earlier.run.through:
        raise InputError(
            f"to: version {to} of {day.date} is provisional, and only published versions can be published again: "
            f"slackwater history {day.pipeline} --date {day.date} lists the versions"
        )
    # After a run without an outcome, the table may hold other rows than those of the recorded version.
    is_certain = day.active is None and not day.outcome_unknown
    if day.published and day.published.run.attempt == to and is_certain:
        raise InputError(f"to: version {to} of {day.date} is the published one: there is nothing to roll back")
    return earlier


def rollback_record(earlier: RunRecord, *, reason: str, run: Run, execution: str, now: datetime) -> RunRecord:
    """Return the record of a starting run that publishes the version of `earlier` again.

    Inputs, definition and code are those of that version, because its rows come from them. `execution` is an ARN.
    """
    return RunRecord(
        run=run,
        state=RunState.RUNNING,
        execution=execution,
        started_at=now,
        files_not_taken=earlier.files_not_taken,
        counts=earlier.counts,
        metrics=earlier.metrics,
        definition=earlier.definition,
        code=earlier.code,
        reads=earlier.reads,
        files=earlier.files,
        reasons=(RunReason.ROLLBACK,),
        rollback=Rollback(
            to=earlier.run.attempt, tag=earlier.run.tag, reason=reason.strip(), frozen_at=earlier.frozen_at
        ),
    )


def rollback_hold(record: RunRecord, *, now: datetime) -> Hold:
    """Return the hold of a day whose rollback is being recorded as published.

    Without it, the next check would run the day again, because the inputs of the earlier version are not the present
    ones. Raises `ValueError` for a run that is no rollback.
    """
    if record.rollback is None:
        raise ValueError(f"attempt {record.run.attempt} of {record.run.date} is no rollback")
    reason = f"rolled back to version {record.rollback.to}: {record.rollback.reason}"
    return Hold(rule=ROLLED_BACK, reason=reason, since=now, execution=record.execution)


def refuse_if_rolled_back(day: DayRecord) -> None:
    """Raise `InputError` for a day that is on hold after a rollback: a run would undo the rollback."""
    if day.hold and day.hold.rule == ROLLED_BACK:
        raise InputError(
            f"{day.date} is on hold ({day.hold.reason}): to run it again with its present inputs, release it: "
            f"slackwater late release {day.pipeline} --date {day.date} --reason TEXT"
        )
