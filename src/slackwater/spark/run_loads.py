"""Run the load steps of a pipeline, after its day is published."""

from __future__ import annotations

import time

from pyspark.sql import DataFrame

from slackwater.arrow.dataset import load_manifest, stage_manifest
from slackwater.arrow.exchange import StoreFactory, read_frame
from slackwater.arrow.reference import StepRecord
from slackwater.errors import DefinitionError, SlackwaterError
from slackwater.pipeline.definition import Pipeline, StepUse
from slackwater.runs.record import Loads, Run, loads_uri
from slackwater.spark.commit import refuse_if_superseded, snapshot_identity
from slackwater.spark.job import log
from slackwater.spark.table import quoted_table
from slackwater.steps.registry import parameters_of, step_of
from slackwater.steps.step import Load, StepContext


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
        place, (read,) = f"load.{name}", use.depends_on
        parameters_of(place, use)  # the error names the place of a wrong parameter
        manifest = load_manifest(stage_manifest(run.stage_prefix(read), store=store), store=store)
        try:
            # A job that outlives its execution would load the rows of an older version.
            refuse_if_superseded(context.spark, quoted_table(catalog_table), snapshot_identity(run))
            frame = read_frame(context.spark, manifest, stores=stores)
            record = write_rows(name, use, frame, context, rows=manifest.rows)
        except SlackwaterError as error:
            raise type(error)(f"{place}: {error}") from error
        log("rows loaded", **record.model_dump())
        records.append(record)
    loads = Loads(steps=tuple(records))
    if records:
        store.put(loads_uri(run.prefix), loads.model_dump_json().encode())
    return loads


def write_rows(name: str, use: StepUse, frame: DataFrame, context: StepContext, *, rows: int | None) -> StepRecord:
    """Write the frame with a load step, and return what the step did; `rows` is the number of rows, if it is known.

    `name` is the name of the step in the pipeline. Raises the error of the step.
    """
    step, parameters = step_of(name, use), parameters_of(name, use)
    if not isinstance(step, Load):
        raise DefinitionError(f"{name}.step: {step.name} does not write rows")
    began, (read,) = time.monotonic(), use.depends_on
    effect = step.write(frame, parameters, context)
    return StepRecord(
        name=name,
        step=use.step,
        parameters=use.parameters,
        rows_in={read: rows},
        rows_out=rows,
        effect=effect,
        seconds=round(time.monotonic() - began, 3),
    )
