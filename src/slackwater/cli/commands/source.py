"""`slackwater source`: check what a user writes about a partner feed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import document, say, table
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.sources.definition import Source

group = typer.Typer(name="source", help="Definitions of sources.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add `source validate` and `source schema`."""
    app.add_typer(group)


@group.command(epilog=examples("slackwater source validate", "slackwater source validate sources/flights.yaml"))
def validate(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="One source's YAML file; all of the project's otherwise."),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Check sources' definitions, and show the columns that their partitions will have."""
    from slackwater.project import load_source

    sources = [load_source(file)] if file else list(load(find_place(project)).sources.values())
    if as_json:
        document({"sources": [source.model_dump(by_alias=True) | {"columns": source.columns} for source in sources]})
        return
    for source in sources:
        _show(source)


@group.command(epilog=examples("slackwater source schema > source.schema.json"))
def schema() -> None:
    """Print the JSON Schema of a source's definition, by which editors check it as it is written."""
    from slackwater.project import source_schema

    document(source_schema())


def _show(source: Source) -> None:
    say(f"{source.source}: well defined, {counted(len(source.columns), 'column')}", style="green")
    rows = [[name, kind, _origin(source, name)] for name, kind in source.columns.items()]
    table(["column", "type", "from"], rows)


def _origin(source: Source, name: str) -> str:
    field = source.fields.get(name)
    if field is None:
        return "derived"
    marks = ["required"] if name in source.needed else []
    return ", ".join([field.origin or name, *marks])
