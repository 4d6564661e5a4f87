"""The definition of a pipeline, as a user writes it in `pipelines/<name>.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from slackwater.faults import Fault, Faults, closest, unknown_name
from slackwater.model import Cron, Model, Name, TimeZone
from slackwater.pipeline.spark_workers import SparkSizes
from slackwater.sources.definition import Source
from slackwater.sources.late_thresholds import ANY_LATE_DATA, LateThresholds
from slackwater.sources.pull_config import check_url

# The names that Iceberg's catalogue for Glue accepts.
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


class StepUse(Model):
    """One step of the graph: its module, its inputs and its parameters."""

    step: Name
    """The name of the step's module, such as `join`; `slackwater step list` prints all names."""
    depends_on: tuple[Name, ...] = ()
    """Names of sources or of other steps, in the order that the step expects. A step that reads its rows from outside
    of the pipeline depends on nothing."""
    parameters: Annotated[dict[str, Any], Field(alias="with")] = {}
    exchange: bool = False
    """Whether to end the Spark job after this step and store its rows as Arrow files, which the next job reads."""


class TableInput(Model):
    """Published days of another pipeline of the project."""

    table: Name
    """The pipeline that publishes them."""
    days: tuple[Annotated[int, Field(ge=-366)], Annotated[int, Field(le=0)]] = (0, 0)
    """The first and the last day, counted from the day of the run: `[-6, 0]` are the seven days that end with it."""
    missing: Literal["error", "empty"] = "error"
    """What a day that is not published does: fail the run, or count as a day without rows."""

    @model_validator(mode="after")
    def _check_days(self) -> TableInput:
        first, last = self.days
        if first > last:
            raise ValueError(f"days: the first day, {first}, is after the last one, {last}")
        return self


Aggregation = Literal["sum", "mean", "min", "max", "none"]
"""How the values of a column become one total of the day; `none` leaves the column out."""


class IcebergInput(Model):
    """An Iceberg table of the Glue catalogue that another system writes. A run reads all of it, at one snapshot."""

    iceberg: Annotated[str, AfterValidator(_check_catalog_table), Field(json_schema_extra={"pattern": _CATALOG_TABLE})]
    """The table, as `database.table`."""
    location: Annotated[str, AfterValidator(_check_location)]
    """The prefix in S3 with the table's metadata and data, `s3://bucket/prefix`, which the deployment may then read."""

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        messages = {"table": "`iceberg` names the table: remove one of them"}
        messages |= dict.fromkeys(("days", "missing"), "an Iceberg table is read as a whole: remove it")
        faults = [
            Fault(path=(key,), at_key=True, message=message)
            for key, message in messages.items()
            if isinstance(value, dict) and key in value
        ]
        if faults:
            raise Faults(*faults)
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


class Publish(Model):
    """The step whose rows are published, the columns that identify a row of the table, and the metrics of a day."""

    step: Name
    key: Annotated[tuple[Name, ...], Field(min_length=1)]
    metrics: dict[Name, Aggregation] = {}
    """By column: how it is aggregated over the day when two published versions are compared. Columns that it does not
    name are left out of the totals. Without it, columns of integers and decimals are summed, and floating-point columns
    are averaged over the rows."""


class Schedule(Model):
    """When days are processed and monitored, in the local time of the pipeline's timezone."""

    process: Cron = "0 3 * * *"
    """When a day is run."""
    monitor: Cron = "0 6 * * *"
    """When finished days are checked for late data."""
    buffer_hours: Annotated[int, Field(ge=0, le=720)] = 2
    """`process` runs the latest day that ended at least this many hours before; at most 720, which is 30 days."""


class Late(Model):
    """How late data of finished days is handled."""

    window_days: Annotated[int, Field(gt=0, le=366)] = 7
    """How many days before the current one are checked for late data."""
    thresholds: dict[Name, LateThresholds] = {}
    """By source: thresholds that replace those of the source's own definition."""


