"""Compute the steps of a pipeline one after the other, and keep the rows of each as long as they are current."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slackwater.dev.outcome import StepOutcome, StepState
from slackwater.dev.sample import Sample
from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import Stage, stages, visible_versions
from slackwater.steps.step import LazyFrames, StepContext

if TYPE_CHECKING:
    import pyarrow as pa

    from slackwater.spark.standalone import ComputedFrame


@dataclass(eq=False, kw_only=True)
class _Kept:
    """The rows of an input or a step, and what they come from. Rows that are computed again are another object."""

    origin: object
    """The sample of an input; what identifies the definition and the code of a step."""
    computed: ComputedFrame
    reads: Mapping[str, _Kept]
    """The inputs of a step by name, and what else it has looked up."""
    outcome: StepOutcome | None = None


class KeptSteps:
    """The results of the steps of one pipeline."""

    def __init__(self, *, show: int, max_extracted: int, describe: Callable[[Exception], str]) -> None:
        """`show` is the number of first rows of an outcome, and `max_extracted` the rows that an extract step reads.

        `describe` returns the message of an error that a step has raised.
        """
        self._show, self._max_extracted, self._describe = show, max_extracted, describe
        self._kept: dict[str, _Kept] = {}

    def run(
        self, pipeline: Pipeline, samples: Mapping[str, Sample], context: StepContext, code: Mapping[str, str]
    ) -> Iterator[StepOutcome]:
        """Run each step whose definition, code or inputs have changed since its last result, and those that read it.

        Yields the outcome of each step of the pipeline when it is known. `code` identifies the code of steps, by the
        step's own name.
        """
        before = self._kept
        # Rows that are not taken over are freed.
        current = self._kept = {name: self._input(name, samples[name], before, context) for name in samples}
        # The order in which a run executes them: an earlier stage has ended before a later one looks up its result.
        for stage in stages(pipeline):
            for name in stage.steps:
                use = pipeline.steps[name]
                origin = (use.model_dump_json(), code.get(use.step, ""), context.day, name == stage.name)
                kept = before.get(name)
                missing = [read for read in use.depends_on if read not in current]
                if kept and kept.outcome and kept.origin == origin and _reads_current(kept, current):
                    current[name] = kept
                    yield dataclasses.replace(kept.outcome, state=StepState.UNCHANGED)
                elif missing:
                    error = f"{', '.join(missing)} has no result"
                    yield StepOutcome(name=name, step=use.step, state=StepState.SKIPPED, error=error)
                else:
                    yield self._outcome(name, pipeline, stage, context, origin=origin)

    def rows(self, name: str) -> pa.Table | None:
        """Return all rows of a step; None if it has no result. Raises `DataError` for types that Arrow lacks."""
        from slackwater.spark.standalone import all_rows

        kept = self._kept.get(name)
        return all_rows(name, kept.computed.frame) if kept else None

    def _input(self, name: str, sample: Sample, before: Mapping[str, _Kept], context: StepContext) -> _Kept:
        from slackwater.spark.standalone import frame_of_table

        kept = before.get(name)
        if kept and kept.origin is sample:
            return kept
        return _Kept(origin=sample, computed=frame_of_table(context.spark, name, sample.table), reads={})

    def _outcome(
        self, name: str, pipeline: Pipeline, stage: Stage, context: StepContext, *, origin: object
    ) -> StepOutcome:
        """Compute a step, and keep its result if it has one."""
        from slackwater.spark.standalone import columns_of, compute_step, first_rows

        current, use = self._kept, pipeline.steps[name]
        reads = {read: current[read] for read in use.depends_on}
        earlier = [item for item in visible_versions(pipeline, stage, name) if item in current]

        def look_up(name: str) -> Any:
            reads[name] = current[name]
            return current[name].computed.frame

        def read_source(source: str) -> Any:
            if source not in pipeline.inputs:
                raise DefinitionError(f"source: {source} is not one of the pipeline's sources: add it to `sources`")
            return look_up(source)

        try:
            computed, record = compute_step(
                name,
                use,
                {read: kept.computed for read, kept in reads.items()},
                dataclasses.replace(context, read_source=read_source, earlier_versions=LazyFrames(earlier, look_up)),
                max_extracted=self._max_extracted,
                is_stored=name == stage.name,
            )
            rows = first_rows(computed.frame, self._show) if self._show else []
        except Exception as error:  # noqa: BLE001 - the code of a step may raise anything
            return StepOutcome(name=name, step=use.step, state=StepState.FAILED, error=self._describe(error))
        outcome = StepOutcome(
            name=name,
            step=use.step,
            state=StepState.DONE,
            record=record,
            columns=tuple(columns_of(computed.frame)),
            rows=tuple(rows),
        )
        current[name] = _Kept(origin=origin, computed=computed, reads=reads, outcome=outcome)
        return outcome


def _reads_current(kept: _Kept, current: Mapping[str, _Kept]) -> bool:
    return all(current.get(name) is read for name, read in kept.reads.items())
