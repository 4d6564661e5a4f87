"""The messages of the queue of arrivals: each names days whose inputs may have changed."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from pydantic import AwareDatetime, TypeAdapter

from slackwater.model import Model, PeriodName
from slackwater.receiver.commits import FileCommitted
from slackwater.runs.arrivals import DayPublished

# The longest time, in seconds, that SQS delays a message. A message that has to wait longer is sent again.
_LONGEST_DELAY = 900
LONGEST_WAIT = timedelta(days=4)
"""How long a message waits for the end of a run: as long as the queue keeps one that is not received. A run may take
two days."""


class ObjectWritten(Model):
    """An object was written to the raw bucket. EventBridge sends it."""

    id: str
    """Of the event: it is the same when an event is delivered again."""
    key: str
    time: AwareDatetime | None = None
    """When the object was written, in whole seconds. Messages of older versions have none until they are sent again."""


class DayDeferred(Model):
    """A check has deferred a late day, or could not decide about it."""

    id: str
    """The same for each check that defers the day until the same instant."""
    pipeline: str
    date: PeriodName
    not_before: AwareDatetime
    """When the day is checked again."""


ArrivalMessage = ObjectWritten | FileCommitted | DayPublished | DayDeferred
_MESSAGE: TypeAdapter[ArrivalMessage] = TypeAdapter(ArrivalMessage)


def read_message(body: str) -> ArrivalMessage:
    """Return the message with this body. Raises `pydantic.ValidationError`."""
    return _MESSAGE.validate_json(body)


def day_deferred(pipeline: str, date: str, *, not_before: datetime) -> DayDeferred:
    """Return the message that checks the day again at `not_before`."""
    return DayDeferred(
        id=f"{pipeline} {date} {not_before.isoformat()}", pipeline=pipeline, date=date, not_before=not_before
    )


def is_expired(message: ArrivalMessage, now: datetime) -> bool:
    """Return whether a message about a running day is too old to be sent again."""
    time = message.not_before if isinstance(message, DayDeferred) else message.time
    return time is not None and time < now - LONGEST_WAIT


def body_to_send(body: str, message: ArrivalMessage, now: datetime) -> str:
    """Return the body with which a message is sent again. One without a time gets `now`, so that it expires."""
    if isinstance(message, ObjectWritten) and message.time is None:
        return message.model_copy(update={"time": now}).model_dump_json()
    return body


def seconds_to_wait(message: ArrivalMessage, now: datetime) -> int:
    """Return the delay, in seconds, with which a message is sent because its time has not come; 0 if it has."""
    if not isinstance(message, DayDeferred) or message.not_before <= now:
        return 0
    return min(_LONGEST_DELAY, math.ceil((message.not_before - now).total_seconds()))
