"""The definition of a pipeline, as a user writes it in `pipelines/<name>.yaml`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from slackwater.model import Cron, Model, Name, TimeZone
from slackwater.pipeline.spark_workers import SparkSizes
from slackwater.sources.definition import Source
from slackwater.sources.late_thresholds import LateThresholds


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


class Publish(Model):
    """The step whose rows are published, and the columns that identify a row of the table."""

    step: Name
    key: Annotated[tuple[Name, ...], Field(min_length=1)]


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
    """A graph of steps over sources, which runs for one local day at a time and publishes the table of its name."""

    pipeline: Name
    """Also the name of the file and of the table in the warehouse."""
    description: str = ""
    timezone: TimeZone = "UTC"
    """A day is the time between two midnights in this timezone: 24 hours, or 23 or 25 when the clocks change."""
    sources: Annotated[tuple[Name, ...], Field(min_length=1)]
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
        # `depends_on` names sources and steps alike.
        common = set(self.sources) & set(self.steps)
        if common:
            raise ValueError(f"steps may not be named like sources: {', '.join(sorted(common))}")
        if self.publish.step not in self.steps:
            raise ValueError(
                f"publish.step: no step {self.publish.step!r} in this pipeline (its steps: {', '.join(self.steps)})"
            )
        used = {*self.sources, *self.steps}
        for name, use in self.load.items():
            if name in used:
                raise ValueError(f"load.{name}: a source or a step has this name already")
            if use.exchange:
                raise ValueError(f"load.{name}.exchange: no step reads what a load step writes: remove it")
            for read in use.depends_on:
                # Other steps leave no files, so their rows would be computed a second time, and might differ.
                if read != self.publish.step and not (read in self.steps and self.steps[read].exchange):
                    raise ValueError(
                        f"load.{name}.depends_on: {read} is neither publish.step nor a step with `exchange: true`"
                    )
        # Publishing adds the column `date`: a row of the table is identified by its day and the rest of the key.
        if "date" not in self.publish.key:
            raise ValueError("publish.key must contain `date`, the column by which the table is partitioned")
        unknown = sorted(set(self.late.thresholds) - set(self.sources))
        if unknown:
            raise ValueError(
                f"late.thresholds: {', '.join(unknown)} is not a source of this pipeline "
                f"(its sources: {', '.join(self.sources)})"
            )
        return self

    def thresholds(self, source: Source) -> LateThresholds:
        """Return the thresholds for late data of one of the pipeline's sources."""
        return self.late.thresholds.get(source.source, source.late)
