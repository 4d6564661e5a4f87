"""Freeze the inputs of a run and claim its day: the first state of every pipeline's state machine."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.clients import client
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.emf import put_metric
from slackwater.aws.executions.state_machines import StepFunctionsExecutions
from slackwater.aws.function import FunctionEnvironment, with_correlation_id
from slackwater.aws.inputs import input_listing
from slackwater.aws.objects import S3ObjectStore
from slackwater.metrics import Metric
from slackwater.project.project import Project
from slackwater.runs.added_objects import LARGE_ROWS
from slackwater.runs.freeze import Freezer, KeptStages

logger = Logger()


class FreezeInputsEnvironment(FunctionEnvironment):
    """Settings of this function."""

    raw_bucket: str
    exchange_bucket: str
    file_table: str
    run_table: str
    kept_days: int
    intermediate_days: int


class FreezeInputsRequest(BaseModel):
    """Input from the state machine."""

    project: str
    """URI of the `Project` that defines the pipeline. Its name contains a hash of its content."""
    pipeline: str
    date: str
    execution: str
    correlation_id: str
    force: bool = False
    moves_hours: bool = False
    """Whether the days around it run too, so that it may run with another timezone than before."""
    rollback: int | None = None
    """The number of an earlier version that the run publishes again."""
    reason: str = ""
    """Why the day is rolled back."""
    large_rows: int = LARGE_ROWS
    """From how many events on a stage may compute added objects alone. Only tests set it."""


@lru_cache(maxsize=2)
def build_freezer(project_uri: str) -> Freezer:
    """Build the freezer of a project, once per process."""
    environment = FreezeInputsEnvironment.read()
    store = S3ObjectStore(client("s3"))
    project = Project.model_validate_json(store.get(project_uri))
    table = DynamoRunTable(client("dynamodb"), environment.run_table)

    def now() -> datetime:
        return datetime.now(UTC)

    return Freezer(
        project=project,
        store=store,
        inputs=input_listing(
            project,
            store=store,
            table=table,
            raw_bucket=environment.raw_bucket,
            file_table=environment.file_table,
            now=now,
        ),
        table=table,
        executions=StepFunctionsExecutions(client("stepfunctions")),
        exchange_bucket=environment.exchange_bucket,
        # With 0 days, the function record_run removes the files of a run that has published its day.
        keeps=KeptStages(age=timedelta(days=environment.kept_days), published=environment.intermediate_days > 0),
        now=now,
        on_run_lost=lambda pipeline: put_metric(Metric.RUNS_FAILED, 1, pipeline=pipeline),
    )


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Freeze the inputs of a run, and return `slackwater.runs.freeze.Frozen` as JSON.

    Raises as `Freezer.freeze` does. The state machine retries `DayChanged` and `Throttled`
    (`slackwater.pipeline.retries`).
    """
    request = FreezeInputsRequest.model_validate(event)
    freezer = replace(build_freezer(request.project), large_rows=request.large_rows)
    frozen = freezer.freeze(**request.model_dump(exclude={"project", "large_rows"}))
    response = frozen.model_dump(mode="json")
    logger.info("inputs frozen", extra=response)
    return response
