"""Checks the days of a pipeline, and does what follows from the report: the first task of a monitoring."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from slackwater.errors import SlackwaterError
from slackwater.late.arrival_messages import DayDeferred, day_deferred, seconds_to_wait
from slackwater.late.changes.definition_notices import DefinitionNotifier, kept_days
from slackwater.late.changes.table_notices import TableNotifier
from slackwater.late.check.checker import Checker
from slackwater.late.check.metrics import days_on_hold, put_budget, put_gauges, rejected_above_normal
from slackwater.late.check.window_dates import check_window
from slackwater.late.decision import CheckReport, DayDecision, DecisionRule, LateDecision
from slackwater.late.pending import save_passed_over, save_pending
from slackwater.metrics import Metric, PutsMetric, Warns
from slackwater.pipeline.definition import Pipeline
from slackwater.receiver.event_counts import EventCount
from slackwater.runs.arrivals import SendsArrivals
from slackwater.runs.cost_recorder import CostRecorder
from slackwater.runs.period import period_at
from slackwater.runs.pipeline_verdicts import PipelineVerdicts
from slackwater.sources.partitions import UpdateTable

# Costs that are not recorded in this time wait for the next check.
_COSTS_TIME = timedelta(seconds=30)
# The function is stopped after 10 minutes. A record of costs takes a few requests, of at most 6 seconds each.
_COSTS_END = timedelta(minutes=8)
# Each takes a few seconds, and 15 if SNS does not answer. The next check sends the remaining messages.
_MOST_NOTICES = 10
# After this time, a day is checked again that was running, or could not be read.
_AGAIN = timedelta(minutes=5)


class EventCounts(Protocol):
    """The numbers of events of sources."""

    def hours(self, source: str, *, now: datetime) -> Mapping[int, EventCount]:
        """Return the counts of today (UTC) and the 14 days before, by hour since 1970. Raises `CloudError`."""


class Checked(NamedTuple):
    """The result of a check."""

    report: CheckReport
    uri: str
    """Of the stored report."""


@dataclass(frozen=True, kw_only=True)
class Monitor:
    """Checks days, and does what follows from the report."""

    checker: Checker
    tables: TableNotifier
    definitions: DefinitionNotifier
    arrivals: SendsArrivals
    event_counts: EventCounts
    costs: CostRecorder
    update_table: UpdateTable
    fold_states: UpdateTable
    """Has the states of hours computed again from the listing, some time later."""
    verdicts: PipelineVerdicts
    put_metric: PutsMetric
    warn: Warns

    def check(
        self, *, pipeline: str, as_of: str | None, days: tuple[str, ...] | None, execution: str, correlation_id: str
    ) -> Checked:
        """Check days as `Checker.check` does, store the report, put its metrics, and notify people.

        A part that fails after the report and the pending check are stored is logged and counted, and stops no other
        part: the next check does it. Raises what `Checker.check` raises, and `CloudError` when one of the two cannot be
        stored; a repeated call replaces them.
        """
        started, checker = time.monotonic(), self.checker
        report = checker.check(
            pipeline=pipeline, as_of=as_of, dates=days, correlation_id=correlation_id, execution=execution
        )
        uri = checker.save(report, execution=execution)
        save_pending(report, store=checker.store, exchange_bucket=checker.exchange_bucket, execution=execution)
        definition = checker.project.pipeline(pipeline)
        # A check of an earlier date puts no gauges, because it must not fire an alarm, and would name other days.
        is_of_today = report.as_of == period_at(report.checked_at, definition).name
        with self.best_effort(pipeline, "the number of days on hold is not known"):
            self.put_metric(Metric.DAYS_ON_HOLD, days_on_hold(report, checker.table.held(pipeline)), pipeline=pipeline)
        if is_of_today:
            # Also in the checks that new objects start: they start re-runs.
            with self.best_effort(pipeline, "the use of the budget is not known"):
                put_budget(report, definition, checker.table, self.put_metric)
        if is_of_today and report.complete:
            put_gauges(report, definition, checker.project, self.put_metric)
        self.request_checks(report)
        self.notify_of_tables(report, definition, execution=execution)
        if is_of_today and kept_days(report):
            with self.best_effort(pipeline, "nobody was notified of a new definition"):
                if self.definitions.notify(report, execution=execution):
                    self.put_metric(Metric.NOTIFICATIONS_SENT, 1, pipeline=pipeline)
        if is_of_today and report.complete and definition.period == "day":
            self.put_rejects(report, definition)
        if report.complete:
            self.clear_verdicts(report)
            self.store_passed_over(report, execution=execution)
            self.update_tables(report, definition)
            # Last, and not in the checks that new objects start: the days to run must not wait for costs.
            self.record_costs(pipeline, elapsed=timedelta(seconds=time.monotonic() - started))
        return Checked(report, uri)

    def clear_verdicts(self, report: CheckReport) -> None:
        """Clear the pipeline's own verdicts about inputs that are again those of published runs: nothing will run."""
        with self.best_effort(report.pipeline, "verdicts of the pipeline were not cleared"):
            days = [day for day in report.days if _reads_the_same(day)]
            runs = [self.checker.table.run(day.pipeline, day.date, day.attempt) for day in days if day.attempt]
            self.verdicts.of_published([run for run in runs if run and not run.rollback], at=report.checked_at)

    def store_passed_over(self, report: CheckReport, *, execution: str) -> None:
        """Store the late inputs for the ledger that no rule has decided about. The next check finds what fails."""
        with self.best_effort(report.pipeline, "the ledger lacks late data that the check has passed over"):
            checker, passed = self.checker, self.checker.passed_over(report)
            save_passed_over(
                report, passed, store=checker.store, exchange_bucket=checker.exchange_bucket, execution=execution
            )
            checker.settle(report.pipeline, passed)

    @contextmanager
    def best_effort(self, pipeline: str, message: str, **fields: object) -> Iterator[None]:
        """Run a part of the check. A `SlackwaterError` in it is logged, as `message` with its reason, and counted."""
        try:
            yield
        except SlackwaterError as error:
            self.warn(message, reason=str(error), **fields)
            self.put_metric(Metric.CHECK_PARTS_FAILED, 1, pipeline=pipeline)

    def request_checks(self, report: CheckReport) -> None:
        """Have days checked again that are deferred, or that the check could not decide about."""
        checks = ((item.model_dump_json(), seconds_to_wait(item, report.checked_at)) for item in later_checks(report))
        with self.best_effort(report.pipeline, "days wait for the daily check"):
            self.arrivals(list(checks))

    def update_tables(self, report: CheckReport, definition: Pipeline) -> None:
        """Have raw tables and states of sources follow the listing of the window, without any event.

        These are the sources of the pipeline. The first pipeline by name also has those that none reads.
        """
        window = check_window(definition, report.as_of, report.checked_at)
        partitions = {partition for day in window for partition in day.partitions()}
        project = self.checker.project
        read = {source for pipeline in project.pipelines.values() for source in pipeline.sources}
        others = sorted(project.sources.keys() - read) if definition.pipeline == min(project.pipelines) else ()
        for source in (*definition.sources, *others):
            self.update_table(source, partitions)
            if project.source(source).counts:
                self.fold_states(source, partitions)

    def notify_of_tables(self, report: CheckReport, definition: Pipeline, *, execution: str) -> None:
        """Notify people of changed days of tables with `on_change: notify`, at most 10 times.

        Days that run again, now or later, are left out: their runs read the new versions.
        """
        sent = 0
        for day in report.days:
            if day.table_changes and day.decision not in {LateDecision.RERUN, LateDecision.DEFER}:
                with self.best_effort(report.pipeline, "nobody was notified of a changed table", date=day.date):
                    sent += self.tables.notify(definition, day, execution=execution)
            if sent == _MOST_NOTICES:
                break
        if sent:
            self.put_metric(Metric.NOTIFICATIONS_SENT, sent, pipeline=report.pipeline)

    def record_costs(self, pipeline: str, *, elapsed: timedelta) -> None:
        """Record the costs of runs and comparisons that are due.

        `elapsed` is how long the check took: after a long one, the next check records them.
        """
        within = min(_COSTS_TIME, _COSTS_END - elapsed)
        if within <= timedelta(0):
            return
        with self.best_effort(pipeline, "costs of runs were not recorded"):
            recorded = self.costs.record_due(pipeline, within=within)
            if recorded.errors:
                self.warn("costs of runs were not recorded", reasons=recorded.errors)
                self.put_metric(Metric.CHECK_PARTS_FAILED, 1, pipeline=pipeline)

    def put_rejects(self, report: CheckReport, definition: Pipeline) -> None:
        """Put by how much the reject rate of each source is above normal."""
        for name in definition.sources:
            with self.best_effort(report.pipeline, "the reject rate is not known", source=name):
                hours = self.event_counts.hours(name, now=report.checked_at)
                above = rejected_above_normal(hours, now=report.checked_at)
                self.put_metric(Metric.REJECTED_PERCENT_ABOVE_NORMAL, above, source=name)


