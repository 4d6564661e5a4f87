"""Pull: list the partner's files and write the work list, the first state of every pull."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import Any
from uuid import uuid4

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.connect import connector_of
from slackwater.aws.emf import put_metric
from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import function_resources
from slackwater.aws.resources import utc_now
from slackwater.metrics import Metric
from slackwater.receiver.pull.count_files import MAX_FILE_BYTES, read_count_files
from slackwater.receiver.pull.plan import PullPlan, lookback_dates, plan_pull, work_list_uri, write_plan
from slackwater.receiver.pull.removed_files import save_doubtful
from slackwater.sources.definition import Source
from slackwater.sources.file_pattern import FilePattern

logger = Logger()


class ListFilesRequest(BaseModel):
    """Input from the state machine."""

    source: str
    as_of: date | None = None
    accept_removed: int = 0
    """Removed files that a person has accepted although the partner lists fewer."""
    correlation_id: str


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """List the partner's files, write the work list, and return `PlanSummary` (module `plan`) as JSON.

    Raises what `plan_pull` raises; the state machine retries transient errors.
    """
    request = ListFilesRequest.model_validate(event)
    resources = function_resources()
    bucket = resources.settings.exchange_bucket
    source = resources.project.source(request.source)
    # A listing downloads no file but those with counts.
    now = utc_now()
    records_removed = resources.project.records_removed(source.source)
    with connector_of(source, allow=resources.settings.outbound_allow, max_file_bytes=MAX_FILE_BYTES) as partner:
        plan = plan_pull(
            source,
            as_of=request.as_of,
            partner=partner,
            cache=resources.file_cache,
            now=now,
            records_removed=records_removed,
            accept_removed=request.accept_removed,
            patterns_of_folder=list(patterns_of_folder(source, resources.project.sources.values())),
        )
        dates = list(lookback_dates(source, request.as_of, now))
        state, put_report = resources.state_table, resources.put_report
        reports = read_count_files(source, dates, partner=partner, state=state, put_report=put_report, now=now)
    # Not the correlation id alone: one client may pull a source twice at the same time.
    name = f"{request.correlation_id}-{uuid4().hex}"
    uri = work_list_uri(bucket, source.source, name)
    summary = write_plan(plan, store=resources.store, uri=uri, reports=reports).model_dump(mode="json")
    put_metrics(plan, source, as_of=request.as_of, now=now)
    if records_removed and is_of_today(source, request.as_of, now):
        save_doubtful(plan.doubtful, store=resources.store, exchange_bucket=bucket, source=source.source, at=now)
        put_metric(Metric.FILES_DOUBTFUL, len(plan.doubtful), source=source.source)
    logger.info("files listed", extra={"source": source.source, **summary})
    for reason in reports.refused:
        logger.warning("a file with counts was not read", extra={"source": source.source, "reason": reason})
    if plan.doubtful:
        logger.warning("removed files were not recorded", extra={"source": source.source, "files": len(plan.doubtful)})
    return summary


def patterns_of_folder(source: Source, sources: Iterable[Source]) -> Iterator[FilePattern]:
    """Yield the patterns of the files and of the counts of all sources that are pulled from the folder of `source`."""
    url = source.require_pull().url.rstrip("/")
    for other in sources:
        if other.pull and other.pull.url.rstrip("/") == url:
            yield other.pull.pattern
            if other.counts and other.counts.pattern:
                yield other.counts.pattern


def is_of_today(source: Source, as_of: date | None, now: datetime) -> bool:
    """Return whether the look-back window of a pull ends today, in the source's timezone."""
    return as_of in {None, max(lookback_dates(source, None, now))}


def put_metrics(plan: PullPlan, source: Source, *, as_of: date | None, now: datetime) -> None:
    """Put the gauges of a pull. Files left by a pull of a past date are left to no other pull, so they do not count."""
    if is_of_today(source, as_of, now):
        put_metric(Metric.FILES_LEFT, plan.left, source=source.source)
    since = plan.oldest_not_taken
    put_metric(Metric.HOURS_NOT_TAKEN, (now - since) / timedelta(hours=1) if since else 0, source=source.source)
