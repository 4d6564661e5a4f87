"""The definition of a pipeline, as a user writes it in `pipelines/<name>.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from slackwater.model import Cron, Model, Name, TimeZone
from slackwater.pipeline.hours import hour_problems
from slackwater.pipeline.live import Live, live_problems
from slackwater.pipeline.spark_workers import SparkSizes
from slackwater.pipeline.table_inputs import AnyTableInput, IcebergInput, OnInvalid, TableInput
from slackwater.pipeline.when import When
from slackwater.problems import Problem, Problems, closest, unknown_name
from slackwater.sources.definition import Source
from slackwater.sources.late_thresholds import ANY_LATE_DATA, LateThresholds
from slackwater.sources.pull_config import OnRemoved

LEDGER_TABLE = "ledger"
"""The name of the table of late inputs, in the warehouse and in queries. No pipeline may have it."""


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


Aggregation = Literal["sum", "mean", "min", "max", "none"]
"""How the values of a column become one total of the day; `none` leaves the column out."""


class Audit(Model):
    """What the rows of a day must fulfil before they replace the published ones. If they do not, the day is on hold.

    In any case, the key is unique and not null, and the rows have all columns of the table, with the same types.
    """

    min_rows_percent: Annotated[float, Field(ge=0, le=100)] = 100
    """The least number of rows, in percent of the rows that are published for the day."""


class Publish(Model):
    """The step whose rows are published, the columns that identify a row of the table, and the metrics of a day."""

    step: Name
    key: Annotated[tuple[Name, ...], Field(min_length=1)]
    metrics: dict[Name, Aggregation] = {}
    """By column: how it is aggregated over the day when two published versions are compared. Columns that it does not
    name are left out of the totals. Without it, every column of numbers is summed."""
    hour: Name | None = None
    """The column with the hour of a row, if metrics are to be compared by hour as well: a timestamp, or an integer, the
    local hour from 0 to 23. Without it, the first column of the key that is a timestamp or an integer named `hour`."""
    audit: Audit = Audit()


class Schedule(Model):
    """When days are processed and monitored, in the local time of the pipeline's timezone."""

    process: Cron = "0 3 * * *"
    """When a day is run."""
    monitor: Cron = "0 6 * * *"
    """When finished days are checked for late data."""
    buffer_hours: Annotated[int, Field(ge=0, le=720)] = 2
    """`process` runs the latest day or hour that ended at least this many hours before; at most 720, or 30 days."""
    buffer_minutes: Annotated[int, Field(ge=0, le=43_200)] | None = None
    """The same in minutes. It counts instead of `buffer_hours`."""

    @property
    def buffer(self) -> timedelta:
        """How long ago a day or hour must have ended that `process` runs."""
        return timedelta(minutes=60 * self.buffer_hours if self.buffer_minutes is None else self.buffer_minutes)


class NotifyRules(Model):
    """When people are notified of a changed day, and with which severity.

    The effect of a change is the largest relative change of a metric of the day, in percent. For a table without
    metrics it is the share of the rows that differ.
    """

    min_effect_percent: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    """A change with a smaller effect causes no message. Small changes add up: the next version is compared with the
    version that people know. 0: every change causes a message."""
    warning_percent: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10
    """The severity of a message is `warning` from this effect on, and `info` below."""


class Late(Model):
    """How late data of finished days is handled."""

    window_days: Annotated[int, Field(gt=0, le=366)] = 7
    """How many days before the current one are checked for late data."""
    window_hours: Annotated[int, Field(gt=0, le=366)] = 168
    """The same of a pipeline with `period: hour`, in hours: at most 366, for so long their versions stay."""
    thresholds: dict[Name, LateThresholds] = {}
    """By source: thresholds that replace those of the source's own definition."""
    on_removed: dict[Name, OnRemoved] = {}
    """By source: what happens when the partner removes a file, instead of the source's `pull.on_removed`."""
    on_invalid: dict[Name, OnInvalid] = {}
    """By source, or table of another pipeline: what happens to a published day while a verdict says that what it has
    read, or would read, has failed. `hold` (the default) puts it on hold until the verdict is `pass`, `rerun` runs it
    again when the input changes, whatever the thresholds and `on_change` say, and `ignore` does nothing."""
    on_definition: Literal["keep", "rerun"] = "keep"
    """What a new definition does to the published days of the window: `keep` them, and notify people once of how many
    it would change, or `rerun` them."""
    notify: NotifyRules = NotifyRules()
    """When people are notified of a changed day."""
    split: bool = False
    """Whether a message says what the data has changed and what the definition and the code, if both have changed. Two
    more Spark jobs compute this, before people are notified."""
    max_age_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Late data below every threshold makes its day run again when the oldest of it has waited so many hours. It
    replaces that of each source, and counts for tables as well."""
    cool_down_hours: Annotated[float, Field(ge=0, le=168)] = 1
    """A day that was run again runs again at the earliest so many hours after that run started."""
    max_reruns_per_day: Annotated[int, Field(ge=1, le=1000)] = 50
    """How many re-runs the checks of one calendar day start at most, in the pipeline's timezone."""
    worth_per_percent: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """What one percent of late rows is worth, in USD. A day whose re-run is estimated to cost more is not run again."""
    budget_per_day: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """What the re-runs that the checks of one calendar day start may cost together, in USD, by estimate."""

    @model_validator(mode="before")
    @classmethod
    def _drop_order(cls, value: Any) -> Any:
        """Refuse the former key `order` with another order than `oldest`, which deployed projects contain."""
        if not isinstance(value, dict) or "order" not in value:
            return value
        if value["order"] != "oldest":
            raise Problems(Problem(path=("order",), at_key=True, message="the oldest days run again first: remove it"))
        return {key: item for key, item in value.items() if key != "order"}


