"""Run one stage of a pipeline for one day. The job of the last stage also publishes the day and runs the load steps."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from slackwater.arrow.columns import columns_read
from slackwater.arrow.dataset import find_reference, load_manifest, stage_manifest, store_dataset
from slackwater.arrow.exchange import StoreFactory, is_large, read_frame, write_frame
from slackwater.arrow.messages import decode_schema
from slackwater.arrow.reference import ArrowManifest, ArrowReference
from slackwater.errors import DefinitionError, InputError, InputInvalid, ObjectMissing, UnknownName
from slackwater.outbound.credentials import Secrets
from slackwater.outbound.guard import Outbound
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import Stage, stages
from slackwater.project.project import Project
from slackwater.runs.attempt_files import invalid_input_uri, unpublished_uri
from slackwater.runs.inputs.manifest import InputManifest, read_manifest
from slackwater.runs.invalid_input import refused_input
from slackwater.runs.period import period_of
from slackwater.runs.record import Run
from slackwater.spark.inputs import FrozenInputs
from slackwater.spark.job import log
from slackwater.spark.merge import EarlierRows, find_earlier_rows
from slackwater.spark.profile import compute_profiled
from slackwater.spark.publish import earlier_rows, publish_day
from slackwater.spark.rejected_rows import rejected_prefix, store_rejected
from slackwater.spark.run_loads import run_loads
from slackwater.spark.run_steps import apply_steps
from slackwater.spark.step_versions import StoredSteps, VersionRows, producer_of
from slackwater.steps.files import ProjectFiles
from slackwater.steps.registry import step_of
from slackwater.steps.spark_errors import located_in
from slackwater.steps.step import Extract, LazyFrames, StepContext
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
    restore: str = ""
    """For a rollback: the tag of the version that the job publishes again, instead of running the stage."""
    files: str | None = None
    """URI prefix of the files that steps may read and write, such as `s3://bucket/files/`."""
    outbound_allow: Sequence[str] = ()
    """Hosts and networks to which steps may connect although they are private, such as `10.0.0.0/16`."""
    source_keys: Mapping[str, str] = field(default_factory=dict)
    """KMS keys of the sources that have one, by source."""
    stores_rejected: bool = True
    """Whether the rows that steps reject are stored."""


def run_stage_job(
    spark: SparkSession,
    job: StageJob,
    *,
    stores: StoreFactory,
    secrets: Secrets | None = None,
    on_published: Callable[[], None] = lambda: None,
) -> None:
    """Run the job's stage, and after the last stage publish the day and run the load steps; or publish `job.restore`.

    `secrets` are the credentials that steps may read. `on_published` is called last, after a publication. Raises what
    `run_stage`, `publish_day` and `run_loads` raise.
    """
    store = stores()
    project = Project.model_validate_json(store.get(job.project))
    pipeline = project.pipeline(job.run.pipeline)
    publish = partial(
        publish_day, spark, job.run, key=pipeline.publish.key, catalog_table=job.catalog_table, store=store
    )
    if job.restore:
        # The version may have fewer rows than the day has now, and lack columns that were added later.
        publish(lambda: earlier_rows(spark, job.catalog_table, job.restore, job.run.date), min_rows_percent=None)
        on_published()
        return
    context = step_context(spark, job, pipeline, stores=stores, secrets=secrets)
    try:
        manifest = run_located(job, project, context, stores=stores)
    except InputInvalid as error:
        # Before the failure is reported: who records it gives the verdict.
        objects = read_input_manifest(job.run, store=store).of_source(error.input_name)
        store.put(invalid_input_uri(job.run.prefix), refused_input(str(error), objects).model_dump_json().encode())
        raise
    if job.stage == pipeline.publish.step:
        # Reads the files of the stage back: the rows that are audited and committed are those that the manifest names.
        publish(
            lambda: read_frame(spark, manifest, stores=stores),
            min_rows_percent=None if job.run.accepts_audit else pipeline.publish.audit.min_rows_percent,
        )
        run_loads(pipeline, context, run=job.run, catalog_table=job.catalog_table, stores=stores)
        on_published()


def store_unpublished(
    spark: SparkSession, job: StageJob, *, stores: StoreFactory, secrets: Secrets | None = None
) -> ArrowReference:
    """Run all stages of the job's run, whatever `job.stage` is, and publish nothing; return the last one's reference.

    The reference is also stored at `unpublished_uri`. Raises `DefinitionError` for a pipeline with a step that reads
    its rows itself, because these are not those that another run has read, and what `run_stage` raises.
    """
    store = stores()
    project = Project.model_validate_json(store.get(job.project))
    pipeline = project.pipeline(job.run.pipeline)
    for name, use in pipeline.steps.items():
        # `read_partition` reads the events that the input manifest lists.
        if use.step != "read_partition" and isinstance(step_of(name, use), Extract):
            raise DefinitionError(
                f"steps.{name}: it reads its rows itself, and the rows that version {job.run.attempt} has read are not "
                "stored: the effect of the data and of the definition cannot be told apart"
            )
    context = step_context(spark, job, pipeline, stores=stores, secrets=secrets)
    for stage in stages(pipeline):
        # Nobody asks for the rows that they reject, and the role of the job may not write where those of runs are.
        run_located(dataclasses.replace(job, stage=stage.name, stores_rejected=False), project, context, stores=stores)
    reference = find_reference(job.run.stage_prefix(pipeline.publish.step), store=store)
    if reference is None:
        raise ObjectMissing(f"{job.run.prefix} has no reference of the stage {pipeline.publish.step}")
    store.put(unpublished_uri(job.run.prefix), reference.model_dump_json().encode())
    return reference


def step_context(
    spark: SparkSession, job: StageJob, pipeline: Pipeline, *, stores: StoreFactory, secrets: Secrets | None
) -> StepContext:
    """Return what the steps of the job's run may use."""
    return StepContext(
        spark=spark,
        run=job.run,
        day=period_of(job.run.date, pipeline.timezone),
        files=ProjectFiles(job.files, stores) if job.files else None,
        secrets=secrets,
        outbound=Outbound.of(job.outbound_allow),
    )