def _reads_the_same(day: DayDecision) -> bool:
    """Return whether a run of a published day would read what the published run has read, by the same definition."""
    # The verdicts of two pipelines about one input hold the days of each other.
    is_held = day.rule is DecisionRule.INVALID and not any(source.changes for source in day.sources)
    return day.rule is DecisionRule.UNCHANGED or (is_held and not day.new_definition)


def later_checks(report: CheckReport) -> Iterator[DayDeferred]:
    """Yield a message for each day of the report that has to be checked again.

    These are deferred days that may run again later by themselves, days whose late data reaches `max_age_hours` before
    the next daily check, days with an error that may pass, and in a check of some days only those that are running: the
    messages about their late data have led to this check, and are gone. Also if a scheduled check comes first: its
    schedule may be turned off, and an additional check costs 0.0002 USD.
    """
    for day in report.days:
        not_before = day.figures.not_before if day.figures and day.decision is LateDecision.DEFER else None
        if day.error_may_pass or (day.rule is DecisionRule.RUNNING and not report.complete):
            not_before = report.checked_at + _AGAIN
        elif day.rule in {DecisionRule.BELOW, DecisionRule.TOO_EXPENSIVE}:
            not_before = day.ages_at
        if not_before:
            yield day_deferred(day.pipeline, day.date, not_before=not_before)
