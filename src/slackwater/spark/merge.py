"""Compute a stage of a large day from its added objects, and the rows that an earlier attempt has stored for it.

Only chains of steps fit whose rows depend on one row each, and whose last step groups them such that two groups can be
merged (docs/decisions/0025). All other stages are computed from all inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from slackwater.arrow.dataset import load_manifest
from slackwater.arrow.exchange import StoreFactory, read_frame
from slackwater.arrow.names import quoted
from slackwater.arrow.reference import ArrowManifest, StepRecord
from slackwater.pipeline.graph import Stage
from slackwater.project.project import Project
from slackwater.runs.added_objects import added_objects, find_earlier_stage
from slackwater.runs.inputs.manifest import InputManifest, read_manifest
from slackwater.runs.record import Run
from slackwater.spark.job import log
from slackwater.steps.registry import parameters_of, step_of
from slackwater.steps.step import REJECTED_ROWS, Effect, Merge, Transform
from slackwater.storage import ObjectStore

_MERGES = {"sum": sf.sum, "min": sf.min, "max": sf.max}
_EXAMPLES = 3


class EarlierRows(NamedTuple):
    """The rows that an earlier attempt has stored for a stage, and how those of the added objects are merged."""

    uri: str
    """Of the manifest."""
    manifest: ArrowManifest
    added: InputManifest
    """The run's input manifest without the objects that the earlier attempt has read."""
    merges: Sequence[Merge]
    """For each column of the stage's rows."""

    def merged_with(self, frame: DataFrame, *, stores: StoreFactory) -> DataFrame:
        """Return the rows of all objects, from those of the added ones."""
        both = frame.union(read_frame(frame.sparkSession, self.manifest, stores=stores))
        keys, values = [], []
        for field, merge in zip(frame.schema, self.merges, strict=True):
            column = sf.col(quoted(field.name))
            if merge == "key":
                keys.append(column)
                continue
            value = _MERGES[merge](column).cast(field.dataType)
            # A count is not null, and neither is a sum of counts, which Spark does not know.
            values.append((value if field.nullable else sf.coalesce(value, sf.lit(0))).alias(field.name))
        return both.groupBy(*keys).agg(*values).select(*(sf.col(quoted(name)) for name in frame.columns))

    def merged_records(self, records: Sequence[StepRecord], count: Callable[[str], int]) -> tuple[StepRecord, ...]:
        """Return what the steps did to the rows of all objects, from what they did to those of the added ones.

        The number of rows of the last step is already that of all objects. `count` returns the rows of a step for which
        it is missing, because Spark has left out the steps after one without rows.
        """
        merged = []
        for before, record in zip(self.manifest.steps, records, strict=True):
            rows_in = {read: count(read) if rows is None else rows for read, rows in record.rows_in.items()}
            rows_out = count(record.name) if record.rows_out is None else record.rows_out
            is_last = record is records[-1]
            update = {
                "rows_in": _added(before.rows_in, rows_in),
                "rows_out": rows_out if is_last else _added(before.rows_out, rows_out),
                "effect": _added_effects(before.effect, record.effect),
                "bytes_in": _added(before.bytes_in, record.bytes_in),
            }
            merged.append(record.model_copy(update=update))
        return tuple(merged)


def find_earlier_rows(
    run: Run, project: Project, stage: Stage, inputs: InputManifest, *, store: ObjectStore
) -> EarlierRows | None:
    """Return the earlier rows with which the stage computes only the added ones of its `inputs`.

    None if the run has found no such rows when it started, or if the steps of the stage need all of its inputs.
    """
    earlier = find_earlier_stage(run, stage.name, store=store)
    merges = stage_merges(project, run.pipeline, stage) if earlier else None
    if earlier is None or merges is None:
        return None
    before = read_manifest(store, earlier.inputs)
    added = added_objects(inputs, before)
    log("added objects are merged with earlier rows", objects=len(added.objects), rows=added.rows, uri=earlier.manifest)
    return EarlierRows(earlier.manifest, load_manifest(earlier.manifest, store=store), added, merges)


def stage_merges(project: Project, name: str, stage: Stage) -> Sequence[Merge] | None:
    """Return for each column of a stage's rows how those of two parts of its source are merged.

    None if they cannot be merged. `name` is that of the pipeline.
    """
    pipeline, chain = project.pipeline(name), [*stage.reads_sources, *stage.steps]
    # Of events with ids, the one that counts may be in an added object.
    if chain[0] not in pipeline.sources or project.source(chain[0]).id_column:
        return None
    if len(stage.reads_sources) > 1 or any(
        pipeline.steps[step].depends_on != (read,) for read, step in pairwise(chain)
    ):
        return None
    uses = {f"steps.{step}": pipeline.steps[step] for step in stage.steps}
    *before, (last, parameters) = [(step_of(place, use), parameters_of(place, use)) for place, use in uses.items()]
    if not all(isinstance(step, Transform) and step.is_row_by_row(known) for step, known in before):
        return None
    return last.merges(parameters) if isinstance(last, Transform) else None


def _added_effects(one: Effect, other: Effect) -> Effect:
    """Return two effects in one, with the rejected rows of both."""
    rejected = [*one.get(REJECTED_ROWS, ()), *other.get(REJECTED_ROWS, ())]
    before, after = ({name: value for name, value in it.items() if name != REJECTED_ROWS} for it in (one, other))
    return {**_added(before, after), **({REJECTED_ROWS: rejected} if rejected else {})}


def _added(one: Any, other: Any, name: str = "") -> Any:
    """Return two effects, or values of this name in them, in one: numbers are added, and three examples stay."""
    if isinstance(one, dict):
        return {name: _added(one[name], value, name) for name, value in other.items()}
    if isinstance(one, list) and name == "examples":
        return [*one, *(example for example in other if example not in one)][:_EXAMPLES]
    if isinstance(one, list):
        return [_added(*pair) for pair in zip(one, other, strict=True)]
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    return one if one == other else None
