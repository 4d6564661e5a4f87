"""Record the end of a run: the published day, or the failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field, TypeAdapter

from slackwater.aws.clients import SHORT_CONFIG
from slackwater.aws.emf import put_metric
from slackwater.aws.function import warn, with_correlation_id
from slackwater.aws.function_resources import FunctionResources, function_resources
from slackwater.aws.resources import utc_now
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


def recorder(resources: FunctionResources) -> RunRecorder:
    """Return what records the outcome of runs."""
    return RunRecorder(
        store=resources.store,
        table=resources.run_table,
        now=utc_now,
        # What they read of AWS is not repeated: the next check of the days records what is missing.
        costs=replace(resources.once.costs, table=resources.run_table),
        # Not repeated, because the time of the function is short.
        arrivals=resources.once.arrivals,
        wake_day=resources.once.wake_requests.wake_day,
        verdicts=resources.pipeline_verdicts,
        on_ended=resources.once.lineage_requests.ended,
        put_metric=put_metric,
        warn=warn,
        keeps_arrow_files=int(resources.settings.intermediate_days) > 0,
    )


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Record a publication or a failure.

    Returns as JSON the run's `Publication`, or `{"reason": "...", "retry": false}`: whether to run the day once more.
    Raises `CloudError` for a run that the run table does not contain, and `ObjectMissing` for a publication that no job
    has written.
    """
    request = _REQUEST.validate_python(event)
    resources = function_resources(SHORT_CONFIG)
    runs = recorder(resources)
    response: dict[str, Any]
    match request:
        case RunPublishedRequest(run=run):
            response = runs.end_published(run).model_dump(mode="json")
        case RunFailedRequest(run=run, error=error, cause=cause, retried=retried):
            response = runs.end_failed(run, error=error, cause=cause, retried=retried)._asdict()
    if run.through and not response.get("retry"):
        resources.once.wake_requests.start_next(run.pipeline, run.date)
    logger.info(f"run: {request.event}", extra={"run": run.model_dump(), "response": response})
    return response
