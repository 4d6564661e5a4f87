"""What `write_table` needs to know about a table, whichever the database is."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, Field, model_validator

from slackwater.errors import DataError, DefinitionError
from slackwater.problems import Problem, Problems
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
    """The table's column with the day, a `date`."""
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
        for name, check, value in (("table", check_table, self.table), ("day", check_name, self.day)):
            try:
                check(value, self.database)
            except ValueError as error:
                problems.append(Problem(path=(name,), message=str(error)))
        if problems:
            raise Problems(*problems)
        return self


def with_day(frame: DataFrame, column: str, day: date) -> DataFrame:
    """Return the rows with the column of the day. Raises `DefinitionError` if they have it with another type."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import DateType

    if column not in frame.columns:
        if column.lower() in {name.lower() for name in frame.columns}:
            raise DefinitionError(f"day: the rows have {column} in other letters: rename the column, or set `day`")
        return frame.select(sf.lit(day).alias(column), "*")
    if not isinstance(frame.schema[column].dataType, DateType):
        raise DefinitionError(
            f"day: the column {column} of the rows is {frame.schema[column].dataType.simpleString()}: cast it to date, "
            "or leave it out"
        )
    return frame


def expect_day(batch: pa.RecordBatch, column: str, day: date) -> None:
    """Raise `DataError` for a row of another day, which a later run of this day would not replace."""
    days = batch.column(batch.schema.get_field_index(column))
    is_other = pc.invert(pc.fill_null(pc.equal(days, pa.scalar(day)), False))
    if pc.any(is_other).as_py():
        other = days.filter(is_other)[0].as_py()
        raise DataError(f"day: a row has {other} in the column {column}, and the run's day is {day}")
