"""What a user writes about one pipeline: `pipelines/<name>.yaml`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from slackwater.model import Cron, Model, Name, TimeZone
from slackwater.sources.definition import Source
from slackwater.sources.late_thresholds import LateThresholds


class StepUse(Model):
    """One step of the graph: which module, what it reads, with which parameters."""

    step: Name
    """The module in `slackwater.steps`."""
    depends_on: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Names of sources or of other steps, in the order in which the step takes them."""
    parameters: Annotated[dict[str, Any], Field(alias="with")] = {}
    exchange: bool = False
    """Ask for an Arrow exchange after this step, where the compiler would have gone on in one Spark job."""


class Publish(Model):
    """Which step's rows are published, and what makes a row of a day unique."""

    step: Name
    key: Annotated[tuple[Name, ...], Field(min_length=1)]


class Schedule(Model):
    """When a pipeline's days are run and looked at again, by the clock of the pipeline's time zone."""

    process: Cron = "0 3 * * *"
    monitor: Cron = "0 6 * * *"
    buffer_hours: Annotated[int, Field(ge=0, le=720)] = 2
    """`process` runs the latest day that ended at least so long before."""


class Late(Model):
    """How late data of finished days is dealt with."""

    window_days: Annotated[int, Field(gt=0, le=366)] = 7
    """How many days before the current one are looked at again."""
    thresholds: dict[Name, LateThresholds] = {}
    """By source: instead of those that stand in the source's own definition."""


class Pipeline(Model):
    """A graph of steps over sources, run for one local day at a time, publishing one warehouse table of its name."""

    pipeline: Name
    description: str = ""
    timezone: TimeZone = "UTC"
    """Whose calendar a day is of: a day is the 23, 24 or 25 hours between two local midnights."""
    sources: Annotated[tuple[Name, ...], Field(min_length=1)]
    steps: Annotated[dict[Name, StepUse], Field(min_length=1)]
    publish: Publish
    schedule: Schedule = Schedule()
    late: Late = Late()
    deadline_hours: Annotated[int, Field(gt=0)] = 12
    """A day that is not published so long after its end is overdue, and an alarm rings."""

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Pipeline:
        both = set(self.sources) & set(self.steps)
        if both:
            raise ValueError(f"steps may not be named like sources: {', '.join(sorted(both))}")
        if self.publish.step not in self.steps:
            raise ValueError(f"publish.step names no step: {self.publish.step!r}")
        if "date" not in self.publish.key:
            raise ValueError("publish.key must contain `date`, the column by which the table is partitioned")
        foreign = sorted(set(self.late.thresholds) - set(self.sources))
        if foreign:
            raise ValueError(
                f"late.thresholds names what is no source of this pipeline: {', '.join(foreign)} "
                f"(its sources: {', '.join(self.sources)})"
            )
        return self

    def thresholds(self, source: Source) -> LateThresholds:
        """Return what decides over late data of one of the pipeline's sources."""
        return self.late.thresholds.get(source.source, source.late)
