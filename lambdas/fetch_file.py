"""Pull: fetch one file of the work list. The state machine passes the index of the file."""

from __future__ import annotations

from typing import Annotated, Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field

from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import function_resources
from slackwater.receiver.pull.large_files import FunctionFetcher, LargeFileJob

logger = Logger()


class FetchFileRequest(BaseModel):
    """Input from the state machine."""

    source: str
    work: str
    """URI of the work list."""
    index: Annotated[int, Field(ge=0)]
    """Index of the file in the work list."""
    correlation_id: str
    answer: str | None = None
    """URI of the result of the job, if the file was fetched by a job."""
    job_error: str = ""
    """The error with which Step Functions ended the job, if it did not succeed."""


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return a `FetchResult` as JSON, or a `LargeFileJob` for a file that is too large for a function but not for jobs.

    With `answer`, return the result that such a job stored. Raises `PartnerError`, `DataError` or `CloudError` when the
    file cannot be fetched.
    """
    request = FetchFileRequest.model_validate(event)
    fetcher: FunctionFetcher = function_resources().function_fetcher
    fetched = fetcher.fetch(**request.model_dump())
    # There may be thousands of partitions, so the state machine gets none.
    answer = fetched.model_dump(mode="json", exclude={"partitions"})
    if isinstance(fetched, LargeFileJob):
        logger.info("file is too large for a function, a job fetches it", extra={**answer, "reason": fetched.reason})
    else:
        logger.info("file fetched", extra={"source": request.source, **answer})
    return answer
