"""Which run it is: the identity of a run follows from its inputs, its definition and its code; and why it starts."""

from __future__ import annotations

import hashlib

from slackwater.project.project import Project
from slackwater.runs.holds import inputs_of
from slackwater.runs.record import Run, RunReason, RunRecord


def run_identity(*, pipeline: str, date: str, manifest: str, definition: str) -> str:
    """Return the id of a run: 32 hex digits, which are equal if and only if all arguments are equal.

    `manifest` and `definition` are the digests of the input manifest and of the pipeline's definition.
    """
    # 128 bits of the SHA-256 leave room for the id in names of limited length, such as EMR's client token of 64.
    return hashlib.sha256("\n".join((pipeline, date, manifest, definition)).encode()).hexdigest()[:32]


def is_stale(run: Run, project: Project) -> bool:
    """Return whether a run of the same inputs would have another identity now: by its definition, or by its code."""
    return run.run_id != new_run_id(project, run.pipeline, run.date, inputs=inputs_of(run))


def new_run_id(project: Project, pipeline: str, date: str, *, inputs: str) -> str:
    """Return the identity of a run of the day with the present definition and code; `inputs` is their digest."""
    return run_identity(pipeline=pipeline, date=date, manifest=inputs, definition=project.definition_digest(pipeline))


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
