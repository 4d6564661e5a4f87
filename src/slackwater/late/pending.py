"""What a check has decided about late inputs, and the days of its monitoring, stored until they are in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from slackwater.late.check.tasks import day_tasks
from slackwater.late.decision import CheckReport, PassedOver, PendingDay
from slackwater.late.documents import OnUnreadable, read_document
from slackwater.model import Record
from slackwater.storage import ObjectStore

PENDING = "ledger/"
"""Prefix of the pending checks in the exchange bucket."""


class PendingCheck(Record):
    """The days with late inputs of one check, and the days that its monitoring works on."""

    pipeline: str
    execution: str
    """ARN of the monitoring execution."""
    checked_at: datetime
    days: tuple[PendingDay, ...]
    tasks: tuple[str, ...] = ()
    """Dates of the days that the monitoring runs again or notifies people of, with or without late inputs, and of older
    ones that may have been run. No later check may look at them: the day may be before the window."""

    @property
    def dates(self) -> set[str]:
        """All days whose rows the ledger may lack until this object is removed."""
        return {day.date for day in self.days}.union(self.tasks)


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
        tasks=tuple(task.date for task in day_tasks(report)),
    )


def save_passed_over(
    report: CheckReport, passed: PassedOver, *, store: ObjectStore, exchange_bucket: str, execution: str
) -> None:
    """Store the inputs that the check has passed over, if there are any, in an object of their own."""
    pending = PendingCheck(
        pipeline=report.pipeline,
        execution=execution,
        checked_at=report.checked_at,
        days=passed.days,
        tasks=passed.published,
    )
    _save(pending, "-passed", store, exchange_bucket)


def save_pending(report: CheckReport, *, store: ObjectStore, exchange_bucket: str, execution: str) -> None:
    """Store what belongs into the ledger, if there is anything. A repeated call of one execution replaces it."""
    _save(pending_check(report, execution=execution), "", store, exchange_bucket)


def _save(pending: PendingCheck, suffix: str, store: ObjectStore, exchange_bucket: str) -> None:
    if pending.dates:
        name = pending.execution.rpartition(":")[2]
        uri = f"{pending_prefix(exchange_bucket, pending.pipeline)}{name}{suffix}.json"
        store.put(uri, pending.model_dump_json().encode())


def read_pending(
    store: ObjectStore, *, exchange_bucket: str, pipeline: str, on_unreadable: OnUnreadable
) -> Iterator[tuple[str, PendingCheck]]:
    """Yield the pending checks of a pipeline with their URIs. Another execution may remove some meanwhile.

    One that cannot be read is left out, and stays until a release that can read it writes its rows.
    """
    for item in store.list(pending_prefix(exchange_bucket, pipeline)):
        check = read_document(store, item.uri, PendingCheck, on_unreadable=on_unreadable)
        if check:
            yield item.uri, check


def pending_prefix(exchange_bucket: str, pipeline: str) -> str:
    """Return the URI prefix of a pipeline's pending checks."""
    return f"s3://{exchange_bucket}/{PENDING}{pipeline}/"