class Pipeline(Model):
    """A graph of steps over sources and tables. It runs for one local day at a time, and publishes a table."""

    pipeline: Name
    """Also the name of the file and of the table in the warehouse."""
    description: str = ""
    timezone: TimeZone = "UTC"
    """A day is the time between two midnights in this timezone: 24 hours, or 23 or 25 when the clocks change."""
    sources: tuple[Name, ...] = ()
    tables: dict[Name, AnyTableInput] = {}
    """Published days of other pipelines, whose rows have the column `date`, and Iceberg tables of other systems, by the
    name with which steps read them."""
    steps: Annotated[dict[Name, StepUse], Field(min_length=1)]
    publish: Publish
    load: dict[Name, StepUse] = {}
    """Steps that write rows elsewhere, after the day is published. Each depends on `publish.step`, or on a step with
    `exchange`."""
    spark: SparkSizes = SparkSizes()
    schedule: Schedule = Schedule()
    late: Late = Late()
    deadline_hours: Annotated[int, Field(gt=0)] = 12
    """A day that is not published this many hours after its end is overdue, and an alarm fires."""

    @model_validator(mode="after")
    def _check_names(self) -> Pipeline:
        faults = list(self.name_faults())
        if faults:
            raise Faults(*faults)
        return self

    def name_faults(self) -> Iterator[Fault]:
        """Yield the faults of names within the pipeline that have nothing to do with its graph."""
        if not self.inputs:
            yield Fault(path=(), message="it has no input: name a source in `sources`, or a pipeline in `tables`")
        # `depends_on` names sources, tables and steps alike.
        for name in self.tables:
            if name in self.sources:
                yield Fault(path=("tables", name), at_key=True, message="a source has this name: rename the table")
        for name in self.steps:
            if name in self.inputs:
                of = "source" if name in self.sources else "table"
                yield Fault(path=("steps", name), at_key=True, message=f"a {of} has this name: rename the step")
        if self.publish.step not in self.steps:
            yield unknown_name(
                f"no step {self.publish.step!r} in this pipeline",
                self.publish.step,
                self.steps,
                path=("publish", "step"),
            )
        # Publishing adds the column `date`: a row of the table is identified by its day and the rest of the key.
        if "date" not in self.publish.key:
            yield Fault(
                path=("publish", "key"), message="it must contain `date`, the column by which the table is partitioned"
            )
        for name in self.publish.metrics:
            if name in self.publish.key:
                message = "it is a column of publish.key, which identifies rows: remove it here"
                yield Fault(path=("publish", "metrics", name), at_key=True, message=message)
        yield from self._load_faults()
        for name in self.late.thresholds:
            if name not in self.inputs:
                path = ("late", "thresholds", name)
                message = f"{name} is not a source of this pipeline"
                yield unknown_name(message, name, self.inputs, path=path, at_key=True)

    def _load_faults(self) -> Iterator[Fault]:
        published = self.publish.step if self.publish.step in self.steps else closest(self.publish.step, self.steps)
        for name, use in self.load.items():
            if name in self.inputs or name in self.steps:
                yield Fault(path=("load", name), at_key=True, message="a source or a step has this name: rename it")
            if use.exchange:
                message = "no step reads what a load step writes: remove it"
                yield Fault(path=("load", name, "exchange"), message=message)
            for index, read in enumerate(use.depends_on):
                path = ("load", name, "depends_on", index)
                if read not in self.steps and read not in self.inputs:
                    yield unknown_name(f"no step {read!r}", read, self.steps, path=path)
                # Other steps leave no files, so their rows would be computed a second time, and might differ.
                elif published and read != published and not (read in self.steps and self.steps[read].exchange):
                    yield Fault(path=path, message=f"{read} is neither publish.step nor a step with `exchange: true`")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of everything that a run freezes: sources, then tables."""
        return (*self.sources, *self.tables)

    @property
    def published_tables(self) -> dict[str, TableInput]:
        """Those of `tables` that are published days of other pipelines."""
        return {name: item for name, item in self.tables.items() if isinstance(item, TableInput)}

    @property
    def foreign_tables(self) -> dict[str, IcebergInput]:
        """Those of `tables` that other systems write."""
        return {name: item for name, item in self.tables.items() if isinstance(item, IcebergInput)}

    def thresholds(self, source: Source) -> LateThresholds:
        """Return the thresholds for late data of one of the pipeline's sources."""
        return self.late.thresholds.get(source.source, source.late)

    def table_thresholds(self, name: str) -> LateThresholds:
        """Return the thresholds for changes of one of the pipeline's tables: by default, any change counts."""
        return self.late.thresholds.get(name, ANY_LATE_DATA)
