"""`slackwater cost`: what runs and comparisons have cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown
from slackwater.cli.options import argument, period_option
from slackwater.cli.output import format_usd, print_table, print_text

if TYPE_CHECKING:
    from slackwater.client.days.costs import CostTotals, DayCost

_COLUMNS = (
    *("pipeline", "date", "runs", "re-runs", "failed", "vCPU-h", "GB-h"),
    *("USD", "USD comparison", "USD late data", "estimate off by"),
)

# Fields of a `DayCost` that `slackwater runs` shows.
_RECORDS = ("records", "compared")


@command(
    "slackwater cost",
    "slackwater cost daily_delays --from 2013-03-01 --to 2013-03-31",
    "slackwater cost daily_delays --json",
)
def cost(
    pipeline: Annotated[str | None, argument("PIPELINE", "A pipeline of the project. Default: all pipelines.")] = None,
    first: Annotated[str | None, period_option("--from", text="The first day.")] = None,
    last: Annotated[str | None, period_option("--to", text="The last day.")] = None,
    *,
    session: Session,
) -> Result:
    """Show what the runs and comparisons of each day have cost: hours that EMR Serverless has billed, and USD.

    The dates are those of the days that were run, not of the bill. An unknown value is `-`: AWS reports the hours some
    time after the end of a run, and the daily check records them; of an hourly pipeline, its next run does.
    docs/cost.md says what is counted.
    """
    if pipeline:
        session.project.pipeline(pipeline)
    from slackwater.client.days.costs import total_cost

    days = session.client.cost(pipeline, first, last)
    total = total_cost(
        [record for day in days for record in day.records], [item for day in days for item in day.compared]
    )
    document = {"days": [_document(day) for day in days], "total": _document(total)}
    return Result(document, partial(_show_days, days, total) if days else "no runs in this range have ended")


def _show_days(days: Sequence[DayCost], total: CostTotals) -> None:
    """Print a line for each day and the total, and what the prices lack."""
    rows = [(shown(day.pipeline), day.date, *_cells(day)) for day in days]
    print_table(_COLUMNS, [*rows, ("total", "", *_cells(total))])
    costs = [cost for day in days for cost in day.costs]
    for as_of, region in sorted({(cost.prices_as_of, cost.region) for cost in costs if cost.prices_as_of}):
        print_text(f"prices: {region}, {as_of}")
    given_up = sum(cost.usd is None and cost.complete for cost in costs)
    if pending := total.unknown - given_up:
        print_text(
            f"the USD lack {_runs(pending)}, whose price{' is' if pending == 1 else 's are'} not known yet: AWS "
            "reports hours some time after a job has ended, and the daily check records them (now: slackwater "
            "monitor); of an hourly pipeline, its next run does",
            style="yellow",
        )
    if given_up:
        price = "price stays" if given_up == 1 else "prices stay"
        print_text(f"the USD lack {_runs(given_up)}, whose {price} unknown", style="yellow")
    for note in sorted({cost.unknown for cost in costs if cost.unknown}):
        print_text(f"unknown: {note}", style="yellow")


def _runs(count: int) -> str:
    return "1 run or comparison" if count == 1 else f"{count:,} runs and comparisons"


def _cells(totals: CostTotals) -> tuple[Any, ...]:
    hours, error = (totals.vcpu_hours, totals.memory_gb_hours), totals.estimate_error_percent
    return (
        totals.runs,
        totals.reruns,
        totals.failed,
        *("-" if value is None else value for value in hours),
        format_usd(totals.usd),
        format_usd(totals.comparison_usd),
        format_usd(totals.late_data_usd),
        "-" if error is None else f"{error:g} %",
    )


def _document(totals: CostTotals | DayCost) -> dict[str, Any]:
    return {field.name: getattr(totals, field.name) for field in fields(totals) if field.name not in _RECORDS}
