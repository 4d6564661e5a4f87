"""Record the end of a run: the published day, or the failure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field, TypeAdapter

from slackwater.aws.clients import SHORT_CONFIG
from slackwater.aws.emf import put_metric
from slackwater.aws.function import best_effort, with_correlation_id
from slackwater.aws.function_resources import function_resources
from slackwater.metrics import Metric
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import Run

logger = Logger()


class RunPublishedRequest(BaseModel):
    """Input from the state machine when the last stage's job has published the day."""

    event: Literal["published"]
    run: Run


class RunFailedRequest(BaseModel):
    """Input from the state machine when a state of the run has failed after all retries."""

    event: Literal["failed"]
    run: Run
    error: str
    """The name of the error, as Step Functions reports it."""
    cause: str
    """A message, or JSON that describes the failed job or function; empty if Step Functions reports none."""
    retried: bool
    """Whether the execution has run the day a second time already."""


RecordRunRequest = RunPublishedRequest | RunFailedRequest
_REQUEST: TypeAdapter[RecordRunRequest] = TypeAdapter(Annotated[RecordRunRequest, Field(discriminator="event")])


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Record a publication or a failure.

    Returns as JSON the run's `Publication`, or `{"reason": "...", "retry": false}`: whether to run the day once more.
    Raises as the methods of `RunRecorder` do.
    """
    request = _REQUEST.validate_python(event)
    resources = function_resources(SHORT_CONFIG)
    recorder: RunRecorder = resources.recorder
    response: dict[str, Any]
    match request:
        case RunPublishedRequest():
            published = recorder.record_published(request.run)
            metric, is_new = Metric.RUNS_PUBLISHED, published.is_new
            response = published.publication.model_dump(mode="json")
        case RunFailedRequest():
            failure = recorder.record_failure(request.run, error=request.error, cause=request.cause)
            metric, is_new = Metric.RUNS_FAILED, failure.is_new
            response = {"reason": failure.reason, "retry": failure.is_transient and not request.retried}
    # Step Functions may invoke this function again, and a run must count once.
    if is_new and not response.get("retry"):
        put_metric(metric, 1, pipeline=request.run.pipeline)
    logger.info(f"run: {request.event}", extra={"run": request.run.model_dump(), "response": response})
    # The next check of the days records what is missing, and the bucket's lifecycle rule removes what is left.
    with best_effort("the cost of the run was not recorded"):
        recorder.record_cost(request.run)
    if request.event == "published" and int(resources.settings.intermediate_days) == 0:
        with best_effort("the Arrow files of the run were not removed"):
            removed = recorder.remove_arrow_files(request.run)
            logger.info("the Arrow files of the run were removed", extra={"files": removed})
    return response
