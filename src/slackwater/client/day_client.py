"""The part of a client that runs days, and reads what they have done and published."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date as date_type
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slackwater.aws.executions.state_machines import ExecutionView
from slackwater.aws.resources import utc_now
from slackwater.client.arguments import Date, last_period, optional_period, period_name
from slackwater.client.days.executions import ignore
from slackwater.client.days.runs import RunHandle
from slackwater.client.resources import ClientResources
from slackwater.client.tables import PublishedTable
from slackwater.errors import InputError
from slackwater.runs.period import check_kind, is_hour
from slackwater.runs.record import DayRecord, Run, RunRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from slackwater.client.days.attempts import Attempt
    from slackwater.client.days.backfill import BackfillResult, OnDay
    from slackwater.client.days.backfill_plan import BackfillPlan
    from slackwater.client.days.costs import DayCost
    from slackwater.client.days.history import DayVersion
    from slackwater.client.days.live import ProvisionalDay
    from slackwater.client.days.rejected_rows import RejectedRow
    from slackwater.client.days.run_log import RunLog
    from slackwater.client.days.stop import StoppedRun, StoppedWait
    from slackwater.client.days.timeline import Timeline
    from slackwater.client.days.verified import VerifiedVersion
    from slackwater.client.plan import Plan
    from slackwater.client.tables import QueryResult
    from slackwater.runs.outputs import RunSteps, Version


def _run_input(day: str, *, force: bool, profile: bool) -> dict[str, Any]:
    """Return the input of an execution that runs a day."""
    return {"date": day, "force": force, **({"profile": True} if profile else {})}


class DayClient(ClientResources):
    """Runs days of pipelines, and reads their runs, versions and tables."""

    def run(
        self,
        pipeline: str,
        date: Date,
        *,
        force: bool = False,
        profile: bool = False,
        wait_for_inputs: bool = False,
    ) -> RunHandle:
        """Start a run of a day. It is published when `wait()` of the result returns.

        If the published day already has the same inputs and definition, nothing runs, unless `force`. With `profile`,
        it runs in any case, and measures each step: it computes one after the other, which takes longer (`steps`). The
        run fails if the inputs have lost rows of the published version: `release` the day to publish it without them.
        With `wait_for_inputs`, it waits as a scheduled run does, for what `when` of the pipeline says.

        Raises `UnknownName`, `NotDeployed`, `InputError` for a date that is none, and for a pipeline that waits for
        nothing.
        """
        day, definition = period_name(date), self.project.pipeline(pipeline)
        check_kind(day, definition)
        if wait_for_inputs and not definition.waits:
            raise InputError(f"{pipeline} waits for nothing: its definition has neither `when` nor `missing: wait`")
        payload = _run_input(day, force=force, profile=profile)
        return self._start(definition.pipeline, day, payload | ({"wait": True} if wait_for_inputs else {}))

    @contextmanager
    def run_file(
        self, path: str | Path, date: Date, *, force: bool = False, profile: bool = False
    ) -> Iterator[RunHandle]:
        """Start a run of a day of the pipeline in a YAML file, which need not be deployed.

        Use it in a `with` statement; a run that has not ended then is stopped. The day is published in a table with the
        name of the pipeline. The Spark workers have the sizes of the settings. The other arguments are those of `run`.

        Raises `DefinitionError` with all problems of the file, or if another definition is deployed under its name, and
        `NotDeployed` if what the pipeline reads is not deployed.
        """
        from slackwater.client.days.undeployed import undeployed_run
        from slackwater.project.project import load_pipeline

        pipeline, day = load_pipeline(Path(path), self.connection.workspace.project), period_name(date)
        check_kind(day, pipeline)
        pipeline = self.project.with_stored_names(pipeline)
        with undeployed_run(
            pipeline,
            day,
            _run_input(day, force=force, profile=profile),
            project=self.project,
            deployment=self.connection.deployment,
            store=self.store,
            executions=self.executions,
        ) as execution:
            yield self._handle(pipeline.pipeline, day, execution)

    def stop(self, run: str, *, date: Date | None = None) -> StoppedRun | StoppedWait:
        """Stop a run and its Spark jobs, and return when they have ended. The day can run again at once.

        `run` is a pipeline, with the `date` of its day, or a run id. Published versions stay. A run that publishes
        before it is stopped stays published. If no attempt of the day runs, those that wait for their inputs are
        stopped. Raises `InputError` for a run that has ended or does not exist,
        `UnknownName`, `DayChanged`, `AccessDenied`, `CloudError`; the same call can be repeated.
        """
        from slackwater.aws.lineage_requests import LineageRequests
        from slackwater.client.days.stop import RunStopper, WaitStopper, log_warning
        from slackwater.runs.outcome import RunRecorder
        from slackwater.state.waits import DayKey

        if date is not None:
            waits = WaitStopper(state_machines=self.state_machines, table=self.run_table, waits=self.wait_table)
            if stopped := waits.stop(DayKey(self.project.stored_name(run), self._period(run, date))):
                return stopped
        lineage = LineageRequests(self.clients, self.settings.lineage_function, warn=log_warning)
        recorder = RunRecorder(store=self.store, table=self.run_table, now=utc_now, on_ended=lineage.ended)
        stopper = RunStopper(state_machines=self.state_machines, recorder=recorder, logs=self.logs)
        return stopper.stop(self.attempt(run, date=date))

    def backfill(
        self,
        pipeline: str,
        first: Date,
        last: Date,
        *,
        parallel: int = 1,
        stale: bool = False,
        on_plan: Callable[[BackfillPlan], None] = ignore,
        on_day: OnDay = ignore,
    ) -> BackfillResult:
        """Run the missing and failed days from `first` to `last`, both included, and return when all have ended.

        Of an hourly pipeline, published hours whose inputs have changed run too. At most `parallel` days run at the
        same time, in order of date. With `stale`, days that are published from an older definition or older code run
        too. `on_plan` gets the days before they run, and `on_day` the state of each.
        The failure of a day is in the result. Raises `UnknownName`,
        `NotDeployed`, and `InputError` for a wrong range. A `KeyboardInterrupt` stops the backfill and its days.
        """
        from slackwater.client.days.backfill import Backfiller

        backfiller = Backfiller(
            project=self.project,
            table=self.run_table,
            store=self.store,
            executions=self.executions,
            deployment=self.connection.deployment,
            decide=lambda name, hours: self.dry_checker.decide(pipeline=name, dates=hours),
        )
        dates = period_name(first, name="first"), period_name(last, name="last")
        plan = backfiller.plan(self.project.pipeline(pipeline).pipeline, *dates, parallel=parallel, stale=stale)
        on_plan(plan)
        return backfiller.run(plan, on_day=on_day)

    def plan(self, pipelines: Collection[str] | None = None) -> Plan:
        """Return what a deployment of the project's files would change, with the days of these pipelines or of all.

        Raises `NotDeployed` if another version of the library is deployed, and `CloudError`.
        """
        from slackwater.client.plan import make_plan

        return make_plan(
            self.project, self.deployed, self.run_table, pipelines=pipelines, table_columns=self.table_columns
        )

    def _names(self, pipeline: str | None) -> list[str]:
        """Return the name of a pipeline, or those of all. Raises `UnknownName`."""
        return sorted(self.project.pipelines) if pipeline is None else [self.project.pipeline(pipeline).pipeline]

    def _start(self, pipeline: str, day: str, payload: Mapping[str, Any]) -> RunHandle:
        machine = f"{self.connection.deployment.pipeline_machine_prefix}{pipeline}"
        return self._handle(pipeline, day, self.executions.start(machine, name=day, payload=payload))

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

    def runs(
        self,
        pipeline: str | None = None,
        date: Date | None = None,
        *,
        first: Date | None = None,
        last: Date | None = None,
    ) -> list[RunRecord]:
        """Return the runs of a pipeline, or of all, by pipeline, date and attempt.

        With `date` those of one day only, of an hourly pipeline those of all its hours or of one. Otherwise those of
        the days from `first` to `last`, if these are given.
        """
        day, names, table = optional_period(date), self._names(pipeline), self.run_table
        if day or not (first or last):
            return [record for name in names for record in self._runs_of(name, day)]
        start, end = optional_period(first) or date_type.min.isoformat(), last_period(last or date_type.max)
        return [record for name in names for record in table.runs_between(name, start, end)]

    def _runs_of(self, name: str, day: str | None) -> list[RunRecord]:
        is_hourly = self.project.pipelines[name].period == "hour"
        if day and is_hourly and not is_hour(day):
            return self.run_table.runs_between(name, day, last_period(day))
        return self.run_table.runs(name, day)

    def day(self, pipeline: str, date: Date) -> DayRecord:
        """Return the state of a day: the run that is active, and the run that is published."""
        definition = self.project.pipeline(pipeline)
        return self.run_table.day(definition.pipeline, self._period(definition.pipeline, date))

    def _period(self, pipeline: str, date: Date) -> str:
        """Return the name of a day or an hour. Raises `InputError` if the pipeline has no periods of this kind."""
        name, stored = period_name(date), self.project.stored_name(pipeline)
        if stored in self.project.pipelines:
            check_kind(name, self.project.pipelines[stored])
        return name

    def attempt(self, run: str, *, date: Date | None = None, attempt: int | None = None) -> Attempt:
        """Return an attempt of a run, by default the last one.

        `run` is a pipeline, with the `date` of its day, or a run id. Raises `InputError` if there is none.
        """
        from slackwater.client.days.attempts import find_attempt

        name = self.project.stored_name(run)
        day = None if date is None else self._period(run, date)
        return find_attempt(self.run_table, self.project.pipelines, name, date=day, attempt=attempt)

    def steps(self, record: RunRecord) -> RunSteps:
        """Return what each step of a run did: its rows, its parameters, and its effect."""
        from slackwater.runs.outputs import run_steps

        return run_steps(record, store=self.store)

    def rejected_rows(self, pipeline: str, date: Date) -> Iterator[RejectedRow]:
        """Yield the rows that the steps of the published run of a day have rejected, with the rule and the reason.

        Raises `InputError` for a day without a published run, `ObjectMissing` if retention has removed the rows, and
        `CloudError`.
        """
        from slackwater.client.days.rejected_rows import rejected_rows

        published = self.day(pipeline, date).published
        if published is None:
            raise InputError(f"date: {pipeline} has published nothing for {period_name(date)}")
        records = self.run_table.runs(published.run.pipeline, published.run.date)
        record = next(record for record in records if record.run.attempt == published.run.attempt)
        return rejected_rows(record, store=self.store)

    def run_log(self, attempt: Attempt, *, stage: str | None = None) -> RunLog:
        """Return the transitions, and the lines of functions and Spark jobs, of an attempt in time order.

        With `stage`, only those of one stage. What cannot be read is named in the result. Raises `CloudError`.
        """
        from slackwater.aws.executions.function_logs import FunctionLogs
        from slackwater.client.days.run_log import read_run_log

        functions = FunctionLogs(logs=self.clients("logs"), prefix=self.connection.workspace.prefix)
        return read_run_log(
            attempt, stage=stage, states=self.clients("stepfunctions"), functions=functions, jobs=self.logs
        )

    def timeline(self, attempt: Attempt) -> Timeline:
        """Return how long the stages of an attempt waited, started and worked, and their rows. Raises `CloudError`."""
        from slackwater.client.days.timeline import read_timeline

        return read_timeline(attempt, state_machines=self.state_machines, jobs=self.logs, store=self.store)

    def cost(
        self, pipeline: str | None = None, first: Date | None = None, last: Date | None = None
    ) -> tuple[DayCost, ...]:
        """Return what the runs of each day from `first` to `last` and comparisons of its versions have cost, in order.

        Without dates, of all days. By default, of all pipelines. Raises `UnknownName`, `InputError` for a date that is
        none or a reversed range.
        """
        from slackwater.client.days.costs import costs_of_days

        return costs_of_days(
            self.run_table,
            self._names(pipeline),
            first=optional_period(first),
            last=optional_period(last),
        )

    def refs(self, pipeline: str, date: Date) -> list[Version]:
        """Return the versions of a day's data, of all attempts: inputs, Arrow files of each stage, published table.

        With `versions: all`, those of all steps that change rows.
        """
        from slackwater.runs.outputs import versions

        runs = self.runs(pipeline, self._period(pipeline, date))
        return [version for record in runs for version in versions(record, store=self.store)]

    def verified_refs(self, pipeline: str, date: Date) -> list[VerifiedVersion]:
        """Read each version of `refs` as a whole, and compare it with its records: rows, schema and checksums.

        A published version is compared with the rows that its last stage has stored, as long as they exist. Raises
        `UnknownName`, `AccessDenied`, `CloudError`.
        """
        from slackwater.client.days.verified import Verifier

        day = self.day(pipeline, date)
        latest = day.published or day.provisional
        verifier = Verifier(
            project=self.project,
            pipeline=pipeline,
            date=day.date,
            published=latest.run.attempt if latest else 0,
            store=self.store,
            warehouse=self.warehouse,
        )
        return [verifier.verify(version) for version in self.refs(pipeline, date)]

    def history(self, pipeline: str, date: Date) -> list[DayVersion]:
        """Return the published versions of a day, in order: where each comes from, and whether it can be read."""
        from slackwater.client.days.history import day_versions

        day = self.day(pipeline, date)
        return day_versions(day, self.runs(pipeline, date), self.warehouse.tags(day.pipeline))

    def rollback(self, pipeline: str, date: Date, *, to: int, reason: str) -> RunHandle:
        """Start a run that publishes version `to` of a day again. It is published when `wait()` of the result returns.

        The day is then on hold: nothing runs it again until it is released. Raises `InputError` for a version that is
        published now, that was never published or was removed, and without a reason.
        """
        from slackwater.client.days.history import check_rollback

        day, runs = self.day(pipeline, date), self.runs(pipeline, date)
        check_rollback(day, runs, self.warehouse.tags(day.pipeline), to=to, reason=reason)
        return self._start(day.pipeline, day.date, {"date": day.date, "rollback": to, "reason": reason})

    def table(self, run: Run) -> PublishedTable:
        """Return the version of a day that a run has published. It is read when its rows are asked for."""
        return PublishedTable(pipeline=run.pipeline, date=run.date, tag=run.tag, warehouse=self.warehouse)

    def _states_table(self) -> pa.Table:
        from slackwater.client.states import states_table

        return states_table(self.period_table, self.project.sources.values(), utc_now().date())

    def provisional_days(self, pipelines: Iterable[str] | None = None) -> list[ProvisionalDay]:
        """Return the current and latest days and hours that have only a provisional version, of all pipelines or these.

        Raises `UnknownName`, `CloudError`.
        """
        from slackwater.client.days.live import provisional_days

        names = self.project.pipelines if pipelines is None else pipelines
        live = [pipeline for pipeline in map(self.project.pipeline, names) if pipeline.live]
        return provisional_days(self.run_table, live, now=utc_now()) if live else []

    def query(self, sql: str, *, date: Date | None = None, version: int | None = None) -> QueryResult:
        """Return the result of one SQL statement of DuckDB, which may only read.

        A published table has the name of its pipeline, the events of a source are the table `raw.SOURCE`, and the
        states of the hours of sources with `counts`, of the last 31 days, are the table `state`. With
        `version` of the day `date`, the statement reads the table of one pipeline as it was when that version was
        published: all of its days. Raises `InputError` for wrong SQL, or a version that does not exist any more.
        """
        from slackwater.client.days.history import readable_version
        from slackwater.client.sql import CloudTables, named_version, run_query

        of_pipeline, names = {}, self.project.known_names
        if named := named_version(sql, names, date=date, version=version):
            name, record, number = named[0], self.day(*named[:2]), named[2]
            tags = self.warehouse.tags(record.pipeline)
            of_pipeline[name] = readable_version(record, self.runs(name, record.date), tags, number).tag
        tables = CloudTables(
            project=self.project,
            warehouse=self.warehouse,
            files=self.file_cache,
            tags=of_pipeline,
            states=self._states_table,
        )
        hourly = [name for name in names if self.project.pipeline(name).period == "hour"]
        return run_query(sql, tables=tables, pipelines=names, sources=self.project.sources, hourly=hourly)
