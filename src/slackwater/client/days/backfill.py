"""Backfills: run the missing and failed days of a range with the deployed state machine, and follow them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from slackwater.aws.deployment import Deployment, read_project
from slackwater.aws.executions.state_machines import ExecutionView, next_pause
from slackwater.client.days.backfill_plan import (
    MAX_PARALLEL,
    BackfillPlan,
    DayKind,
    days_of_range,
    estimate,
    kind_of_hour,
    kinds_of_days,
    published_runs,
)
from slackwater.client.days.executions import Executions, execution_error, ignore
from slackwater.errors import InputError, NotDeployed, SlackwaterError, Unavailable
from slackwater.late.decision import DayDecision
from slackwater.project.project import Project
from slackwater.runs.record import ActiveRun, Run
from slackwater.runs.run_identity import is_stale
from slackwater.runs.table import RunTable, is_running
from slackwater.storage import ObjectStore

# Step Functions allows no longer names (`StartExecution` in its API reference).
_MAX_NAME = 80
OnDay = Callable[[str, ExecutionView], None]
"""Is called again and again with each day that runs, until it has ended."""


@dataclass(frozen=True, kw_only=True)
class BackfilledDay:
    """A day that a backfill was to run, or that another execution was running."""

    date: str
    kind: DayKind
    """Its state before the backfill."""
    outcome: str
    """`published`; `unchanged` if another execution has published it meanwhile; `failed`; `claimed` if another
    execution was running it, so that the backfill left it alone; `not run` if the backfill was stopped before."""
    seconds: float | None = None
    """How long it took; None if the backfill has not run it."""
    rows: int | None = None
    """The published rows; None if the day was not published."""
    reason: str = ""
    """Why it has failed; empty otherwise."""


@dataclass(frozen=True, kw_only=True)
class BackfillResult:
    """Result of a backfill."""

    plan: BackfillPlan
    days: tuple[BackfilledDay, ...]
    """In order; without the days and hours that were published before and stay."""
    execution: str = ""
    """ARN of the Step Functions execution; empty if there was nothing to run."""
    seconds: float = 0.0
    failure: str = ""
    """Why the backfill has failed; empty for success. A day that fails does not stop the others."""


@dataclass(frozen=True, kw_only=True)
class Backfiller:
    """Runs days of a range with the deployed state machine."""

    project: Project
    table: RunTable
    store: ObjectStore
    executions: Executions
    deployment: Deployment
    decide: Callable[[str, Sequence[str]], Iterable[DayDecision]]
    """Returns the decisions about the present inputs of published hours of a pipeline. Reads the inputs of each."""

    def plan(self, pipeline: str, first: str, last: str, *, parallel: int, stale: bool) -> BackfillPlan:
        """Return the days from the ISO date `first` to `last`, and what a backfill does with them.

        Raises `UnknownName`, `InputError` for a wrong range or number, `NotDeployed`, and `CloudError`.
        """
        now = datetime.now(UTC)
        if not 1 <= parallel <= MAX_PARALLEL:
            raise InputError(f"parallel: {parallel} is not 1 to {MAX_PARALLEL}, which is the limit of Step Functions")
        dates = days_of_range(first, last, pipeline=self.project.pipeline(pipeline), now=now)
        # With the digests of the code. Without a state machine of the pipeline, each day would fail by itself.
        deployed = read_project(self.store, self.deployment.project_uri)
        if pipeline not in deployed.pipelines:
            raise NotDeployed(f"the pipeline {pipeline} is not deployed: run slackwater deploy")

        def is_claimed(active: ActiveRun) -> bool:
            return is_running(self.executions.state_machines, active, now=now)

        def is_old(run: Run) -> bool:
            return stale and is_stale(run, deployed)

        records = self.table.days(pipeline, first, last)
        days = kinds_of_days(dates, records, is_claimed=is_claimed, is_stale=is_old)
        if self.project.pipeline(pipeline).period == "hour":
            published = [date for date, kind in days.items() if kind is DayKind.PUBLISHED]
            days |= {item.date: kind_of_hour(item) for item in self.decide(pipeline, published)}
        count = sum(kind.runs for kind in days.values())
        return BackfillPlan(
            pipeline=pipeline,
            first=first,
            last=last,
            parallel=parallel,
            concurrent_runs=self.deployment.concurrent_runs,
            days=days,
            estimate=estimate(
                published_runs(self.table, pipeline, records, dates),
                days=count,
                # Each day that runs has at least one job.
                parallel=min(parallel, self.deployment.concurrent_runs),
            )
            if count
            else None,
        )

    def run(self, plan: BackfillPlan, *, on_day: OnDay = ignore) -> BackfillResult:
        """Run the days of a plan, and return when all have ended. Raises `NotDeployed`, `CloudError`, `AccessDenied`.

        If the process is interrupted (`KeyboardInterrupt`), the backfill and the days that it runs are stopped. After
        any other failure, the backfill goes on: the message of the error names its execution.
        """
        if not plan.to_run:
            return BackfillResult(plan=plan, days=_outcomes(plan, {}, {}))
        execution = _Execution(plan=plan, executions=self.executions, deployment=self.deployment)
        with execution.named_in_errors():
            try:
                execution.start()
                end = execution.follow(on_day)
            except KeyboardInterrupt:
                execution.stop()
                raise
        # A failed execution has no output, but the input of its last state has the outcomes of the days.
        output = end.output if end.succeeded else self.executions.state_machines.failure_input(end.arn)
        reported = {day["date"]: day for day in output.get("days", ())}
        return BackfillResult(
            plan=plan,
            days=_outcomes(plan, execution.views, reported),
            execution=end.arn,
            seconds=round(end.seconds, 1),
            failure="" if end.succeeded else str(execution_error(end)),
        )


@dataclass(kw_only=True)
class _Execution:
    """The execution of one backfill. Its name, and those of the days' executions, are known before it starts."""

    plan: BackfillPlan
    executions: Executions
    deployment: Deployment
    views: dict[str, ExecutionView] = field(default_factory=dict)
    """The last view of each day that has started."""

    def __post_init__(self) -> None:
        machine = self.deployment.backfill_machine_arn
        self._name = f"days-{self.executions.correlation_id}-{secrets.token_hex(4)}"
        self._arn = execution_arn(machine, self._name)
        self._started = False

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Add to errors in this block that the execution goes on, how to stop it, and how to continue."""
        try:
            yield
        except SlackwaterError as error:
            # A start without an answer may have been executed.
            if not self._started and not isinstance(error, Unavailable):
                raise
            raise type(error)(
                f"{error}\n"
                f"The backfill {'goes on in the cloud' if self._started else 'may have started'}. To stop it:\n"
                f"  aws stepfunctions stop-execution --execution-arn {self._arn}\n"
                "To follow what is left of it, run the same command again: no day runs twice."
            ) from error

    def start(self) -> None:
        """Start the execution. Raises `NotDeployed`, `CloudError`."""
        payload = {
            "pipeline": self.plan.pipeline,
            "dates": self.plan.to_run,
            "parallel": self.plan.parallel,
            "correlation_id": self.executions.correlation_id,
        }
        self.executions.state_machines.start(self.deployment.backfill_machine_arn, name=self._name, payload=payload)
        self._started = True

    def follow(self, on_day: OnDay) -> ExecutionView:
        """Poll the execution and its days until it has ended, and return its last view. Raises `CloudError`."""
        pending, waited = list(self.plan.to_run), 0.0
        while True:
            # The execution first: if it has ended, all of its days have.
            summary = self.executions.state_machines.summary(self._arn)
            described = self._describe_days(pending, on_day)
            if summary and summary.over:
                return summary
            pause = next_pause(waited, described=described)
            time.sleep(pause)
            waited += pause

    def stop(self) -> None:
        """Stop the execution, so that no further day starts, and then the days that run. Raises `CloudError`."""
        cause = "its backfill was stopped"
        self.executions.state_machines.stop(self._arn, cause=cause)
        # Step Functions stops them too, as far as it can.
        for view in self.views.values():
            if not view.over:
                self.executions.state_machines.stop(view.arn, cause=cause)

    def _describe_days(self, pending: list[str], on_day: OnDay) -> int:
        """Read the days that run, remove those that have ended from `pending`; return how many were described."""
        running = unknown = described = 0
        for date in tuple(pending):
            # Days start in order, and only so many at the same time. An unknown day has not started, or could not be.
            if running == self.plan.parallel or unknown > self.plan.parallel:
                break
            # `step_functions/backfill.asl.json` forms the name of a day's execution in the same way.
            machine = f"{self.deployment.pipeline_machine_prefix}{self.plan.pipeline}"
            arn = execution_arn(machine, f"{date}-{self._name}"[:_MAX_NAME])
            view = self.executions.state_machines.summary(arn)
            described += 1
            if view is None:
                unknown += 1
                continue
            if view.over:
                pending.remove(date)
            else:
                running += 1
                view = self.executions.state_machines.view(arn)
                described += 1
            self.views[date] = view
            on_day(date, view)
        return described


def execution_arn(machine: str, name: str) -> str:
    """Return the ARN of an execution of a state machine, which is given by its ARN."""
    return f"{machine.replace(':stateMachine:', ':execution:', 1)}:{name}"


def _outcomes(
    plan: BackfillPlan, views: Mapping[str, ExecutionView], reported: Mapping[str, Mapping[str, Any]]
) -> tuple[BackfilledDay, ...]:
    """Return the outcomes of a plan's days: `reported` by the state machine, or seen in the executions of the days."""
    days = []
    for date, kind in plan.days.items():
        view, report = views.get(date), reported.get(date, {})
        outcome, reason = report.get("outcome", "not run"), report.get("reason", "")
        if view and view.over:
            # The execution has the whole reason.
            outcome, reason = (view.output["outcome"], "") if view.succeeded else ("failed", str(execution_error(view)))
        output = view.output if view and view.succeeded else {}
        if kind is DayKind.CLAIMED:
            outcome = "claimed"
        if kind.runs or kind is DayKind.CLAIMED:
            seconds = round(view.seconds, 1) if view else None
            rows = output.get("publication", {}).get("rows")
            days.append(BackfilledDay(date=date, kind=kind, outcome=outcome, seconds=seconds, rows=rows, reason=reason))
    return tuple(days)
