"""The part of a client that runs late days again, and decides about days on hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from slackwater.aws.resources import utc_now
from slackwater.client.arguments import Date, check_runs, optional_period, period_name
from slackwater.client.day_client import DayClient
from slackwater.client.days.executions import OnProgress, ignore, require_success
from slackwater.client.days.runs import RunHandle
from slackwater.errors import InputError, NotDeployed, SlackwaterError
from slackwater.runs.record import DayRecord

if TYPE_CHECKING:
    from slackwater.client.monitoring import MonitorResult, OnReport, OnTask
    from slackwater.client.older import OlderDays
    from slackwater.client.why import Why
    from slackwater.late.changes.job_claims import AbandonedComparison
    from slackwater.late.check.checker import Checker
    from slackwater.late.comparison import Comparison
    from slackwater.late.decision import CheckReport, DayDecision
    from slackwater.late.suggest import Suggestion
    from slackwater.receiver.pull.removed_files import DoubtfulFiles


class DayComparison(NamedTuple):
    """A comparison of a day's published version with the version before it."""

    comparison: Comparison | None
    reason: str
    """Why there is nothing to compare; empty with a comparison."""

    def page(self) -> str:
        """Return the report as one HTML page with charts; empty without a comparison."""
        from slackwater.late.report.page import report_page

        return report_page(self.comparison) if self.comparison else ""


