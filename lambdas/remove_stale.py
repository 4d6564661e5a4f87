"""Delete the objects of pulled files that nobody reads any more: a schedule of every week invokes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from aws_lambda_powertools import Logger

from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import FunctionResources, function_resources
from slackwater.aws.resources import utc_now
from slackwater.errors import DataError
from slackwater.receiver.pull.stale_objects import StaleObjects

logger = Logger()
# Lambda ends the function after 15 minutes, and a page of objects takes seconds.
_LIMIT = timedelta(minutes=13)


def stale_objects(resources: FunctionResources) -> StaleObjects:
    """Return what deletes objects of pulled files that nobody reads any more."""
    return StaleObjects(
        store=resources.store,
        cache=resources.file_cache,
        raw_bucket=resources.settings.raw_bucket,
        exchange_bucket=resources.settings.exchange_bucket,
        update_table=resources.update_raw_table,
        now=utc_now,
    )


@with_correlation_id(logger)
def handler(_event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return a `Removal` as JSON.

    Raises `CloudError`, and `DataError` at the end if objects have no record: an alarm fires then.
    """
    resources = function_resources()
    pulled = [name for name, source in resources.project.sources.items() if source.pull]
    removal = stale_objects(resources).remove(pulled, limit=_LIMIT)
    result = removal._asdict()
    logger.info("stale objects deleted", extra=result)
    if removal.unrecorded:
        raise DataError(
            f"{removal.unrecorded} objects of pulled files have no record in the file cache, such as "
            f"{removal.example}: nobody reads them, and they are kept"
        )
    return result
