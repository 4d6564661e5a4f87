"""Check the finished days of a pipeline: the first task of the monitoring state machine."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.clients import SINGLE_CONFIG, client
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.emf import put_metric
from slackwater.aws.function import with_correlation_id
from slackwater.aws.inputs import input_listing
from slackwater.aws.machines import StepFunctionsExecutions
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.run_usage import CostEnvironment, cost_recorder
from slackwater.errors import SlackwaterError
from slackwater.late.check.checker import Checker
from slackwater.late.check.decision import CheckReport, LateDecision
from slackwater.late.check.holds import days_on_hold
from slackwater.late.check.tasks import day_tasks
from slackwater.late.check.window import today, window_start
from slackwater.late.ledger.pending import save_pending
from slackwater.metrics import Metric
from slackwater.project import Project
from slackwater.runs.cost_recorder import CostRecorder
from slackwater.runs.day import HOUR

logger = Logger()
# Costs that are not recorded in this time wait for the next check.
_COSTS_TIME = timedelta(seconds=30)
# The function is stopped after 10 minutes. A record of costs takes a few requests, of at most 6 seconds each.
_COSTS_END = timedelta(minutes=8)


class CheckDaysEnvironment(CostEnvironment):
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
    days: tuple[str, ...] | None = None
    """ISO dates: only these days of the window are checked; None for all of them."""
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


@cache
def build_costs() -> CostRecorder:
    """Build the recorder of costs, once per process."""
    environment = CheckDaysEnvironment.read()
    table = DynamoRunTable(client("dynamodb", config=SINGLE_CONFIG), environment.run_table)
    # Not repeated: the next check records what is missing.
    return cost_recorder(
        environment,
        table=table,
        clients=lambda service: client(service, config=SINGLE_CONFIG),
        now=lambda: datetime.now(UTC),
    )


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return the URI of the report, and the days that need an action. The report is too large for the state machine."""
    request = CheckDaysRequest.model_validate(event)
    checker, started = build_checker(), time.monotonic()
    report = checker.check(
        pipeline=request.pipeline,
        as_of=request.as_of,
        dates=request.days,
        correlation_id=request.correlation_id,
        execution=request.execution,
    )
    days = [task.model_dump(mode="json") for task in day_tasks(report)]
    # The report's URI depends only on the execution and the date: a repeated call replaces the report.
    answer = {"report": checker.save(report, execution=request.execution), "days": days}
    save_pending(report, store=checker.store, exchange_bucket=checker.exchange_bucket, execution=request.execution)
    put_metrics(report, checker.project)
    put_metric(Metric.DAYS_ON_HOLD, days_on_hold(report, checker.table.held(report.pipeline)), pipeline=report.pipeline)
    rules = {day.date: day.rule for day in report.days}
    logger.info("days checked", extra={**answer, "rules": rules, "seconds": report.seconds})
    if report.complete:
        # Last, and not in the checks that new objects start: the days to run must not wait for costs.
        record_costs(build_costs(), request.pipeline, elapsed=timedelta(seconds=time.monotonic() - started))
    return answer


def record_costs(recorder: CostRecorder, pipeline: str, *, elapsed: timedelta) -> None:
    """Record the costs of the pipeline's runs that are due, and put the metric of each. Errors are only logged.

    `elapsed` is how long the check took: after a long one, the next check records them.
    """
    within = min(_COSTS_TIME, _COSTS_END - elapsed)
    if within <= timedelta(0):
        return
    try:
        recorded = recorder.record_due(pipeline, within=within)
    except SlackwaterError as error:
        logger.warning("costs of runs were not recorded", extra={"reason": str(error)})
        return
    for record in recorded.completed:
        if record.cost and record.cost.usd is not None:
            put_metric(Metric.RUN_COST, record.cost.usd, pipeline=pipeline)
    if recorded.problems:
        logger.warning("costs of runs were not recorded", extra={"reasons": recorded.problems})


def put_metrics(report: CheckReport, project: Project) -> None:
    """Put the metrics of a check. Only a check of today puts gauges: a check of a past day must not fire an alarm."""
    definition = project.pipeline(report.pipeline)
    late_bytes = dict.fromkeys(LateDecision, 0)
    for day in report.days:
        late_bytes[day.decision] += sum(source.unprocessed.bytes for source in day.sources)
    days = Counter(day.decision for day in report.days)
    put_metric(Metric.DAYS_RERUN, days[LateDecision.RERUN], pipeline=report.pipeline)
    handled = (LateDecision.RERUN, LateDecision.DEFER, LateDecision.HOLD)
    put_metric(Metric.LATE_BYTES, sum(late_bytes[decision] for decision in handled), pipeline=report.pipeline)
    if not report.complete or report.as_of != today(definition, report.checked_at).isoformat():
        return
    put_metric(Metric.LATE_BYTES_UNPROCESSED, late_bytes[LateDecision.HOLD], pipeline=report.pipeline)
    put_metric(Metric.LATE_BYTES_IGNORED, late_bytes[LateDecision.IGNORE], pipeline=report.pipeline)
    put_metric(Metric.DAYS_OVERDUE, len(report.overdue), pipeline=report.pipeline)
    put_metric(Metric.LATE_DAYS_OLDER, len(report.older), pipeline=report.pipeline)
    for name, arrived in report.last_arrivals.items():
        # Without an arrival, the source has been silent at least since the earliest time that the check has listed.
        silent_since = arrived or min(
            window_start(definition, report.as_of), report.checked_at - project.source(name).silent_hours * HOUR
        )
        put_metric(Metric.HOURS_SINCE_ARRIVAL, (report.checked_at - silent_since) / HOUR, source=name)
