"""Compute the steps of a stage one after the other, and measure each: `slackwater run --profile`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from slackwater.arrow.exchange import StoreFactory, arrow_bytes, write_frame
from slackwater.arrow.reference import ArrowManifest, StepRecord
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import Stage
from slackwater.runs.record import Run
from slackwater.spark.job import log
from slackwater.spark.run_steps import apply_steps
from slackwater.spark.step_versions import VersionRows, producer_of
from slackwater.steps.step import StepContext


def compute_profiled(
    run: Run,
    pipeline: Pipeline,
    stage: Stage,
    inputs: Mapping[str, VersionRows],
    context: StepContext,
    *,
    stores: StoreFactory,
) -> ArrowManifest:
    """Compute and measure each step of the stage, write the rows of the last one, and return their manifest.

    Raises what the steps raise.
    """
    steps = ProfiledSteps(pipeline, inputs, context)
    records = steps.compute(stage.steps)
    written = write_frame(
        steps[stage.name],
        f"{run.arrow_prefix}{stage.name}/",
        producer=producer_of(run, stage.name),
        stores=stores,
        input_bytes=sum(rows.bytes for rows in inputs.values()),
    )
    steps.release()
    return written.manifest.model_copy(update={"steps": records})


class ProfiledSteps:
    """Steps of a pipeline, each computed from the rows that Spark keeps of those before it.

    The rows, and what the steps do to them, are those of steps that are computed in one pass.
    """

    def __init__(self, pipeline: Pipeline, inputs: Mapping[str, VersionRows], context: StepContext) -> None:
        """Compute the inputs, so that no step has the seconds in which they are read."""
        self._pipeline, self._context = pipeline, context
        self._frames = {name: rows.frame.persist() for name, rows in inputs.items()}
        self._rows = {name: frame.count() for name, frame in self._frames.items()}
        self._sizes: dict[str, int | None] = {name: rows.bytes for name, rows in inputs.items()}

    def __getitem__(self, name: str) -> DataFrame:
        """Return the frame of a step that was computed."""
        return self._frames[name]

    def compute(self, names: Sequence[str]) -> tuple[StepRecord, ...]:
        """Compute steps, in this order, and return what each did. Raises what the steps raise."""
        return tuple(self._compute(name) for name in names)

    def release(self) -> None:
        """Free the memory of all rows."""
        for frame in self._frames.values():
            frame.unpersist()

    def _compute(self, name: str) -> StepRecord:
        began, reads = time.monotonic(), self._pipeline.steps[name].depends_on
        applied = apply_steps(
            self._pipeline,
            [name],
            {read: self._frames[read] for read in reads},
            self._context,
            known_rows={read: self._rows[read] for read in reads},
        )
        self._frames[name] = applied[name].persist()
        applied.compute(name)
        seconds = time.monotonic() - began
        self._rows[name] = rows = applied.count_rows(name)
        self._sizes[name] = arrow_bytes(self._frames[name], rows=rows)
        (record,) = applied.records({}, rows={name: rows}, sizes=self._sizes, seconds=seconds)
        log("step measured", **record.model_dump())
        return record
