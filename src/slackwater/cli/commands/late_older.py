"""`slackwater late --older`: days before the window with late data."""

from __future__ import annotations

from pathlib import Path

from slackwater.cli.options import read_date
from slackwater.cli.output import print_json, print_table, print_text
from slackwater.client.workspace import find_workspace
from slackwater.errors import InputError
from slackwater.formatting import counted


def list_older(
    pipeline: str | None, *, first: str | None, last: str | None, project: Path | None, as_json: bool
) -> None:
    """Print the days, with what a check would decide about each, and how to process them."""
    first = read_date(first, option="--from") if first else None
    last = read_date(last, option="--to") if last else None
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    if pipeline:
        definitions.pipeline(pipeline)
    elif first or last:
        raise InputError("PIPELINE: --from and --to need the name of one pipeline")
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client:
        result = client.older_late_days(pipeline, first=first, last=last)
    if as_json:
        days = [
            {**item.decision.model_dump(mode="json"), "since": item.since and item.since.isoformat()}
            | {"new_objects": item.objects}
            for item in result.days
        ]
        print_json({"days": days, "unchecked": [item._asdict() for item in result.unchecked]})
        return
    if not result.days:
        print_text("no day before the window has late data")
    else:
        print_table(
            ("pipeline", "date", "since", "rule", "reason"),
            [
                (item.decision.pipeline, item.decision.date, item.since, item.decision.rule, item.decision.reason)
                for item in result.days
            ],
        )
        print_text(
            f"{counted(len(result.days), 'day')} before the window: slackwater run PIPELINE --date DATE processes one"
        )
    for item in result.unchecked:
        command = f"slackwater late --older {item.pipeline} --from {item.first} --to {item.last}"
        print_text(f"{item.pipeline}: {counted(item.days, 'more day')} listed: {command} checks the next ones")
