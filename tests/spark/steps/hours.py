"""What a load of an hour has to do in each database: replace its rows and no others, in attempts of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pyspark.sql import DataFrame

from slackwater.errors import DataError, DefinitionError, Superseded
from slackwater.runs.period import period_of
from slackwater.steps.step import Effect, StepContext
from tests.spark.frames import frame_of
from tests.spark.steps.conftest import DAY, run_of

OTHER = date(2013, 3, 9)
NIGHT, NOON = f"{DAY}T00", f"{DAY}T12"
HELD = [(DAY, 12, 4), (DAY, 11, 5), (OTHER, 12, 6)]
"""Day, hour and number of the rows that the table has."""


def check_hours(
    context: StepContext,
    write: Callable[[DataFrame, StepContext, str | None], Effect],
    execute: Callable[..., list[tuple[Any, ...]]],
    *,
    table: str,
    name: str,
    number: str,
) -> None:
    """Write hours into `table`, as SQL has it, which messages call `name`; `number` is its type of an hour.

    `write` loads rows with the column of hours that is its last argument, and `execute` runs statements of SQL.
    """

    def in_hour(hour: str, attempt: int) -> StepContext:
        return replace(context, day=period_of(hour, "UTC"), run=run_of(attempt, hour))

    def write_hour(hour: str, *values: int, attempt: int = 1, column: str | None = "h") -> Effect:
        rows = [(n, f"{hour[-2:]} {attempt}") for n in values]
        return write(frame_of(context.spark, rows, "n int, s string"), in_hour(hour, attempt), column)

    def rows() -> list[tuple[Any, ...]]:
        return execute(f"SELECT date, h, n, s FROM {table} ORDER BY date, h, n")

    execute(
        f"DELETE FROM {table}",
        f"ALTER TABLE {table} ADD h {number}",
        *(f"INSERT INTO {table} (date, h, n, s) VALUES ('{day}', {hour}, {n}, 'old')" for day, hour, n in HELD),
    )
    assert write_hour(NOON, 1, 2, attempt=3) == {"table": name, "rows_deleted": 1, "rows_inserted": 2}
    assert write_hour(NIGHT, 1, attempt=1) == {"table": name, "rows_deleted": 0, "rows_inserted": 1}
    kept = [(OTHER, 12, 6, "old"), (DAY, 0, 1, "00 1"), (DAY, 11, 5, "old")]
    wanted = [*kept, (DAY, 12, 1, "12 3"), (DAY, 12, 2, "12 3")]
    assert rows() == wanted
    with pytest.raises(Superseded, match=f"attempt 3 has loaded {NOON} .* this is attempt 2") as refused:
        write_hour(NOON, 9, attempt=2)
    assert rows() == wanted
    statement = re.search(r"execute (DELETE .*), and run the day again", str(refused.value))
    assert statement
    execute(statement[1])
    assert write_hour(NOON, attempt=1)["rows_deleted"] == 2
    assert rows() == kept
    with pytest.raises(DefinitionError, match="missing `hour`: each hour would replace the rows of its whole day"):
        write_hour(NOON, 1, attempt=4, column=None)
    other = frame_of(context.spark, [(11, 1, "s")], "h int, n int, s string")
    with pytest.raises(DataError, match="hour: a row has 11 in the column h, and the run's hour is 12"):
        write(other, in_hour(NOON, 4), "h")
    assert rows() == kept
