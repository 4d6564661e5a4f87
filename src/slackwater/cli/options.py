"""Options that all commands share, and how their values are read."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from slackwater.errors import InputError

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else on standard output.")]
ProjectFolder = Annotated[
    Path | None,
    typer.Option(
        "--project",
        metavar="DIR",
        help="The project folder (sources/, pipelines/). Without it: this folder if it is one, else the example.",
        show_default=False,
    ),
]


def read_date(text: str, *, option: str) -> str:
    """Return an ISO date as it was written. Raises `InputError` naming the option."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise InputError(f"{option}: {text!r} is not a date such as 2013-03-08") from error


def examples(*lines: str) -> str:
    """Return the end of a command's help."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
