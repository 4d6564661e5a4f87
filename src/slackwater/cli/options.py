"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from slackwater.client.arguments import iso_date


def argument(metavar: str, text: str) -> Any:
    """Return an argument that the help calls `metavar`. `text` is its help, which also states a default."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


def option(*names: str, text: str, show_default: bool = False, **settings: Any) -> Any:
    """Return an option, by default named as its parameter. `text` is its help; `settings` are those of typer."""
    return typer.Option(*names, help=text, show_default=show_default, **settings)


def date_option(*names: str, text: str) -> Any:
    """Return an option for a date, which the command gets as YYYY-MM-DD. `text` is its help.

    Any other string raises `InputError` that names the option.
    """
    return option(*names, metavar="DATE", text=text, callback=_read_date)


def _read_date(param: typer.CallbackParam, value: str | None) -> str | None:
    return None if value is None else iso_date(value, name=param.opts[0])


PipelineName = Annotated[str, argument("PIPELINE", "A pipeline of the project.")]

RunName = Annotated[
    str,
    argument(
        "RUN", "A pipeline, with --date, or a run id: its 32 digits, or the first 12 as `slackwater runs` shows them."
    ),
]
AttemptNumber = Annotated[
    int | None, option("--attempt", metavar="N", text="An attempt of the run. Default: the last one.")
]
