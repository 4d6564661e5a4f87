"""Check of the published tables: what the rows of replaced versions cost in S3."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from humanize import naturalsize

from slackwater.aws.failures import translated
from slackwater.deploy.finding import Clients, Finding, ok
from slackwater.formatting import counted
from slackwater.runs.record import VERSION_TAG
from slackwater.storage import split_uri

# S3 Standard in us-east-1, the first 50 TB of a month (https://aws.amazon.com/s3/pricing/).
_USD_PER_GB_MONTH = 0.023


class Replaced(NamedTuple):
    """What a table stores besides its current rows."""

    versions: int
    size: int
    """Bytes."""


def check_old_versions(clients: Clients, *, database: str) -> Finding:
    """Read the metadata of each published table, and say what its replaced versions cost."""
    tables = [replaced(metadata) for metadata in _metadata(clients, database)]
    versions, size = (sum(column) for column in zip((0, 0), *tables, strict=True))
    usd = size / 1e9 * _USD_PER_GB_MONTH
    return ok(
        f"{counted(versions, 'replaced version')} of {counted(len(tables), 'table')}: {naturalsize(size)}, about "
        f"{usd:.2f} USD a month (the setting version_days removes them)"
    )


def replaced(metadata: Mapping[str, Any]) -> Replaced:
    """Return what a table stores of versions that a later one of their day has replaced. Each has a tag."""
    snapshots = {snapshot["snapshot-id"]: snapshot["summary"] for snapshot in metadata.get("snapshots", [])}
    days: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for tag, ref in metadata.get("refs", {}).items():
        if version := VERSION_TAG.fullmatch(tag):
            days[version[1]].append((int(version[2]), ref["snapshot-id"]))
    old = [snapshot_id for versions in days.values() for _, snapshot_id in sorted(versions)[:-1]]
    return Replaced(len(old), sum(int(snapshots[snapshot_id].get("added-files-size", 0)) for snapshot_id in old))


def _metadata(clients: Clients, database: str) -> Iterator[Mapping[str, Any]]:
    with translated(f"list the tables of {database}"):
        pages = clients("glue").get_paginator("get_tables").paginate(DatabaseName=database)
        parameters = [table.get("Parameters", {}) for page in pages for table in page["TableList"]]
    for uri in (found["metadata_location"] for found in parameters if "metadata_location" in found):
        bucket, key = split_uri(uri)
        with translated(f"read {uri}"):
            content = clients("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        yield json.loads(gzip.decompress(content) if key.endswith(".gz.metadata.json") else content)