def run_located(job: StageJob, project: Project, context: StepContext, *, stores: StoreFactory) -> ArrowManifest:
    """Run the stage as `run_stage` does; an error in a step names the place in its parameters."""
    pipeline = project.pipeline(job.run.pipeline)
    steps = stage_of(pipeline, job.stage).steps
    with located_in({name: pipeline.steps[name].parameters for name in steps}):
        return run_stage(job, project, context, stores=stores)


def run_stage(job: StageJob, project: Project, context: StepContext, *, stores: StoreFactory) -> ArrowManifest:
    """Run the stage, and return its manifest. The reference, which names the manifest, is written last.

    If an earlier job of this attempt has finished the stage, its manifest is returned. Raises `UnknownName` for a stage
    that the pipeline does not have, `InputError` for an input manifest of another day or for wrong upstream stages,
    `DefinitionError` for a step that does not fit its inputs, `DataError` for a step that refuses its rows, and
    `ObjectMissing` for an input that no longer exists.
    """
    began, store, run = time.monotonic(), stores(), job.run
    pipeline = project.pipeline(run.pipeline)
    stage = stage_of(pipeline, job.stage)
    prefix = run.stage_prefix(stage.name)
    # EMR Serverless may run the job more than once. The reference exists only if all files of the stage do.
    finished = find_reference(prefix, store=store)
    if finished is not None:
        log("an earlier job of this attempt has written the stage", **finished.model_dump())
        return load_manifest(finished.manifest, store=store)
    manifest = read_input_manifest(run, store=store)
    # Steps that are stored or measured one by one need all rows.
    is_at_once = pipeline.versions != "all" and not run.profiled
    earlier = find_earlier_rows(run, project, stage, manifest, store=store) if is_at_once else None
    inputs = FrozenInputs(context.spark, project, earlier.added if earlier else manifest, store)
    uris = {name: stage_manifest(run.stage_prefix(name), store=store) for name in stage.reads_stages}
    parents = dict.fromkeys(uris.values())

    def read_earlier(name: str) -> DataFrame:
        uri = stage_manifest(run.stage_prefix(name), store=store)
        parents[uri] = None
        return read_frame(context.spark, load_manifest(uri, store=store), stores=stores)

    def store_rows(step: str, frame: DataFrame) -> str:
        files = rejected_prefix(run, pipeline, step, manifest=manifest, source_keys=job.source_keys)
        return store_rejected(run, stage.name, step, frame, files=files, stores=stores)

    # Other earlier stages run in parallel, and may not have finished.
    versions = LazyFrames(stage.ancestors, read_earlier)
    context = dataclasses.replace(
        context,
        read_source=inputs.read,
        earlier_versions=versions,
        store_rejected=store_rows if job.stores_rejected else None,
    )
    if pipeline.versions == "all":
        reads = read_inputs(run, pipeline, stage, inputs, uris=uris, stores=stores)
        dataset = StoredSteps(run, pipeline, stage, reads, context, stores=stores).run()
    elif run.profiled:
        reads = read_inputs(run, pipeline, stage, inputs, uris=uris, stores=stores)
        dataset = compute_profiled(run, pipeline, stage, reads, context, stores=stores)
        dataset = dataset.model_copy(update={"parents": tuple(parents)})
    else:
        dataset = compute_at_once(
            run, pipeline, stage, inputs, context, uris=uris, earlier=earlier, stores=stores, began=began
        )
        parents |= {earlier.uri: None} if earlier else {}
        dataset = dataset.model_copy(update={"parents": tuple(parents)})
    seconds = time.monotonic() - began
    reference = store_dataset(dataset, prefix, store=store, seconds=seconds, is_merged=earlier is not None)
    log("stage written", steps=[record.model_dump() for record in dataset.steps], **reference.model_dump())
    return dataset


