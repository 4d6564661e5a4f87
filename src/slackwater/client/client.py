"""The client of a deployed system: everything that people and programs do there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date as date_type
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypedDict, cast
from uuid import uuid4

from slackwater.aws.executions.state_machines import ExecutionView
from slackwater.aws.resources import utc_now
from slackwater.client.arguments import Date, checked_correlation_id, iso_date, optional_date, pulled_source
from slackwater.client.connection import Connection, connect
from slackwater.client.days.executions import OnProgress, ignore, require_success
from slackwater.client.days.runs import RunHandle
from slackwater.client.resources import ClientResources
from slackwater.client.tables import PublishedTable
from slackwater.client.workspace import Workspace, find_workspace
from slackwater.errors import InputError, SlackwaterError
from slackwater.project.project import Project
from slackwater.runs.record import DayRecord, Run, RunRecord

if TYPE_CHECKING:
    from slackwater.aws.raw_tables import Difference
    from slackwater.client.days.attempts import Attempt
    from slackwater.client.days.backfill import BackfillObserver, BackfillResult
    from slackwater.client.days.costs import DayCost
    from slackwater.client.days.history import DayVersion
    from slackwater.client.days.run_log import RunLog
    from slackwater.client.days.timeline import Timeline
    from slackwater.client.monitoring import MonitorObserver, MonitorResult
    from slackwater.client.older import OlderDays
    from slackwater.client.push import Event
    from slackwater.client.sender import PushTotals
    from slackwater.client.tables import QueryResult
    from slackwater.late.changes.job_claims import ComparisonGivenUp
    from slackwater.late.comparison import Comparison
    from slackwater.late.suggest import Suggestion
    from slackwater.receiver.pull.file_cache import FileEntry
    from slackwater.receiver.pull.recorded_files import RecordedFiles
    from slackwater.receiver.pull.removed_files import DoubtfulFiles
    from slackwater.runs.outputs import RunSteps, Version


class PullTotals(TypedDict):
    """Result of a pull: numbers of files by outcome, of events (`rows`), of rejected events, and of bytes."""

    source: str
    listed: int
    stored: int
    unchanged: int
    duplicate: int
    vanished: int
    busy: int
    waiting: int
    removed: int
    doubtful: int
    left: int
    failed: int
    rows: int
    rejected: int
    bytes: int
    vanished_files: list[str]
    correlation_id: str


class DayComparison(NamedTuple):
    """A comparison of a day's published version with the version before it."""

    comparison: Comparison | None
    reason: str
    """Why there is nothing to compare; empty with a comparison."""


