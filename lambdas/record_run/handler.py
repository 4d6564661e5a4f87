"""Record the progress of a run: a stage that succeeded, the published day, or the failure."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field, TypeAdapter

from slackwater.aws.clients import SHORT_CONFIG, client
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.emf import put_metric
from slackwater.aws.function import FunctionEnvironment
from slackwater.aws.objects import S3ObjectStore
from slackwater.errors import SlackwaterError
from slackwater.metrics import Metric
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import Run, RunState

logger = Logger()


class RecordRunEnvironment(FunctionEnvironment):
    """Settings of this function."""

    run_table: str
    intermediate_days: int


class StageSucceededRequest(BaseModel):
    """Input from the state machine when a stage's job has succeeded."""

    event: Literal["stage"]
    run: Run
    stage: str


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


RecordRunRequest = StageSucceededRequest | RunPublishedRequest | RunFailedRequest
_REQUEST: TypeAdapter[RecordRunRequest] = TypeAdapter(Annotated[RecordRunRequest, Field(discriminator="event")])


@cache
def build_recorder() -> RunRecorder:
    """Build the recorder, once per process."""
    environment = RecordRunEnvironment.read()
    return RunRecorder(
        store=S3ObjectStore(client("s3", config=SHORT_CONFIG)),
        table=DynamoRunTable(client("dynamodb", config=SHORT_CONFIG), environment.run_table),
        now=lambda: datetime.now(UTC),
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Record a stage, a publication or a failure.

    Returns as JSON the stage's `ArrowReference`, the run's `Publication`, or `{"reason": "..."}`. Raises as the methods
    of `RunRecorder` do.
    """
    request = _REQUEST.validate_python(event)
    logger.set_correlation_id(request.run.correlation_id)
    recorder = build_recorder()
    # Decided before the end is recorded: Step Functions may invoke this function again, and a run must count once.
    metric = metric_of(request, recorder)
    response: dict[str, Any]
    match request:
        case StageSucceededRequest():
            response = recorder.record_stage(request.run, request.stage).model_dump(mode="json")
        case RunPublishedRequest():
            response = recorder.record_published(request.run).model_dump(mode="json")
        case RunFailedRequest():
            response = {"reason": recorder.record_failure(request.run, error=request.error, cause=request.cause)}
    if metric:
        put_metric(metric, 1, pipeline=request.run.pipeline)
    logger.info(f"run: {request.event}", extra={"run": request.run.model_dump(), "response": response})
    if request.event == "published" and RecordRunEnvironment.read().intermediate_days == 0:
        remove_arrow_files(recorder, request.run)
    return response


def remove_arrow_files(recorder: RunRecorder, run: Run) -> None:
    """Remove the Arrow files of a published run. An error is only logged: the bucket's lifecycle rule removes them."""
    try:
        removed = recorder.remove_arrow_files(run)
    except SlackwaterError as error:
        logger.warning("the Arrow files of the run were not removed", extra={"reason": str(error)})
    else:
        logger.info("the Arrow files of the run were removed", extra={"files": removed})


def metric_of(request: RecordRunRequest, recorder: RunRecorder) -> Metric | None:
    """Return the metric that counts the end of a run; None if the run continues, or if its end is already recorded."""
    run = request.run
    if request.event == "stage":
        return None
    record = recorder.table.run(run.pipeline, run.date, run.attempt)
    if record is None or record.state is not RunState.RUNNING:
        return None
    return Metric.RUNS_PUBLISHED if request.event == "published" else Metric.RUNS_FAILED
