"""Monitors one pipeline: starts the state machine, follows it, and reads the outcome of each late day."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from slackwater.aws.executions.state_machines import ExecutionView
from slackwater.client.arguments import check_begun
from slackwater.client.days.executions import Executions, execution_error, ignore
from slackwater.errors import CloudError, SlackwaterError
from slackwater.late.check.window_dates import check_window
from slackwater.late.comparison import Comparison
from slackwater.late.decision import CheckReport, LateDecision, report_uri
from slackwater.late.report.message import Message
from slackwater.pipeline.graph import pipeline_order
from slackwater.progress import TaskState
from slackwater.project.project import Project
from slackwater.runs.table import RunTable
from slackwater.storage import ObjectStore

_CHECK, _STARTING = "check the days", "starting"
OnTask = Callable[..., None]
"""Is called with the arguments of `ProgressBoard.update`: the check, or the date of a day, and its state."""
OnReport = Callable[[CheckReport], None]
"""Is called when the check has decided about the days. The late days run then, which takes minutes."""


@dataclass(frozen=True, kw_only=True)
class DayOutcome:
    """Outcome of one late day."""

    date: str
    outcome: str
    """`published`, `unchanged` if the published day already has these inputs, or `failed` if its run has failed."""
    failed_step: str = ""
    """`run`, `compare` or `notify`: the step that has failed, the last two after the outcome. Empty for success."""
    run_id: str | None = None
    attempt: int | None = None
    notified: bool = False
    reason: str = ""
    """Why the step failed, or why no notification was sent; empty otherwise."""
    comparison: Comparison | None = None
    message: Message | None = None


@dataclass(frozen=True, kw_only=True)
class MonitorResult:
    """Result of monitoring one pipeline."""

    report: CheckReport
    days: tuple[DayOutcome, ...]
    execution: str
    failure: str = ""
    """Why the monitoring failed, empty for success. A day that fails does not stop the others."""


@dataclass(frozen=True, kw_only=True)
class Monitor:
    """Monitors pipelines with the deployed state machine."""

    executions: Executions
    table: RunTable
    store: ObjectStore
    machine: str
    """ARN of the monitoring state machine."""
    exchange_bucket: str

    def run(
        self, pipeline: str, as_of: str, *, on_task: OnTask = ignore, on_report: OnReport = ignore
    ) -> MonitorResult:
        """Monitor a pipeline as of an ISO date or an hour, and return the result when all late days are done.

        Raises `RunFailed` if the check fails. The failure of a day is in the result.
        """
        execution = self.executions.start(self.machine, name=as_of, payload={"pipeline": pipeline, "as_of": as_of})
        uri = report_uri(self.exchange_bucket, pipeline, as_of, execution)
        view, report = self._follow_check(execution, uri, on_task)
        if report is None:
            raise execution_error(view)
        on_report(report)
        view = self._follow_days(execution, report, on_task)
        # A failed execution has no output, but the input of its last state has the outcomes of the days.
        output = view.output if view.succeeded else self.executions.state_machines.failure_input(execution)
        return MonitorResult(
            report=report,
            days=tuple(self._day_outcome(day) for day in output.get("days", ())),
            execution=execution,
            failure="" if view.succeeded else str(execution_error(view)),
        )

    def _follow_check(self, execution: str, uri: str, on_task: OnTask) -> tuple[ExecutionView, CheckReport | None]:
        """Follow the execution until its check has ended; return the report, None if the check failed.

        Raises the error of reading the report if the check has not failed.
        """
        on_task(_CHECK)
        for view in self.executions.state_machines.follow([execution]):
            # The first task is the check. When it has exited, its report is in S3.
            check = next((state for state in view.states if state.type == "Task" and state.exited), None)
            if check or view.over:
                break
        seconds = check.seconds if check else view.seconds
        try:
            report = CheckReport.model_validate_json(self.store.get(uri))
        except (SlackwaterError, ValidationError) as error:
            on_task(_CHECK, TaskState.FAILED, seconds=seconds)
            # A failed check has no report. For a missing object, S3 answers "access denied" to a role that may not list
            # the bucket.
            if view.over and not view.succeeded:
                return view, None
            if isinstance(error, ValidationError):
                raise CloudError(
                    f"{uri} is not a report that this version can read: deploy the project again (slackwater deploy)"
                ) from error
            raise
        on_task(_CHECK, TaskState.DONE, seconds=seconds)
        return view, report

    def _follow_days(self, execution: str, report: CheckReport, on_task: OnTask) -> ExecutionView:
        """Follow the execution to its end, and report the current state of each day that is run again."""
        notes = {day.date: _STARTING for day in report.days if day.decision is LateDecision.RERUN}
        for view in self.executions.state_machines.follow([execution]):
            for date, note in notes.items():
                notes[date] = self._day_note(report.pipeline, date, note)
                if not view.over:
                    on_task(date, note=notes[date])
        for date in notes:
            on_task(date, TaskState.DONE if view.succeeded else TaskState.FAILED)
        return view

    def _day_note(self, pipeline: str, date: str, previous: str) -> str:
        """Return the note about a day: the current state of its run, or the phase before or after it.

        `previous` is the last result for the day. It is needed because the run table shows no active run both before
        and after the run.
        """
        active = self.table.day(pipeline, date).active
        if active is None:
            return _STARTING if previous == _STARTING else "comparing, notifying"
        current = self.executions.state_machines.view(active.execution).current
        return current.name if current else previous

    def _day_outcome(self, day: Mapping[str, Any]) -> DayOutcome:
        """Read the state machine's output for one day, and from S3 the comparison and the message that it refers to."""
        comparison, message = day.get("comparison"), day.get("message")
        return DayOutcome(
            date=day["date"],
            outcome=day["outcome"],
            failed_step=day.get("failed_step", ""),
            run_id=day.get("run_id"),
            attempt=day.get("attempt"),
            notified=day.get("notified", False),
            reason=day.get("reason", ""),
            comparison=Comparison.model_validate_json(self.store.get(comparison)) if comparison else None,
            message=Message.model_validate_json(self.store.get(message)) if message else None,
        )


def days_to_monitor(project: Project, pipelines: Iterable[str], as_of: str | None, *, name: str) -> dict[str, str]:
    """Return the day or hour as of which each pipeline is monitored, a pipeline before those that read its table.

    It is `as_of`, by default the current one: of an hourly pipeline, the last hour of a date that has begun. Raises
    `UnknownName`, and `InputError` with the `name` of the argument for what has not begun.
    """
    days, now = {}, datetime.now(UTC)
    wanted = [project.pipeline(pipeline).pipeline for pipeline in pipelines]
    for pipeline in sorted(wanted, key=pipeline_order(project.pipelines).index):
        definition = project.pipeline(pipeline)
        if as_of:
            check_begun(as_of, definition.timezone, name=name)
        days[pipeline] = check_window(definition, as_of, now)[-1].name
    return days
