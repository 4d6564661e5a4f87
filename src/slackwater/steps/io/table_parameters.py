"""What `write_table` needs to know about a table, whichever the database is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field, model_validator

from slackwater.errors import DataError, DefinitionError
from slackwater.problems import Problem, Problems
from slackwater.runs.period import partition_values
from slackwater.runs.record import Run
from slackwater.sources.pull_config import CredentialsReference
from slackwater.steps.io.postgres import DatabaseParameters, check_database_url
from slackwater.steps.step import Parameters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Database = Literal["postgresql", "redshift", "snowflake"]
LOADS = "slackwater_loads"
"""The table, in the schema of the target, that records which attempt has loaded a day."""
# Bytes in UTF-8. PostgreSQL would cut off the rest of a name, and the others refuse it.
_MAX_NAME = {"postgresql": 63, "redshift": 127, "snowflake": 255}
_DATABASES = {"postgresql": "PostgreSQL", "redshift": "Redshift", "snowflake": "Snowflake"}


def check_name(name: str, database: Database = "snowflake") -> str:
    """Return the name of a column or a table unchanged. Raises `ValueError` unless the database accepts it."""
    if not 0 < len(name.encode()) <= _MAX_NAME[database] or "\x00" in name:
        limit = f"1 to {_MAX_NAME[database]} bytes"
        raise ValueError(f"{name[:60]!r} is not a name of {_DATABASES[database]}, which has {limit}")
    return name


def check_table(table: str, database: Database = "snowflake") -> str:
    """Return a table, with or without schema, unchanged. Raises `ValueError` unless the database accepts the names."""
    parts = table.split(".")
    if len(parts) > 2:  # noqa: PLR2004 - schema and table
        raise ValueError(f"{table!r} is not a table such as delays or reports.delays")
    for part in parts:
        check_name(part, database)
    return table


def _check_url(url: str) -> str:
    return check_database_url(url, tuple(_DATABASES))


class RedshiftOptions(Parameters):
    """How Amazon Redshift reads the rows."""

    role: Annotated[str, Field(pattern=r"^(default|arn:[a-z-]+:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]+)$")] = "default"
    """ARN of the IAM role with which the cluster reads the rows from the project's files, or `default`: the cluster's
    default role."""


class SnowflakeOptions(Parameters):
    """The session in Snowflake."""

    warehouse: str | None = None
    """The warehouse that loads the rows. Without it, the user's default."""
    role: str | None = None
    """The role of the session. Without it, the user's default."""


class TableParameters(DatabaseParameters):
    """Parameters of a table of a database."""

    url: Annotated[str, AfterValidator(_check_url)]
    """`postgresql://host:5432/database`, `redshift://host:5439/database` or
    `snowflake://account.snowflakecomputing.com/database`. A host with a private address has to be in the setting
    `outbound_allow`."""
    credentials: CredentialsReference
    """`secretsmanager:<name>` or `ssm:<name>`: a JSON object with `username` and `password`, or for Snowflake with
    `username` and `private_key`."""
    table: Annotated[str, AfterValidator(check_table)]
    """The table, as `schema.table` or `table`. `{input}` is the name of the input, and needed for several ones."""
    day: Annotated[str, AfterValidator(check_name)] = "date"
    """The table's column with the day, a `date`. Of an hourly pipeline, the date is that of UTC."""
    hour: Annotated[str, AfterValidator(check_name)] | None = None
    """Only for hourly pipelines, which need it: the table's column with the hour, an integer from 0 to 23, in UTC."""
    redshift: RedshiftOptions = RedshiftOptions()
    """Only for Redshift: how it reads the rows."""
    snowflake: SnowflakeOptions = SnowflakeOptions()
    """Only for Snowflake: its warehouse and role."""

    @property
    def database(self) -> Database:
        """What the database is, by the scheme of the URL."""
        scheme = urlsplit(self.url).scheme
        return "redshift" if scheme == "redshift" else "snowflake" if scheme == "snowflake" else "postgresql"

    @model_validator(mode="after")
    def _check_database(self) -> TableParameters:
        problems = [
            Problem(path=(other,), at_key=True, message=f"the database is {_DATABASES[self.database]}: remove it")
            for other, is_set in (
                ("redshift", self.redshift != RedshiftOptions()),
                ("snowflake", self.snowflake != SnowflakeOptions()),
            )
            if is_set and other != self.database
        ]
        if self.database == "snowflake":
            problems += [
                Problem(path=(name,), message="connections to Snowflake are always verified: remove it")
                for name in ("tls", "certificate_authority")
                if name in self.model_fields_set
            ]
        for name, check, value in (
            ("table", check_table, self.table),
            ("day", check_name, self.day),
            ("hour", check_name, self.hour or self.day),
        ):
            try:
                check(value, self.database)
            except ValueError as error:
                problems.append(Problem(path=(name,), message=str(error)))
        if problems:
            raise Problems(*problems)
        return self


