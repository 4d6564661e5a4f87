"""`slackwater query`: SQL over published tables and raw partitions."""

from __future__ import annotations

from typing import Annotated

import typer

from slackwater.cli.options import AsJson, ProjectFolder, examples, read_date
from slackwater.cli.output import print_json, print_note, print_table
from slackwater.client.workspace import find_workspace
from slackwater.formatting import counted


def register(app: typer.Typer) -> None:
    """Add `query`."""
    app.command(
        epilog=examples(
            "slackwater query \"SELECT * FROM daily_delays WHERE date = '2013-03-10' ORDER BY flights DESC\"",
            "slackwater query 'SELECT date, count(*) AS events FROM raw.weather GROUP BY ALL' --json",
            'slackwater query "FROM daily_delays" --date 2013-03-10 --version 1',
        )
    )(query)


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One statement of DuckDB's SQL.", show_default=False)],
    date: Annotated[
        str | None, typer.Option(metavar="DATE", help="The day whose version is read.", show_default=False)
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Read the table of one pipeline as it was when version N of the day was published: all of its days.",
            show_default=False,
        ),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Query published tables and raw partitions with SQL.

    A published table has its pipeline's name; the raw partitions of a source are the table raw.SOURCE.

    In JSON, dates and times are ISO 8601 (times with a timezone in UTC), decimals are numbers, NaN and infinities are
    null.
    """
    day = read_date(date, option="--date") if date else None
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client:
        result = client.query(sql, date=day, version=version)
        columns, rows = result.columns, result.rows
    if as_json:
        print_json({"columns": columns, "rows": rows})
    else:
        print_table(columns, rows)
        print_note(counted(len(rows), "row"))
