"""`slackwater refs`: the versions of a day's data, from its inputs to the published table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.options import AsJson, PipelineName, ProjectFolder, examples, read_date
from slackwater.cli.output import print_json, print_table, print_text
from slackwater.client.workspace import find_workspace

if TYPE_CHECKING:
    from slackwater.runs.outputs import Version

_COLUMNS = ("attempt", "version", "rows", "bytes", "files", "made from", "created (UTC)", "state")


def register(app: typer.Typer) -> None:
    """Add `refs`."""
    app.command(epilog=examples("slackwater refs daily_delays --date 2013-03-08"))(refs)


def refs(
    pipeline: PipelineName,
    date: Annotated[str, typer.Option(metavar="DATE", help="The day of the runs.", show_default=False)],
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of a day's data: inputs, Arrow files of each stage, published table.

    The last column shows whether the Arrow files still exist. Retention removes them after the run; their manifests,
    the inputs and the published versions stay.
    """
    day = read_date(date, option="--date")
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    definitions.pipeline(pipeline)
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client:
        listed = client.refs(pipeline, day)
    if as_json:
        documents = [version.model_dump(mode="json", exclude_none=True) for version in listed]
        print_json({"pipeline": pipeline, "date": day, "versions": documents})
        return
    if not listed:
        print_text(f"no runs of {pipeline} for {day} yet (slackwater run {pipeline} --date {day})")
        return
    uris = {version.uri: version.name for version in listed}
    print_table(_COLUMNS, [_row(version, uris) for version in listed])
    for version in listed:
        print_text(f"attempt {version.attempt}, {version.name}: {version.uri}")


def _row(version: Version, names: dict[str, str]) -> tuple[object, ...]:
    return (
        version.attempt,
        version.name,
        version.rows,
        version.bytes,
        version.files,
        ", ".join(names.get(uri, uri) for uri in version.parents),
        version.created.strftime("%Y-%m-%d %H:%M:%S") if version.created else None,
        version.state.value if version.state else None,
    )
