"""What a user writes about one pipeline: `pipelines/<name>.yaml`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from slackwater.receiver.source import Model, Name, TimeZone


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


class Pipeline(Model):
    """A graph of steps over sources, run for one local day at a time, publishing one warehouse table of its name."""

    pipeline: Name
    description: str = ""
    timezone: TimeZone = "UTC"
    """Whose calendar a day is of: a day is the 23, 24 or 25 hours between two local midnights."""
    sources: Annotated[tuple[Name, ...], Field(min_length=1)]
    steps: Annotated[dict[Name, StepUse], Field(min_length=1)]
    publish: Publish

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Pipeline:
        both = set(self.sources) & set(self.steps)
        if both:
            raise ValueError(f"steps may not be named like sources: {', '.join(sorted(both))}")
        if self.publish.step not in self.steps:
            raise ValueError(f"publish.step names no step: {self.publish.step!r}")
        if "date" not in self.publish.key:
            raise ValueError("publish.key must contain `date`, the column by which the table is partitioned")
        return self
