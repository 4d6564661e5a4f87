"""`slackwater run --from --to`: the plan, the progress and the outcomes of a backfill."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import typer

from slackwater.cli.changes import apply_changes, note_changes
from slackwater.cli.command import INTERRUPTED, Result, Session
from slackwater.cli.names import shown
from slackwater.cli.output import print_note, print_table, print_text
from slackwater.cli.running import backfill_command
from slackwater.client.days.backfill import BackfillResult
from slackwater.client.days.backfill_plan import BackfillPlan, DayKind, Estimate, days_of_range
from slackwater.client.results import ExecutionView
from slackwater.errors import RunFailed, SlackwaterError
from slackwater.formatting import counted, duration, rounded_usd
from slackwater.progress import ProgressBoard, TaskState

if TYPE_CHECKING:
    from slackwater.client.client import Client

# Days without rows that the line about them names.
_NAMED = 3


def run_backfill(
    session: Session, pipeline: str, dates: tuple[str, str], *, parallel: int, stale: bool, no_deploy: bool = False
) -> Result:
    """Run the days of a range, and show the progress. The view shows the outcomes, and raises `RunFailed`.

    Raises `InputError` for a wrong range, and the errors of `Client.backfill`.
    """
    first, last = dates
    definition = session.project.pipeline(pipeline)
    days_of_range(first, last, pipeline=definition, now=datetime.now(UTC), names=("--from", "--to"))
    note_changes(session, [pipeline]) if no_deploy else apply_changes(session, [pipeline])
    client = session.client
    board = ProgressBoard()

    def on_day(date: str, view: ExecutionView) -> None:
        if not view.over:
            board.update(date, note=view.current.name if view.current else "")
        else:
            state = TaskState.DONE if view.succeeded else TaskState.FAILED
            board.update(date, state, note=view.output.get("outcome", ""), seconds=view.seconds)

    try:
        with ExitStack() as stack:

            def on_plan(plan: BackfillPlan) -> None:
                print_note("\n".join([*plan_lines(plan), *late_lines(client, plan)]), style="bold")
                stack.enter_context(board)

            result = client.backfill(
                pipeline, first, last, parallel=parallel, stale=stale, on_plan=on_plan, on_day=on_day
            )
    except KeyboardInterrupt as error:
        command = backfill_command(pipeline, first, last, parallel=parallel, stale=stale, project=session.folder)
        print_note(
            f"The backfill was stopped. Published days and finished stages are kept. To continue:\n  {command}",
            style="yellow",
        )
        raise typer.Exit(INTERRUPTED) from error
    document = backfill_document(result, client.correlation_id)
    return Result(document, partial(_print_backfill, result), exit_code=1 if result.failure else 0)


def _print_backfill(result: BackfillResult) -> None:
    if result.days:
        rows = [(day.date, day.kind.value, day.outcome, day.rows, day.seconds) for day in result.days]
        print_table(("date", "before", "outcome", "rows", "seconds"), rows)
    claimed = [day.date for day in result.days if day.outcome == "claimed"]
    if claimed:
        print_text(
            f"{counted(len(claimed), result.plan.unit)} left to other executions, which run them now "
            f"(slackwater runs {shown(result.plan.pipeline)} --date {claimed[0]})",
            style="yellow",
        )
    if empty := [day.date for day in result.days if day.rows == 0]:
        by_check = "run them again" if result.plan.unit == "hour" else "a check runs them again, or you"
        more = f" and {len(empty) - _NAMED} more" if len(empty) > _NAMED else ""
        print_text(
            f"{counted(len(empty), result.plan.unit)} {'was' if len(empty) == 1 else 'were'} published without rows "
            f"({', '.join(empty[:_NAMED])}{more}). When their data has arrived, {by_check}: "
            f"slackwater run {shown(result.plan.pipeline)} --date {empty[0]}",
            style="yellow",
        )
    if result.failure:
        raise RunFailed(failure_message(result))


def plan_lines(plan: BackfillPlan) -> list[str]:
    """Return a plan in lines for people: how many days of which kind run, and what that is expected to take."""

    def counts(*, of_days_that_run: bool) -> str:
        kinds = [kind for kind in DayKind if kind.runs is of_days_that_run and plan.count(kind)]
        return ", ".join(f"{plan.count(kind)} {kind}" for kind in kinds)

    running, others = counts(of_days_that_run=True), counts(of_days_that_run=False)
    total = f"{counted(len(plan.to_run), plan.unit)} to run"
    lines = [f"{shown(plan.pipeline)}, {plan.first} to {plan.last}: {total}{f' ({running})' if running else ''}"]
    if others:
        lines.append(f"  not run: {others}")
    if running:
        lines.append(f"  {estimate_text(plan.estimate, parallel=min(plan.parallel, plan.concurrent_runs))}")
        if plan.parallel > plan.concurrent_runs:
            lines.append(
                f"  --parallel {plan.parallel} is more than the {counted(plan.concurrent_runs, 'job')} that run at the "
                "same time (setting concurrent_runs): further jobs wait in the queue, and those of other runs "
                "behind them"
            )
    return lines


def late_lines(client: Client, plan: BackfillPlan) -> list[str]:
    """Return a line about the published days that do not run and have late data, with the commands that run them.

    Of these, the days are compared that a check has in its window after the last day of the range. Of an hourly
    pipeline, the line is about the hours that a person has to decide about.
    """
    published = [day for day, kind in plan.days.items() if kind is DayKind.PUBLISHED]
    definition = client.project.pipeline(plan.pipeline)
    if definition.period == "hour":
        held = [hour for hour, kind in plan.days.items() if kind is DayKind.HELD]
        line = f"  {counted(len(held), 'hour')} held until you decide: slackwater why {shown(plan.pipeline)} --date "
        return [f"{line}{held[0]}"] if held else []
    if not published:
        return []
    timezone = definition.timezone
    today = datetime.now(UTC).astimezone(ZoneInfo(timezone)).date()
    as_of = min(date.fromisoformat(published[-1]) + timedelta(days=1), today).isoformat()
    try:
        decisions = client.check(plan.pipeline, as_of=as_of).days
    except SlackwaterError as error:
        return [f"  whether published days have late data is unknown: {error}"]
    late = [day.date for day in decisions if day.date in published and any(item.changes for item in day.sources)]
    if not late:
        return []
    name, has = shown(plan.pipeline), "has" if len(late) == 1 else "have"
    by_check = f"slackwater monitor {name} --as-of {as_of} runs those that reach a threshold"
    days = counted(len(late), "published day")
    return [f"  {days} {has} late data: {by_check}; or slackwater run {name} --date {late[0]}"]


def estimate_text(estimate: Estimate | None, *, parallel: int) -> str:
    """Return an estimate for people, with what it is computed from."""
    if estimate is None:
        return "no estimate: no run yet"
    at_once = f" with {parallel} days at the same time" if parallel > 1 else ""
    price = "" if estimate.usd is None else f", and {rounded_usd(estimate.usd)} on AWS"
    seconds = duration(timedelta(seconds=estimate.seconds))
    return f"about {seconds}{at_once}{price} (median of {counted(estimate.runs, 'run')})"


def failure_message(result: BackfillResult) -> str:
    """Return why a backfill has failed: each day that failed, and the command that shows its log."""
    pipeline, lines = shown(result.plan.pipeline), [result.failure]
    for day in result.days:
        if day.outcome == "failed":
            lines += [f"  {day.date}: {day.reason}", f"    its log: slackwater logs {pipeline} --date {day.date}"]
    return "\n".join(lines)


def backfill_document(result: BackfillResult, correlation_id: str) -> dict[str, Any]:
    """Return the result of a backfill as its JSON document."""
    plan = result.plan
    return {
        "pipeline": plan.pipeline,
        "first": plan.first,
        "last": plan.last,
        "parallel": plan.parallel,
        "correlation_id": correlation_id,
        "execution": result.execution or None,
        "before": {kind.value: plan.count(kind) for kind in DayKind},
        "estimate": asdict(plan.estimate) if plan.estimate else None,
        "seconds": result.seconds,
        "failure": result.failure or None,
        "days": [asdict(day) for day in result.days],
    }
