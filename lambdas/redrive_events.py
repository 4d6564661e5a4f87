"""Send the rejected events of a batch again, after the definition of their source was corrected."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import function_resources
from slackwater.model import IsoDate

logger = Logger()


class RedriveRequest(BaseModel):
    """Input from a client."""

    source: str
    date: IsoDate
    """The UTC day on which the batch was received first."""
    batch_id: str
    rule: str | None
    """Only the events whose latest rejection is by this rule."""
    dry_run: bool
    correlation_id: str


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return what became of the rejected events, a `slackwater.receiver.push.redriven.Redriven` as JSON.

    Raises `SlackwaterError`. The same call again stores what is missing, and nothing twice.
    """
    request = RedriveRequest.model_validate(event)
    resources = function_resources()
    redriven = resources.redriver.redrive(
        resources.project.source(request.source),
        request.date,
        request.batch_id,
        rule=request.rule,
        dry_run=request.dry_run,
    )
    # Not the reasons, which quote values of events.
    counts = {"accepted": redriven.accepted, "rejected": redriven.rejected, "dry_run": request.dry_run}
    logger.info("rejected events sent again", extra={"batch_id": request.batch_id, **counts})
    return redriven.model_dump(mode="json")
