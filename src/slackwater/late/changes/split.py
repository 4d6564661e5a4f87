"""Plans how the change of a day is split: what the new inputs have changed, and what the definition and the code.

The inputs of the later version are computed once more with the definition and the code of the earlier one
(docs/decisions/0041).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from msgspec import structs
from pydantic import ValidationError

from slackwater.errors import AccessDenied, ObjectMissing
from slackwater.late.changes.pairs import comparison_uri, split_jobs_prefix, split_run_prefix, split_uri
from slackwater.late.comparison import Cause, Comparison, Split
from slackwater.model import Record
from slackwater.runs.comparison_run import ComparisonRun
from slackwater.runs.inputs.manifest import InputManifest, read_manifest, store_manifest
from slackwater.runs.inputs.shared_inputs import shared_inputs
from slackwater.runs.record import JobFiles, Run, RunRecord
from slackwater.runs.table import RunTable
from slackwater.storage import ObjectStore

_DATA = {Cause.LATE_DATA, Cause.REMOVED_DATA}
_DEFINITION = {Cause.NEW_DEFINITION, Cause.NEW_CODE}


class SplitAction(StrEnum):
    """What the state machine does after the plan."""

    COMPUTE = "compute"
    NOTHING = "nothing"
    """The split is stored already, or there is a reason why there is none."""


class SplitPlan(Record):
    """The plan: only URIs and identifiers, because it passes through Step Functions."""

    action: SplitAction
    reason: str = ""
    """Why there is no split."""
    prefix: str = ""
    """`split_jobs_prefix`, under which a failed job stores its error."""
    job: str = ""
    """32 hex digits that identify the jobs of this execution."""
    run: Run | None = None
    """What the job of the earlier version computes."""
    files: JobFiles | None = None
    """Definition and code of the earlier version."""


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Plans splits, and finds the stored ones."""

    store: ObjectStore
    table: RunTable
    now: Callable[[], datetime]

    def plan(self, *, prefix: str, execution: str, correlation_id: str) -> SplitPlan:
        """Plan the split of the comparison that is stored under `prefix`, for an execution with this ARN.

        A repeated call of the same execution has the same result. Two executions each start jobs of their own, which
        store the same split. Raises `ObjectMissing` or `AccessDenied` if the comparison or an input manifest is gone.
        """
        comparison = Comparison.model_validate_json(self.store.get(comparison_uri(prefix)))
        pipeline, date = comparison.pipeline, comparison.date
        before, after = comparison.before.attempt, comparison.after.attempt
        if stored_split(self.store, prefix):
            return SplitPlan(action=SplitAction.NOTHING)
        earlier = self.table.run(pipeline, date, before)
        if reason := why_not(comparison, earlier):
            return SplitPlan(action=SplitAction.NOTHING, reason=reason)
        job = hashlib.sha256(f"{execution}\n{prefix}split".encode()).hexdigest()[:32]
        run_prefix = split_run_prefix(prefix, job)
        manifest = self._inputs(comparison)
        uri = f"{run_prefix}inputs.json"
        store_manifest(self.store, uri, manifest)
        # Its cost is recorded later, as that of a comparison.
        day = {"pipeline": pipeline, "date": date, "before": before, "after": after}
        self.table.save_comparison(ComparisonRun(**day, execution=execution, started_at=self.now()))
        return SplitPlan(
            action=SplitAction.COMPUTE,
            prefix=split_jobs_prefix(prefix),
            job=job,
            run=Run(
                pipeline=pipeline,
                date=date,
                run_id=job,
                attempt=after,
                correlation_id=correlation_id,
                manifest=uri,
                prefix=run_prefix,
                files=len(manifest.objects),
                rows=manifest.rows,
                bytes=manifest.bytes,
                read_bytes=manifest.read_bytes,
            ),
            files=earlier.files if earlier else None,
        )

    def _inputs(self, comparison: Comparison) -> InputManifest:
        """Return the later version's inputs, as far as the earlier definition reads them, and all else of its own."""
        before, after = (
            read_manifest(self.store, version.manifest) for version in (comparison.before, comparison.after)
        )
        former, present = comparison.before.reads, comparison.after.reads
        if former is None or present is None or former == present:
            return after
        shared = shared_inputs(before, after, former=former, present=present)
        # What only the earlier definition reads has no later state: it stays as it was.
        of_both = {(item.source, item.uri) for item in shared.before.objects}
        own = [item for item in before.objects if (item.source, item.uri) not in of_both]
        objects = sorted((*shared.now.objects, *own), key=lambda item: item.uri)
        return structs.replace(after, objects=tuple(objects), left_out={})


def stored_split(store: ObjectStore, prefix: str) -> Split | None:
    """Return the split of the comparison under `prefix`; None if there is none with the fields of this release."""
    try:
        return Split.model_validate_json(store.get(split_uri(prefix)))
    except (ObjectMissing, AccessDenied, ValidationError):
        return None


def why_not(comparison: Comparison, earlier: RunRecord | None) -> str:
    """Return why the comparison is not split, in one sentence; empty if both the inputs and the definition changed.

    `earlier` is the run of the earlier version.
    """
    causes, before, after = set(comparison.causes), comparison.before, comparison.after
    is_known = bool(before.definition and before.code)
    reasons = {
        "the rows of both versions are the same: there is no change to split": not comparison.rows.differing,
        f"version {after.attempt} is a rollback: its inputs, definition and code are earlier ones": Cause.ROLLBACK
        in causes,
        "the input manifest of a version is gone: it is unknown whether the data has changed": not comparison.inputs,
        "the definition and the code are the same: the data has changed everything": is_known
        and not causes & _DEFINITION,
        "the data is the same: the definition or the code has changed everything": not causes & _DATA,
        f"version {before.attempt} was made by a release that did not record its code, or by a run of a file that is "
        "not deployed: --split is not possible": not is_known or earlier is None or earlier.files is None,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")
