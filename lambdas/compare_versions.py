"""Choose the two versions of a day to compare, or read the result of the comparison, or the reason of its failure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field, TypeAdapter

from slackwater.aws.clients import SHORT_CONFIG
from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import function_resources
from slackwater.late.changes.choose_versions import CompareSince, Versions

logger = Logger()


class ChooseVersionsRequest(BaseModel):
    """Choose the two versions of a day to compare."""

    event: Literal["started"]
    pipeline: str
    date: str
    since: CompareSince
    execution: str
    correlation_id: str


class ComparisonSucceededRequest(BaseModel):
    """The comparison job has succeeded."""

    event: Literal["compared"]
    prefix: str
    correlation_id: str


class ComparisonFailedRequest(BaseModel):
    """The comparison has failed after all retries. `error` and `cause` come from Step Functions."""

    event: Literal["failed"]
    prefix: str
    job: str
    error: str
    cause: str
    correlation_id: str


CompareVersionsRequest = ChooseVersionsRequest | ComparisonSucceededRequest | ComparisonFailedRequest
# The state machine calls this function before and after the comparison: `event` distinguishes the requests.
_REQUEST: TypeAdapter[CompareVersionsRequest] = TypeAdapter(
    Annotated[CompareVersionsRequest, Field(discriminator="event")]
)


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return what the state machine needs next, as JSON.

    Before the comparison this is a `ChosenVersions`, after it a `ComparisonReference`, and after a failure `reason`.
    """
    request = _REQUEST.validate_python(event)
    versions: Versions = function_resources(SHORT_CONFIG).versions
    answer: dict[str, Any]
    match request:
        case ChooseVersionsRequest():
            chosen = versions.choose(**request.model_dump(exclude={"event"}))
            answer = chosen.model_dump(mode="json")
        case ComparisonSucceededRequest():
            answer = versions.compared(request.prefix).model_dump(mode="json")
        case ComparisonFailedRequest(prefix=prefix, job=job, error=error, cause=cause):
            answer = {"reason": versions.failure(prefix=prefix, job=job, error=error, cause=cause)}
    logger.info(f"comparison: {request.event}", extra={"answer": answer})
    return answer
