"""Apply the steps of a pipeline to frames, and describe what they did after Spark has computed the result.

Spark counts the rows of each frame, and what a step did to them, in the pass that computes the frame.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from slackwater.arrow.exchange import observed_values
from slackwater.arrow.reference import StepRecord
from slackwater.errors import DataError, DefinitionError, InputInvalid
from slackwater.pipeline.definition import Pipeline, StepUse
from slackwater.problems import Problems
from slackwater.steps.columns import require_unreserved
from slackwater.steps.registry import parameters_of, step_of
from slackwater.steps.step import (
    REJECTED_ROWS,
    ROWS_OUT,
    ROWS_REJECTED,
    Extract,
    StepContext,
    Transform,
    verify_nothing,
)

_PARTITIONS = "__partitions"
# `monotonically_increasing_id` has the number of a row in its partition in the lower 33 bits.
_ROW_OF_PARTITION = 2**33 - 1


def apply_steps(
    pipeline: Pipeline,
    names: Sequence[str],
    inputs: Mapping[str, DataFrame],
    context: StepContext,
    *,
    known_rows: Mapping[str, int],
) -> AppliedSteps:
    """Apply steps of the pipeline, in this order, to the inputs that they read.

    `known_rows` are the numbers of rows of inputs that need no counting, by name. Raises `DefinitionError` that names
    the step.
    """
    uses = {name: pipeline.steps[name] for name in names}
    in_one_process = (context.spark.sparkContext.master or "").startswith("local[")
    try:
        return AppliedSteps(uses, inputs, context, known_rows=known_rows, in_one_process=in_one_process)
    except DefinitionError as error:
        raise DefinitionError(f"pipeline {pipeline.pipeline}: {error}") from error


class AppliedSteps:
    """Steps that were applied to frames. Spark computes nothing before the rows of a frame are needed."""

    def __init__(
        self,
        uses: Mapping[str, StepUse],
        inputs: Mapping[str, DataFrame],
        context: StepContext,
        *,
        known_rows: Mapping[str, int] | None = None,
        in_one_process: bool = False,
    ) -> None:
        """Apply the steps, which are given in the order in which they run.

        `inputs` are the frames that they read, by name, and `known_rows` the numbers of rows of those that need no
        counting. With `in_one_process`, Spark has no executor to lose, so nothing detects that it has counted a
        partition twice: for few rows, that takes a third of the time again. Raises `DefinitionError` naming the
        step and its parameter.
        """
        self._in_one_process = in_one_process
        self._uses, self._context, self._known_rows = uses, context, dict(known_rows or {})
        # What each observation aggregates: the frame, and the aggregates by name.
        self._aggregates: dict[str, tuple[DataFrame, Mapping[str, Column]]] = {}
        # The names of the observations that a step itself has asked for.
        self._observations: dict[str, list[str]] = {name: [] for name in uses}
        self._frames = {
            name: frame if name in self._known_rows else self._counted(frame, name) for name, frame in inputs.items()
        }
        self._observed: dict[str, dict[str, Any]] = {}
        self._steps = {
            name: (step_of(f"steps.{name}", use), parameters_of(f"steps.{name}", use)) for name, use in uses.items()
        }
        for name, use in uses.items():
            frame = self._apply(name, use)
            self._frames[name] = frame if name in self._observations[name] else self._counted(frame, name)

    def __getitem__(self, name: str) -> DataFrame:
        """Return the frame of an input or a step."""
        return self._frames[name]

    def needed_frames(self, last: str) -> list[DataFrame]:
        """Return all frames that Spark may have to compute: the result of the step `last`, totals, rejected rows."""
        totals = (self._total(name) for name, names in self._observations.items() if names)
        return [self._frames[last], *totals, *filter(None, map(self._rejected_rows, self._uses))]

    def _rejected_rows(self, name: str) -> DataFrame | None:
        """Return the rows that a step rejects; None if it rejects none, or nobody stores them."""
        step, parameters = self._steps[name]
        if not isinstance(step, Transform) or not step.rejected_rows or not self._context.store_rejected:
            return None
        frames = {read: self._frames[read] for read in self._uses[name].depends_on}
        return None if step.keeps_rows(parameters) else step.rejected_rows(frames, parameters)

    def compute_ahead(self) -> None:
        """Compute and persist each frame that several steps read, or one step not exactly once, and some checked rows.

        Spark would compute the former again for each read. Of the latter, it would compute only the rows that later
        steps need, for example before a join, and a row that nobody needs must fail a check as well. They are persisted
        only if a later step may leave rows unread: the cache takes more time than all else that a simple stage does.
        """
        readers = Counter(read for use in self._uses.values() for read in use.depends_on)
        checked = set()
        for name, (step, parameters) in self._steps.items():
            if isinstance(step, Transform):
                if not step.reads_rows_once(parameters):
                    readers.update(self._uses[name].depends_on)
                if step.verify is not verify_nothing:
                    checked.add(name)
        uncounted = [name for name in self._frames if name not in self._uses and name not in self._known_rows]
        for name in [*uncounted, *self._uses]:
            if readers[name] > 1 or (name in checked and not self._is_read_as_a_whole(name)):
                # Now and not with its first reader: several readers at once may compute a persisted frame twice, and
                # then Spark counts its rows twice.
                self._frames[name].persist()
                self.compute(name)

    def release(self) -> None:
        """Free the memory of the frames that were computed ahead."""
        for frame in self._frames.values():
            if frame.is_cached:
                frame.unpersist()

    def records(
        self,
        observed: Mapping[str, Mapping[str, Any]],
        *,
        seconds: float,
        rows: Mapping[str, int],
        sizes: Mapping[str, int | None] | None = None,
    ) -> tuple[StepRecord, ...]:
        """Return what each step did, in order, after Spark has computed the result.

        `observed` are the values of all observations by name, `seconds` is how long Spark computed, which is recorded
        for a single step, `rows` are the rows of steps that are known without an observation, and `sizes` the bytes of
        inputs and steps as far as they are known. Raises `DataError` for a step that refuses its rows.
        """
        own_seconds, bytes_of = round(seconds, 3) if len(self._uses) == 1 else None, sizes or {}
        known = {**self._known_rows, **rows}
        self._keep(observed)
        counts = {name: known.get(name, self._observed.get(name, {}).get(ROWS_OUT)) for name in self._frames}
        return tuple(
            StepRecord(
                name=name,
                step=use.step,
                parameters=use.parameters,
                rows_in={read: counts[read] for read in use.depends_on},
                rows_out=counts[name],
                effect=self._effect(name, use),
                seconds=own_seconds,
                bytes_in={read: bytes_of.get(read) for read in use.depends_on},
                bytes_out=bytes_of.get(name),
            )
            for name, use in self._uses.items()
        )

    def _is_read_as_a_whole(self, name: str) -> bool:
        """Return whether the later steps together read all rows of a step, until the result or a persisted frame."""
        # A frame that several steps read is persisted as a whole.
        while len(readers := [reader for reader, use in self._uses.items() if name in use.depends_on]) == 1:
            (reader,) = readers
            step, parameters = self._steps[reader]
            if not isinstance(step, Transform):
                return False
            if not step.reads_all_rows(parameters, self._uses[reader].depends_on.index(name)):
                return False
            name = reader
        return True

    def compute(self, name: str) -> None:
        """Compute the frame of a step without its rows, and keep what Spark observed."""
        total = self._total(name)
        total.collect()
        self._keep(observed_values(total))

    def count_rows(self, name: str) -> int:
        """Return the number of rows of a frame, by a query of its own."""
        ((rows,),) = self._total(name).collect()
        return int(rows)

    def _total(self, name: str) -> DataFrame:
        return self._frames[name].agg(sf.count(sf.lit(1)))

    def _apply(self, name: str, use: StepUse) -> DataFrame:
        place, (step, parameters) = f"steps.{name}", self._steps[name]
        frames = {read: self._frames[read] for read in use.depends_on}
        for read, frame in frames.items():
            require_unreserved(frame, field=f"{place}.depends_on", of=read)
        context = dataclasses.replace(self._context, observe=self._observer(name))
        try:
            if isinstance(step, Extract):
                return step.read(parameters, context)
            if isinstance(step, Transform):
                return step.result(frames, parameters, context)
        except Problems as error:
            raise error.below("steps", name, "with") from error
        except DefinitionError as error:
            raise DefinitionError(f"{place}.with.{error}") from error
        raise DefinitionError(f"{place}.step: {step.name} writes rows: move it to `load`")

    def _observer(self, name: str) -> Any:
        """Return the function `observe` of the context of a step."""

        def observe(frame: DataFrame, aggregates: Mapping[str, Column]) -> DataFrame:
            names = self._observations[name]
            names.append(name if ROWS_OUT in aggregates else f"{name}/{len(names)}")
            return self._observed_frame(frame, names[-1], aggregates)

        return observe

    def _effect(self, name: str, use: StepUse) -> dict[str, Any]:
        step, parameters = self._steps[name]
        if not isinstance(step, Transform):
            return {}
        names = self._observations[name]
        if not set(names) <= set(self._observed):
            # Spark has not computed the step, because no later step needs its rows: they are joined with an empty
            # frame, for example. Its checks count nevertheless.
            self.compute(name)
        values = {field: value for key in names for field, value in self._observed[key].items() if field != ROWS_OUT}
        effect = step.report(parameters, values)
        frames = {read: self._frames[read] for read in use.depends_on}
        effect = step.add_examples(frames, parameters, effect)
        try:
            step.verify(parameters, effect)
        except InputInvalid as error:
            raise InputInvalid(f"steps.{name}: {error}", input_name=use.depends_on[0]) from error
        except DataError as error:
            raise DataError(f"steps.{name}: {error}") from error
        store = self._context.store_rejected
        rejected = self._rejected_rows(name) if effect.get(ROWS_REJECTED) else None
        return effect if rejected is None or store is None else {**effect, REJECTED_ROWS: [store(name, rejected)]}

    def _counted(self, frame: DataFrame, name: str) -> DataFrame:
        """Return the frame such that Spark counts its rows when it computes the frame."""
        return self._observed_frame(frame, name, {ROWS_OUT: sf.count(sf.lit(1))})

    def _observed_frame(self, frame: DataFrame, name: str, aggregates: Mapping[str, Column]) -> DataFrame:
        """Return the frame such that Spark computes the aggregates, and lists the partitions, when it computes it."""
        self._aggregates[name] = frame, aggregates
        if self._in_one_process:
            return frame.observe(name, *_named(aggregates))
        # Longer than the names of all columns, so that it is none of them.
        column = "_" * (1 + max(map(len, frame.columns), default=0))
        # The number of the partition, in the partition's first row.
        is_first = sf.monotonically_increasing_id().bitwiseAND(_ROW_OF_PARTITION) == 0
        numbered = frame.select("*", sf.when(is_first, sf.spark_partition_id()).alias(column))
        partitions = sf.collect_list(column).alias(_PARTITIONS)
        return numbered.observe(name, *_named(aggregates), partitions).drop(column)

    def _keep(self, observed: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the observed values that are new, or those of a query if Spark has computed a partition again.

        Spark does so when it has lost the rows of a task, for example with an executor, and adds what it observes then
        to the values from before (docs/decisions/0026). The result of a query is exact.
        """
        for name, (frame, aggregates) in self._aggregates.items():
            if name not in observed or name in self._observed:
                continue
            values = dict(observed[name])
            partitions = values.pop(_PARTITIONS, ())
            if len(partitions) > len(set(partitions)):
                totals: Any = frame.agg(*_named(aggregates))
                values = json.loads(totals._jdf.first().json())
            self._observed[name] = values


def _named(aggregates: Mapping[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in aggregates.items()]
