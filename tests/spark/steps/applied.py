"""Apply one step to frames, compute its rows, and return them with the step's effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, Observation

from slackwater.errors import DefinitionError
from slackwater.runs.period import Period
from slackwater.steps.registry import registry, validated
from slackwater.steps.step import StepContext, Transform


@dataclass(frozen=True)
class Applied:
    """What a step returned."""

    table: pa.Table
    effect: dict[str, Any]
    frame: DataFrame

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.table.to_pylist()

    def column(self, name: str) -> list[Any]:
        return self.table[name].to_pylist()


def described(
    name: str, frames: DataFrame | Mapping[str, DataFrame], *, day: Period | None = None, **parameters: Any
) -> tuple[DataFrame, list[Observation]]:
    """Return the result of the step, and its observations. Nothing is computed: no Spark job may start."""
    step = registry()[name]
    assert isinstance(step, Transform)
    frames = {"rows": frames} if isinstance(frames, DataFrame) else frames
    model = validated(step, parameters, place="with")
    step.check(tuple(frames), model)
    spark = next(iter(frames.values())).sparkSession
    observations: list[Observation] = []

    def observe(frame: DataFrame, aggregates: Mapping[str, Column]) -> DataFrame:
        observations.append(Observation())
        return frame.observe(observations[-1], *(column.alias(key) for key, column in aggregates.items()))

    jobs = spark._jsc.sc().dagScheduler().numTotalJobs()
    frame = step.result(frames, model, StepContext(spark=spark, observe=observe, day=day))
    assert spark._jsc.sc().dagScheduler().numTotalJobs() == jobs, "a step may not start a Spark job"
    return frame, observations


def applied(
    name: str, frames: DataFrame | Mapping[str, DataFrame], *, day: Period | None = None, **parameters: Any
) -> Applied:
    """Return the rows and the effect of the step. Does not verify the effect."""
    frame, observations = described(name, frames, day=day, **parameters)
    step = registry()[name]
    assert isinstance(step, Transform)
    table = frame.toArrow()
    observed = {key: value for observation in observations for key, value in observation.get.items()}
    model = validated(step, parameters, place="with")
    frames = {"rows": frames} if isinstance(frames, DataFrame) else frames
    return Applied(table, step.add_examples(frames, model, step.report(model, observed)), frame)


def refused(
    name: str, frames: DataFrame | Mapping[str, DataFrame], *, day: Period | None = None, **parameters: Any
) -> str:
    """Return the error of a step whose parameters do not fit the frames."""
    with pytest.raises(DefinitionError) as caught:
        described(name, frames, day=day, **parameters)
    return str(caught.value)
