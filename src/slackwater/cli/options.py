"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from slackwater.client.arguments import iso_date, period_name


def argument(metavar: str, text: str) -> Any:
    """Return an argument that the help calls `metavar`. `text` is its help, which also states a default."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


def option(*names: str, text: str, show_default: bool = False, **settings: Any) -> Any:
    """Return an option, by default named as its parameter. `text` is its help; `settings` are those of typer."""
    return typer.Option(*names, help=text, show_default=show_default, **settings)


class Yesterday(str):
    """The word `yesterday` as the value of an option: `@command` replaces it by a date in the pipeline's timezone."""


def date_option(*names: str, text: str) -> Any:
    """Return an option for a date, which the command gets as YYYY-MM-DD. `text` is its help.

    `--date` also takes `yesterday`. Any other string raises `InputError` that names the option.
    """
    return option(*names, metavar="DATE", text=text, callback=_read_date)


def period_option(*names: str, text: str) -> Any:
    """Return an option for a day or an hour of a pipeline. `text` is its help.

    `--date` also takes `yesterday`. Any other string raises `InputError` that names the option.
    """
    return option(*names, metavar="DATE", text=text, callback=_read_period)


def days_option(*, text: str) -> Any:
    """Return the option `--date` of a command that also takes a range of days, for `split_days`."""
    return option(metavar="DATE[..DATE]", text=text, callback=_read_days)


def split_days(date: str | None, first: str | None, last: str | None) -> tuple[str | None, str | None, str | None]:
    """Return `--date`, `--from` and `--to`, with a range of `--date` moved to the other two unless these are given."""
    if date and ".." in date and first is last is None:
        first, _, last = date.partition("..")
        return None, first, last
    return date, first, last


def _read_date(param: typer.CallbackParam, value: str | None) -> str | None:
    if value == "yesterday" and param.name == "date":
        return Yesterday(value)
    return None if value is None else iso_date(value, name=param.opts[0])


def _read_period(param: typer.CallbackParam, value: str | None) -> str | None:
    if value is None or value == "yesterday":
        return _read_date(param, value)
    return period_name(value, name=param.opts[0])


def _read_days(param: typer.CallbackParam, value: str | None) -> str | None:
    if value is None or ".." not in value:
        return _read_period(param, value)
    # The end of a range may be the last part of a name: 2013-03-10..12.
    start, _, end = value.partition("..")
    return "..".join(period_name(each, name=param.opts[0]) for each in (start, end and start[: -len(end)] + end))


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
