"""`write_table`: replace the day in a table of PostgreSQL, Amazon Redshift or Snowflake.

The rows of the day are deleted and the new ones inserted in one transaction: a reader sees the old day or the new one.
The table exists already, with all columns of the rows; columns that it has besides get their defaults. A day without
rows deletes the day. The table `slackwater_loads` in the same schema, which the step creates, records the attempt that
has loaded a day; an earlier attempt then fails and changes nothing. Runs of the same day wait for each other, in
PostgreSQL and Snowflake for at most 30 minutes.

Columns are matched by their names. The day is in the column `day`, which the step adds with the run's date; if the rows
have this column, it has to be the run's date in all of them. A timestamp with a timezone belongs into a `timestamptz`
(Snowflake: `timestamp_tz`), one without into a `timestamp` (`timestamp_ntz`).

An hourly pipeline names the column of the hour in `hour`. It replaces the rows of its hour, and those of no other one.

| | PostgreSQL | Redshift | Snowflake |
|---|---|---|---|
| the rows get there by | COPY | files below `_loading/`, and COPY | files in a temporary stage, and COPY INTO |
| binary data | `bytea` | `varbyte` | `binary` |
| structs, arrays, maps | `json`, `jsonb` | `super` | `variant` |
| names | as they are written | as they are written | as in SQL: without quotes where possible |
| authentication | password | password | key pair or password |

[Databases](files-and-databases.md#databases) says which privileges the user needs, and what was never tried on a real
Redshift and Snowflake. The pipeline's own table is not written by this step, but by its `publish` section.

Effect: `table`, `rows_deleted` and `rows_inserted`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from slackwater.errors import DefinitionError, InputError
from slackwater.runs.record import Run
from slackwater.steps.files import INPUT
from slackwater.steps.io import postgres_table, redshift_table, snowflake_table
from slackwater.steps.io.frames import map_batches, nullable_schema
from slackwater.steps.io.postgres import Access
from slackwater.steps.io.table_parameters import (
    Database,
    TableParameters,
    check_period,
    check_table,
    period_values,
    with_period,
)
from slackwater.steps.io.targets import expect_own_targets
from slackwater.steps.step import Effect, Load, StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COUNTS = "deleted long not null, inserted long not null"
_EXAMPLES = [
    {
        "url": "postgresql://db.example:5432/reports",
        "credentials": "secretsmanager:reports/writer",
        "table": "public.delays",
    },
    {
        "url": "redshift://reports.abc123.eu-central-1.redshift.amazonaws.com:5439/reports",
        "credentials": "secretsmanager:redshift/writer",
        "table": "public.delays",
        "redshift": {"role": "arn:aws:iam::123456789012:role/redshift-reads-files"},
    },
    {
        "url": "snowflake://acme-reports.snowflakecomputing.com/reports",
        "credentials": "secretsmanager:snowflake/writer",
        "table": "public.delays",
        "snowflake": {"warehouse": "loading", "role": "loader"},
    },
]


class WriteTable(TableParameters, json_schema_extra={"examples": _EXAMPLES}):
    """Parameters of `write_table`."""


class _Writer(NamedTuple):
    """How rows get into a database."""

    convert: Callable[[DataFrame, Sequence[str]], DataFrame]
    """Called with rows and the columns of their period. Returns them as the database reads them, with these columns."""
    replace_day: Callable[[Iterator[pa.RecordBatch], pa.Schema, TableParameters, Access, Run], tuple[int, int]]
    """Called with converted rows and the schema of the rows before. Deletes the day and inserts them in one
    transaction, and returns how many rows were deleted and inserted."""


_WRITERS: Mapping[Database, _Writer] = {
    "postgresql": _Writer(postgres_table.as_postgres_reads, postgres_table.replace_day),
    "redshift": _Writer(redshift_table.as_redshift_reads, redshift_table.replace_day),
    "snowflake": _Writer(snowflake_table.as_snowflake_reads, snowflake_table.replace_day),
}


def write(frame: DataFrame, parameters: WriteTable, context: StepContext) -> Effect:
    """Replace the day or the hour of the run. Returns how many rows were deleted and inserted.

    Raises `InputError` outside of a run and for what the database refuses, `DefinitionError` for columns that cannot be
    written, `DataError` for rows of another day, and `Unavailable`. For a large frame, Spark wraps them into its own.
    """
    if context.day is None or context.run is None:
        raise InputError("write_table replaces the day of a run: use it in a pipeline")
    access, run, writer = Access.of(context), context.run, _WRITERS[parameters.database]
    values = period_values(parameters, run)
    rows = with_period(frame, values)
    schema, converted = nullable_schema(rows), writer.convert(rows, list(values))

    def replace(_partition: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Mapping[str, Any]]:
        deleted, inserted = writer.replace_day(batches, schema, parameters, access, run)
        yield {"deleted": deleted, "inserted": inserted}

    # One task, because one transaction needs one connection.
    counts = map_batches(converted, replace, _COUNTS, one_task=True)
    deleted, inserted = counts[0] if counts else writer.replace_day(iter(()), schema, parameters, access, run)
    return {"table": parameters.table, "rows_deleted": deleted, "rows_inserted": inserted}


def _of_input(parameters: WriteTable, name: str) -> WriteTable:
    return parameters.model_copy(update={"table": parameters.table.replace(INPUT, name)})


def _check_inputs(inputs: Sequence[str], parameters: WriteTable) -> None:
    """Raise `DefinitionError` unless each input has a table of its own with a valid name."""
    expect_own_targets(inputs, parameters.table, field="table", example=f"reports.{INPUT}")
    for name in inputs:
        try:
            check_table(_of_input(parameters, name).table, parameters.database)
        except ValueError as error:
            raise DefinitionError(f"table: {error}") from error


STEP = Load(
    name="write_table",
    parameters=WriteTable,
    many_inputs=True,
    check=_check_inputs,
    check_period=check_period,
    of_input=_of_input,
    write=write,
)
