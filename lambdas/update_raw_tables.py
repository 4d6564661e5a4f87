"""Let the Iceberg table of a source follow the listing: new objects and the daily check invoke it asynchronously."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import function_resources
from slackwater.aws.raw_tables import RawTables
from slackwater.sources.partitions import Partition

logger = Logger()


class UpdateRequest(BaseModel):
    """Input from the functions that know of changed partitions."""

    source: str
    partitions: tuple[Partition, ...]


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return by how many objects the table has changed. Lambda repeats a call that fails, at most twice."""
    request = UpdateRequest.model_validate(event)
    tables: RawTables = function_resources().raw_tables
    change = tables.reconcile(request.source, request.partitions)
    answer = {"source": request.source, **change._asdict()}
    logger.info("raw table updated", extra={**answer, "partitions": len(request.partitions)})
    return answer
