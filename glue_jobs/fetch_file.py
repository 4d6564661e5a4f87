"""EMR Serverless entry point: one file of a pull that is too large for a function, by the same library function."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from slackwater.aws.clients import client
from slackwater.aws.delivery import raw_delivery
from slackwater.aws.file_cache import DynamoFileCache
from slackwater.aws.objects import s3_store
from slackwater.aws.partners import partner_of
from slackwater.project import Project
from slackwater.receiver.pull.fetch import FetchResult, FileFetcher
from slackwater.receiver.pull.plan import read_item
from slackwater.runs.record import failure_uri
from slackwater.steps.spark.job import log, run_job

_LEASE = timedelta(minutes=125)
"""Longer than the job may run."""
_LARGEST_FILE = 2**50


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", required=True, help="address of project.json")
    parser.add_argument("--source", required=True)
    parser.add_argument("--work", required=True, help="address of the pull's work list")
    parser.add_argument("--index", required=True, type=int, help="place of the file in it")
    parser.add_argument("--answer", required=True, help="where the answer is left")
    parser.add_argument("--correlation-id", required=True)
    parser.add_argument("--raw-bucket", required=True)
    parser.add_argument("--raw-database", required=True)
    parser.add_argument("--file-table", required=True)
    parser.add_argument("--outbound-allow", default="", help="hosts and networks, with commas between them")
    return parser.parse_args(arguments)


def fetch_file(options: argparse.Namespace) -> FetchResult:
    """Take the file and leave the answer."""
    store = s3_store()
    source = Project.model_validate_json(store.get(options.project)).source(options.source)
    with partner_of(source, allow=options.outbound_allow, max_file_bytes=_LARGEST_FILE) as partner:
        fetcher = FileFetcher(
            source=source,
            partner=partner,
            cache=DynamoFileCache(client("dynamodb"), options.file_table),
            delivery=raw_delivery(store, raw_bucket=options.raw_bucket, raw_database=options.raw_database),
            now=lambda: datetime.now(UTC),
            owner=f"{options.correlation_id}/{uuid4()}",
            lease=_LEASE,
        )
        fetched = fetcher.fetch(read_item(store, options.work, options.index))
    store.put(options.answer, fetched.model_dump_json().encode())
    log("file fetched", source=source.source, **fetched.model_dump(mode="json"))
    return fetched


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    options = parse(arguments)
    context = {"source": options.source, "correlation_id": options.correlation_id}
    return run_job(
        "fetch_file",
        lambda _: fetch_file(options),
        context=context,
        tell=lambda failure: s3_store().put(failure_uri(f"{options.answer}."), failure.encode()),
    )


if __name__ == "__main__":
    sys.exit(main())