class Client(ClientResources):
    """A client of a deployed system. Use it in a `with` statement, which closes its connections.

    It uses the cloud in the environment variable AWS_ENDPOINT_URL if that is set, else the project's local cloud if it
    runs, else AWS. For a local cloud, it sets the AWS variables of this process.

    Transient failures are repeated with growing, random pauses, at most as often as a budget allows; a wrong argument
    or missing permission is not. All errors are classes of `slackwater.errors`.
    """

    def __init__(
        self, project: str | Path = ".", *, correlation_id: str | None = None, connection: Connection | None = None
    ) -> None:
        """Connect to the deployed system of the project in the folder `project`.

        `correlation_id` is in the logs and records of everything that this client starts; by default it is a new one.
        `connection` replaces the one that is made for `project`. Raises `NotDeployed`, `DefinitionError`, `InputError`.
        """
        correlation_id = uuid4().hex if correlation_id is None else checked_correlation_id(correlation_id)
        super().__init__(connection or connect(find_workspace(Path(project))), correlation_id)

    @classmethod
    def open(cls, workspace: Workspace, project: Project | None = None) -> Client:
        """Return a client for a workspace. Arguments and errors are those of `connect`."""
        return cls(connection=connect(workspace, project))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def run(self, pipeline: str, date: Date, *, force: bool = False) -> RunHandle:
        """Start a run of a day. It is published when `wait()` of the result returns.

        If the published day already has the same inputs and definition, nothing runs, unless `force`. The run fails if
        the inputs have lost rows of the published version: `release` the day to publish it without them.

        Raises `UnknownName`, `NotDeployed`, `InputError` for a date that is none.
        """
        self.project.pipeline(pipeline)
        day = iso_date(date)
        execution = self.executions.start(
            f"{self.connection.deployment.pipeline_machine_prefix}{pipeline}",
            name=day,
            payload={"date": day, "force": force},
        )
        return self._handle(pipeline, day, execution)

    @contextmanager
    def run_file(self, path: str | Path, date: Date, *, force: bool = False) -> Iterator[RunHandle]:
        """Start a run of a day of the pipeline in a YAML file, which need not be deployed.

        Use it in a `with` statement; a run that has not ended then is stopped. The day is published in a table with the
        name of the pipeline. The Spark workers have the sizes of the settings. The other arguments are those of `run`.

        Raises `DefinitionError` with all problems of the file, or if another definition is deployed under its name, and
        `NotDeployed` if what the pipeline reads is not deployed.
        """
        from slackwater.client.days.undeployed import UndeployedRuns
        from slackwater.project.project import load_pipeline

        pipeline, day = load_pipeline(Path(path), self.connection.workspace.project), iso_date(date)
        runs = UndeployedRuns(
            project=self.project,
            deployment=self.connection.deployment,
            store=self.store,
            executions=self.executions,
        )
        payload = {"date": day, "force": force}
        with runs.start(pipeline, day, payload) as execution:
            yield self._handle(pipeline.pipeline, day, execution)

    def _names(self, pipeline: str | None) -> list[str]:
        """Return the name of a pipeline, or those of all. Raises `UnknownName`."""
        return sorted(self.project.pipelines) if pipeline is None else [self.project.pipeline(pipeline).pipeline]

    def _handle(self, pipeline: str, day: str, execution: str) -> RunHandle:
        return RunHandle(
            pipeline=pipeline,
            date=day,
            execution=execution,
            executions=self.executions,
            run_table=self.run_table,
            open_table=self.table,
        )

    def follow(self, runs: Sequence[RunHandle]) -> Iterator[tuple[RunHandle, ExecutionView]]:
        """Poll runs until all have ended; yield a view of each running one at every poll. Raises `CloudError`."""
        by_execution = {run.execution: run for run in runs}
        for view in self.executions.state_machines.follow(list(by_execution)):
            yield by_execution[view.arn], view

    def runs(self, pipeline: str | None = None, date: Date | None = None) -> list[RunRecord]:
        """Return the runs of a pipeline, or of all, by pipeline, date and attempt; with `date` of one day only."""
        day = optional_date(date)
        return [record for name in self._names(pipeline) for record in self.run_table.runs(name, day)]

    def day(self, pipeline: str, date: Date) -> DayRecord:
        """Return the state of a day: the run that is active, and the run that is published."""
        self.project.pipeline(pipeline)
        return self.run_table.day(pipeline, iso_date(date))

    def cost(
        self, pipeline: str | None = None, first: Date | None = None, last: Date | None = None
    ) -> tuple[DayCost, ...]:
        """Return what the runs of each day from `first` to `last` and comparisons of its versions have cost, in order.

        Without dates, of all days. By default, of all pipelines. Raises `UnknownName`, `InputError` for a date that is
        none or a reversed range.
        """
        from slackwater.client.days.costs import costs_of_days

        return costs_of_days(
            self.run_table, self._names(pipeline), first=optional_date(first), last=optional_date(last)
        )

    def steps(self, record: RunRecord) -> RunSteps:
        """Return what each step of a run did: its rows, its parameters, and its effect."""
        from slackwater.runs.outputs import run_steps

        return run_steps(record, store=self.store)

    def attempt(self, run: str, *, date: Date | None = None, attempt: int | None = None) -> Attempt:
        """Return an attempt of a run, by default the last one.

        `run` is a pipeline, with the `date` of its day, or a run id. Raises `InputError` if there is none.
        """
        from slackwater.client.days.attempts import find_attempt

        return find_attempt(self.run_table, self.project.pipelines, run, date=optional_date(date), attempt=attempt)

    def run_log(self, attempt: Attempt, *, stage: str | None = None) -> RunLog:
        """Return the transitions, and the lines of functions and Spark jobs, of an attempt in time order.

        With `stage`, only those of one stage. What cannot be read is named in the result. Raises `CloudError`.
        """
        return self.run_logs.read(attempt, stage=stage)

    def timeline(self, attempt: Attempt) -> Timeline:
        """Return how long the stages of an attempt waited, started and worked, and their rows. Raises `CloudError`."""
        return self.timelines.read(attempt)

    def refs(self, pipeline: str, date: Date) -> list[Version]:
        """Return the versions of a day's data, of all attempts: inputs, Arrow files of each stage, published table."""
        from slackwater.runs.outputs import versions

        return [version for record in self.runs(pipeline, date) for version in versions(record, store=self.store)]

    def history(self, pipeline: str, date: Date) -> list[DayVersion]:
        """Return the published versions of a day, in order: where each comes from, and whether it can be read."""
        from slackwater.client.days.history import day_versions

        day = self.day(pipeline, date)
        return day_versions(day, self.runs(pipeline, date), self.warehouse.tags(pipeline))

    def rollback(self, pipeline: str, date: Date, *, to: int, reason: str) -> RunHandle:
        """Start a run that publishes version `to` of a day again. It is published when `wait()` of the result returns.

        The day is then on hold: nothing runs it again until it is released. Raises `InputError` for a version that is
        published now, that was never published or was removed, and without a reason.
        """
        from slackwater.client.days.history import check_rollback

        tags = self.warehouse.tags(pipeline)
        day, runs = self.day(pipeline, date), self.runs(pipeline, date)
        check_rollback(day, runs, tags, to=to, reason=reason)
        execution = self.executions.start(
            f"{self.connection.deployment.pipeline_machine_prefix}{pipeline}",
            name=day.date,
            payload={"date": day.date, "rollback": to, "reason": reason},
        )
        return self._handle(pipeline, day.date, execution)

    def days_on_hold(self, pipeline: str | None = None) -> list[DayRecord]:
        """Return the days on hold of a pipeline, or of all, by pipeline and date. Raises `UnknownName`."""
        from slackwater.client.holds import days_on_hold

        return days_on_hold(self.run_table, self._names(pipeline))

    def changed_tables(self, pipeline: str | None = None) -> list[DayRecord]:
        """Return the days of the window that have read days of other pipelines before these changed.

        Only with `on_change: notify` are they recorded: `table_notice` says what has changed. Of a pipeline or of all,
        by pipeline and date. Raises `UnknownName`.
        """
        from slackwater.client.holds import days_with_changed_tables

        pipelines = map(self.project.pipeline, self._names(pipeline))
        return days_with_changed_tables(self.run_table, pipelines, now=utc_now())

    def comparisons_given_up(self, pipeline: str | None = None) -> list[ComparisonGivenUp]:
        """Return the comparisons that no monitoring tries again, of a pipeline or of all. Raises `UnknownName`."""
        from slackwater.late.changes.job_claims import given_up_comparisons

        # Only a version that people do not know may have such a comparison.
        names = self._names(pipeline)
        due = ((name, date) for name in names for date in self.run_table.notifications_due(name, before="9999-12-31"))
        days = (self.run_table.day(name, date) for name, date in due)
        bucket = self.connection.deployment.exchange_bucket
        return list(given_up_comparisons(days, store=self.store, exchange_bucket=bucket))

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
        that checks and new objects have listed. Raises `UnknownName`, `InputError`.
        """
        from slackwater.client.older import older_days

        return older_days(self.checker, self._names(pipeline), first=optional_date(first), last=optional_date(last))

    def suggest_thresholds(self, pipeline: str, *, max_effect: float = 1.0) -> Suggestion:
        """Return thresholds for late data, with what each would have done with the re-runs of the last 90 days.

        The proposed ones miss no change of a metric above `max_effect` percent. Raises `UnknownName`, and `InputError`
        when there are too few re-runs.
        """
        from slackwater.late.suggest import suggest_thresholds

        definition = self.project.pipeline(pipeline)
        return suggest_thresholds(
            definition, query=lambda sql: self.query(sql).rows, now=utc_now(), max_effect=max_effect
        )

    def release(self, pipeline: str, date: Date, *, reason: str) -> RunHandle:
        """Start a run of a day with its present inputs, although they have lost rows or its audit failed.

        Raises `UnknownName`, and `InputError` for a day that is running, or never published and not on hold. So it does
        if the inputs have changed since the hold was recorded: the hold then has the present reason. If the run cannot
        be started, the release is recorded nevertheless, the error says so, and the same call can be repeated.
        """
        day = iso_date(date)
        force = self.hold_decisions.release(pipeline, day, reason=reason)
        try:
            return self.run(pipeline, day, force=force)
        except SlackwaterError as error:
            raise type(error)(
                f"{error}\n  The release of {pipeline} {day} is recorded, but its run may not have started: repeat the "
                "same release to start it"
            ) from error

    def reject(self, pipeline: str, date: Date, *, reason: str) -> DayRecord:
        """Keep the published version of a day on hold as long as its inputs are the same, and return the day.

        Raises `UnknownName`, and `InputError` for a day that is not on hold or whose published version is not known.
        """
        return self.hold_decisions.reject(pipeline, iso_date(date), reason=reason)

    def table(self, run: Run) -> PublishedTable:
        """Return the version of a day that a run has published. It is read when its rows are asked for."""
        return PublishedTable(pipeline=run.pipeline, date=run.date, tag=run.tag, warehouse=self.warehouse)

    def query(self, sql: str, *, date: Date | None = None, version: int | None = None) -> QueryResult:
        """Return the result of one SQL statement of DuckDB, which may only read.

        A published table has the name of its pipeline, and the events of a source are the table `raw.SOURCE`. With
        `version` of the day `date`, the statement reads the table of one pipeline as it was when that version was
        published: all of its days. Raises `InputError` for wrong SQL, or a version that does not exist any more.
        """
        from slackwater.client.days.history import named_version, readable_version
        from slackwater.client.sql import CloudTables, run_query

        of_pipeline = {}
        if named := named_version(sql, self.project.pipelines, date=date, version=version):
            name, day = named.pipeline, self.day(named.pipeline, named.date)
            tags = self.warehouse.tags(name)
            of_pipeline[name] = readable_version(day, self.runs(name, day.date), tags, named.version).tag
        tables = CloudTables(project=self.project, warehouse=self.warehouse, files=self.file_cache, tags=of_pipeline)
        return run_query(sql, tables=tables, pipelines=self.project.pipelines, sources=self.project.sources)

    def rebuild_table(self, source: str) -> Difference:
        """Drop the Iceberg table of a source's raw events, and create it again from the listing of its objects.

        Returns how many objects it has. Raises `UnknownName`, `DayChanged` while files of the source keep changing, and
        `CloudError`; the same call can be repeated.
        """
        return self.raw_tables.rebuild(source)

    def push(
        self,
        source: str,
        events: Iterable[Event],
        *,
        token: str | None = None,
        on_progress: Callable[[PushTotals], None] = ignore,
    ) -> PushTotals:
        """Send events with `token`, by default with a token of the operator that is created on first use.

        The same events can be sent again: those that are stored already count as duplicates. `on_progress` gets the
        totals after each batch. Raises `InputError`, `DataError`, `AccessDenied`, `CloudError`.
        """
        return self.pusher.push(source, events, token=token, on_progress=on_progress)

    def pull(
        self, source: str, *, as_of: Date | None = None, accept_removed: int = 0, on_progress: OnProgress = ignore
    ) -> PullTotals:
        """Pull a source's new and changed files as of a date, by default today, and return when it has ended.

        The removal of up to `accept_removed` files is recorded although the partner lists fewer files than that.
        Raises `RunFailed` if a file could not be fetched, `InputError` for a source without `pull`.
        """
        pulled_source(self.project, source)
        day = None if as_of is None else iso_date(as_of, name="as_of")
        execution = self.executions.start(
            self.connection.deployment.pull_machine_arn,
            name=day or "today",
            payload={"source": source, "as_of": day, **({"accept_removed": accept_removed} if accept_removed else {})},
        )
        totals = require_success(self.executions.wait(execution, on_progress=on_progress))
        return cast("PullTotals", dict(totals))

    def files(
        self, source: str, *, state: str | None = None, as_of: Date | None = None, limit: int = 100
    ) -> RecordedFiles:
        """Return at most `limit` recorded files of a pulled source: those of the look-back window, and all not taken.

        `state` is a value of `FileState`, such as `failed`. The window ends on `as_of`, by default today.
        Raises `InputError` for a wrong state or date, or a source without `pull`.
        """
        from slackwater.receiver.pull.file_cache import FileState
        from slackwater.receiver.pull.recorded_files import recorded_files

        if state not in {None, *FileState}:
            raise InputError(f"state: {state!r} is not one of {', '.join(FileState)}")
        return recorded_files(
            pulled_source(self.project, source),
            cache=self.file_cache,
            state=None if state is None else FileState(state),
            as_of=None if as_of is None else date_type.fromisoformat(iso_date(as_of, name="as_of")),
            now=utc_now(),
            limit=limit,
        )

    def give_up(self, source: str, paths: Sequence[str], *, reason: str | None = None) -> list[FileEntry]:
        """Give up files of a source: no pull fetches them, unless the partner changes them. All, or none.

        Without `reason`, the reason of the last failure stays. Raises `InputError`.
        """
        from slackwater.receiver.pull.give_up import give_up

        pulled_source(self.project, source)
        return give_up(source, paths, reason=reason, cache=self.file_cache, now=utc_now())

    def monitor(
        self, pipeline: str, *, as_of: Date | None = None, observer: MonitorObserver | None = None
    ) -> MonitorResult:
        """Run a pipeline's days with late data again as of a date, by default today, and notify people of changes.

        Returns when all late days are done; `observer` is told about the progress. Raises `RunFailed` if the days could
        not be checked. The failure of a day is in the result.
        """
        from slackwater.client.monitoring import Monitor, MonitorObserver
        from slackwater.late.check.window import today

        definition, deployment = self.project.pipeline(pipeline), self.connection.deployment
        monitor = Monitor(
            executions=self.executions,
            table=self.run_table,
            store=self.store,
            machine=deployment.monitor_machine_arn,
            exchange_bucket=deployment.exchange_bucket,
        )
        day = iso_date(today(definition, utc_now()) if as_of is None else as_of, name="as_of")
        return monitor.run(pipeline, day, observer=observer or MonitorObserver())

    def backfill(
        self,
        pipeline: str,
        first: Date,
        last: Date,
        *,
        parallel: int = 1,
        stale: bool = False,
        observer: BackfillObserver | None = None,
    ) -> BackfillResult:
        """Run the missing and failed days from `first` to `last`, both included, and return when all have ended.

        At most `parallel` days run at the same time, in order of date. With `stale`, days that are published from an
        older definition or older code run too. The failure of a day is in the result. Raises `UnknownName`,
        `NotDeployed`, and `InputError` for a wrong range. A `KeyboardInterrupt` stops the backfill and its days.
        """
        from slackwater.client.days.backfill import Backfiller, BackfillObserver

        backfiller = Backfiller(
            project=self.project,
            table=self.run_table,
            store=self.store,
            executions=self.executions,
            deployment=self.connection.deployment,
        )
        dates = iso_date(first, name="first"), iso_date(last, name="last")
        plan = backfiller.plan(pipeline, *dates, parallel=parallel, stale=stale)
        return backfiller.run(plan, observer=observer or BackfillObserver())

    def compare(self, pipeline: str, date: Date, *, on_progress: OnProgress = ignore) -> DayComparison:
        """Compare a day's published version with the version before it.

        Raises `VersionRemoved` if retention has removed the version before it, else `RunFailed`.
        A Spark job compares each pair of versions once; later calls read its result.
        """
        from slackwater.late.comparison import Comparison, ComparisonReference
        from slackwater.runs.comparison_run import attempt_costs

        self.project.pipeline(pipeline)
        day = iso_date(date)
        execution = self.executions.start(
            self.connection.deployment.compare_machine_arn,
            name=day,
            payload={"pipeline": pipeline, "date": day, "since": "previous"},
        )
        output = require_success(self.executions.wait(execution, on_progress=on_progress))
        reference = ComparisonReference.model_validate(output)
        if not reference.uri:
            return DayComparison(None, reference.reason)
        comparison = Comparison.model_validate_json(self.store.get(reference.uri))
        pairs = self.run_table.comparisons(pipeline, day)
        same = [item for item in pairs if (item.before, item.after) == (reference.before, reference.after)]
        costs = attempt_costs(self.run_table.run(pipeline, day, reference.after), same)
        return DayComparison(comparison.with_costs(costs), "")
