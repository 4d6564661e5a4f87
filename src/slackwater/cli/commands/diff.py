"""`slackwater diff`: what the latest version of a published day changed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.command import Result, Session, command
from slackwater.cli.options import PipelineName, date_option
from slackwater.errors import InputError, RunFailed

if TYPE_CHECKING:
    from slackwater.late.comparison import Comparison


@command(
    "slackwater diff daily_delays --date 2013-03-08",
    "slackwater diff daily_delays --date 2013-03-08 --html report.html",
    "slackwater diff daily_delays --date 2013-03-08 --json",
)
def diff(
    pipeline: PipelineName,
    date: Annotated[str, date_option(text="The day, in the pipeline's timezone.")],
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the report as an HTML page with charts.", show_default=False),
    ] = None,
    *,
    session: Session,
) -> Result:
    """Compare the published version of a day with the version before.

    Shows which rows were added, removed or changed, how the metrics changed, and which inputs caused it. A Spark job
    compares each pair of versions once; later calls read its result.
    """
    session.project.pipeline(pipeline)
    from slackwater.cli.running import shown_states

    if session.client.day(pipeline, date).published is None:
        raise InputError(
            f"--date: {pipeline} has published nothing for {date} (slackwater run {pipeline} --date {date})"
        )
    try:
        with shown_states() as on_progress:
            comparison, reason = session.client.compare(pipeline, date, on_progress=on_progress)
    except RunFailed as error:
        raise RunFailed(f"comparing {pipeline} for {date}: {error}") from error
    if html and comparison:
        write_page(html, comparison)
    from slackwater.cli.comparison import show_comparison

    document = {"comparison": comparison.model_dump(mode="json") if comparison else None, "reason": reason or None}
    return Result(document, partial(show_comparison, comparison) if comparison else reason)


def write_page(file: Path, comparison: Comparison) -> None:
    """Write the report as an HTML page. Raises `InputError` if the file cannot be written."""
    from slackwater.late.report.page import report_page

    try:
        file.write_text(report_page(comparison), encoding="utf-8")
    except OSError as error:
        raise InputError(f"--html: {file} cannot be written: {error.strerror}") from error
