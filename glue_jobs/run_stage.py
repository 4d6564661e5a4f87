"""EMR Serverless entry point: run one stage of a pipeline for one day, and publish the day after the last stage."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from slackwater.aws.objects import s3_store
from slackwater.aws.partners.secrets import CloudSecrets
from slackwater.runs.record import Run, failure_uri
from slackwater.steps.spark.job import json_argument, run_job
from slackwater.steps.spark.stage import StageJob, run_stage_job


def parse(arguments: Sequence[str] | None) -> StageJob:
    """Return the job from its arguments. Exits with 2 and names the argument if one is missing or malformed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", required=True, help="URI of project.json")
    parser.add_argument("--run", required=True, type=json_argument(Run), metavar="JSON", help="the run")
    parser.add_argument("--stage", required=True, help="name of the stage's last step")
    parser.add_argument("--catalog-table", required=True, help="the table to publish to: catalog.database.table")
    # Not a flag, because the state machine has a fixed list of arguments and can only choose their values.
    parser.add_argument(
        "--fewer-rows",
        choices=("refuse", "allow"),
        default="refuse",
        help="what to do when the day has fewer rows than are published now",
    )
    parser.add_argument("--files", help="URI prefix of the files that steps read and write")
    parser.add_argument("--outbound-allow", default="", help="hosts and networks, separated by commas")
    options = parser.parse_args(arguments)
    return StageJob(
        run=options.run,
        stage=options.stage,
        project=options.project,
        catalog_table=options.catalog_table,
        allow_fewer=options.fewer_rows == "allow",
        files=options.files,
        outbound_allow=tuple(filter(None, options.outbound_allow.split(","))),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    job = parse(arguments)
    run = job.run
    return run_job(
        "run_stage",
        lambda spark: run_stage_job(spark, job, stores=s3_store, secrets=CloudSecrets()),
        context={
            "correlation_id": run.correlation_id,
            "pipeline": run.pipeline,
            "date": run.date,
            "stage": job.stage,
            "run_id": run.run_id,
        },
        # The message goes through S3, because Step Functions receives only 256 characters of it.
        report_failure=lambda failure: s3_store().put(failure_uri(run.prefix), failure.encode()),
    )


if __name__ == "__main__":
    sys.exit(main())
