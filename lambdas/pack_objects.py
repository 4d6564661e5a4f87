"""Pack the small objects of hours: schedules invoke it every hour, and for open hours every minute."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import AwareDatetime, BaseModel

from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import FunctionResources, function_resources
from slackwater.aws.resources import utc_now
from slackwater.errors import DataError
from slackwater.runs.packing.pack_hours import HourPacker
from slackwater.state.facts import hours_between

logger = Logger()
# Lambda ends the function after 15 minutes. An hour of 3,600 objects takes half a minute.
_LIMIT = timedelta(minutes=12)


class PackedPeriod(BaseModel):
    """A time of a source, as an event `Slackwater Period Changed` has it."""

    source: str
    start: AwareDatetime
    end: AwareDatetime


class PackRequest(BaseModel):
    """Which hours are packed: by default those of the last weeks, of all sources with `pack`."""

    is_open: bool = False
    """Those that have not ended, of sources that an open period reads."""
    period: PackedPeriod | None = None
    """Those of this time."""


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
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return the `Packing` of each source with `pack` as JSON, and of others with packed hours that have changed.

    Raises `UnknownName` for a source that the project does not have, `CloudError`, and `DataError` at the end if hours
    could not be packed: an alarm fires then.
    """
    resources, request, ends_at = function_resources(), PackRequest.model_validate(event), utc_now() + _LIMIT
    packer, project, result = hour_packer(resources), resources.project, dict[str, Any]()
    sources, pack = project.sources, packer.pack
    if request.is_open:
        sources, pack = project.live_sources(), packer.pack_open
    elif period := request.period:
        hours = [*hours_between(period.start, period.end)]
        sources, pack = {period.source: project.source(period.source)}, partial(packer.pack_hours, hours=hours)
    for name, source in sources.items():
        done = pack(source, limit=ends_at - utc_now())
        if source.pack or any(done):
            result[name] = done._asdict()
    logger.info("hours packed", extra={"sources": result})
    failed = [f"{name} {hour}: {reason}" for name, done in result.items() for hour, reason in done["failed"].items()]
    if failed:
        raise DataError(f"{len(failed)} hours could not be packed: {'; '.join(failed[:3])}")
    return result
