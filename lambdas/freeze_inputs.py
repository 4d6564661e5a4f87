"""Freeze the inputs of a run and claim its day: the first state of every pipeline's state machine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.emf import put_metric
from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import FunctionResources, function_resources
from slackwater.aws.resources import utc_now
from slackwater.metrics import Metric
from slackwater.runs.added_objects import LARGE_ROWS
from slackwater.runs.freeze import Freezer, KeptStages
from slackwater.runs.record import JobFiles

logger = Logger()


class FreezeInputsRequest(BaseModel):
    """Input from the state machine."""

    project: str
    """URI of the `Project` that defines the pipeline. Its name contains a hash of its content."""
    pipeline: str
    date: str
    execution: str
    correlation_id: str
    force: bool = False
    profile: bool = False
    """Whether each step is measured. All stages are computed then, also if nothing has changed."""
    moves_hours: bool = False
    """Whether the days around it run too, so that it may run with another timezone than before."""
    rollback: int | None = None
    """The number of an earlier version that the run publishes again."""
    reason: str = ""
    """Why the day is rolled back."""
    missing: str = ""
    """What the run has waited for in vain: one line for each condition that did not hold."""
    live: bool = False
    """Whether a schedule publishes the open day. The run is left out if there is nothing to do or the day has ended."""
    archive: str = ""
    """URI of the archive of the run's Spark jobs; empty in an execution that an older release has started."""
    entry_point: str = ""
    """URI of the program of a stage's job."""
    large_rows: int = LARGE_ROWS
    """From how many events on a stage may compute added objects alone. Only tests set it."""

    @property
    def files(self) -> JobFiles | None:
        """The deployed files of the run's jobs; None if the state machine does not name them."""
        if not self.archive:
            return None
        return JobFiles(project=self.project, archive=self.archive, entry_point=self.entry_point)


def freezer(resources: FunctionResources, *, large_rows: int = LARGE_ROWS) -> Freezer:
    """Return what freezes the inputs of runs."""
    settings = resources.settings
    return Freezer(
        project=resources.project,
        store=resources.store,
        inputs=resources.inputs,
        counts=resources.counts_reader,
        table=resources.run_table,
        executions=resources.state_machines,
        exchange_bucket=settings.exchange_bucket,
        # With 0 days, the function record_run removes the files of a run that has published its day.
        keeps=KeptStages(age=timedelta(days=int(settings.kept_days)), published=int(settings.intermediate_days) > 0),
        now=utc_now,
        on_run_lost=lambda pipeline: put_metric(Metric.RUNS_FAILED, 1, pipeline=pipeline),
        on_started=resources.once.lineage_requests.started,
        on_ended=resources.once.lineage_requests.ended,
        large_rows=large_rows,
    )


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Freeze the inputs of a run, and return `slackwater.runs.freeze.Frozen` as JSON.

    Raises as `Freezer.freeze` does. The state machine retries `DayChanged` and `Throttled`
    (`slackwater.pipeline.retries`).
    """
    request = FreezeInputsRequest.model_validate(event)
    runs = freezer(function_resources(project_uri=request.project), large_rows=request.large_rows)
    arguments = request.model_dump(exclude={"project", "archive", "entry_point", "large_rows"})
    frozen = runs.freeze(**arguments, files=request.files)
    response = frozen.model_dump(mode="json")
    logger.info("inputs frozen", extra=response)
    return response
