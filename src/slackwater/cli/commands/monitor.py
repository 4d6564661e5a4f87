"""`slackwater monitor`: find days with late data and run them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import groupby
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown, shown_in
from slackwater.cli.options import argument, option, period_option
from slackwater.cli.output import print_note, print_table, print_text
from slackwater.errors import RunFailed, SlackwaterError
from slackwater.formatting import counted
from slackwater.progress import ProgressBoard, TaskState

if TYPE_CHECKING:
    from slackwater.client.client import Client
    from slackwater.client.monitoring import MonitorResult
    from slackwater.client.results import CheckReport, DayDecision


@command(
    "slackwater monitor",
    "slackwater monitor daily_delays --as-of 2013-03-12",
    "slackwater monitor daily_delays --dry-run",
    writes=True,
)
def monitor(
    pipelines: Annotated[list[str] | None, argument("PIPELINE", "Pipelines of the project. Default: all.")] = None,
    as_of: Annotated[str | None, period_option(text="Monitor as if now were this day or hour. Default: now.")] = None,
    *,
    dry_run: Annotated[
        bool, option("--dry-run", text="Only show the decisions: no day runs, and nothing is recorded or sent.")
    ] = False,
    session: Session,
) -> Result:
    """Run days with late data again, and notify people of changes.

    Checks the finished days of each pipeline's window (`late` in its definition), of a pipeline before those that read
    its table. Of an hourly pipeline, these are hours. A day runs again if its late data reaches a threshold. People are
    notified if that changes the published table.
    """
    from slackwater.cli.changes import note_changes
    from slackwater.client.monitoring import days_to_monitor

    days = days_to_monitor(session.project, pipelines or session.project.pipelines, as_of, name="--as-of")
    note_changes(session, days)
    client, documents, failures = session.client, [], []
    if dry_run:
        print_note("dry run: no day runs, and nothing is recorded or sent")
    for pipeline, day in days.items():
        try:
            show_report = (lambda _: None) if session.as_json else print_decisions
            if dry_run:
                documents.append(_decide(client, pipeline, day, show_report=show_report))
                continue
            result = monitor_pipeline(client, pipeline, day, show_report=show_report)
        except SlackwaterError as error:
            # The other pipelines are still monitored.
            failures.append(f"{shown(pipeline)}: {error}")
            continue
        documents.append(monitor_document(result))
        failures += [result.failure] if result.failure else []
        if not session.as_json:
            print_day_outcomes(result)
    return Result(
        {"pipelines": documents, "failures": failures}, partial(_fail, failures), exit_code=1 if failures else 0
    )


def _decide(client: Client, pipeline: str, as_of: str, *, show_report: Callable[[CheckReport], None]) -> dict[str, Any]:
    """Show what a monitoring would decide, and return it as its JSON document."""
    report = client.check(pipeline, as_of=as_of)
    show_report(report)
    return {"pipeline": pipeline, "as_of": as_of, "check": report.model_dump(mode="json")}


def _fail(failures: Sequence[str]) -> None:
    """Raise `RunFailed` if there are failures."""
    if failures:
        raise RunFailed("\n  ".join(failures))


def monitor_pipeline(
    client: Client, pipeline: str, as_of: str, *, show_report: Callable[[CheckReport], None]
) -> MonitorResult:
    """Monitor a pipeline as of an ISO date and show the progress; `show_report` is called before the days run.

    Raises `RunFailed` if the days could not be checked. The failure of a day is in the result.
    """
    board: ProgressBoard | None = None
    with ExitStack() as stack:

        def on_task(name: str, *state: TaskState, **more: Any) -> None:
            nonlocal board
            board = board or stack.enter_context(ProgressBoard())
            board.update(name, *state, **more)

        def on_report(report: CheckReport) -> None:
            nonlocal board
            # The board of the check is above the report, and that of the days below it.
            stack.close()
            board = None
            show_report(report)

        return client.monitor(pipeline, as_of=as_of, on_task=on_task, on_report=on_report)


def print_decisions(report: CheckReport) -> None:
    """Print the decision about each day and its reasons; days in a row that are ignored for one reason share a line."""
    from slackwater.client.results import LateDecision, period_kind

    late, unit = [day for day in report.days if day.decision is not LateDecision.IGNORE], period_kind(report.as_of)
    print_text(
        f"{shown(report.pipeline)} as of {report.as_of}: {counted(len(late), f'late {unit}')} "
        f"({counted(len(report.days), unit)} checked in {report.seconds:.1f} s)",
        style="bold",
    )
    rows: list[tuple[str, str, str]] = []
    for (decision, reasons, _), group in groupby(report.days, key=_same_line):
        same = list(group)
        dates = same[0].date if len(same) == 1 else f"{same[0].date} to {same[-1].date}"
        first, *others = map(shown_in, reasons)
        rows += [(dates, decision, first), *(("", "", reason) for reason in others)]
    print_table(("date", "decision", "reason"), rows)
    if report.older:
        days = counted(len(report.older), unit)
        print_text(f"{days} before the window with late data: slackwater late --older {shown(report.pipeline)}")


def _same_line(day: DayDecision) -> tuple[str, tuple[str, ...], str]:
    """Return what days on one line have in common. A day that is not ignored has a line of its own."""
    return day.decision, day.reasons, "" if day.decision == "ignore" else day.date


def print_day_outcomes(result: MonitorResult) -> None:
    """Print the outcome of each late day: the comparison, and the notification."""
    from slackwater.cli.commands.diff import show_comparison
    from slackwater.client.results import period_kind

    for day in result.days:
        name = f"{shown(result.report.pipeline)} {day.date}"
        print_text("")
        if day.outcome == "unchanged":
            print_text(f"{name}: not run again, because run {day.run_id}, attempt {day.attempt}, has the same inputs")
        if day.comparison:
            show_comparison(day.comparison)
        if day.message:
            print_text("")
            together = ", in one message with the other changed hours of the day" * (period_kind(day.date) == "hour")
            print_text(f"Notification: {shown_in(day.message.subject)}{together}", style="bold green")
            # Its body has the report that was just printed.
            if day.comparison is None:
                print_text(indent(shown_in(day.message.body.rstrip()), "  "))
        elif day.failed_step:
            # After the run, the reason begins with the outcome.
            failed = "failed: " if day.failed_step == "run" else ""
            print_text(f"{name}: {failed}{shown_in(day.reason)}", style="red")
        elif day.reason:
            print_text(f"No notification: {shown_in(day.reason)}", style="yellow")


def monitor_document(result: MonitorResult) -> dict[str, Any]:
    """Return the decisions and the outcome of each late day as their JSON document."""
    return {
        "pipeline": result.report.pipeline,
        "as_of": result.report.as_of,
        "execution": result.execution,
        "failure": result.failure or None,
        "check": result.report.model_dump(mode="json"),
        "days": [
            {
                **asdict(day),
                "comparison": day.comparison.model_dump(mode="json") if day.comparison else None,
                "message": day.message.model_dump(mode="json") if day.message else None,
            }
            for day in result.days
        ],
    }
