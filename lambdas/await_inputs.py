"""Evaluate what runs wait for: when a run begins to wait, every 15 minutes, and when an input has changed.

It also starts runs of open periods when further windows of their sources have all of their events.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from aws_lambda_powertools import Logger
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter

from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import function_resources
from slackwater.state.conditions import describe_unmet
from slackwater.state.verdicts import Subject
from slackwater.state.waits import WaitingRun

logger = Logger()


class WaitRequest(BaseModel):
    """Input from the state machine of a run that waits."""

    event: Literal["wait"]
    pipeline: str
    date: str
    execution: str
    token: str
    since: AwareDatetime
    """When the execution started."""


class SourceChangedRequest(BaseModel):
    """Events of a source, or facts about them, were stored."""

    event: Literal["source"]
    source: str
    hours: tuple[AwareDatetime, ...] | None
    """UTC hours; None for any."""


class CountedRequest(BaseModel):
    """Windows of a source have all of their events."""

    event: Literal["counted"]
    source: str
    hours: tuple[AwareDatetime, ...]
    """UTC hours."""


class ProvisionalRequest(BaseModel):
    """A run of an open period has ended."""

    event: Literal["provisional"]
    pipeline: str
    date: str


class DayPublishedRequest(BaseModel):
    """A pipeline has published a day."""

    event: Literal["day"]
    pipeline: str
    date: str


class VerdictRequest(BaseModel):
    """Verdicts about periods of a source or a pipeline were stored."""

    event: Literal["verdict"]
    of: Literal["source", "pipeline"]
    name: str
    periods: tuple[str, ...]
    at: AwareDatetime
    """When they were given."""


AwaitInputsRequest = (
    WaitRequest | SourceChangedRequest | CountedRequest | ProvisionalRequest | DayPublishedRequest | VerdictRequest
)
_REQUEST: TypeAdapter[AwaitInputsRequest] = TypeAdapter(Annotated[AwaitInputsRequest, Field(discriminator="event")])


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Let runs go on whose conditions hold; return what a run that begins to wait waits for.

    Raises `SlackwaterError`. Step Functions and Lambda repeat the call, which starts nothing twice.
    """
    request = _REQUEST.validate_python(event)
    resources = function_resources()
    waits, missing = resources.waits, tuple[str, ...]()
    match request:
        case WaitRequest(pipeline=pipeline, date=date, execution=execution, token=token, since=since):
            evaluation = waits.wait(WaitingRun(pipeline, date, execution, token, since))
            missing = describe_unmet(evaluation.unmet)
            logger.info("inputs evaluated", extra={"outcome": evaluation.outcome, "missing": missing})
        case SourceChangedRequest(source=source, hours=hours):
            waits.wake_source(source, hours)
        case CountedRequest(source=source, hours=hours):
            logger.info("runs started", extra={"executions": resources.live_windows.source_counted(source, hours)})
        case ProvisionalRequest(pipeline=pipeline, date=date):
            logger.info("run started", extra={"execution": resources.live_windows.run_ended(pipeline, date)})
        case DayPublishedRequest(pipeline=pipeline, date=date):
            waits.wake_day(pipeline, date)
        case VerdictRequest(of=of, name=name, periods=periods, at=at):
            # First: an error in the other one repeats the call.
            resources.check_readers(Subject(of, name), periods, at)
            waits.wake_verdict(Subject(of, name), periods)
    return {"missing": missing}
