"""Record the end of a run: the published day, or the failure."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field, TypeAdapter

from slackwater.aws.clients import SHORT_CONFIG, SINGLE_CONFIG, client
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.emf import put_metric
from slackwater.aws.executions.run_usage import CostEnvironment, cost_recorder
from slackwater.aws.function import FunctionEnvironment, with_correlation_id
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.queue import ArrivalQueue
from slackwater.errors import SlackwaterError
from slackwater.late.arrival_messages import day_published
from slackwater.metrics import Metric
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import Run

logger = Logger()


class RecordRunEnvironment(FunctionEnvironment):
    """Settings of this function."""

    run_table: str
    intermediate_days: int
    arrival_queue_url: str
    """Empty if only the daily check finds late data."""


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


@cache
def build_recorder() -> RunRecorder:
    """Build the recorder, once per process."""
    environment = RecordRunEnvironment.read()
    table = DynamoRunTable(client("dynamodb", config=SHORT_CONFIG), environment.run_table)
    # Not repeated, because the time of the function is short: the daily check looks at the days too.
    arrivals = ArrivalQueue(client("sqs", config=SINGLE_CONFIG), environment.arrival_queue_url)

    def now() -> datetime:
        return datetime.now(UTC)

    return RunRecorder(
        store=S3ObjectStore(client("s3", config=SHORT_CONFIG)),
        table=table,
        now=now,
        # Not repeated: the next check records what is missing.
        costs=cost_recorder(
            CostEnvironment.read(), table=table, clients=lambda service: client(service, config=SINGLE_CONFIG), now=now
        ),
        on_changed=lambda run: request_checks(arrivals, run, now=now()),
    )


def request_checks(arrivals: ArrivalQueue, run: Run, *, now: datetime) -> None:
    """Have the days checked that have read earlier rows of the run's day. An error is only logged."""
    message = day_published(run.pipeline, run.date, time=now)
    try:
        arrivals([(message.model_dump_json(), 0)])
    except SlackwaterError as error:
        logger.warning("the days that read this one wait for the daily check", extra={"reason": str(error)})


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Record a publication or a failure.

    Returns as JSON the run's `Publication`, or `{"reason": "...", "retry": false}`: whether to run the day once more.
    Raises as the methods of `RunRecorder` do.
    """
    request = _REQUEST.validate_python(event)
    recorder = build_recorder()
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
    record_cost(recorder, request.run)
    if request.event == "published" and RecordRunEnvironment.read().intermediate_days == 0:
        remove_arrow_files(recorder, request.run)
    return response


def record_cost(recorder: RunRecorder, run: Run) -> None:
    """Record what is known about the cost of a run. An error is only logged: the next check of the days records it."""
    try:
        recorder.record_cost(run)
    except SlackwaterError as error:
        logger.warning("the cost of the run was not recorded", extra={"reason": str(error)})


def remove_arrow_files(recorder: RunRecorder, run: Run) -> None:
    """Remove the Arrow files of a published run. An error is only logged: the bucket's lifecycle rule removes them."""
    try:
        removed = recorder.remove_arrow_files(run)
    except SlackwaterError as error:
        logger.warning("the Arrow files of the run were not removed", extra={"reason": str(error)})
    else:
        logger.info("the Arrow files of the run were removed", extra={"files": removed})