def read_inputs(
    run: Run, pipeline: Pipeline, stage: Stage, inputs: FrozenInputs, *, uris: Mapping[str, str], stores: StoreFactory
) -> dict[str, VersionRows]:
    """Return the rows of the sources and the stages that steps of the stage read, by name.

    `uris` are those of the manifests of the stages.
    """
    store, reads = stores(), dict[str, VersionRows]()
    for name in dict.fromkeys(read for step in stage.steps for read in pipeline.steps[step].depends_on):
        if name in stage.reads_sources:
            reads[name] = VersionRows(inputs.read(name), inputs.known_rows(name), inputs.size([name]), run.manifest)
        elif name in uris:
            manifest = load_manifest(uris[name], store=store)
            frame = read_frame(inputs.spark, manifest, stores=stores)
            reads[name] = VersionRows(frame, manifest.rows, manifest.bytes, uris[name])
    return reads


def compute_at_once(
    run: Run,
    pipeline: Pipeline,
    stage: Stage,
    inputs: FrozenInputs,
    context: StepContext,
    *,
    uris: Mapping[str, str],
    earlier: EarlierRows | None,
    stores: StoreFactory,
    began: float,
) -> ArrowManifest:
    """Compute all steps of the stage in one pass, write the rows of the last one, and return their manifest.

    `uris` are those of the manifests of the stages that it reads, and `earlier` has the rows that are merged with those
    of the added objects, which `inputs` are then. `began` is when the stage began, by the monotonic clock. Raises what
    `apply_steps` and the steps raise.
    """
    store = stores()
    upstream = {name: load_manifest(uri, store=store) for name, uri in uris.items()}
    frames = {name: inputs.read(name) for name in stage.reads_sources}
    known_rows = {name: manifest.rows for name, manifest in upstream.items()}
    known_rows |= {name: rows for name in frames if (rows := inputs.known_rows(name)) is not None}
    stored = [*upstream.values(), *([earlier.manifest] if earlier else [])]
    input_bytes = inputs.size(stage.reads_sources) + sum(manifest.bytes for manifest in stored)
    frames |= read_upstream(pipeline, stage, frames, context, upstream=upstream, known_rows=known_rows, stores=stores)
    steps = apply_steps(pipeline, stage.steps, frames, context, known_rows=known_rows)
    steps.compute_ahead()
    written = write_frame(
        earlier.merged_with(steps[stage.name], stores=stores) if earlier else steps[stage.name],
        f"{run.arrow_prefix}{stage.name}/",
        producer=producer_of(run, stage.name),
        stores=stores,
        input_bytes=input_bytes,
    )
    seconds = time.monotonic() - began
    records = steps.records(
        written.observed,
        rows={stage.name: written.manifest.rows},
        sizes={
            **{name: inputs.size([name]) for name in stage.reads_sources},
            **{name: manifest.bytes for name, manifest in upstream.items()},
            stage.name: written.manifest.bytes,
        },
        seconds=seconds,
    )
    records = earlier.merged_records(records, steps.count_rows) if earlier else records
    steps.release()
    return written.manifest.model_copy(update={"steps": records})


def read_upstream(
    pipeline: Pipeline,
    stage: Stage,
    sources: Mapping[str, DataFrame],
    context: StepContext,
    *,
    upstream: Mapping[str, ArrowManifest],
    known_rows: Mapping[str, int],
    stores: StoreFactory,
) -> dict[str, DataFrame]:
    """Return the rows of the stages that the stage reads. Of large ones, only the columns that its steps need are read.

    `sources` are the frames of its sources, `upstream` describes the stages, and `known_rows` are the numbers of rows
    of inputs that need no counting. Raises what `apply_steps` raises.
    """
    columns: dict[str, tuple[str, ...]] = {}
    has_large = any(is_large(context.spark, manifest) for manifest in upstream.values())
    # Planning the steps, to see which columns they need, would make an extract step read its rows.
    if has_large and not any(isinstance(step_of(name, pipeline.steps[name]), Extract) for name in stage.steps):
        columns = columns_read(
            context.spark,
            lambda empty: apply_steps(
                pipeline, stage.steps, {**sources, **empty}, context, known_rows=known_rows
            ).needed_frames(stage.name),
            {name: decode_schema(manifest.arrow_schema) for name, manifest in upstream.items()},
        )
    return {
        name: read_frame(context.spark, manifest, stores=stores, columns=columns.get(name))
        for name, manifest in upstream.items()
    }


def stage_of(pipeline: Pipeline, name: str) -> Stage:
    """Return the stage of that name. Raises `UnknownName`."""
    by_name = {stage.name: stage for stage in stages(pipeline)}
    if name not in by_name:
        raise UnknownName(f"pipeline {pipeline.pipeline} has no stage {name!r} (it has: {', '.join(by_name)})")
    return by_name[name]


def read_input_manifest(run: Run, *, store: ObjectStore) -> InputManifest:
    """Return the input manifest of the run.

    Raises `InputError` if it is of another pipeline or day, and `ObjectMissing` if it does not exist.
    """
    manifest = read_manifest(store, run.manifest)
    if (manifest.pipeline, manifest.date) != (run.pipeline, run.date):
        raise InputError(
            f"{run.manifest} is the input manifest of {manifest.pipeline} {manifest.date}, "
            f"not of {run.pipeline} {run.date}"
        )
    return manifest