class LateClient(DayClient):
    """Monitors days, compares their versions, and releases days on hold or keeps their versions."""

    def monitor(
        self,
        pipeline: str,
        *,
        as_of: Date | None = None,
        on_task: OnTask = ignore,
        on_report: OnReport = ignore,
    ) -> MonitorResult:
        """Run a pipeline's days with late data again as of a date, by default today, and notify people of changes.

        Of an hourly pipeline, these are its hours, as of an hour or the last one of a date.

        Returns when all late days are done; `on_task` and `on_report` get the progress. Raises `RunFailed` if the days
        could not be checked. The failure of a day is in the result.
        """
        from slackwater.client.monitoring import Monitor
        from slackwater.late.check.window_dates import check_window

        definition, deployment = self.project.pipeline(pipeline), self.connection.deployment
        monitor = Monitor(
            executions=self.executions,
            table=self.run_table,
            store=self.store,
            machine=deployment.monitor_machine_arn,
            exchange_bucket=deployment.exchange_bucket,
        )
        name = None if as_of is None else period_name(as_of, name="as_of")
        day = check_window(definition, name, utc_now())[-1].name
        return monitor.run(definition.pipeline, day, on_task=on_task, on_report=on_report)

    def check(self, pipeline: str, *, as_of: Date | None = None) -> CheckReport:
        """Return what a monitoring as of a date, by default today, would decide about the days of the window.

        Nothing runs, is written or sent. Raises `UnknownName`, `NotDeployed`, and `InputError` for a date that is none
        or has not begun.
        """
        checker, stored = self._dry_checker_of(pipeline), self.project.stored_name(pipeline)
        return checker.check(pipeline=stored, as_of=optional_period(as_of))

    def why(self, pipeline: str, date: Date, *, as_of: Date | None = None) -> Why:
        """Return why a day is as it is: what is published, what has come since, and what a check decides about it.

        `as_of` is the day of the check, by default today. Nothing is written. Raises `UnknownName`, `NotDeployed`, and
        `InputError` for a date that is none or has not begun, and for a day after `as_of`.
        """
        from slackwater.client.why import Explainer

        deployment, day = self.connection.deployment, period_name(date)
        checker, stored = self._dry_checker_of(pipeline), self.project.stored_name(pipeline)
        check_runs(day, checker.project.pipeline(stored), name="date")
        explainer = Explainer(
            checker=checker,
            is_scheduled=deployment.schedule != "none",
            waits=self.wait_table.waits,
            collect_minutes=deployment.collect_minutes,
        )
        return explainer.why(stored, day, as_of=optional_period(as_of))

    def _dry_checker_of(self, pipeline: str) -> Checker:
        """Return the checker that writes nothing. Raises `UnknownName`, `NotDeployed`."""
        if self.project.pipeline(pipeline).pipeline not in self.dry_checker.project.pipelines:
            raise NotDeployed(f"the pipeline {pipeline} is not deployed: run slackwater deploy")
        return self.dry_checker

    def compare(
        self,
        pipeline: str,
        date: Date,
        *,
        before: int | None = None,
        after: int | None = None,
        split: bool = False,
        on_progress: OnProgress = ignore,
    ) -> DayComparison:
        """Compare version `after` of a day, by default the published one, with `before`, by default the one before it.

        Raises `InputError` for a version that the day does not have, `VersionRemoved` if retention has removed one of
        the two, else `RunFailed`. A Spark job compares each pair of versions once; later calls read its result.

        With `split`, `comparison.split` is what the data has changed, and what the definition and the code: two more
        Spark jobs compute this once for each pair of versions whose inputs and definition both differ. It is None for
        other pairs, and `comparison.split_reason` says why.
        """
        from slackwater.late.changes.choose_versions import published_versions
        from slackwater.late.changes.split import stored_split
        from slackwater.late.comparison import Comparison, ComparisonReference
        from slackwater.runs.comparison_run import attempt_costs

        pipeline = self.project.pipeline(pipeline).pipeline
        day, versions, split_input = self._period(pipeline, date), {}, {"split": True} if split else {}
        if before or after:
            versions = {"before": before or 0, "after": after or 0}
            published_versions(self.day(pipeline, day), self.runs(pipeline, day), **versions)
        execution = self.executions.start(
            self.connection.deployment.compare_machine_arn,
            name=day,
            payload={"pipeline": pipeline, "date": day, "since": "previous", **versions, **split_input},
        )
        output = require_success(self.executions.wait(execution, on_progress=on_progress))
        reference = ComparisonReference.model_validate(output)
        if not reference.uri:
            return DayComparison(None, reference.reason)
        comparison = Comparison.model_validate_json(self.store.get(reference.uri))
        pairs = self.run_table.comparisons(pipeline, day)
        same = [item for item in pairs if (item.before, item.after) == (reference.before, reference.after)]
        costs = attempt_costs(self.run_table.run(pipeline, day, reference.after), same)
        comparison = comparison.with_costs(costs)
        if split:
            parts = stored_split(self.store, f"{reference.uri.rpartition('/')[0]}/")
            comparison = comparison.model_copy(update={"split": parts, "split_reason": reference.split_reason})
        return DayComparison(comparison, "")

    def days_on_hold(self, pipeline: str | None = None) -> list[DayRecord]:
        """Return the days on hold of a pipeline, or of all, by pipeline and date. Raises `UnknownName`."""
        from slackwater.client.holds import days_on_hold

        return days_on_hold(self.run_table, self._names(pipeline))

    def deferred_days(self, pipeline: str | None = None) -> list[DayDecision]:
        """Return the days of the window whose late data has to wait for a limit, of a pipeline or of all.

        They are decided about now, by pipeline and date. Raises `UnknownName`, `NotDeployed`.
        """
        from slackwater.late.check.window_dates import check_window
        from slackwater.late.decision import LateDecision

        deferred = []
        for name in self._names(pipeline):
            first, *_, last = (day.name for day in check_window(self.project.pipeline(name), None, utc_now()))
            if dates := [item.date for item in self.run_table.late_days(name, first=first, last=last)]:
                days = self._dry_checker_of(name).check(pipeline=name, as_of=None, dates=dates).days
                deferred += [day for day in days if day.decision is LateDecision.DEFER]
        return deferred

    def release(self, pipeline: str, date: Date, *, reason: str) -> RunHandle:
        """Start a run of a day with its present inputs, although they have lost rows or its audit failed.

        Raises `UnknownName`, and `InputError` for a day that is running, or never published and not on hold. So it does
        if the inputs have changed since the hold was recorded: the hold then has the present reason. If the run cannot
        be started, the release is recorded nevertheless, the error says so, and the same call can be repeated.
        """
        stored = self.project.pipeline(pipeline).pipeline
        day = self._period(stored, date)
        force = self.hold_decisions.release(stored, day, reason=reason)
        try:
            return self.run(pipeline, day, force=force)
        except SlackwaterError as error:
            raise type(error)(
                f"{error}\n  The release of {pipeline} {day} is recorded, but its run may not have started: repeat the "
                "same release to start it"
            ) from error

    def keep(self, pipeline: str, date: Date, *, reason: str) -> DayRecord:
        """Keep the published version of a day on hold as long as its inputs are the same, and return the day.

        Raises `UnknownName`, and `InputError` for a day that is not on hold or whose published version is not known.
        """
        stored = self.project.pipeline(pipeline).pipeline
        return self.hold_decisions.keep(stored, self._period(stored, date), reason=reason)

    reject = keep  # its former name

    def changed_tables(self, pipeline: str | None = None) -> list[DayRecord]:
        """Return the days of the window that have read days of other pipelines before these changed.

        Only with `on_change: notify` are they recorded: `table_notice` says what has changed. Of a pipeline or of all,
        by pipeline and date. Raises `UnknownName`.
        """
        from slackwater.client.holds import days_with_changed_tables

        pipelines = map(self.project.pipeline, self._names(pipeline))
        return days_with_changed_tables(self.run_table, pipelines, now=utc_now())

    def comparisons_given_up(self, pipeline: str | None = None) -> list[AbandonedComparison]:
        """Return the comparisons that no monitoring tries again, of a pipeline or of all. Raises `UnknownName`."""
        from slackwater.late.changes.job_claims import abandoned_comparisons

        # Only a version that people do not know may have such a comparison.
        names = self._names(pipeline)
        due = ((name, date) for name in names for date in self.run_table.notifications_due(name, before="9999-12-31"))
        days = (self.run_table.day(name, date) for name, date in due)
        bucket = self.connection.deployment.exchange_bucket
        return list(abandoned_comparisons(days, store=self.store, exchange_bucket=bucket))

    def doubtful_files(self, pipeline: str | None = None) -> list[DoubtfulFiles]:
        """Return the doubtful removals of the latest pulls, of the sources of a pipeline or of all.

        Raises `UnknownName`.
        """
        from slackwater.receiver.pull.removed_files import read_doubtful

        names = sorted(self.project.pipeline(pipeline).sources if pipeline else self.project.sources)
        bucket = self.connection.deployment.exchange_bucket
        sources = [name for name in names if self.project.records_removed(name)]
        results = [read_doubtful(self.store, exchange_bucket=bucket, source=name) for name in sources]
        return [result for result in results if result]

    def older_late_days(
        self, pipeline: str | None = None, *, first: Date | None = None, last: Date | None = None
    ) -> OlderDays:
        """Return the days before the window with late data, of a pipeline or of all.

        With `first` or `last`, every published day from the one to the other is checked, at most 92; otherwise those
        that checks and new objects have listed. Of an hourly pipeline, these are hours. Raises `UnknownName`,
        `InputError`.
        """
        from slackwater.client.older import older_days

        names = self._names(pipeline)
        return older_days(self.checker, names, first=optional_period(first), last=optional_period(last))

    def suggest_thresholds(self, pipeline: str, *, max_effect: float = 1.0) -> Suggestion:
        """Return thresholds for late data, with what each would have done with the re-runs of the last 90 days.

        The proposed ones miss no change of a metric above `max_effect` percent. Raises `UnknownName`, and `InputError`
        when there are too few re-runs.
        """
        from slackwater.late.suggest import suggest_thresholds

        definition = self.project.pipeline(pipeline)
        if definition.period == "hour":
            raise InputError(f"{pipeline} has `period: hour`: thresholds are suggested for daily pipelines only")
        return suggest_thresholds(
            definition, query=lambda sql: self.query(sql).rows, now=utc_now(), max_effect=max_effect
        )
