"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackwater.client.arguments import iso_date

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else on standard output.")]
ProjectFolder = Annotated[
    Path | None,
    typer.Option(
        "--project",
        metavar="DIR",
        help="The project folder (sources/, pipelines/). Default: this folder if it has sources/, else the example.",
        show_default=False,
    ),
]
PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="A pipeline of the project.", show_default=False)]

RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A pipeline, with --date, or a run id: its 32 digits, or the first 12 as `slackwater runs` shows them.",
        show_default=False,
    ),
]
AttemptNumber = Annotated[
    int | None,
    typer.Option("--attempt", metavar="N", help="An attempt of the run. Default: the last one.", show_default=False),
]


def read_date(value: str, *, option: str) -> str:
    """Return a date in the form YYYY-MM-DD. Raises `InputError` naming the option for any other string.

    >>> read_date("2013-11-03", option="--date")
    '2013-11-03'
    """
    return iso_date(value, name=option)


def examples(*lines: str) -> str:
    """Return the text with examples at the end of a command's help, one line for each."""
    # In help texts, click joins the lines of a paragraph unless it begins with a line that has only `\b`.
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
