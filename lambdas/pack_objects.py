"""Pack the small objects of finished hours: a schedule of every hour invokes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from aws_lambda_powertools import Logger

from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import FunctionResources, function_resources
from slackwater.aws.resources import utc_now
from slackwater.errors import DataError
from slackwater.runs.packing.pack_hours import HourPacker

logger = Logger()
# Lambda ends the function after 15 minutes. An hour of 3,600 objects takes half a minute.
_LIMIT = timedelta(minutes=12)


def hour_packer(resources: FunctionResources) -> HourPacker:
    """Return what packs the small objects of hours."""
    return HourPacker(
        store=resources.store,
        files=resources.file_cache,
        raw_bucket=resources.settings.raw_bucket,
        update_table=resources.update_raw_table,
        now=utc_now,
    )


@with_correlation_id(logger)
def handler(_event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return the `Packing` of each source with `pack` as JSON.

    Raises `CloudError`, and `DataError` at the end if hours could not be packed: an alarm fires then.
    """
    resources, ends_at, result = function_resources(), utc_now() + _LIMIT, dict[str, Any]()
    packer = hour_packer(resources)
    for name, source in resources.project.sources.items():
        if source.pack:
            result[name] = packer.pack(source, limit=ends_at - utc_now())._asdict()
    logger.info("hours packed", extra={"sources": result})
    failed = [f"{name} {hour}: {reason}" for name, done in result.items() for hour, reason in done["failed"].items()]
    if failed:
        raise DataError(f"{len(failed)} hours could not be packed: {'; '.join(failed[:3])}")
    return result
