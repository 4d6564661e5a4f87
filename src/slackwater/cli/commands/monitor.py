"""`slackwater monitor`: late days found, run again, compared and told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples, read_date
from slackwater.cli.output import document, say, table
from slackwater.errors import InputError, RunFailed
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.cli.monitoring import DayOutcome, MonitorResult
    from slackwater.late.decision import CheckReport, DayDecision
    from slackwater.project import Project


def register(app: typer.Typer) -> None:
    """Add `monitor`."""
    app.command(epilog=examples("slackwater monitor", "slackwater monitor daily_delays --as-of 2013-03-12"))(monitor)


def monitor(
    pipelines: Annotated[
        list[str] | None,
        typer.Argument(metavar="PIPELINE", help="Pipelines of the project; all without.", show_default=False),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Monitor as if it were that day; today otherwise.", show_default=False),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Find finished days that late data has changed, run them again, and tell what it changed.

    Looked at are the days of each pipeline's window before the current one.
    """
    given = read_date(as_of, option="--as-of") if as_of else None
    place = find_place(project)
    definitions = load(place)
    chosen = {name: _day(definitions, name, given) for name in pipelines or sorted(definitions.pipelines)}
    from slackwater.cli.session import Session

    session = Session.open(place, definitions)
    done, failures = [], []
    for name, date in chosen.items():
        try:
            monitored = session.monitor(name, date, found=(lambda _: None) if as_json else show_decisions)
        except RunFailed as error:
            failures.append(f"{name}: {error}")
            continue
        done.append(described(monitored))
        failures += [monitored.failure] if monitored.failure else []
        if not as_json:
            show(monitored)
    if as_json:
        document({"pipelines": done, "failures": failures})
        raise typer.Exit(1 if failures else 0)
    if failures:
        raise RunFailed("\n  ".join(failures))


def _day(definitions: Project, pipeline: str, given: str | None) -> str:
    """Return the day to stand on. Raises `UnknownName`, and `InputError` for a day that has not begun."""
    from slackwater.late.check import today

    now = today(definitions.pipeline(pipeline), datetime.now(UTC)).isoformat()
    if given and given > now:
        raise InputError(f"--as-of: {given} has not begun in {definitions.pipeline(pipeline).timezone}")
    return given or now


def show_decisions(report: CheckReport) -> None:
    """Print what was decided about each day, and why."""
    from slackwater.late.decision import LateDecision

    decided = [day for day in report.days if day.decision is not LateDecision.IGNORE]
    say(
        f"{report.pipeline} as of {report.as_of}: {counted(len(decided), 'late day')} "
        f"({counted(len(report.days), 'day')} checked in {report.seconds:.1f} s)",
        style="bold",
    )
    table(["date", "decision", "why"], [row for day in report.days for row in _rows(day)])


def _rows(day: DayDecision) -> Iterator[tuple[str, str, str]]:
    """One line for each source that speaks of the day."""
    first, *others = day.reason.split("; ")
    yield day.date, day.decision, first
    yield from (("", "", other) for other in others)


def show(monitored: MonitorResult) -> None:
    """Print what was done about the late days: the comparison, and the message."""
    for day in monitored.days:
        show_day(monitored.report.pipeline, day)


def show_day(pipeline: str, day: DayOutcome) -> None:
    """Print one day's comparison and message."""
    from slackwater.cli.comparison import show_comparison

    say("")
    if day.outcome == "unchanged":
        say(f"{pipeline} {day.date}: not run again: these inputs are those of run {day.run_id}, attempt {day.attempt}")
    if day.comparison:
        show_comparison(day.comparison)
    if day.message:
        say("")
        say(f"Told: {day.message.subject}", style="bold green")
        say(indent(day.message.body.rstrip(), "  "))
    elif day.outcome == "failed":
        say(f"{pipeline} {day.date}: failed: {day.why}", style="red")
    elif day.why:
        say(f"Nobody was told: {day.why}", style="yellow")


def described(monitored: MonitorResult) -> dict[str, Any]:
    """Return what was found and done as its JSON document."""
    return {
        "pipeline": monitored.report.pipeline,
        "as_of": monitored.report.as_of,
        "execution": monitored.execution,
        "failure": monitored.failure or None,
        "check": monitored.report.model_dump(mode="json"),
        "days": [
            {
                **asdict(day),
                "comparison": day.comparison.model_dump(mode="json") if day.comparison else None,
                "message": day.message.model_dump(mode="json") if day.message else None,
            }
            for day in monitored.days
        ],
    }
