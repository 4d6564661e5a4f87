"""Send events of OpenLineage about a run: in deployments with the setting `openlineage`."""

from __future__ import annotations

from typing import Any, Literal

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import FunctionResources, function_resources
from slackwater.errors import CloudError
from slackwater.lineage.run_events import RunEvents
from slackwater.runs.record import RunState

logger = Logger()


class SendLineageRequest(BaseModel):
    """Input from the functions that record the start and the end of a run."""

    event: Literal["started", "ended"]
    pipeline: str
    date: str
    attempt: int
    correlation_id: str = ""


def run_events(resources: FunctionResources, request: SendLineageRequest) -> RunEvents:
    """Return the events of the request's run.

    Raises `CloudError` if the run table does not contain it, or for the end of a run that has not ended.
    """
    record = resources.run_table.run(request.pipeline, request.date, request.attempt)
    if record is None:
        raise CloudError(f"the run table has no attempt {request.attempt} of {request.pipeline} for {request.date}")
    if request.event == "ended" and record.state is RunState.RUNNING:
        raise CloudError(f"attempt {request.attempt} of {request.pipeline} for {request.date} has not ended")
    settings = resources.settings
    return RunEvents(
        record,
        project=resources.project,
        store=resources.store,
        namespace=settings.openlineage_namespace,
        database=settings.warehouse_database,
        files=settings.files_prefix,
    )


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Send the events of a run, and return how many.

    Raises `Unavailable` and `CloudError` as the receiver does, which is logged: Lambda then calls the function again,
    twice at most. After that, the events are lost.
    """
    request, resources = SendLineageRequest.model_validate(event), function_resources()
    events = run_events(resources, request)
    with resources.open_lineage_receiver() as receiver:
        if request.event == "ended":
            sent = receiver.send(events.ended())
        else:
            sent = receiver.send(events.started())
            # Receivers show the state of the last event, and this one may have been repeated for minutes.
            if (events := run_events(resources, request)).record.state is not RunState.RUNNING:
                sent += receiver.send(events.ended())
    logger.info("lineage sent", extra={"event": request.event, "events": sent})
    return {"events": sent}
