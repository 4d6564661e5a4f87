"""Pull: list the partner's files and write the work list, the first state of every pull."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from uuid import uuid4

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.clients import client
from slackwater.aws.connect import connector_of
from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.emf import put_metric
from slackwater.aws.function import FunctionEnvironment, with_correlation_id
from slackwater.aws.objects import S3ObjectStore
from slackwater.metrics import Metric
from slackwater.project.project import Project
from slackwater.receiver.pull.plan import PullPlan, lookback_dates, plan_pull, work_list_uri, write_plan
from slackwater.receiver.pull.removed_files import save_doubtful
from slackwater.sources.definition import Source

logger = Logger()


class ListFilesEnvironment(FunctionEnvironment):
    """Settings of this function."""

    exchange_bucket: str
    file_table: str
    project_uri: str
    outbound_allow: str


class ListFilesRequest(BaseModel):
    """Input from the state machine."""

    source: str
    as_of: date | None = None
    accept_removed: int = 0
    """Removed files that a person has accepted although the partner lists fewer."""
    correlation_id: str


@dataclass(frozen=True, kw_only=True)
class ListFilesResources:
    """Clients and settings that all invocations of a process share."""

    environment: ListFilesEnvironment
    store: S3ObjectStore
    cache: DynamoFileCache
    project: Project


@cache
def build_resources() -> ListFilesResources:
    """Build the resources, once per process."""
    environment = ListFilesEnvironment.read()
    store = S3ObjectStore(client("s3"))
    return ListFilesResources(
        environment=environment,
        store=store,
        cache=DynamoFileCache(client("dynamodb"), environment.file_table),
        project=Project.model_validate_json(store.get(environment.project_uri)),
    )


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """List the partner's files, write the work list, and return `PlanSummary` (module `plan`) as JSON.

    Raises what `plan_pull` raises; the state machine retries transient errors.
    """
    request = ListFilesRequest.model_validate(event)
    resources = build_resources()
    source = resources.project.source(request.source)
    # `max_file_bytes` limits downloads, and a listing downloads no file.
    now = datetime.now(UTC)
    records_removed = resources.project.records_removed(source.source)
    with connector_of(source, allow=resources.environment.outbound_allow, max_file_bytes=0) as partner:
        plan = plan_pull(
            source,
            as_of=request.as_of,
            partner=partner,
            cache=resources.cache,
            now=now,
            records_removed=records_removed,
            accept_removed=request.accept_removed,
        )
    # Not the correlation id alone: one client may pull a source twice at the same time.
    name = f"{request.correlation_id}-{uuid4().hex}"
    uri = work_list_uri(resources.environment.exchange_bucket, source.source, name)
    summary = write_plan(plan, store=resources.store, uri=uri).model_dump(mode="json")
    put_metrics(plan, source, as_of=request.as_of, now=now)
    if records_removed and is_of_today(source, request.as_of, now):
        bucket = resources.environment.exchange_bucket
        save_doubtful(plan.doubtful, store=resources.store, exchange_bucket=bucket, source=source.source, at=now)
        put_metric(Metric.FILES_DOUBTFUL, len(plan.doubtful), source=source.source)
    logger.info("files listed", extra={"source": source.source, **summary})
    if plan.doubtful:
        logger.warning("removed files were not recorded", extra={"source": source.source, "files": len(plan.doubtful)})
    return summary


def is_of_today(source: Source, as_of: date | None, now: datetime) -> bool:
    """Return whether the look-back window of a pull ends today, in the source's timezone."""
    return as_of in {None, max(lookback_dates(source.require_pull(), None, now))}


def put_metrics(plan: PullPlan, source: Source, *, as_of: date | None, now: datetime) -> None:
    """Put the gauges of a pull. Files left by a pull of a past date are left to no other pull, so they do not count."""
    if is_of_today(source, as_of, now):
        put_metric(Metric.FILES_LEFT, plan.left, source=source.source)
    since = plan.oldest_not_taken
    put_metric(Metric.HOURS_NOT_TAKEN, (now - since) / timedelta(hours=1) if since else 0, source=source.source)
