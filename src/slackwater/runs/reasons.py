"""Why a run starts, by what has changed since the published version of its day."""

from __future__ import annotations

from slackwater.runs.record import Run, RunReason, RunRecord


def run_reasons(
    run: Run, published: RunRecord | None, *, is_late: bool, definition: str, code: str, force: bool
) -> tuple[RunReason, ...]:
    """Return why `run` starts, in the order of `RunReason`; empty only after a record of an older version.

    `published` is the record of the day's published version, `is_late` whether inputs that both read have changed, and
    `definition` and `code` are the digests of the new run. Records of older versions have no digests: of these, only
    changed inputs are known.
    """
    if published is None:
        return (RunReason.FIRST,)
    changes = {
        RunReason.LATE_DATA: is_late,
        RunReason.NEW_DEFINITION: bool(published.definition) and definition != published.definition,
        RunReason.NEW_CODE: bool(published.code) and code != published.code,
    }
    reasons = tuple(reason for reason, applies in changes.items() if applies)
    if not reasons and run.run_id == published.run.run_id:
        return (RunReason.MANUAL if force else RunReason.REPAIR,)
    return reasons
