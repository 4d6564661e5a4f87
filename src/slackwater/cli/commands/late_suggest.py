"""`slackwater late suggest`: proposes thresholds for late data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.options import AsJson, PipelineName, ProjectFolder, examples
from slackwater.cli.output import format_usd, print_json, print_table, print_text
from slackwater.client.workspace import find_workspace
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.late.suggest import Suggestion


def register(group: typer.Typer) -> None:
    """Add `suggest` to the group `late`."""
    group.command(
        "suggest",
        epilog=examples("slackwater late suggest daily_delays", "slackwater late suggest daily_delays --effect 0.5"),
    )(suggest)


def suggest(
    pipeline: PipelineName,
    effect: Annotated[
        float, typer.Option(metavar="PERCENT", min=0, help="The largest change of a metric that may be missed.")
    ] = 1.0,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Propose thresholds for late data from the re-runs of the last 90 days.

    For each threshold, it shows the past re-runs that it would have caused as well, what they have cost, and the
    changes of the table that it would have missed. Late data below a threshold counts together with later data of its
    day, as in a check. Late data that never made a day run again does not count.
    """
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    definitions.pipeline(pipeline)
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client:
        suggestion = client.suggest_thresholds(pipeline, max_effect=effect)
    if as_json:
        print_json(suggestion.model_dump(mode="json"))
        return
    print_suggestion(suggestion)


def print_suggestion(suggestion: Suggestion) -> None:
    """Print each threshold with what it would have done, and the proposed ones."""
    print_text(
        f"{suggestion.pipeline}: {counted(suggestion.reruns, 're-run')} for late data since {suggestion.first}, "
        f"{format_usd(suggestion.usd)} USD",
        style="bold",
    )
    print_table(
        ("threshold", "re-runs", "USD", "missed changes", "largest missed"),
        [
            (
                f"{item.threshold} {item.value:,.12g}",
                item.reruns,
                format_usd(item.usd),
                item.missed,
                f"{_percent(item.largest_missed)} on {item.largest_missed_date}" if item.largest_missed_date else "-",
            )
            for item in suggestion.candidates
        ],
    )
    if suggestion.skipped:
        print_text(f"{counted(suggestion.skipped, 're-run')} not compared with the version before: not counted")
    if not suggestion.proposed:
        print_text(
            f"every threshold would have missed a change above {suggestion.max_effect:g} %: "
            "keep `rows: 0`, or allow a larger one with --effect"
        )
        return
    print_text(f"one of these for its sources would have missed no change above {suggestion.max_effect:g} %:")
    for item in suggestion.proposed:
        # New files never reach it.
        note = ", only next to percent or rows" if item.threshold == "changed_files" else ""
        print_text(f"  late: {{{item.threshold}: {item.value:.12g}}}  # {counted(item.reruns, 're-run')}{note}")


def _percent(effect: float | None) -> str:
    return "an infinite change" if effect is None else f"{effect:.3g} %"
