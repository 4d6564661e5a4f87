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
from slackwater.aws.dynamodb.event_counts import DynamoEventCounts
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.emf import put_metric
from slackwater.aws.executions.run_usage import CostEnvironment, cost_recorder
from slackwater.aws.executions.state_machines import StepFunctionsExecutions
from slackwater.aws.function import with_correlation_id
from slackwater.aws.inputs import input_listing
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.queue import ArrivalQueue
from slackwater.aws.topic import SnsTopic
from slackwater.errors import SlackwaterError
from slackwater.late.arrival_messages import seconds_to_wait
from slackwater.late.changes.definition_notices import DefinitionNotifier, kept_days
from slackwater.late.changes.table_notices import TableNotifier
from slackwater.late.check.checker import Checker
from slackwater.late.check.deferred import later_checks
from slackwater.late.check.holds import days_on_hold
from slackwater.late.check.limits import budget_percent, usage_date
from slackwater.late.check.tasks import day_tasks
from slackwater.late.check.window import today, window_start
from slackwater.late.decision import CheckReport, DayDecision, DecisionRule, LateDecision
from slackwater.late.pending import save_pending
from slackwater.late.rejects import rejected_above_normal
from slackwater.metrics import Metric
from slackwater.project.project import Project
from slackwater.runs.cost_recorder import CostRecorder
from slackwater.runs.day import HOUR

logger = Logger()
# Costs that are not recorded in this time wait for the next check.
_COSTS_TIME = timedelta(seconds=30)
# The function is stopped after 10 minutes. A record of costs takes a few requests, of at most 6 seconds each.
_COSTS_END = timedelta(minutes=8)
# Each takes a few seconds, and 15 if SNS does not answer. The next check sends the remaining messages.
_MOST_NOTICES = 10


class CheckDaysEnvironment(CostEnvironment):
    """Settings of this function."""

    raw_bucket: str
    exchange_bucket: str
    file_table: str
    run_table: str
    project_uri: str
    arrival_queue_url: str
    """Empty if only the daily check finds late data."""
    change_topic: str


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
def build_event_counts() -> DynamoEventCounts:
    """Build the counts of events by source and hour, once per process."""
    # Not repeated: the next check reads them too.
    return DynamoEventCounts(client("dynamodb", config=SINGLE_CONFIG), CheckDaysEnvironment.read().file_table)


@cache
def build_arrivals() -> ArrivalQueue:
    """Build the queue of arrivals, once per process."""
    # Not repeated: the daily check looks at the days too.
    return ArrivalQueue(client("sqs", config=SINGLE_CONFIG), CheckDaysEnvironment.read().arrival_queue_url)


@cache
def build_definition_notifier() -> DefinitionNotifier:
    """Build what notifies people of a new definition, once per process."""
    checker = build_checker()
    return DefinitionNotifier(
        project=checker.project,
        table=checker.table,
        executions=checker.executions,
        topic=SnsTopic(CheckDaysEnvironment.read().change_topic),
        now=checker.now,
        on_outcome_unknown=report_outcome_unknown,
    )


@cache
def build_notifier() -> TableNotifier:
    """Build what notifies people of changed tables, once per process."""
    environment, checker = CheckDaysEnvironment.read(), build_checker()
    return TableNotifier(
        table=checker.table,
        executions=checker.executions,
        topic=SnsTopic(environment.change_topic),
        now=checker.now,
        on_outcome_unknown=report_outcome_unknown,
    )


def report_outcome_unknown(day: DayDecision) -> None:
    """Fire the alarm for a message that may or may not have been sent, and log its day."""
    logger.warning("people may have been notified of a changed table or definition, or not", extra={"date": day.date})
    put_metric(Metric.NOTIFICATION_OUTCOME_UNKNOWN, 1, pipeline=day.pipeline)


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
    put_budget(report, checker)
    put_metric(Metric.DAYS_ON_HOLD, days_on_hold(report, checker.table.held(report.pipeline)), pipeline=report.pipeline)
    rules = {day.date: day.rule for day in report.days}
    request_checks(build_arrivals(), report)
    if any(day.table_changes for day in report.days):
        notify_of_tables(build_notifier(), report, checker.project, execution=request.execution)
    # A check of an earlier date would name other days.
    if kept_days(report) and is_of_today(report, checker.project):
        notify_of_definition(build_definition_notifier(), report, execution=request.execution)
    logger.info("days checked", extra={**answer, "rules": rules, "seconds": report.seconds})
    if report.complete:
        put_rejects(build_event_counts(), report, checker.project)
        # Last, and not in the checks that new objects start: the days to run must not wait for costs.
        record_costs(build_costs(), request.pipeline, elapsed=timedelta(seconds=time.monotonic() - started))
    return answer


