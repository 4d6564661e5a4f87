"""EMR Serverless entry point of `slackwater doctor --job`: check that a stage of a run could do its work.

It gets the arguments of `run_stage.py`, from the same state.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from slackwater.aws.clients import CONFIG, Clients
from slackwater.aws.objects import s3_store
from slackwater.aws.resources import Resources
from slackwater.runs.attempt_files import failure_uri
from slackwater.runs.record import Run
from slackwater.spark.job import json_argument, run_job
from slackwater.spark.release import check_release


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments that the check uses. Exits with 2 and names the argument if one is missing or malformed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True, type=json_argument(Run), metavar="JSON", help="a run without inputs")
    parser.add_argument("--catalog-table", required=True, help="the table to write: catalog.database.table")
    parser.add_argument("--run-table", required=True, help="the DynamoDB table of runs")
    parser.add_argument("--restore", required=True, choices=[""], help="empty, as in most runs")
    return parser.parse_known_args(arguments)[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    options = parse(arguments)
    run: Run = options.run

    def read_item() -> object:
        return Resources(options, Clients(CONFIG)).run_table.day(run.pipeline, run.date)

    return run_job(
        "check_release",
        lambda spark: check_release(
            spark, run, catalog_table=options.catalog_table, stores=s3_store, read_item=read_item
        ),
        context={"correlation_id": run.correlation_id},
        report_failure=lambda failure: s3_store().put(failure_uri(run.prefix), failure.encode()),
    )


if __name__ == "__main__":
    sys.exit(main())
