"""EMR Serverless entry point: run one stage of a pipeline for one day, and publish the day after the last stage.

For a rollback, the job of the last stage publishes an earlier version of the day instead. With `--unpublished`, the job
stores the rows of all stages: a comparison computes the inputs of a later version with this definition and this code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import SparkSession

from slackwater.aws.clients import CONFIG, Clients
from slackwater.aws.objects import s3_store
from slackwater.aws.resources import Resources
from slackwater.aws.secrets import CloudSecrets
from slackwater.runs.attempt_files import failure_uri
from slackwater.runs.record import Run
from slackwater.sources.kms_keys import parse_source_keys
from slackwater.spark.job import json_argument, run_job
from slackwater.spark.stage import StageJob, run_stage_job, store_unpublished
from slackwater.spark.version_retention import remove_after_publication


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments. Exits with 2 and names the argument if one is missing or malformed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", required=True, help="URI of project.json")
    parser.add_argument("--run", required=True, type=json_argument(Run), metavar="JSON", help="the run")
    work = parser.add_mutually_exclusive_group(required=True)
    work.add_argument("--stage", help="name of the stage's last step")
    # A release without this option refuses the job: it must not publish the rows.
    work.add_argument("--unpublished", action="store_true", help="store the rows of all stages, and publish nothing")
    parser.add_argument("--catalog-table", required=True, help="the table to publish to: catalog.database.table")
    parser.add_argument("--restore", default="", help="tag of the version to publish again, instead of the stage")
    parser.add_argument("--files", help="URI prefix of the files that steps read and write")
    parser.add_argument("--outbound-allow", default="", help="hosts and networks, separated by commas")
    keys_help = "KMS keys of the pipeline's sources, as source=ARN, separated by commas"
    parser.add_argument("--source-kms-keys", default="", type=parse_source_keys, metavar="KEYS", help=keys_help)
    parser.add_argument("--run-table", default="", help="the DynamoDB table of runs, which --version-days needs")
    parser.add_argument(
        "--version-days", type=int, default=0, help="remove versions that were replaced so many days ago; 0: none"
    )
    return parser.parse_args(arguments)


def work(spark: SparkSession, options: argparse.Namespace) -> None:
    """Run the stage, or publish the earlier version; after a publication, remove old versions of the table."""
    run: Run = options.run
    if options.unpublished:
        store_unpublished(spark, stage_job(options, stage=""), stores=s3_store, secrets=CloudSecrets())
        return
    job = stage_job(options, stage=options.stage)

    def remove_old_versions() -> None:
        table = Resources(options, Clients(CONFIG)).run_table
        remove_after_publication(
            spark,
            job.catalog_table,
            run,
            days=options.version_days,
            day_of=lambda date: table.day(run.pipeline, date),
            now=datetime.now(UTC),
        )

    stores = partial(s3_store, job.source_keys)
    run_stage_job(spark, job, stores=stores, secrets=CloudSecrets(), on_published=remove_old_versions)


def stage_job(options: argparse.Namespace, *, stage: str) -> StageJob:
    """Return the job of a stage, as the arguments describe it."""
    return StageJob(
        run=options.run,
        stage=stage,
        project=options.project,
        catalog_table=options.catalog_table,
        restore=options.restore,
        files=options.files,
        outbound_allow=tuple(filter(None, options.outbound_allow.split(","))),
        source_keys=options.source_kms_keys,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    options = parse(arguments)
    run: Run = options.run
    return run_job(
        "run_stage",
        lambda spark: work(spark, options),
        context={
            "correlation_id": run.correlation_id,
            "pipeline": run.pipeline,
            "date": run.date,
            "stage": options.stage or "unpublished",
            "run_id": run.run_id,
        },
        # The message goes through S3, because Step Functions receives only 256 characters of it.
        report_failure=lambda failure: s3_store().put(failure_uri(run.prefix), failure.encode()),
    )


if __name__ == "__main__":
    sys.exit(main())