def request_checks(arrivals: ArrivalQueue, report: CheckReport) -> None:
    """Have days checked again that are deferred, or that the check could not decide about.

    An error is only logged: the daily check is the next one.
    """
    now = report.checked_at
    try:
        arrivals([(item.model_dump_json(), seconds_to_wait(item, now)) for item in later_checks(report)])
    except SlackwaterError as error:
        logger.warning("days wait for the daily check", extra={"reason": str(error)})


def notify_of_tables(notifier: TableNotifier, report: CheckReport, project: Project, *, execution: str) -> None:
    """Notify people of changed days of tables with `on_change: notify`.

    An error is only logged: the next check tries again. Days that run again, now or later, are left out: their runs
    read the new versions.
    """
    definition, sent = project.pipeline(report.pipeline), 0
    for day in report.days:
        if not day.table_changes or day.decision in {LateDecision.RERUN, LateDecision.DEFER}:
            continue
        try:
            sent += notifier.notify(definition, day, execution=execution)
        except SlackwaterError as error:
            logger.warning("nobody was notified of a changed table", extra={"date": day.date, "reason": str(error)})
        if sent == _MOST_NOTICES:
            break
    if sent:
        put_metric(Metric.NOTIFICATIONS_SENT, sent, pipeline=report.pipeline)


def notify_of_definition(notifier: DefinitionNotifier, report: CheckReport, *, execution: str) -> None:
    """Notify people of a new definition. An error is only logged: the next check tries again."""
    try:
        if notifier.notify(report, execution=execution):
            put_metric(Metric.NOTIFICATIONS_SENT, 1, pipeline=report.pipeline)
    except SlackwaterError as error:
        logger.warning("nobody was notified of a new definition", extra={"reason": str(error)})


def record_costs(recorder: CostRecorder, pipeline: str, *, elapsed: timedelta) -> None:
    """Record the costs of runs and comparisons that are due, and put the metric of each. Errors are only logged.

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
        if record.cost and record.cost.jobs:
            put_metric(Metric.JOB_QUEUE_MINUTES, record.cost.queued_seconds / 60, pipeline=pipeline)
    if recorded.problems:
        logger.warning("costs of runs were not recorded", extra={"reasons": recorded.problems})


def is_of_today(report: CheckReport, project: Project) -> bool:
    """Return whether the check is of the pipeline's present day."""
    return report.as_of == today(project.pipeline(report.pipeline), report.checked_at).isoformat()


def put_budget(report: CheckReport, checker: Checker) -> None:
    """Put how much of its budget a pipeline needs today. Checks of new objects put it too: they start re-runs."""
    definition = checker.project.pipeline(report.pipeline)
    now = report.checked_at
    if definition.late.budget_per_day is None or not is_of_today(report, checker.project):
        return
    usage = checker.table.rerun_usage(report.pipeline, usage_date(definition, now))
    percent = budget_percent(definition.late, usage, report.days)
    if percent is not None:
        put_metric(Metric.BUDGET_PERCENT, percent, pipeline=report.pipeline)


def put_rejects(counts: DynamoEventCounts, report: CheckReport, project: Project) -> None:
    """Put by how much the reject rate of each source is above normal, in a check of today. Errors are only logged."""
    definition, now = project.pipeline(report.pipeline), report.checked_at
    if not is_of_today(report, project):
        return
    for name in definition.sources:
        try:
            above = rejected_above_normal(counts.hours(name, now=now), now=now)
        except SlackwaterError as error:
            logger.warning("the reject rate is not known", extra={"source": name, "reason": str(error)})
        else:
            put_metric(Metric.REJECTED_PERCENT_ABOVE_NORMAL, above, source=name)


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
    if not report.complete or not is_of_today(report, project):
        return
    # A cool-down ends by itself, so it must not fire an alarm.
    cooling = sum(
        source.unprocessed.bytes for day in report.days if day.rule is DecisionRule.COOL_DOWN for source in day.sources
    )
    unprocessed = late_bytes[LateDecision.HOLD] + late_bytes[LateDecision.DEFER] - cooling
    put_metric(Metric.LATE_BYTES_UNPROCESSED, unprocessed, pipeline=report.pipeline)
    put_metric(Metric.LATE_BYTES_IGNORED, late_bytes[LateDecision.IGNORE], pipeline=report.pipeline)
    put_metric(Metric.DAYS_OVERDUE, len(report.overdue), pipeline=report.pipeline)
    put_metric(Metric.LATE_DAYS_OLDER, len(report.older), pipeline=report.pipeline)
    for name, arrived in report.last_arrivals.items():
        # Without an arrival, the source has been silent at least since the earliest time that the check has listed.
        silent_since = arrived or min(
            window_start(definition, report.as_of), report.checked_at - project.source(name).silent_hours * HOUR
        )
        silent_hours = (report.checked_at - silent_since) / HOUR
        put_metric(Metric.HOURS_SINCE_ARRIVAL, silent_hours, source=name)
        usual_hours = report.usual_silences.get(name, project.source(name).silent_hours)
        put_metric(Metric.SILENCE_PERCENT, 100 * silent_hours / usual_hours, source=name)
