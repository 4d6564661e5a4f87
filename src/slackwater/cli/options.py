"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from slackwater.client.arguments import iso_date

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


def date_option(*names: str, text: str) -> Any:
    """Return an option for a date, which the command gets as YYYY-MM-DD. `text` is its help.

    Any other string raises `InputError` that names the option.
    """
    return typer.Option(*names, metavar="DATE", help=text, show_default=False, callback=_read_date)


def _read_date(param: typer.CallbackParam, value: str | None) -> str | None:
    return None if value is None else iso_date(value, name=param.opts[0])
