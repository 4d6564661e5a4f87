"""`slackwater source`: check the definitions of sources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import print_json, print_table, print_text
from slackwater.cli.workspace import find_workspace
from slackwater.formatting import counted

group = typer.Typer(name="source", help="Definitions of sources.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add `source validate` and `source schema`."""
    app.add_typer(group)


@group.command(epilog=examples("slackwater source validate", "slackwater source validate sources/flights.yaml"))
def validate(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The YAML file of one source. Default: all sources of the project."),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Check the definitions of sources, and print their columns."""
    from slackwater.project import load_source

    sources = [load_source(file)] if file else list(find_workspace(project).load_definitions().sources.values())
    if as_json:
        documents = [source.model_dump(by_alias=True) | {"columns": source.columns} for source in sources]
        print_json({"sources": documents})
        return
    for source in sources:
        print_text(f"{source.source}: valid, {counted(len(source.columns), 'column')}", style="green")
        rows = []
        for name, data_type in source.columns.items():
            origin = source.partner_name(name) if name in source.fields else "derived"
            required = ", required" if name in source.required_fields else ""
            rows.append((name, data_type, f"{origin}{required}"))
        print_table(("column", "type", "from"), rows)


@group.command(epilog=examples("slackwater source schema > source.schema.json"))
def schema() -> None:
    """Print the JSON Schema of source definitions.

    Editors check YAML files with it.
    """
    from slackwater.sources.json_schema import source_schema

    print_json(source_schema())
