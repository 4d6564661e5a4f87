"""`slackwater query`: SQL over what was published and what came in."""

from __future__ import annotations

from typing import Annotated

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import document, remark, table
from slackwater.formatting import counted


def register(app: typer.Typer) -> None:
    """Add `query`."""
    app.command(
        epilog=examples(
            "slackwater query \"SELECT * FROM daily_delays WHERE date = '2013-03-10' ORDER BY flights DESC\"",
            "slackwater query 'SELECT date, count(*) AS events FROM raw.weather GROUP BY ALL' --json",
        )
    )(query)


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One statement of DuckDB's SQL.", show_default=False)],
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Ask published tables and raw partitions.

    A published table goes by its pipeline's name, a source's partitions by raw.SOURCE.

    As JSON: dates and times are ISO 8601, times with a zone in UTC; decimals are numbers; NaN and infinities are null.
    """
    place = find_place(project)
    definitions = load(place)
    from slackwater.cli.session import Session

    answer = Session.open(place, definitions).query(sql)
    if as_json:
        document({"columns": answer.columns, "rows": answer.rows})
    else:
        table(answer.columns, answer.rows)
        remark(counted(len(answer.rows), "row"))
