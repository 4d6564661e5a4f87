"""Check a pipeline's finished days; the first state of every monitoring."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field

from slackwater.aws.clients import client
from slackwater.aws.emf import put_metric
from slackwater.aws.executions import StepFunctionsExecutions
from slackwater.aws.inputs import input_listing
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.run_table import DynamoRunTable
from slackwater.late.check import Checker, actions, today, window_start
from slackwater.late.decision import CheckReport, LateDecision
from slackwater.metrics import Metric
from slackwater.project import Project
from slackwater.runs.day import HOUR

logger = Logger()


class Environment(BaseModel):
    """What the stack tells this function."""

    raw_bucket: str = Field(alias="RAW_BUCKET")
    exchange_bucket: str = Field(alias="EXCHANGE_BUCKET")
    file_table: str = Field(alias="FILE_TABLE")
    run_table: str = Field(alias="RUN_TABLE")
    project_uri: str = Field(alias="PROJECT_URI")


class Request(BaseModel):
    """What the state machine asks."""

    pipeline: str
    as_of: str | None = None
    execution: str
    correlation_id: str


def _now() -> datetime:
    return datetime.now(UTC)


@cache
def _checker() -> Checker:
    environment = Environment.model_validate(dict(os.environ))
    store = S3ObjectStore(client("s3"))
    project = Project.model_validate_json(store.get(environment.project_uri))
    return Checker(
        project=project,
        inputs=input_listing(
            project, store=store, raw_bucket=environment.raw_bucket, file_table=environment.file_table, now=_now
        ),
        table=DynamoRunTable(client("dynamodb"), environment.run_table),
        executions=StepFunctionsExecutions(client("stepfunctions")),
        store=store,
        exchange_bucket=environment.exchange_bucket,
        now=_now,
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer with the report's address and what is to be done about which days."""
    request = Request.model_validate(event)
    logger.set_correlation_id(request.correlation_id)
    checker = _checker()
    report = checker.check(pipeline=request.pipeline, as_of=request.as_of)
    days = [action.model_dump(mode="json") for action in actions(report)]
    answer = {"report": checker.keep(report, execution=request.execution), "days": days}
    _put_metrics(report, checker.project)
    decided = {day.date: day.rule for day in report.days}
    logger.info("days checked", extra={**answer, "decided": decided, "seconds": report.seconds})
    return answer


def _put_metrics(report: CheckReport, project: Project) -> None:
    """Count what was found; levels are put of the present day only, since a check of the past must ring no alarm."""
    definition = project.pipeline(report.pipeline)
    late = dict.fromkeys(LateDecision, 0)
    for day in report.days:
        late[day.decision] += sum(source.late.bytes for source in day.sources)
    days = Counter(day.decision for day in report.days)
    put_metric(Metric.DAYS_RERUN, days[LateDecision.RERUN], pipeline=report.pipeline)
    put_metric(Metric.LATE_BYTES, late[LateDecision.RERUN] + late[LateDecision.HOLD], pipeline=report.pipeline)
    if report.as_of != today(definition, report.checked_at).isoformat():
        return
    put_metric(Metric.LATE_BYTES_UNPROCESSED, late[LateDecision.HOLD], pipeline=report.pipeline)
    put_metric(Metric.LATE_BYTES_IGNORED, late[LateDecision.IGNORE], pipeline=report.pipeline)
    put_metric(Metric.DAYS_ON_HOLD, days[LateDecision.HOLD], pipeline=report.pipeline)
    put_metric(Metric.DAYS_OVERDUE, len(report.overdue), pipeline=report.pipeline)
    for name, arrived in report.last_arrivals.items():
        # Without an arrival it has been silent at least as far back as the check has looked.
        looked = min(
            window_start(definition, report.as_of), report.checked_at - project.source(name).silent_hours * HOUR
        )
        put_metric(Metric.HOURS_SINCE_ARRIVAL, (report.checked_at - (arrived or looked)) / HOUR, source=name)
