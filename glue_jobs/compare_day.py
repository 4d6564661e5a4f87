"""EMR Serverless entry point: compare two published versions of one day, and store what differs.

With `--split`, the job compares both with the rows between them, and stores what the data and the definition changed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from slackwater.aws.objects import s3_store
from slackwater.late.changes.pairs import job_failure_uri, split_jobs_prefix
from slackwater.spark.compare.comparison import ComparisonJob, compare_versions
from slackwater.spark.compare.split import split_versions
from slackwater.spark.job import json_argument, run_job


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the job's arguments. Exits with 2 and names the argument if one is missing or malformed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", required=True, help="URI of project.json")
    parser.add_argument(
        "--comparison", required=True, type=json_argument(ComparisonJob), metavar="JSON", help="the job"
    )
    parser.add_argument("--catalog-table", required=True, help="the published table: catalog.database.table")
    parser.add_argument("--split", action="store_true", help="split the change of a stored comparison")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    options = parse(arguments)
    job: ComparisonJob = options.comparison
    work, prefix = (split_versions, split_jobs_prefix(job.prefix)) if options.split else (compare_versions, job.prefix)
    return run_job(
        "compare_day",
        lambda spark: work(spark, job, project=options.project, catalog_table=options.catalog_table, stores=s3_store),
        context=job.model_dump(include={"correlation_id", "pipeline", "date", "prefix"}),
        # The message goes through S3, because Step Functions receives only 256 characters of it.
        report_failure=lambda failure: s3_store().put(job_failure_uri(prefix, job.job), failure.encode()),
    )


if __name__ == "__main__":
    sys.exit(main())
