"""Run the load steps of a pipeline, after its day is published."""

from __future__ import annotations

import time
from collections.abc import Mapping

from slackwater.arrow.exchange import StoreFactory, load_manifest, read_frame
from slackwater.arrow.reference import StepRecord
from slackwater.errors import DefinitionError, SlackwaterError
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.record import Loads, loads_uri
from slackwater.steps.registry import parameters_of, step_of
from slackwater.steps.spark.job import log
from slackwater.steps.step import Load, StepContext


def run_loads(
    pipeline: Pipeline, manifests: Mapping[str, str], context: StepContext, *, prefix: str, stores: StoreFactory
) -> Loads:
    """Run the pipeline's load steps, and return what they wrote, which is also stored under `prefix`.

    `manifests` are the URIs of the Arrow manifests that the steps may read, by step, and `prefix` is `Run.prefix`.
    Raises the error of the first step that fails, with its name; the steps before it have written.
    """
    store, records = stores(), []
    for name, use in pipeline.load.items():
        place = f"load.{name}"
        step, parameters = step_of(place, use), parameters_of(place, use)
        if not isinstance(step, Load):
            raise DefinitionError(f"{place}.step: {step.name} does not write rows")
        began, (read,) = time.monotonic(), use.depends_on
        manifest = load_manifest(manifests[read], store=store)
        try:
            effect = step.write(read_frame(context.spark, manifest, stores=stores), parameters, context)
        except SlackwaterError as error:
            raise type(error)(f"{place}: {error}") from error
        record = StepRecord(
            name=name,
            step=use.step,
            parameters=use.parameters,
            rows_in={read: manifest.rows},
            rows_out=manifest.rows,
            effect=effect,
            seconds=round(time.monotonic() - began, 3),
        )
        log("rows loaded", **record.model_dump())
        records.append(record)
    loads = Loads(steps=tuple(records))
    if records:
        store.put(loads_uri(prefix), loads.model_dump_json().encode())
    return loads
