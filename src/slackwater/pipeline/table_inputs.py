"""The tables that a pipeline reads: published days of other pipelines, and Iceberg tables of other systems."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from slackwater.model import Model, Name
from slackwater.problems import Problem, Problems
from slackwater.sources.pull_config import check_url

# The names that Iceberg's catalog for Glue accepts.
_CATALOG_TABLE = r"^[a-z0-9_]{1,252}\.[a-z0-9_]{1,252}$"


def _check_catalog_table(value: str) -> str:
    if not re.fullmatch(_CATALOG_TABLE, value):
        raise ValueError(
            f"{value[:200]!r} is not the name of a table: write database.table, in lower-case letters, digits and _"
        )
    return value


def _check_location(value: str) -> str:
    if not value.startswith("s3://"):
        raise ValueError(f"{value[:200]!r} is not in S3: write s3://bucket/prefix")
    return check_url(value)


OnChange = Literal["auto", "hold", "notify", "ignore"]
"""What a changed day of another pipeline does to a published day that has read it."""


OnInvalid = Literal["hold", "rerun", "ignore"]
"""What happens to a published day while a verdict says that what it has read, or would read, has failed."""


class TableInput(Model):
    """Published days or hours of another pipeline of the project."""

    table: Name
    """The pipeline that publishes them."""
    days: tuple[Annotated[int, Field(ge=-366)], Annotated[int, Field(le=0)]] = (0, 0)
    """The first and the last day, counted from the day of the run: `[-6, 0]` are the seven days that end with it. Of an
    hourly table, these are all hours of the days. An hourly pipeline counts them from the day that contains the start
    of its hour, in the timezone of the pipeline that publishes them."""
    hours: tuple[Annotated[int, Field(ge=-366)], Annotated[int, Field(le=0)]] | None = None
    """Of an hourly pipeline that reads another hourly one, instead of `days`: the first and the last hour, counted from
    that of the run. `[-23, 0]` are the 24 hours that end with it."""
    missing: Literal["error", "empty", "wait"] = "error"
    """What a day that is not published does: fail the run, or count as a day without rows. With `wait`, a scheduled run
    waits for it, as long as `when.incomplete` says; a run that does not wait reads it as a day without rows."""
    on_change: OnChange = "auto"
    """What another version of a day does: decide by `late.thresholds` whether to run again, put the day on hold until a
    person releases it, notify people and run nothing, or nothing. A run that starts for another reason reads the new
    version in any case."""

    @property
    def decides(self) -> bool:
        """Whether another version of a day decides about the published days that have read it."""
        return self.on_change not in {"notify", "ignore"}

    @model_validator(mode="after")
    def _check_days(self) -> TableInput:
        for unit, (first, last) in (("day", self.days), ("hour", self.hours or (0, 0))):
            if first > last:
                raise ValueError(f"{unit}s: the first {unit}, {first}, is after the last one, {last}")
        return self


class IcebergInput(Model):
    """An Iceberg table of the Glue catalog that another system writes. A run reads all of it, at one snapshot."""

    iceberg: Annotated[str, AfterValidator(_check_catalog_table), Field(json_schema_extra={"pattern": _CATALOG_TABLE})]
    """The table, as `database.table`."""
    location: Annotated[str, AfterValidator(_check_location)]
    """The prefix in S3 with the table's metadata and data, `s3://bucket/prefix`, which the deployment may then read."""

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        messages = {"table": "`iceberg` names the table: remove one of them"}
        messages |= dict.fromkeys(("days", "missing", "on_change"), "an Iceberg table is read as a whole: remove it")
        problems = [
            Problem(path=(key,), at_key=True, message=message)
            for key, message in messages.items()
            if isinstance(value, dict) and key in value
        ]
        if problems:
            raise Problems(*problems)
        return value

    @property
    def name(self) -> tuple[str, str]:
        """The database and the table."""
        database, _, table = self.iceberg.partition(".")
        return database, table


def _type_of_table(value: Any) -> str:
    is_iceberg = isinstance(value, IcebergInput) or (isinstance(value, dict) and "iceberg" in value)
    return IcebergInput.__name__ if is_iceberg else TableInput.__name__


AnyTableInput = Annotated[
    Annotated[TableInput, Tag(TableInput.__name__)] | Annotated[IcebergInput, Tag(IcebergInput.__name__)],
    Discriminator(_type_of_table),
]
"""The key `iceberg` decides which of them it is, so that a misspelt key is reported for that one."""
