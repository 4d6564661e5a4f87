"""Check the finished days of a pipeline: the first task of the monitoring state machine."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.clients import client
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.emf import put_metric
from slackwater.aws.function import FunctionEnvironment, with_correlation_id
from slackwater.aws.inputs import input_listing
from slackwater.aws.machines import StepFunctionsExecutions
from slackwater.aws.objects import S3ObjectStore
from slackwater.late.check.checker import Checker, day_tasks, today, window_start
from slackwater.late.check.decision import CheckReport, LateDecision
from slackwater.metrics import Metric
from slackwater.project import Project
from slackwater.runs.day import HOUR

logger = Logger()


class CheckDaysEnvironment(FunctionEnvironment):
    """Settings of this function."""

    raw_bucket: str
    exchange_bucket: str
    file_table: str
    run_table: str
    project_uri: str


class CheckDaysRequest(BaseModel):
    """Input from the state machine."""

    pipeline: str
    as_of: str | None = None
    """An ISO date; None for today."""
    execution: str
    """ARN of the monitoring execution."""
    correlation_id: str


@cache
def build_checker() -> Checker:
    """Build the checker, once per process."""
    environment = CheckDaysEnvironment.read()
    store = S3ObjectStore(client("s3"))
    # The URI contains a digest: another project has another URI, and a changed environment starts new processes.
    project = Project.model_validate_json(store.get(environment.project_uri))
    table = DynamoRunTable(client("dynamodb"), environment.run_table)

    def now() -> datetime:
        return datetime.now(UTC)

    return Checker(
        project=project,
        inputs=input_listing(
            project,
            store=store,
            table=table,
            raw_bucket=environment.raw_bucket,
            file_table=environment.file_table,
            now=now,
        ),
        table=table,
        executions=StepFunctionsExecutions(client("stepfunctions")),
        store=store,
        exchange_bucket=environment.exchange_bucket,
        now=now,
    )


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return the URI of the report, and the days that need an action. The report is too large for the state machine."""
    request = CheckDaysRequest.model_validate(event)
    checker = build_checker()
    report = checker.check(pipeline=request.pipeline, as_of=request.as_of, correlation_id=request.correlation_id)
    days = [task.model_dump(mode="json") for task in day_tasks(report)]
    # The report's URI depends only on the execution and the date: a repeated call replaces the report.
    answer = {"report": checker.save(report, execution=request.execution), "days": days}
    put_metrics(report, checker.project)
    rules = {day.date: day.rule for day in report.days}
    logger.info("days checked", extra={**answer, "rules": rules, "seconds": report.seconds})
    return answer


def put_metrics(report: CheckReport, project: Project) -> None:
    """Put the metrics of a check. Only a check of today puts gauges: a check of a past day must not fire an alarm."""
    definition = project.pipeline(report.pipeline)
    late_bytes = dict.fromkeys(LateDecision, 0)
    for day in report.days:
        late_bytes[day.decision] += sum(source.late.bytes for source in day.sources)
    days = Counter(day.decision for day in report.days)
    put_metric(Metric.DAYS_RERUN, days[LateDecision.RERUN], pipeline=report.pipeline)
    put_metric(
        Metric.LATE_BYTES, late_bytes[LateDecision.RERUN] + late_bytes[LateDecision.HOLD], pipeline=report.pipeline
    )
    if report.as_of != today(definition, report.checked_at).isoformat():
        return
    put_metric(Metric.LATE_BYTES_UNPROCESSED, late_bytes[LateDecision.HOLD], pipeline=report.pipeline)
    put_metric(Metric.LATE_BYTES_IGNORED, late_bytes[LateDecision.IGNORE], pipeline=report.pipeline)
    put_metric(Metric.DAYS_ON_HOLD, days[LateDecision.HOLD], pipeline=report.pipeline)
    put_metric(Metric.DAYS_OVERDUE, len(report.overdue), pipeline=report.pipeline)
    for name, arrived in report.last_arrivals.items():
        # Without an arrival, the source has been silent at least since the earliest time that the check has listed.
        silent_since = arrived or min(
            window_start(definition, report.as_of), report.checked_at - project.source(name).silent_hours * HOUR
        )
        put_metric(Metric.HOURS_SINCE_ARRIVAL, (report.checked_at - silent_since) / HOUR, source=name)
