"""EMR Serverless entry point: fetch one file of a pull that is too large for a Lambda function."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import timedelta

from slackwater.aws.clients import CONFIG, Clients
from slackwater.aws.objects import s3_store
from slackwater.aws.resources import Resources
from slackwater.receiver.pull.fetch_result import FetchResult
from slackwater.receiver.pull.large_files import failure_reason_uri
from slackwater.receiver.pull.plan import read_item
from slackwater.spark.job import log, run_job

# Longer than the job's execution timeout of 120 minutes (`pull_source.asl.json`): the lease does not expire while the
# job may still write.
_LEASE = timedelta(minutes=125)
# Bytes. In effect no limit: the disk of the job is full long before.
_MAX_FILE_BYTES = 2**50


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", dest="project_uri", required=True, help="URI of project.json")
    parser.add_argument("--source", required=True)
    parser.add_argument("--work", required=True, help="URI of the pull's work list")
    parser.add_argument("--index", required=True, type=int, help="index of the file in the work list")
    parser.add_argument("--answer", required=True, help="URI to which the result is written")
    parser.add_argument("--correlation-id", required=True)
    parser.add_argument("--raw-bucket", required=True)
    parser.add_argument("--file-table", required=True)
    parser.add_argument("--state-table", default="")  # state machines of the release before do not pass it
    parser.add_argument("--outbound-allow", default="", help="hosts and networks, separated by commas")
    keys_help = "KMS keys that encrypt objects, as source=ARN, separated by commas"
    parser.add_argument("--source-kms-keys", default="", help=keys_help)
    return parser.parse_args(arguments)


def fetch_file(options: argparse.Namespace) -> FetchResult:
    """Fetch the file, write the result to `--answer`, and return it.

    Raises what `FileFetcher.fetch` raises; `main` then writes the reason next to `--answer`.
    """
    resources = Resources(options, Clients(CONFIG))
    source = resources.project.source(options.source)
    max_file_mb = source.require_pull().max_file_mb
    max_file_bytes = max_file_mb * 10**6 if max_file_mb else _MAX_FILE_BYTES
    item = read_item(resources.store, options.work, options.index)
    fetched = resources.fetch_file(
        source, item, max_file_bytes=max_file_bytes, correlation_id=options.correlation_id, lease=_LEASE
    )
    # Written after the commit in the file cache: the state machine never reads a result whose rows are not committed.
    # The function that reads it has the days of the rows checked.
    resources.store.put(options.answer, fetched.model_dump_json().encode())
    log("file fetched", source=source.source, **fetched.summary())
    return fetched


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code: 0, or 1 after a failure."""
    options = parse(arguments)
    context = {"source": options.source, "correlation_id": options.correlation_id}
    return run_job(
        "fetch_file",
        lambda _: fetch_file(options),
        context=context,
        report_failure=lambda failure: s3_store().put(failure_reason_uri(options.answer), failure.encode()),
    )


if __name__ == "__main__":
    sys.exit(main())
