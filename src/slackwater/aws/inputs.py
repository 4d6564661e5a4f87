"""The listing of a run's inputs, over S3 and the file cache."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from slackwater.aws.clients import CONFIG, Clients, client
from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.glue_tables import GlueTables
from slackwater.project.project import Project
from slackwater.runs.inputs.foreign_tables import ForeignTables
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.table import RunTable
from slackwater.storage import ObjectStore


def input_listing(
    project: Project,
    *,
    store: ObjectStore,
    table: RunTable,
    raw_bucket: str,
    file_table: str,
    now: Callable[[], datetime],
) -> InputListing:
    """Return the listing that both freezing a run's inputs and checking its days use."""
    files = DynamoFileCache(client("dynamodb"), file_table)
    return InputListing(
        project=project,
        store=store,
        files=files,
        table=table,
        foreign=ForeignTables(GlueTables(Clients(CONFIG)), store),
        raw_bucket=raw_bucket,
        now=now,
    )