class Pipeline(Model):
    """A graph of steps over sources and tables. It runs for one day or hour at a time, and publishes a table."""

    pipeline: Name
    """Also the name of the file and of the table in the warehouse."""
    description: str = ""
    team: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_.-]*$")] = ""
    """The team that owns the table. Messages about changed days carry it, so that teams subscribe to their own tables.
    """
    timezone: TimeZone = "UTC"
    """A day is the time between two midnights in this timezone: 24 hours, or 23 or 25 when the clocks change. Hours are
    those of UTC in each timezone: checks, budgets and messages of an hourly pipeline follow the days of this one."""
    period: Literal["day", "hour"] = "day"
    """What a run processes: a day of the timezone, or an hour of UTC such as `2026-01-01T15`. The table of an hourly
    pipeline is partitioned by `date` and `hour`, both in UTC."""
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
    when: When = When()
    """What a scheduled run waits for, and for how long."""
    live: Live | None = None
    """How often the day or hour that has not ended is published. These versions are provisional."""
    late: Late = Late()
    deadline_hours: Annotated[int, Field(gt=0)] = 12
    """A day, or an hour, that is not published this many hours after its end is overdue, and an alarm fires."""
    renamed_from: Name | None = None
    """The first name of a pipeline that has another one now. Its table, history and holds stay under that name, by
    which AWS and other systems know it."""
    versions: Literal["stages", "all"] = "stages"
    """Of which steps a run stores the rows as Arrow files: of those that end a Spark job, or of `all` that change rows.
    """

    @model_validator(mode="after")
    def _check_names(self) -> Pipeline:
        problems = list(self.name_problems())
        if problems:
            raise Problems(*problems)
        return self

    def name_problems(self) -> Iterator[Problem]:
        """Yield the problems of names within the pipeline that have nothing to do with its graph."""
        for key, name in (("pipeline", self.pipeline), ("renamed_from", self.renamed_from)):
            if name == LEDGER_TABLE:
                yield Problem(path=(key,), message="the table of late inputs has this name: rename the pipeline")
        if not self.inputs:
            yield Problem(path=(), message="it has no input: name a source in `sources`, or a pipeline in `tables`")
        # `depends_on` names sources, tables and steps alike.
        for name in self.tables:
            if name in self.sources:
                yield Problem(path=("tables", name), at_key=True, message="a source has this name: rename the table")
        for name in self.steps:
            if name in self.inputs:
                of = "source" if name in self.sources else "table"
                yield Problem(path=("steps", name), at_key=True, message=f"a {of} has this name: rename the step")
        if self.publish.step not in self.steps:
            yield unknown_name(
                f"no step {self.publish.step!r} in this pipeline",
                self.publish.step,
                self.steps,
                path=("publish", "step"),
            )
        # Publishing adds the column `date`: a row of the table is identified by its period and the rest of the key.
        if "date" not in self.publish.key:
            yield Problem(
                path=("publish", "key"), message="it must contain `date`, the column by which the table is partitioned"
            )
        for name in self.publish.metrics:
            if name in self.publish.key:
                message = "it is a column of publish.key, which identifies rows: remove it here"
                yield Problem(path=("publish", "metrics", name), at_key=True, message=message)
        yield from self._load_problems()
        yield from self._late_problems()
        yield from self._when_problems()
        yield from self._verdict_problems()
        yield from live_problems(self)
        if self.period == "hour":
            yield from hour_problems(self)

    def _late_problems(self) -> Iterator[Problem]:
        late, judged = self.late, (*self.sources, *self.published_tables)
        if self.period == "day" and late.window_hours != Late.model_fields["window_hours"].default:
            message = "the window of a daily pipeline is `window_days`: write that instead"
            yield Problem(path=("late", "window_hours"), at_key=True, message=message)
        for name, item in self.published_tables.items() if self.period == "day" else ():
            if item.hours:
                message = "a daily pipeline reads days: write `days`, which are all of their hours of an hourly table"
                yield Problem(path=("tables", name, "hours"), at_key=True, message=message)
        for key, names, possible in (
            ("thresholds", list(late.thresholds), self.inputs),
            ("on_removed", list(late.on_removed), self.sources),
            ("on_invalid", list(late.on_invalid), judged),
        ):
            for name in sorted(set(names) - set(possible)):
                message = f"{name} is not a source of this pipeline"
                yield unknown_name(message, name, possible, path=("late", key, name), at_key=True)

    def _when_problems(self) -> Iterator[Problem]:
        waited = self.when.inputs
        for name in sorted(waited):
            path = ("when", "inputs", name)
            if name not in self.inputs:
                message = f"{name} is not an input of this pipeline"
                yield unknown_name(message, name, self.inputs, path=path, at_key=True)
            elif name in self.published_tables:
                message = f"{name} has days of a pipeline: remove it here, and set `missing: wait` in tables.{name}"
                yield Problem(path=path, at_key=True, message=message)
            elif name in self.foreign_tables and waited[name] == "complete":
                message = "nobody counts the rows of an Iceberg table: write a time such as `{newer_than: 24h}`"
                yield Problem(path=path, message=message)
        for name in sorted(self.when.quality):
            path = ("when", "quality", name)
            if name not in self.inputs:
                message = f"{name} is not an input of this pipeline"
                yield unknown_name(message, name, self.inputs, path=path, at_key=True)
            elif name in self.foreign_tables:
                message = "nobody gives a verdict about an Iceberg table: remove it here"
                yield Problem(path=path, at_key=True, message=message)
        if self.when != When() and not self.waits:
            message = "it waits for nothing: name an input in `when.inputs`, or set `missing: wait` for a table"
            yield Problem(path=("when",), at_key=True, message=message)

    def _verdict_problems(self) -> Iterator[Problem]:
        for name, index in self._invalidating_rules():
            checked = self.steps[name].depends_on[:1]
            if not set(checked) <= {*self.sources, *self.published_tables}:
                message = (
                    f"a verdict is about a source or a table of another pipeline, and {checked[0]} is neither: check "
                    "it in a step that reads the input itself, or write `fail`"
                )
                yield Problem(path=("steps", name, "with", "rules", index, "severity"), message=message)

    def _invalidating_rules(self) -> Iterator[tuple[str, int]]:
        """Yield steps, and the indices of their rules with `severity: invalidate`. The parameters may be invalid."""
        for name, use in self.steps.items():
            rules = use.parameters.get("rules") if use.step == "data_quality" else None
            for index, rule in enumerate(rules if isinstance(rules, list | tuple) else ()):
                if isinstance(rule, Mapping) and rule.get("severity") == "invalidate":
                    yield name, index

    def _load_problems(self) -> Iterator[Problem]:
        published = self.publish.step if self.publish.step in self.steps else closest(self.publish.step, self.steps)
        for name, use in self.load.items():
            if name in self.inputs or name in self.steps:
                yield Problem(path=("load", name), at_key=True, message="a source or a step has this name: rename it")
            if use.exchange:
                message = "no step reads what a load step writes: remove it"
                yield Problem(path=("load", name, "exchange"), message=message)
            for index, read in enumerate(use.depends_on):
                path = ("load", name, "depends_on", index)
                if read not in self.steps and read not in self.inputs:
                    yield unknown_name(f"no step {read!r}", read, self.steps, path=path)
                # Other steps leave no files, so their rows would be computed a second time, and might differ.
                elif published and read != published and not (read in self.steps and self.steps[read].exchange):
                    yield Problem(path=path, message=f"{read} is neither publish.step nor a step with `exchange: true`")

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that publishing adds to the rows, and by which the table is partitioned."""
        return ("date", "hour") if self.period == "hour" else ("date",)

    @property
    def window_length(self) -> int:
        """How many days or hours before the current one are checked for late data."""
        return self.late.window_hours if self.period == "hour" else self.late.window_days

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of everything that a run freezes: sources, then tables."""
        return (*self.sources, *self.tables)

    @property
    def waits(self) -> bool:
        """Whether its scheduled runs wait for inputs."""
        named = self.when.inputs or self.when.quality
        return bool(named) or any(item.missing == "wait" for item in self.published_tables.values())

    @property
    def judged_inputs(self) -> frozenset[str]:
        """The inputs about which its runs give verdicts: those of rules with the severity `invalidate`."""
        return frozenset(self.steps[name].depends_on[0] for name, _ in self._invalidating_rules())

    @property
    def rerun_inputs(self) -> tuple[str, ...]:
        """The inputs whose late data can run a published day again: not tables with `on_change: ignore` or `notify`."""
        others = {name for name, item in self.published_tables.items() if not item.decides}
        return tuple(name for name in self.inputs if name not in others)

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

    def on_removed(self, source: Source) -> OnRemoved:
        """Return what happens to the rows of a file of one of the pipeline's sources when the partner removes it."""
        return self.late.on_removed.get(source.source, source.pull.on_removed if source.pull else "keep")

    def table_thresholds(self, name: str) -> LateThresholds:
        """Return the thresholds for changes of one of the pipeline's tables: by default, any change counts."""
        return self.late.thresholds.get(name, ANY_LATE_DATA)
