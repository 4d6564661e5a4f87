"""`slackwater diff`: what the latest version of a published day changed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown
from slackwater.cli.options import PipelineName, option, period_option
from slackwater.cli.output import print_table, print_text
from slackwater.errors import InputError

if TYPE_CHECKING:
    from slackwater.client.results import Comparison

# Characters per line.
_WIDTH = 100
_INDENT = "  "


@command(
    "slackwater diff daily_delays --date 2013-03-08",
    "slackwater diff daily_delays --date 2013-03-08 --from 1 --to 4",
    "slackwater diff daily_delays --date 2013-03-08 --split",
    "slackwater diff daily_delays --date 2013-03-08 --html report.html",
    "slackwater diff daily_delays --date 2013-03-08 --json",
)
def diff(
    pipeline: PipelineName,
    date: Annotated[str, period_option(text="The day, in the pipeline's timezone.")],
    html: Annotated[
        Path | None, option(metavar="FILE", text="Also write the report as an HTML page with charts.")
    ] = None,
    split: Annotated[
        bool, option("--split", text="Also say what the data changed, and what the definition and the code.")
    ] = False,
    *,
    before: Annotated[
        int | None, option("--from", metavar="VERSION", min=1, text="The earlier version. Default: the one before.")
    ] = None,
    after: Annotated[
        int | None, option("--to", metavar="VERSION", min=1, text="The later version. Default: the published one.")
    ] = None,
    session: Session,
) -> Result:
    """Compare the published version of a day with the version before, or two other versions.

    Shows which rows were added, removed or changed, how the metrics changed, and which inputs caused it. A Spark job
    compares each pair of versions once; later calls read its result.

    With --split, if the inputs and the definition have both changed, the definition and code of the earlier version
    compute the new inputs. The difference to the earlier version is what the data changed, and the rest is what the
    definition and the code changed: for each metric, the two add up to the whole.
    """
    session.project.pipeline(pipeline)
    from slackwater.cli.changes import note_changes
    from slackwater.cli.running import shown_states

    note_changes(session, [pipeline])
    if session.client.day(pipeline, date).published is None:
        raise InputError(
            f"--date: {pipeline} has published nothing for {date} (slackwater run {pipeline} --date {date})"
        )
    with shown_states(f"comparing {pipeline} for {date}") as on_progress:
        compared = session.client.compare(
            pipeline, date, before=before, after=after, split=split, on_progress=on_progress
        )
    comparison, reason = compared
    if html and comparison:
        try:
            html.write_text(compared.page(), encoding="utf-8")
        except OSError as error:
            raise InputError(f"--html: {html} cannot be written: {error.strerror}") from error
    document = {"comparison": comparison.model_dump(mode="json") if comparison else None, "reason": reason or None}
    return Result(document, partial(show_comparison, comparison) if comparison else reason)


def show_comparison(comparison: Comparison) -> None:
    """Print the report about a comparison: the day, its metrics, the keys and rows that changed, and the inputs."""
    from slackwater.client.results import report_sections

    result_style = "yellow" if comparison.rows.differing else "green"
    comparison = comparison.model_copy(update={"pipeline": shown(comparison.pipeline)})
    for index, section in enumerate(report_sections(comparison, width=_WIDTH - len(_INDENT))):
        if index:
            print_text("")
        print_text(section.title, style="bold")
        for line in section.lines:
            print_text(f"{_INDENT}{line}", style="" if index else result_style)
        if section.table:
            print_table(section.table[0], section.table[1:])
