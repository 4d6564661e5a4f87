"""Delete the objects of pulled files that nobody reads any more: a schedule of every week invokes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger

from slackwater.aws.clients import client
from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.function import FunctionEnvironment, with_correlation_id
from slackwater.aws.objects import S3ObjectStore
from slackwater.errors import DataError
from slackwater.project.project import Project
from slackwater.receiver.pull.stale_objects import StaleObjects

logger = Logger()
# Lambda ends the function after 15 minutes, and a page of objects takes seconds.
_LIMIT = timedelta(minutes=13)


class RemoveStaleEnvironment(FunctionEnvironment):
    """Settings of this function."""

    raw_bucket: str
    exchange_bucket: str
    file_table: str
    project_uri: str


@cache
def build_resources() -> tuple[StaleObjects, list[str]]:
    """Build what all invocations of a process share: the objects, and the names of the pulled sources."""
    environment = RemoveStaleEnvironment.read()
    store = S3ObjectStore(client("s3"))
    project = Project.model_validate_json(store.get(environment.project_uri))
    objects = StaleObjects(
        store=store,
        cache=DynamoFileCache(client("dynamodb"), environment.file_table),
        raw_bucket=environment.raw_bucket,
        exchange_bucket=environment.exchange_bucket,
        now=lambda: datetime.now(UTC),
    )
    return objects, [name for name, source in project.sources.items() if source.pull]


@with_correlation_id(logger)
def handler(_event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return a `Removal` as JSON.

    Raises `CloudError`, and `DataError` at the end if objects have no record: an alarm fires then.
    """
    objects, sources = build_resources()
    removal = objects.remove(sources, limit=_LIMIT)
    result = removal._asdict()
    logger.info("stale objects deleted", extra=result)
    if removal.unrecorded:
        raise DataError(
            f"{removal.unrecorded} objects of pulled files have no record in the file cache, such as "
            f"{removal.example}: nobody reads them, and they are kept"
        )
    return result
