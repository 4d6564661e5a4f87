"""`slackwater query`: SQL over published tables and raw partitions."""

from __future__ import annotations

import re
from typing import Annotated, Any

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown
from slackwater.cli.options import argument, option, period_option
from slackwater.cli.output import print_note, print_table
from slackwater.formatting import counted


@command(
    "slackwater query \"SELECT * FROM daily_delays WHERE date = '2013-03-10' ORDER BY flights DESC\"",
    "slackwater query 'SELECT date, count(*) AS events FROM raw.weather GROUP BY ALL' --json",
    'slackwater query "FROM daily_delays" --date 2013-03-10 --version 1',
)
def query(
    sql: Annotated[str, argument("SQL", "One statement of DuckDB's SQL.")],
    date: Annotated[str | None, period_option(text="The day whose version is read.")] = None,
    version: Annotated[
        int | None,
        option(
            metavar="N",
            text="Read the table of one pipeline as it was when version N of the day was published: all of its days.",
        ),
    ] = None,
    *,
    session: Session,
) -> Result:
    """Query published tables and raw partitions with SQL.

    A published table has its pipeline's name; the raw partitions of a source are the table raw.SOURCE.

    Days that have not ended, of pipelines with `live`, are noted as provisional.

    In JSON, dates and times are ISO 8601 (times with a timezone in UTC), decimals are numbers, NaN and infinities are
    null.
    """
    client = session.client
    result = client.query(sql, date=date, version=version)
    # The rows are read first: what is noted are the versions that they come from, or later ones.
    document: dict[str, Any] = {"columns": result.columns, "rows": result.rows}
    live = [shown(name) for name, pipeline in client.project.pipelines.items() if pipeline.live]
    named = [name for name in live if version is None and re.search(rf"(?<!\w){name}(?!\w)", sql, re.IGNORECASE)]
    days = client.provisional_days(named) if named else []
    if days:
        document["provisional"] = [day.document for day in days]

    def view() -> None:
        print_table(result.columns, result.rows)
        print_note(counted(len(result.rows), "row"))
        for day in days:
            print_note(f"{shown(day.pipeline)} {day.line}", style="yellow")

    return Result(document, view)
