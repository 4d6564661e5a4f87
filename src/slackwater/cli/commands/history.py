"""`slackwater history`: the published versions of a day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.options import AsJson, PipelineName, ProjectFolder, examples, read_date
from slackwater.cli.output import format_usd, print_json, print_table, print_text
from slackwater.client.workspace import find_workspace

if TYPE_CHECKING:
    from slackwater.client.days.history import DayVersion
    from slackwater.runs.record import DayRecord

_COLUMNS = ("version", "status", "published (UTC)", "rows", "files in", "rows in", "reasons", "definition", "USD")


def register(app: typer.Typer) -> None:
    """Add `history`."""
    app.command(
        epilog=examples(
            "slackwater history daily_delays --date 2013-03-10",
            'slackwater query "FROM daily_delays" --date 2013-03-10 --version 1',
        )
    )(history)


def history(
    pipeline: PipelineName,
    date: Annotated[str, typer.Option(metavar="DATE", help="The day.", show_default=False)],
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """List the published versions of a day: rows, inputs, why each was published, and whether it can be read.

    A version has the number of the attempt that published it; attempts that failed have none.
    """
    day = read_date(date, option="--date")
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    definitions.pipeline(pipeline)
    from slackwater.client.client import Client
    from slackwater.client.days.history import day_versions

    with Client.open(workspace, definitions) as client:
        record = client.day(pipeline, day)
        versions = day_versions(record, client.runs(pipeline, day), client.warehouse.tags(pipeline))
    if as_json:
        documents = [version.model_dump(mode="json") for version in versions]
        decided = record.model_dump(mode="json", include={"hold", "resolution", "earlier_resolutions"})
        print_json({"pipeline": pipeline, "date": day, "versions": documents, **decided})
        return
    if not versions:
        print_text(f"{pipeline} has published nothing for {day} yet (slackwater run {pipeline} --date {day})")
        return
    print_table(_COLUMNS, [_row(version) for version in versions])
    for version in versions:
        title = f"version {version.version}: tag {version.tag}, run {version.run_id}"
        if version.rollback:
            title += f", version {version.rollback.to} published again: {version.rollback.reason}"
        print_text(title)
    _print_decisions(record)


def _print_decisions(day: DayRecord) -> None:
    """Print how earlier holds of the day ended, the oldest first, and why it is on hold now."""
    from slackwater.client.holds import describe_decision

    for resolution in (*day.earlier_resolutions, *([day.resolution] if day.resolution else [])):
        print_text(describe_decision(resolution))
    if day.hold:
        print_text(f"on hold by the rule {day.hold.rule}: {day.hold.reason}", style="yellow")


def _row(version: DayVersion) -> tuple[object, ...]:
    return (
        version.version,
        version.status.value,
        version.published_at.strftime("%Y-%m-%d %H:%M:%S"),
        version.rows,
        version.input_files,
        version.input_rows,
        ", ".join(reason.value.replace("_", " ") for reason in version.reasons),
        version.definition[:12],
        format_usd(version.cost.usd if version.cost else None),
    )
