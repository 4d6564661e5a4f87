"""One monitoring of a pipeline: its machine started and followed, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slackwater.aws.machines import ExecutionView, Machines
from slackwater.cli.progress import PartState, ProgressBoard
from slackwater.cli.running import correlation_id, reason_of
from slackwater.errors import ObjectMissing
from slackwater.late.check import report_uri
from slackwater.late.comparison import Comparison
from slackwater.late.decision import CheckReport, LateDecision
from slackwater.late.message import Message
from slackwater.runs.table import RunTable
from slackwater.storage import ObjectStore

_CHECK = "Check the days"
_FAILED = "Days failed"
"""The state that ends a monitoring in which a day failed; it is given what became of each day."""
_COMPARING = "comparing, telling"


@dataclass(frozen=True, kw_only=True)
class DayOutcome:
    """What was done about one day."""

    date: str
    outcome: str
    """`published`, `unchanged` when its output already comes from these inputs, or `failed`."""
    run_id: str | None = None
    attempt: int | None = None
    told: bool = False
    why: str = ""
    """Why it failed, or why nobody was told."""
    comparison: Comparison | None = None
    message: Message | None = None


@dataclass(frozen=True, kw_only=True)
class MonitorResult:
    """What one monitoring has found and done."""

    report: CheckReport
    days: tuple[DayOutcome, ...]
    execution: str
    failure: str = ""
    """Why it failed, if it did: one failing day does not keep the others from being dealt with."""


@dataclass(frozen=True, kw_only=True)
class Monitor:
    """Monitors pipelines by their deployed machine."""

    machines: Machines
    table: RunTable
    store: ObjectStore
    machine: str
    """ARN of the monitoring machine."""
    exchange_bucket: str

    def run(self, pipeline: str, as_of: str, *, found: Callable[[CheckReport], None]) -> MonitorResult:
        """Monitor a pipeline as of a date; `found` is called with the check's report, before any day is run again.

        Raises `RunFailed` when the check itself failed.
        """
        correlation = correlation_id()
        payload = {"pipeline": pipeline, "as_of": as_of, "correlation_id": correlation}
        execution = self.machines.start(self.machine, name=f"{as_of}-{correlation}", payload=payload)
        address = report_uri(self.exchange_bucket, pipeline, as_of, execution)
        view, report = self._until_checked(execution, address)
        if report is None:
            raise reason_of(view)
        found(report)
        view = self._until_over(execution, report)
        output = view.output if view.succeeded else self.machines.given_to(execution, _FAILED)
        return MonitorResult(
            report=report,
            days=tuple(map(self._dealt_with, output.get("days", ()))),
            execution=execution,
            failure="" if view.succeeded else str(reason_of(view)),
        )

    def _until_checked(self, execution: str, address: str) -> tuple[ExecutionView, CheckReport | None]:
        """Follow the machine until its check has ended; return its report, if the check has left one."""
        with ProgressBoard() as board:
            board.update(_CHECK.lower())
            for view in self.machines.follow([execution]):
                checked = next((state for state in view.states if state.name == _CHECK and state.exited), None)
                if checked or view.over:
                    break
            report = self._report(address)
            seconds = checked.seconds if checked else view.seconds
            board.update(_CHECK.lower(), PartState.DONE if report else PartState.FAILED, seconds=seconds)
        return view, report

    def _report(self, address: str) -> CheckReport | None:
        try:
            return CheckReport.model_validate_json(self.store.get(address))
        except ObjectMissing:
            return None

    def _until_over(self, execution: str, report: CheckReport) -> ExecutionView:
        """Follow the machine to its end, and show for each late day what its run is at."""
        notes = {day.date: "starting" for day in report.days if day.decision is LateDecision.RERUN}
        with ProgressBoard() as board:
            for now in self.machines.follow([execution]):
                for date, note in notes.items():
                    notes[date] = self._note(report.pipeline, date, note)
                    if not now.over:
                        board.update(date, note=notes[date])
            for date in notes:
                board.update(date, PartState.DONE if now.succeeded else PartState.FAILED)
        return now

    def _note(self, pipeline: str, date: str, before: str) -> str:
        """Return what is being done about a day: the state of the execution that runs it."""
        active = self.table.day(pipeline, date).active
        if active is None:
            return before if before == "starting" else _COMPARING
        current = self.machines.look(active.execution).current
        return current.name if current else before

    def _dealt_with(self, day: Mapping[str, Any]) -> DayOutcome:
        comparison, message = day.get("comparison"), day.get("message")
        return DayOutcome(
            date=day["date"],
            outcome=day["outcome"],
            run_id=day.get("run_id"),
            attempt=day.get("attempt"),
            told=day.get("told", False),
            why=day.get("why") or day.get("reason", ""),
            comparison=Comparison.model_validate_json(self.store.get(comparison)) if comparison else None,
            message=Message.model_validate_json(self.store.get(message)) if message else None,
        )
