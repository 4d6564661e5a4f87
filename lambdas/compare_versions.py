"""Choose the two versions of a day to compare, or read the result of the comparison, or the reason of its failure.

Also plan the split of a comparison.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field, TypeAdapter

from slackwater.aws.clients import SHORT_CONFIG
from slackwater.aws.emf import put_metric
from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import FunctionResources, function_resources
from slackwater.aws.resources import utc_now
from slackwater.late.changes.choose_versions import CompareSince, Versions
from slackwater.late.changes.split import Splits

logger = Logger()


class ChooseVersionsRequest(BaseModel):
    """Choose the two versions of a day to compare."""

    event: Literal["started"]
    pipeline: str
    date: str
    since: CompareSince
    before: int
    after: int
    execution: str
    correlation_id: str


class ComparisonSucceededRequest(BaseModel):
    """The comparison job has succeeded."""

    event: Literal["compared"]
    prefix: str
    correlation_id: str


class PlanSplitRequest(BaseModel):
    """Plan the split of a stored comparison."""

    event: Literal["split"]
    prefix: str
    execution: str
    correlation_id: str


class ComparisonFailedRequest(BaseModel):
    """The comparison or its split has failed after all retries. `error` and `cause` come from Step Functions."""

    event: Literal["failed"]
    prefix: str
    job: str
    error: str
    cause: str
    correlation_id: str


CompareVersionsRequest = ChooseVersionsRequest | ComparisonSucceededRequest | PlanSplitRequest | ComparisonFailedRequest
# The state machine calls this function before and after the comparison: `event` distinguishes the requests.
_REQUEST: TypeAdapter[CompareVersionsRequest] = TypeAdapter(
    Annotated[CompareVersionsRequest, Field(discriminator="event")]
)


def versions(resources: FunctionResources) -> Versions:
    """Return what chooses the versions of a day to compare."""
    return Versions(
        store=resources.store,
        table=resources.run_table,
        exchange_bucket=resources.settings.exchange_bucket,
        executions=resources.state_machines,
        now=utc_now,
        put_metric=put_metric,
    )


def splits(resources: FunctionResources) -> Splits:
    """Return what plans splits."""
    return Splits(store=resources.store, table=resources.run_table, now=utc_now)


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return what the state machine needs next, as JSON.

    Before the comparison this is a `ChosenVersions`, after it a `ComparisonReference`, before a split a `SplitPlan`,
    and after a failure `reason`.
    """
    request = _REQUEST.validate_python(event)
    resources = function_resources(SHORT_CONFIG)
    published = versions(resources)
    answer: dict[str, Any]
    match request:
        case ChooseVersionsRequest():
            chosen = published.choose(**request.model_dump(exclude={"event"}))
            answer = chosen.model_dump(mode="json")
        case ComparisonSucceededRequest():
            answer = published.compared(request.prefix).model_dump(mode="json")
        case PlanSplitRequest():
            plan = splits(resources).plan(**request.model_dump(exclude={"event"}))
            answer = plan.model_dump(mode="json")
        case ComparisonFailedRequest(prefix=prefix, job=job, error=error, cause=cause):
            answer = {"reason": published.failure(prefix=prefix, job=job, error=error, cause=cause)}
    logger.info(f"comparison: {request.event}", extra={"answer": answer})
    return answer
