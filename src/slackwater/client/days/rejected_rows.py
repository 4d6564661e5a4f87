"""The rows that the steps of a run have rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from slackwater.arrow.dataset import load_manifest
from slackwater.runs.outputs import run_steps
from slackwater.runs.record import RunRecord
from slackwater.steps.step import REJECTED_REASON, REJECTED_ROWS, REJECTED_RULE
from slackwater.storage import ObjectStore


class RejectedRow(NamedTuple):
    """A row that a step has rejected."""

    pipeline: str
    date: str
    attempt: int
    """Of the run that has published without the row."""
    step: str
    rule: str
    """The first rule that the row fails."""
    reason: str
    row: dict[str, Any]


def rejected_rows(record: RunRecord, *, store: ObjectStore) -> Iterator[RejectedRow]:
    """Yield the rows that the steps of a run have rejected, one Arrow file after the other.

    Raises `ObjectMissing` if retention has removed them, and `CloudError`.
    """
    # They import pyarrow, which a client that lists nothing does not need.
    from slackwater.arrow.files import read_batches
    from slackwater.arrow.messages import decode_schema

    run = record.run
    for step in (outcome.record for outcome in run_steps(record, store=store).steps):
        for manifest in (load_manifest(uri, store=store) for uri in step.effect.get(REJECTED_ROWS, ())):
            schema = decode_schema(manifest.arrow_schema)
            for file in manifest.files:
                for batch in read_batches(file, schema=schema, store=store):
                    for row in batch.to_pylist():
                        rule, reason = row.pop(REJECTED_RULE), row.pop(REJECTED_REASON)
                        yield RejectedRow(run.pipeline, run.date, run.attempt, step.name, rule, reason, row)
