"""Sends each message at most once: it is claimed, sent, and then settled.

An execution claims the message in a stored record before it sends it. After a crash the claim is still there, and the
message may or may not have been sent: it is not sent again, and an alarm fires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from slackwater.errors import ResponseLost, SlackwaterError
from slackwater.late.report.document import Document
from slackwater.metrics import Metric, PutsMetric, Warns
from slackwater.runs.pipeline_records import DefinitionNotice
from slackwater.runs.record import NotificationClaim, TableNotice
from slackwater.runs.table import Executions, is_alive

Notice = TypeVar("Notice", TableNotice, DefinitionNotice)


class NotificationTopic(Protocol):
    """Sends messages to everybody who has subscribed."""

    def publish(self, *, subject: str, body: str, document: str, attributes: Mapping[str, str]) -> str:
        """Send the message, without retries, and return its id. `document` is the JSON document that programs receive.

        Raises `ResponseLost` when it is unknown whether the message was sent; any other error means that it was not.
        """


class Outcome(NamedTuple):
    """What became of a message."""

    message_id: str | None = None
    """None if it was refused, or may or may not have been sent."""
    refusal: SlackwaterError | None = None
    """The error with which the topic has refused it: nothing was sent."""


class Messages(Protocol[Notice]):
    """Messages of one kind about one subject. Only the latest one is stored."""

    @property
    def date(self) -> str:
        """The day that the message is about, an ISO date."""

    def update(self, change: Callable[[Notice | None], Notice | None]) -> Notice | None:
        """Write the stored notice as `change` returns it, and return it. `change` may be called more than once."""

    def claim(self, latest: Notice | None, own: Mapping[str, Any]) -> Notice | None:
        """Return a notice with the fields `own` if there is something to send after the `latest` one, else `latest`."""

    def settled(self, notice: Notice, *, is_refused: bool) -> Notice:
        """Return the notice after its message was sent, or may have been sent, or was refused."""

    def message(self, notice: Notice) -> tuple[Document, str]:
        """Return the document and the body of the message."""


@dataclass(frozen=True, kw_only=True)
class Outbox:
    """Sends messages to a topic."""

    executions: Executions
    topic: NotificationTopic
    now: Callable[[], datetime]
    put_metric: PutsMetric
    warn: Warns

    def report_unknown_outcome(self, pipeline: str, date: str) -> None:
        """Put the metric of an alarm for a message that may or may not have been sent, and log its day.

        It is called before the claim is settled. After a crash in between, the next execution calls it again.
        """
        self.warn("people may have been notified of a change, or not", date=date)
        self.put_metric(Metric.NOTIFICATION_OUTCOME_UNKNOWN, 1, pipeline=pipeline)

    def is_claimed(self, claim: NotificationClaim | TableNotice | DefinitionNotice, *, execution: str) -> bool:
        """Return whether another execution than this one, an ARN, has the claim, and is running."""
        if claim.execution == execution:
            return False  # Of a call that Step Functions has repeated after a failure.
        now = self.now()
        return is_alive(self.executions, claim.execution, since=claim.since or now, now=now)

    def send(self, document: Document, *, date: str, body: str) -> Outcome:
        """Send a claimed message. The caller settles the claim, and then raises the error of a refused message."""
        attributes = {
            "pipeline": document.pipeline, "date": date, "severity": document.severity.value, "team": document.team
        }  # fmt: skip
        try:
            message_id = self.topic.publish(
                subject=document.summary,
                body=body,
                document=document.model_dump_json(),
                # SNS refuses empty ones.
                attributes={name: value for name, value in attributes.items() if value},
            )
        except ResponseLost:
            self.report_unknown_outcome(document.pipeline, date)
            return Outcome()
        except SlackwaterError as error:
            return Outcome(refusal=error)
        return Outcome(message_id)

    def send_once(self, pipeline: str, messages: Messages[Notice], *, execution: str) -> bool:
        """Claim, send and settle a message if there is something to send; return whether one was sent.

        `execution` is the ARN of the calling one. Raises the topic's error when the topic has refused the message, so
        that a later call sends it, and `DayChanged` when the stored notice keeps changing.
        """
        call = uuid4().hex

        def claim(latest: Notice | None) -> Notice | None:
            if latest and latest.call == call:
                return latest  # An earlier iteration has written it, but lost the response.
            if latest and not latest.is_settled:
                if self.is_claimed(latest, execution=execution):
                    return latest
                self.report_unknown_outcome(pipeline, messages.date)
                latest = messages.settled(latest, is_refused=False)
            own = {"execution": execution, "call": call, "since": self.now(), "is_settled": False}
            return messages.claim(latest, own)

        claimed = messages.update(claim)
        if claimed is None or claimed.call != call:
            return False
        document, body = messages.message(claimed)
        message_id, refusal = self.send(document, date=messages.date, body=body)

        def settled(notice: Notice | None) -> Notice | None:
            # Another execution may have settled it: it took this one for dead.
            is_own = notice is not None and notice.call == call and not notice.is_settled
            return messages.settled(notice, is_refused=refusal is not None) if notice and is_own else notice

        messages.update(settled)
        if refusal:
            raise refusal
        return message_id is not None
