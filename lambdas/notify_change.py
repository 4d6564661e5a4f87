"""Notify people of what a new version of a day has changed: the last task of the monitoring for each late day."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.clients import SHORT_CONFIG
from slackwater.aws.emf import put_metric
from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import FunctionResources, function_resources
from slackwater.late.changes.hour_notices import ComparedHour, HourNotifier
from slackwater.late.changes.notify import Notifier
from slackwater.metrics import Metric

logger = Logger()


class NotifyHoursRequest(BaseModel):
    """Input from the state machine about an hourly pipeline."""

    pipeline: str
    timezone: str
    """Whose calendar days have a message each."""
    hours: tuple[ComparedHour, ...]
    execution: str
    correlation_id: str


class NotifyChangeRequest(BaseModel):
    """Input from the state machine."""

    pipeline: str
    date: str
    comparison: str
    """URI of the `Comparison`."""
    execution: str
    correlation_id: str


def notifier(resources: FunctionResources) -> Notifier:
    """Return what notifies people of changed days."""
    return Notifier(
        store=resources.store, table=resources.run_table, outbox=resources.outbox, costs=resources.once.costs
    )


def notify_hours(request: NotifyHoursRequest) -> dict[str, Any]:
    """Return the result of each hour, with its name as `date`."""
    hours = HourNotifier(notifier=notifier(function_resources(SHORT_CONFIG)))
    results, messages = hours.notify(
        pipeline=request.pipeline, timezone=request.timezone, hours=request.hours, execution=request.execution
    )
    if messages:
        put_metric(Metric.NOTIFICATIONS_SENT, messages, pipeline=request.pipeline)
    return {"hours": [{"date": date, **result.model_dump()} for date, result in results.items()]}


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return `slackwater.late.changes.notify.NotificationResult` as JSON, or `notify_hours` for `hours`."""
    if "hours" in event:
        answer = notify_hours(NotifyHoursRequest.model_validate(event))
        logger.info("people notified of hours", extra={"answer": answer})
        return answer
    request = NotifyChangeRequest.model_validate(event)
    result = notifier(function_resources(SHORT_CONFIG)).notify(**request.model_dump(exclude={"correlation_id"}))
    if result.notified:
        put_metric(Metric.NOTIFICATIONS_SENT, 1, pipeline=request.pipeline)
    answer = result.model_dump()
    logger.info(
        "people notified" if result.notified else "nobody notified", extra={"date": request.date, "answer": answer}
    )
    return answer
