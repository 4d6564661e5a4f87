"""Run one stage of a pipeline for one day, and publish the day if it is the last stage."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date

from pyspark.sql import DataFrame, SparkSession

from slackwater.arrow.exchange import StoreFactory, load_manifest, observe_rows, read_frame, store_dataset, write_frame
from slackwater.arrow.reference import ArrowReference, StepCount, reference_uri
from slackwater.errors import DefinitionError, InputError, ObjectMissing, UnknownName
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import Stage, stages
from slackwater.project import Project
from slackwater.runs.day import day_of
from slackwater.runs.manifest import InputManifest
from slackwater.runs.record import Run
from slackwater.steps.registry import parameters_of, step_of
from slackwater.steps.spark.job import log
from slackwater.steps.spark.publish import publish_day
from slackwater.steps.spark.sources import read_source
from slackwater.storage import ObjectStore


@dataclass(frozen=True, kw_only=True)
class StageJob:
    """What one Spark job has to do: one stage of one run."""

    run: Run
    stage: str
    """The name of the stage, which is the name of its last step."""
    project: str
    """URI of project.json."""
    catalog_table: str
    """The warehouse table of the pipeline, as `catalog.database.table`."""
    upstream: Mapping[str, str] = field(default_factory=dict)
    """URIs of the manifests of the stages that this one reads, by stage."""
    allow_fewer: bool = False
    """Whether the last stage may publish fewer rows than the day has now."""


def run_stage_job(spark: SparkSession, job: StageJob, *, stores: StoreFactory) -> ArrowReference:
    """Run the job's stage, publish the day after the last stage, and return the stage's reference.

    Raises what `run_stage` and `publish_day` raise.
    """
    project = Project.model_validate_json(stores().get(job.project))
    reference = run_stage(spark, job, project, stores=stores)
    publish = project.pipeline(job.run.pipeline).publish
    if job.stage == publish.step:
        # Reads the files of the stage back: the rows that are audited and committed are those that the reference names.
        publish_day(
            spark,
            job.run,
            rows=reference.manifest,
            key=publish.key,
            catalog_table=job.catalog_table,
            allow_fewer=job.allow_fewer,
            stores=stores,
        )
    return reference


def run_stage(spark: SparkSession, job: StageJob, project: Project, *, stores: StoreFactory) -> ArrowReference:
    """Run the stage, and return its reference, which is written last, after the manifest that it names.

    If an earlier job of this attempt has finished the stage, its reference is returned. Raises `UnknownName` for a
    stage that the pipeline does not have, `InputError` for an input manifest of another day or for wrong upstream
    stages, `DefinitionError` for a step that does not fit its inputs, and `ObjectMissing` for an input that no longer
    exists.
    """
    began, store, run = time.monotonic(), stores(), job.run
    pipeline = project.pipeline(run.pipeline)
    stage = stage_of(pipeline, job.stage)
    prefix = run.stage_prefix(stage.name)
    # EMR Serverless may run the job more than once. The reference exists only if all files of the stage do.
    finished = finished_stage(prefix, store=store)
    if finished is not None:
        log("an earlier job of this attempt has written the stage", **finished.model_dump())
        return finished
    inputs = read_input_manifest(run, store=store)
    if set(job.upstream) != set(stage.reads_stages):
        expected, received = (", ".join(sorted(names)) or "none" for names in (stage.reads_stages, job.upstream))
        raise InputError(f"stage {stage.name} reads these stages: {expected}; --upstream names: {received}")
    upstream = {name: load_manifest(uri, store=store) for name, uri in job.upstream.items()}
    day = day_of(date.fromisoformat(run.date), pipeline.timezone)
    frames = {
        name: read_source(
            spark, project.source(name), [item.uri for item in inputs.of_source(name)], start=day.start, end=day.end
        )
        for name in stage.reads_sources
    }
    frames |= {name: read_frame(spark, upstream[name], stores=stores) for name in stage.reads_stages}
    results = apply_stage(pipeline, stage, frames)
    # The lineage: what the stages before have read comes before their own results.
    earlier = [uri for name, last in job.upstream.items() for uri in (*upstream[name].earlier, last)]
    input_bytes = sum(item.bytes for name in stage.reads_sources for item in inputs.of_source(name))
    written = write_frame(
        results[stage.name],
        prefix,
        producer=f"{run.pipeline}/{run.date}/{run.run_id}/{run.attempt}/{stage.name}",
        stores=stores,
        input_bytes=input_bytes + sum(manifest.bytes for manifest in upstream.values()),
        earlier=list(dict.fromkeys(earlier)),
    )
    counts = step_counts(results, written.steps, rows=written.rows)
    manifest = written.model_copy(update={"steps": counts})
    reference = store_dataset(manifest, prefix, store=store, seconds=time.monotonic() - began)
    log("stage written", steps={count.step: count.rows_out for count in counts}, **reference.model_dump())
    return reference


def stage_of(pipeline: Pipeline, name: str) -> Stage:
    """Return the stage of that name. Raises `UnknownName`."""
    by_name = {stage.name: stage for stage in stages(pipeline)}
    if name not in by_name:
        raise UnknownName(f"pipeline {pipeline.pipeline} has no stage {name!r} (it has: {', '.join(by_name)})")
    return by_name[name]


def apply_stage(pipeline: Pipeline, stage: Stage, inputs: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Apply the steps of the stage, and return their results by name, in order. The last one is the stage's result.

    `inputs` are the sources and stages that the stage reads, by name. Spark computes nothing yet; it counts the rows of
    each step when it computes them. Raises `DefinitionError` naming the step.
    """
    frames: dict[str, DataFrame] = dict(inputs)
    results: dict[str, DataFrame] = {}
    for name in stage.steps:
        use = pipeline.steps[name]
        parameters = parameters_of(name, use)
        try:
            result = step_of(name, use).apply({read: frames[read] for read in use.depends_on}, parameters)
        except DefinitionError as error:
            raise DefinitionError(f"pipeline {pipeline.pipeline}: steps.{name}: {error}") from error
        frames[name] = results[name] = observe_rows(result, name)
    return results


def step_counts(results: Mapping[str, DataFrame], observed: Iterable[StepCount], *, rows: int) -> tuple[StepCount, ...]:
    """Return the number of rows of every step, in order. `rows` is the number of rows of the last step.

    Spark does not compute a step whose rows no later step needs. Such a step is missing from `observed`, and its rows
    are counted now, by a Spark action.
    """
    known = {count.step: count.rows_out for count in observed}
    *earlier, last = results
    counts = [
        StepCount(step=name, rows_out=known[name] if name in known else results[name].count()) for name in earlier
    ]
    # The number of rows in the files is known, so the last step needs no observation.
    return (*counts, StepCount(step=last, rows_out=rows))


def finished_stage(prefix: str, *, store: ObjectStore) -> ArrowReference | None:
    """Return the reference of the stage whose dataset is under `prefix`, or None if the stage is not finished."""
    try:
        return ArrowReference.model_validate_json(store.get(reference_uri(prefix)))
    except ObjectMissing:
        return None


def read_input_manifest(run: Run, *, store: ObjectStore) -> InputManifest:
    """Return the input manifest of the run.

    Raises `InputError` if it is of another pipeline or day, and `ObjectMissing` if it does not exist.
    """
    manifest = InputManifest.model_validate_json(store.get(run.manifest))
    if (manifest.pipeline, manifest.date) != (run.pipeline, run.date):
        raise InputError(
            f"{run.manifest} is the input manifest of {manifest.pipeline} {manifest.date}, "
            f"not of {run.pipeline} {run.date}"
        )
    return manifest
