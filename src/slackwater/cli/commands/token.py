"""`slackwater token`: bearer tokens for partners."""

from __future__ import annotations

from typing import Annotated

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import document, remark, say
from slackwater.errors import InputError

EVERY = "*"
"""Stands for all sources, those to come included."""

group = typer.Typer(name="token", help="Bearer tokens with which partners push.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add `token create`."""
    app.add_typer(group)


@group.callback()
def _group() -> None:
    """Keep `create` a command of its own."""


@group.command(epilog=examples("slackwater token create acme --source weather"))
def create(
    partner: Annotated[str, typer.Argument(metavar="PARTNER", help="Who will push with it.", show_default=False)],
    source: Annotated[
        list[str],
        typer.Option(
            metavar="SOURCE", help="What it may push to; can be given again, and * is all.", show_default=False
        ),
    ],
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it.

    Only its hash is stored, so this is the one time that it can be read.
    """
    place = find_place(project)
    definitions = load(place)
    for name in source:
        if name != EVERY and definitions.source(name).push is None:
            raise InputError(f"--source: {name!r} is not pushed: its definition has no `push`")
    from slackwater.cli.session import Session

    token = Session.open(place, definitions).mint(partner, source)
    if as_json:
        document({"partner": partner, "sources": source, "token": token})
    else:
        remark(f"{partner} may push to {', '.join(source)} with this token, which is shown once:")
        say(token)
