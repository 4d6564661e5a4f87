"""EMR Serverless entry point of `slackwater doctor --job`: check that the release can run the library's jobs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from slackwater.steps.spark.job import run_job
from slackwater.steps.spark.release import check_release


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalog-table", required=True, help="the table to replace: catalog.database.table")
    table: str = parser.parse_args(arguments).catalog_table
    # The reason of a failure is the last line of the driver's log.
    return run_job(
        "check_release", lambda spark: check_release(spark, table), context={}, report_failure=lambda _: None
    )


if __name__ == "__main__":
    sys.exit(main())
