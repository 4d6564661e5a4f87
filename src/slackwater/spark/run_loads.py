"""Run the load steps of a pipeline, after its day is published."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import DataFrame

from slackwater.arrow.dataset import load_manifest, stage_manifest
from slackwater.arrow.exchange import StoreFactory, read_frame
from slackwater.arrow.reference import ArrowManifest, StepRecord
from slackwater.errors import DefinitionError, SlackwaterError
from slackwater.pipeline.definition import Pipeline, StepUse
from slackwater.runs.attempt_files import loads_uri
from slackwater.runs.record import Loads, Run
from slackwater.spark.commit import refuse_if_superseded, snapshot_identity
from slackwater.spark.job import log
from slackwater.spark.table import quoted_table
from slackwater.steps.registry import parameters_of, step_of
from slackwater.steps.step import Effect, LazyFrames, Load, StepContext


def run_loads(
    pipeline: Pipeline,
    context: StepContext,
    *,
    run: Run,
    catalog_table: str,
    stores: StoreFactory,
) -> Loads:
    """Run the pipeline's load steps, and return what they wrote, which is also stored under the prefix of the run.

    `catalog_table` is `catalog.database.table`. Raises the error of the first step that fails, with its name; the steps
    before it have written. Raises `Superseded` before a step if a later attempt has published the day.
    """
    store, records = stores(), []
    for name, use in pipeline.load.items():
        place = f"load.{name}"
        parameters_of(place, use)  # the error names the place of a wrong parameter
        manifests = {
            read: load_manifest(stage_manifest(run.stage_prefix(read), store=store), store=store)
            for read in use.depends_on
        }

        def frame_of(read: str, manifests: Mapping[str, ArrowManifest] = manifests) -> DataFrame:
            # A job that outlives its execution would load the rows of an older version.
            refuse_if_superseded(context.spark, quoted_table(catalog_table), snapshot_identity(run))
            return read_frame(context.spark, manifests[read], stores=stores)

        try:
            rows = {read: manifest.rows for read, manifest in manifests.items()}
            sizes = {read: manifest.bytes for read, manifest in manifests.items()}
            record = write_rows(name, use, LazyFrames(use.depends_on, frame_of), context, rows=rows, sizes=sizes)
        except SlackwaterError as error:
            raise type(error)(f"{place}: {error}") from error
        log("rows loaded", **record.model_dump())
        records.append(record)
    loads = Loads(steps=tuple(records))
    if records:
        store.put(loads_uri(run.prefix), loads.model_dump_json().encode())
    return loads


def write_rows(
    name: str,
    use: StepUse,
    frames: Mapping[str, DataFrame],
    context: StepContext,
    *,
    rows: Mapping[str, int],
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> StepRecord:
    """Write the frame of each input with a load step, in order, and return what the step did.

    `name` is the name of the step in the pipeline; `rows` and `sizes` have the numbers of rows and bytes that are
    known, by input. Raises the error of the step; the inputs before it have been written.
    """
    step, parameters = step_of(name, use), parameters_of(name, use)
    if not isinstance(step, Load):
        raise DefinitionError(f"{name}.step: {step.name} does not write rows")
    began = time.monotonic()
    effects = {read: step.write(frames[read], step.of_input(parameters, read), context) for read in use.depends_on}
    return StepRecord(
        name=name,
        step=use.step,
        parameters=use.parameters,
        rows_in={read: rows.get(read) for read in use.depends_on},
        rows_out=sum(rows.values()) if len(rows) == len(use.depends_on) else None,
        effect=_effect(effects),
        seconds=round(time.monotonic() - began, 3),
        bytes_in={read: sizes.get(read) for read in use.depends_on},
    )


def _effect(effects: Mapping[str, Effect]) -> Effect:
    """Return the effect of the only input; of several ones, that of each, such as `{"rows.lines": 3}`."""
    if len(effects) == 1:
        (effect,) = effects.values()
        return effect
    return {f"{key}.{read}": value for read, effect in effects.items() for key, value in effect.items()}
