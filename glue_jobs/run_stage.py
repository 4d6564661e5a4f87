"""EMR Serverless entry point: one stage of a pipeline for one day, from its inputs to an Arrow reference."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame, SparkSession

from slackwater.arrow.exchange import StoreFactory, load_manifest, read_frame, store_dataset, write_frame
from slackwater.arrow.reference import ArrowManifest, ArrowReference
from slackwater.aws.objects import s3_store
from slackwater.errors import InputError, UnknownName
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import Stage, stages
from slackwater.project import Project
from slackwater.runs.day import day_of
from slackwater.runs.manifest import InputManifest
from slackwater.runs.record import failure_uri
from slackwater.steps.spark.job import log, run_job
from slackwater.steps.spark.sources import read_source
from slackwater.steps.spark.stage import apply_stage, step_counts


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", required=True, help="address of project.json")
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--date", required=True, type=date.fromisoformat)
    parser.add_argument("--stage", required=True, help="name of the stage's last step")
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--attempt", required=True, type=int)
    parser.add_argument("--manifest", required=True, help="address of the input manifest")
    parser.add_argument("--prefix", required=True, help="where this attempt writes")
    parser.add_argument("--correlation-id", required=True)
    parser.add_argument("--upstream", action="append", default=[], metavar="STAGE=MANIFEST", type=_named)
    return parser.parse_args(arguments)


def run_stage(spark: SparkSession, options: argparse.Namespace, *, stores: StoreFactory) -> ArrowReference:
    """Run the stage and return its reference, which is written last, after the manifest that it names."""
    before = time.monotonic()
    store = stores()
    project = Project.model_validate_json(store.get(options.project))
    pipeline = project.pipeline(options.pipeline)
    stage = _stage_of(pipeline, options.stage)
    inputs = _input_manifest(store.get(options.manifest), options)
    upstream = {name: load_manifest(uri, store=store) for name, uri in options.upstream}
    _require(stage, upstream)
    frames = {
        **_sources(spark, project, pipeline, stage, inputs, day=options.date),
        **{name: read_frame(spark, upstream[name], stores=stores) for name in stage.reads_stages},
    }
    made = apply_stage(pipeline, stage, frames)
    prefix = f"{options.prefix}{stage.name}/"
    written = write_frame(
        made[stage.name],
        prefix,
        producer=f"{options.pipeline}/{options.date}/{options.run_id}/{options.attempt}/{stage.name}",
        stores=stores,
        input_bytes=_bytes_read(stage, inputs, upstream),
        earlier=_earlier(options.upstream, upstream),
    )
    counts = step_counts(made, written.steps, rows=written.rows)
    manifest = written.model_copy(update={"steps": counts})
    reference = store_dataset(manifest, prefix, store=store, seconds=time.monotonic() - before)
    log("stage written", steps={count.step: count.rows_out for count in counts}, **reference.model_dump())
    return reference


def _sources(
    spark: SparkSession, project: Project, pipeline: Pipeline, stage: Stage, inputs: InputManifest, *, day: date
) -> dict[str, DataFrame]:
    hours = day_of(day, pipeline.timezone)
    return {
        name: read_source(
            spark,
            project.source(name),
            [item.uri for item in inputs.of_source(name)],
            start=hours.start,
            end=hours.end,
        )
        for name in stage.reads_sources
    }


def _stage_of(pipeline: Pipeline, name: str) -> Stage:
    found = {stage.name: stage for stage in stages(pipeline)}
    if name not in found:
        raise UnknownName(f"pipeline {pipeline.pipeline} has no stage {name!r} (it has: {', '.join(found)})")
    return found[name]


def _input_manifest(body: bytes, options: argparse.Namespace) -> InputManifest:
    manifest = InputManifest.model_validate_json(body)
    if (manifest.pipeline, manifest.date) != (options.pipeline, str(options.date)):
        raise InputError(
            f"{options.manifest} is the input manifest of {manifest.pipeline} {manifest.date}, "
            f"not of {options.pipeline} {options.date}"
        )
    return manifest


def _require(stage: Stage, upstream: dict[str, ArrowManifest]) -> None:
    if set(upstream) != set(stage.reads_stages):
        wanted, given = (", ".join(sorted(names)) or "none" for names in (stage.reads_stages, upstream))
        raise InputError(f"stage {stage.name} reads these stages: {wanted}; --upstream names: {given}")


def _bytes_read(stage: Stage, inputs: InputManifest, upstream: dict[str, ArrowManifest]) -> int:
    objects = (item.bytes for name in stage.reads_sources for item in inputs.of_source(name))
    return sum(objects) + sum(manifest.bytes for manifest in upstream.values())


def _earlier(addresses: Sequence[tuple[str, str]], upstream: dict[str, ArrowManifest]) -> list[str]:
    """Every dataset on the way here, oldest first."""
    ordered = [before for name, uri in addresses for before in (*upstream[name].earlier, uri)]
    return list(dict.fromkeys(ordered))


def _named(text: str) -> tuple[str, str]:
    name, equals, address = text.partition("=")
    if not (name and equals and address):
        raise argparse.ArgumentTypeError(f"STAGE=MANIFEST is expected, not {text!r}")
    return name, address


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    options = parse(arguments)
    context = {"correlation_id": options.correlation_id, "pipeline": options.pipeline, "date": str(options.date)}
    return run_job(
        "run_stage",
        lambda spark: run_stage(spark, options, stores=s3_store),
        context={**context, "stage": options.stage, "run_id": options.run_id},
        tell=lambda failure: s3_store().put(failure_uri(options.prefix), failure.encode()),
    )


if __name__ == "__main__":
    sys.exit(main())
