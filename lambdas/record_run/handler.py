"""Record what became of a run: a stage that ended, the day published, or the failure."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal

from aws_lambda_powertools import Logger
from pydantic import BaseModel, Field, TypeAdapter

from slackwater.aws.clients import client
from slackwater.aws.emf import put_metric
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.run_table import DynamoRunTable
from slackwater.metrics import Metric
from slackwater.runs.outcome import Recorder
from slackwater.runs.record import Run, RunState

logger = Logger()


class Environment(BaseModel):
    """What the stack tells this function."""

    run_table: str = Field(alias="RUN_TABLE")


class StageEnded(BaseModel):
    """A stage's job has succeeded."""

    event: Literal["stage"]
    run: Run
    stage: str


class Published(BaseModel):
    """The publishing job has succeeded."""

    event: Literal["published"]
    run: Run


class Failed(BaseModel):
    """Some state of the run has failed for good."""

    event: Literal["failed"]
    run: Run
    error: str
    cause: str


_REQUEST: TypeAdapter[StageEnded | Published | Failed] = TypeAdapter(
    Annotated[StageEnded | Published | Failed, Field(discriminator="event")]
)


@cache
def _recorder() -> Recorder:
    environment = Environment.model_validate(dict(os.environ))
    return Recorder(
        store=S3ObjectStore(client("s3")),
        table=DynamoRunTable(client("dynamodb"), environment.run_table),
        now=lambda: datetime.now(UTC),
    )


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer a stage with its Arrow reference, a publish with its publication, a failure with its reason."""
    request = _REQUEST.validate_python(event)
    logger.set_correlation_id(request.run.correlation_id)
    ending = _ending(request)
    answer = _record(request)
    if ending:
        put_metric(ending, 1, pipeline=request.run.pipeline)
    logger.info(f"run: {request.event}", extra={"run": request.run.model_dump(), "answer": answer})
    return answer


def _record(request: StageEnded | Published | Failed) -> dict[str, Any]:
    recorder = _recorder()
    match request:
        case StageEnded():
            return recorder.stage(request.run, request.stage).model_dump(mode="json")
        case Published():
            return recorder.published(request.run).model_dump(mode="json")
        case Failed():
            return {"reason": recorder.failed(request.run, error=request.error, cause=request.cause)}


def _ending(request: StageEnded | Published | Failed) -> Metric | None:
    """What this call is to be counted as: a run ends once, however often Step Functions says so."""
    run = request.run
    if request.event == "stage":
        return None
    record = _recorder().table.run(run.pipeline, run.date, run.attempt)
    if record is None or record.state is not RunState.RUNNING:
        return None
    return Metric.RUNS_PUBLISHED if request.event == "published" else Metric.RUNS_FAILED
