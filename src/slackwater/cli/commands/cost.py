"""`slackwater cost`: what runs have cost."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.options import AsJson, ProjectFolder, examples, read_date
from slackwater.cli.output import format_usd, print_json, print_table, print_text
from slackwater.client.workspace import find_workspace
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.client.costs import CostTotals, DayCost

_COLUMNS = ("pipeline", "date", "runs", "re-runs", "failed", "vCPU-h", "GB-h", "USD", "USD late data")


def register(app: typer.Typer) -> None:
    """Add `cost`."""
    app.command(
        epilog=examples(
            "slackwater cost",
            "slackwater cost daily_delays --from 2013-03-01 --to 2013-03-31",
            "slackwater cost daily_delays --json",
        )
    )(cost)


def cost(
    pipeline: Annotated[
        str | None,
        typer.Argument(
            metavar="PIPELINE", help="A pipeline of the project. Default: all pipelines.", show_default=False
        ),
    ] = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="The first day.", show_default=False)
    ] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="DATE", help="The last day.", show_default=False)] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show what the runs of each day have cost: hours that EMR Serverless has billed, and USD.

    The dates are those of the days that were run, not of the bill. An unknown value is `-`: AWS reports the hours some
    time after the end of a run, and the daily check records them. docs/cost.md says what is counted.
    """
    start = read_date(first, option="--from") if first else None
    end = read_date(last, option="--to") if last else None
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    if pipeline:
        definitions.pipeline(pipeline)
    from slackwater.client.client import Client
    from slackwater.client.costs import total_cost

    with Client.open(workspace, definitions) as client:
        days = client.cost(pipeline, start, end)
    records = [record for day in days for record in day.records]
    total = total_cost(records)
    if as_json:
        print_json({"days": [_document(day) for day in days], "total": _document(total)})
        return
    if not days:
        print_text("no runs in this range have ended")
        return
    rows = [(day.pipeline, day.date, *_cells(day)) for day in days]
    print_table(_COLUMNS, [*rows, ("total", "", *_cells(total))])
    priced = sorted({(run.cost.prices_as_of, run.cost.region) for run in records if run.cost and run.cost.prices_as_of})
    for as_of, region in priced:
        print_text(f"prices: {region}, {as_of}")
    if total.unknown:
        print_text(f"{counted(total.unknown, 'run')} without a price: not in the USD", style="yellow")
    for note in sorted({run.cost.unknown for run in records if run.cost and run.cost.unknown}):
        print_text(f"unknown: {note}", style="yellow")


def _cells(totals: CostTotals) -> tuple[Any, ...]:
    hours = (totals.vcpu_hours, totals.memory_gb_hours)
    return (
        totals.runs,
        totals.reruns,
        totals.failed,
        *("-" if value is None else value for value in hours),
        format_usd(totals.usd),
        format_usd(totals.late_data_usd),
    )


def _document(totals: CostTotals | DayCost) -> dict[str, Any]:
    return {field.name: getattr(totals, field.name) for field in fields(totals) if field.name != "records"}
