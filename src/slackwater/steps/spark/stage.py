"""Running the steps of one stage over their inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame

from slackwater.arrow.exchange import counted
from slackwater.arrow.reference import StepCount
from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import Stage
from slackwater.steps.registry import parameters_of, step_of


def apply_stage(pipeline: Pipeline, stage: Stage, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Return the frame of every step of the stage by name, in order; the last one leaves it.

    `inputs` are the sources and stages that it reads, by name. Nothing runs yet; each step's rows will be counted as
    they pass. Raises `DefinitionError` naming the step.
    """
    frames: dict[str, DataFrame] = dict(inputs)
    made: dict[str, DataFrame] = {}
    for name in stage.steps:
        use = pipeline.steps[name]
        parameters = parameters_of(name, use)
        try:
            result = step_of(name, use).apply({read: frames[read] for read in use.depends_on}, parameters)
        except DefinitionError as error:
            raise DefinitionError(f"pipeline {pipeline.pipeline}: steps.{name}: {error}") from error
        frames[name] = made[name] = counted(result, name)
    return made


def step_counts(made: Mapping[str, DataFrame], seen: Iterable[StepCount], *, rows: int) -> tuple[StepCount, ...]:
    """Return every step's rows, in order; `rows` left the stage.

    A step that Spark had no need to compute, since a later one drops all it gives, was not seen: it is counted now.
    """
    known = {count.step: count.rows_out for count in seen}
    *earlier, last = made
    counts = [StepCount(step=name, rows_out=known[name] if name in known else made[name].count()) for name in earlier]
    return (*counts, StepCount(step=last, rows_out=rows))