def check_period(parameters: TableParameters, period: Literal["day", "hour"]) -> None:
    """Raise `DefinitionError` unless the columns identify the rows of each period of a pipeline."""
    if period == "day" and parameters.hour is not None:
        raise DefinitionError("hour: the pipeline has `period: day`: remove it")
    if period == "hour" and parameters.hour is None:
        raise DefinitionError(
            "missing `hour`: each hour would replace the rows of its whole day: name the table's column with the hour, "
            "such as `hour: hour`"
        )
    if parameters.hour == parameters.day:
        raise DefinitionError(f"hour: {parameters.day} is the column of the day: name another one")


def period_values(parameters: TableParameters, run: Run) -> dict[str, date | int]:
    """Return what the columns of the period contain in all rows of a run, by name: the date, and of an hour the hour.

    Raises `DefinitionError` as `check_period` does.
    """
    values = partition_values(run.date)
    check_period(parameters, "hour" if "hour" in values else "day")
    names = (parameters.day, parameters.hour or "")
    return dict(zip(names, values.values(), strict=False))


def load_key(target: str, run: Run) -> tuple[str, str, str]:
    """Return target, pipeline and day by which the attempts of a run are recorded in `slackwater_loads`.

    The table has no column for hours, so that those that exist need no change: of an hour, the target is `NAME T05`.
    """
    day, _, hour = run.date.partition("T")
    return (f"{target} T{hour}" if hour else target), run.pipeline, day


def with_period(frame: DataFrame, values: Mapping[str, date | int]) -> DataFrame:
    """Return the rows with the columns of the period. Raises `DefinitionError` if they have one with another type."""
    from pyspark.sql import functions as sf
    from pyspark.sql import types as t

    missing = [column for column in values if column not in frame.columns]
    for column, value in values.items():
        field, expected = ("day", "date") if isinstance(value, date) else ("hour", "int")
        if column in missing:
            if column.lower() in {name.lower() for name in frame.columns}:
                raise DefinitionError(
                    f"{field}: the rows have {column} in other letters: rename the column, or set `{field}`"
                )
        elif not isinstance(frame.schema[column].dataType, t.DateType if field == "day" else t.IntegralType):
            raise DefinitionError(
                f"{field}: the column {column} of the rows is {frame.schema[column].dataType.simpleString()}: cast it "
                f"to {expected}, or leave it out"
            )
    return frame.select(*(sf.lit(values[column]).alias(column) for column in missing), "*")


def expect_period(batch: pa.RecordBatch, values: Mapping[str, date | int]) -> None:
    """Raise `DataError` for a row of another period, which a later run of this one would not replace."""
    for column, value in values.items():
        found = batch.column(batch.schema.get_field_index(column))
        is_other = pc.invert(pc.fill_null(pc.equal(found, pa.scalar(value, found.type)), False))
        if pc.any(is_other).as_py():
            field, other = "day" if isinstance(value, date) else "hour", found.filter(is_other)[0].as_py()
            raise DataError(f"{field}: a row has {other} in the column {column}, and the run's {field} is {value}")
