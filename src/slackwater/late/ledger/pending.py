"""What a check has decided about late inputs, stored until it is in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from slackwater.errors import ObjectMissing
from slackwater.late.check.decision import CheckReport, LateDecision
from slackwater.late.ledger.entry import LateInput
from slackwater.runs.inputs.manifest import Record
from slackwater.storage import ObjectStore

PENDING = "ledger/"
"""Prefix of the pending checks in the exchange bucket."""


class PendingDay(Record):
    """The decision about one day with late inputs."""

    date: str
    decision: LateDecision
    rule: str
    reason: str
    attempt: int
    """Of the published run with whose inputs the check has compared."""
    inputs: tuple[LateInput, ...]


class PendingCheck(Record):
    """The days with late inputs of one check."""

    pipeline: str
    execution: str
    """ARN of the monitoring execution."""
    checked_at: datetime
    days: tuple[PendingDay, ...]


def pending_check(report: CheckReport, *, execution: str) -> PendingCheck:
    """Return the part of a report that belongs into the ledger."""
    return PendingCheck(
        pipeline=report.pipeline,
        execution=execution,
        checked_at=report.checked_at,
        days=tuple(
            PendingDay(
                date=day.date,
                decision=day.decision,
                rule=day.rule,
                reason=day.reason,
                attempt=day.attempt or 0,
                inputs=day.late_inputs,
            )
            for day in report.days
            if day.late_inputs
        ),
    )


def save_pending(report: CheckReport, *, store: ObjectStore, exchange_bucket: str, execution: str) -> None:
    """Store the late inputs of a check, if there are any. A repeated call of one execution replaces them."""
    pending = pending_check(report, execution=execution)
    if pending.days:
        name = execution.rpartition(":")[2]
        uri = f"{pending_prefix(exchange_bucket, report.pipeline)}{name}.json"
        store.put(uri, pending.model_dump_json().encode())


def read_pending(store: ObjectStore, *, exchange_bucket: str, pipeline: str) -> Iterator[tuple[str, PendingCheck]]:
    """Yield the pending checks of a pipeline with their URIs. Another execution may remove some meanwhile."""
    for item in store.list(pending_prefix(exchange_bucket, pipeline)):
        try:
            yield item.uri, PendingCheck.model_validate_json(store.get(item.uri))
        except ObjectMissing:
            continue


def pending_prefix(exchange_bucket: str, pipeline: str) -> str:
    """Return the URI prefix of a pipeline's pending checks."""
    return f"s3://{exchange_bucket}/{PENDING}{pipeline}/"
