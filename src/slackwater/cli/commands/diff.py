"""`slackwater diff`: what the latest version of a published day changed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.options import AsJson, PipelineName, ProjectFolder, examples, read_date
from slackwater.cli.output import print_json, print_text
from slackwater.cli.progress import ProgressBoard
from slackwater.client.workspace import find_workspace
from slackwater.errors import InputError, RunFailed

if TYPE_CHECKING:
    from slackwater.late.comparison import Comparison


def register(app: typer.Typer) -> None:
    """Add `diff`."""
    app.command(
        epilog=examples(
            "slackwater diff daily_delays --date 2013-03-08",
            "slackwater diff daily_delays --date 2013-03-08 --html report.html",
            "slackwater diff daily_delays --date 2013-03-08 --json",
        )
    )(diff)


def diff(
    pipeline: PipelineName,
    date: Annotated[str, typer.Option(metavar="DATE", help="The day, in the pipeline's timezone.", show_default=False)],
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the report as an HTML page with charts.", show_default=False),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Compare the published version of a day with the version before.

    Shows which rows were added, removed or changed, how the metrics changed, and which inputs caused it. A Spark job
    compares each pair of versions once; later calls read its result.
    """
    day = read_date(date, option="--date")
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    definitions.pipeline(pipeline)
    from slackwater.cli.running import show_states
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client, ProgressBoard() as progress:
        if client.day(pipeline, day).published is None:
            raise InputError(
                f"--date: {pipeline} has published nothing for {day} (slackwater run {pipeline} --date {day})"
            )
        try:
            comparison, reason = client.compare(pipeline, day, on_progress=partial(show_states, progress))
        except RunFailed as error:
            raise RunFailed(f"comparing {pipeline} for {day}: {error}") from error
    if html and comparison:
        write_page(html, comparison)
    if as_json:
        print_json({"comparison": comparison.model_dump(mode="json") if comparison else None, "reason": reason or None})
    elif comparison is None:
        print_text(reason)
    else:
        from slackwater.cli.comparison import show_comparison

        show_comparison(comparison)


def write_page(file: Path, comparison: Comparison) -> None:
    """Write the report as an HTML page. Raises `InputError` if the file cannot be written."""
    from slackwater.late.report.page import report_page

    try:
        file.write_text(report_page(comparison), encoding="utf-8")
    except OSError as error:
        raise InputError(f"--html: {file} cannot be written: {error.strerror}") from error
