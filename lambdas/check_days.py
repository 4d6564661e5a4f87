"""Check the finished days of a pipeline: the first task of the monitoring state machine."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.emf import put_metric
from slackwater.aws.function import warn, with_correlation_id
from slackwater.aws.function_resources import FunctionResources, function_resources
from slackwater.late.changes.definition_notices import DefinitionNotifier
from slackwater.late.changes.table_notices import TableNotifier
from slackwater.late.check.tasks import day_tasks
from slackwater.late.monitor import Monitor

logger = Logger()


class CheckDaysRequest(BaseModel):
    """Input from the state machine."""

    pipeline: str
    as_of: str | None = None
    """An ISO date; None for today."""
    days: tuple[str, ...] | None = None
    """ISO dates: only these days of the window are checked; None for all of them."""
    execution: str
    """ARN of the monitoring execution."""
    correlation_id: str


def monitor(resources: FunctionResources) -> Monitor:
    """Return what checks days, and does what follows from the report."""
    project, table, outbox = resources.project, resources.run_table, resources.outbox
    return Monitor(
        checker=resources.checker,
        tables=TableNotifier(table=table, outbox=outbox),
        definitions=DefinitionNotifier(project=project, table=table, outbox=outbox),
        # The next check makes up for these.
        arrivals=resources.once.arrivals,
        event_counts=resources.once.event_counts,
        costs=resources.once.costs,
        update_table=resources.update_raw_table,
        fold_states=resources.once.fold_states,
        verdicts=resources.once.pipeline_verdicts,
        put_metric=put_metric,
        warn=warn,
    )


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return the URI of the report, and the days that need an action. The report is too large for the state machine."""
    request = CheckDaysRequest.model_validate(event)
    checks = monitor(function_resources())
    report, uri = checks.check(**request.model_dump())
    definition = checks.checker.project.pipeline(request.pipeline)
    answer = {
        "report": uri,
        "days": [task.model_dump(mode="json") for task in day_tasks(report)],
        "split": definition.late.split,
        "hourly": definition.period == "hour",
        "timezone": definition.timezone,
    }
    rules = {day.date: day.rule for day in report.days}
    logger.info("days checked", extra={**answer, "rules": rules, "seconds": report.seconds})
    return answer
