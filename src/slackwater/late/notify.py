"""Notifying people of what a new version of a day has changed: one message for a change, never two.

The order of writes guarantees it:

1. The message is stored next to its comparison.
2. The execution claims the notification in the day's record.
3. The message is sent.
4. The id of the sent message is stored.
5. The day's record marks the attempt as notified, and the claim is removed.

A claim that was left behind by a crash means: the message was sent if its id is stored. Otherwise it may have been
sent or not, between 2 and 4. Then nothing is sent again, and an alarm fires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from slackwater.errors import ResponseLost, DayChanged, InputError, ObjectMissing, SlackwaterError
from slackwater.late.comparison import Comparison
from slackwater.late.message import Message, compose
from slackwater.runs.manifest import Record
from slackwater.runs.record import DayRecord, NotificationClaim
from slackwater.runs.table import Executions, RunTable, is_alive
from slackwater.storage import ObjectStore

# Each failed write means that another execution has changed the day in between.
_MAX_WRITES = 20


class NotificationTopic(Protocol):
    """Sends messages."""

    def publish(self, *, subject: str, body: str, attributes: Mapping[str, str]) -> str:
        """Send the message once, and return its id.

        Raises `ResponseLost` when it is unknown whether the message was sent; any other error means that it was not.
        """


class NotificationResult(Record):
    """The result of a notification."""

    notified: bool
    reason: str = ""
    """Why people were not notified."""
    message: str = ""
    """URI of the message that was sent."""


class _NextStep(NamedTuple):
    """The change to the day's record that its present state asks for."""

    update: dict[str, Any]
    """Nothing is written when it is empty."""
    result: NotificationResult | None = None
    """The final result; None to send the message next."""
    outcome_unknown: bool = False


@dataclass(frozen=True, kw_only=True)
class Notifier:
    """Notifies people of changed days."""

    store: ObjectStore
    table: RunTable
    executions: Executions
    topic: NotificationTopic
    now: Callable[[], datetime]
    on_outcome_unknown: Callable[[str], None]
    """Called with the pipeline when a message may have been sent or not; it makes an alarm fire.

    It is called before the day's record is updated: a crash in between repeats the call instead of losing it.
    """

    def notify(self, *, pipeline: str, date: str, comparison: str, execution: str) -> NotificationResult:
        """Send the message about the comparison at that URI, unless people know it or a later version is published.

        Raises `InputError` when the comparison is of another day, the topic's error when the topic has refused the
        message (nothing was sent, the call may be repeated), and `DayChanged` when the day keeps changing.
        """
        content = Comparison.model_validate_json(self.store.get(comparison))
        if (content.pipeline, content.date) != (pipeline, date):
            raise InputError(f"comparison: {comparison} is one of {content.pipeline} for {content.date}")
        uri, message = message_uri(comparison), compose(content)
        claim = NotificationClaim(
            execution=execution, attempt=content.after.attempt, since=self.now(), call=uuid4().hex
        )
        return self._claim(content, message, uri, claim) or self._send(content, message, uri, claim)

    def _claim(
        self, comparison: Comparison, message: Message, uri: str, claim: NotificationClaim
    ) -> NotificationResult | None:
        """Claim the notification for this call. Returns the final result when there is nothing to send."""
        for _ in range(_MAX_WRITES):
            day = self.table.day(comparison.pipeline, comparison.date)
            if day.notification_claim == claim:  # this call has written it, but the response was lost
                return None
            step = self._next_step(day, comparison, uri, claim)
            if step.outcome_unknown:
                self.on_outcome_unknown(comparison.pipeline)
            # The message comes before the claim, so a claim that was left behind always has its message.
            if step.result is None:
                self.store.put_new(uri, message.model_dump_json().encode())
            try:
                if step.update:
                    self.table.save_day(day.model_copy(update=step.update))
            except DayChanged:
                continue
            return step.result
        raise DayChanged(f"{comparison.pipeline}: {comparison.date} kept changing while its notification was claimed")

    def _next_step(self, day: DayRecord, comparison: Comparison, uri: str, claim: NotificationClaim) -> _NextStep:
        attempt, published = claim.attempt, day.published.run.attempt if day.published else 0
        if day.notified_attempt >= attempt:
            return _NextStep({}, _not_notified("already notified"))
        if published != attempt:
            reason = f"attempt {published} was published since: the next monitoring compares it"
            return _NextStep({}, _not_notified(reason))
        if day.notification_claim:
            return self._resolve_claim(day, day.notification_claim, uri, claim)
        if comparison.before.attempt < day.notified_attempt:
            return _NextStep({}, _not_notified(_compared_later(day.notified_attempt)))
        if not comparison.rows.differing:
            return _NextStep({"notified_attempt": attempt}, _not_notified("the output did not change"))
        return _NextStep({"notification_claim": claim})

    def _resolve_claim(
        self, day: DayRecord, existing: NotificationClaim, uri: str, claim: NotificationClaim
    ) -> _NextStep:
        """Leave a claim of a running execution alone, and resolve one that was left behind: nothing is sent again."""
        is_own = existing.execution == claim.execution
        if not is_own and is_alive(self.executions, existing.execution, since=existing.since, now=self.now()):
            return _NextStep({}, _not_notified("another monitoring sends the notification"))
        update = {"notified_attempt": max(day.notified_attempt, existing.attempt), "notification_claim": None}
        if existing.attempt != claim.attempt:
            comparisons = uri.rsplit("/", 2)[0]
            uri = f"{comparisons}/{day.notified_attempt}-{existing.attempt}/message.json"
        try:
            was_sent = Message.model_validate_json(self.store.get(uri)).message_id is not None
        except ObjectMissing:
            was_sent = False
        if not was_sent:
            result = _not_notified(_may_have_been_notified(existing.attempt, uri))
            return _NextStep(update, result, outcome_unknown=True)
        if existing.attempt != claim.attempt:
            return _NextStep(update, _not_notified(_compared_later(existing.attempt)))
        result = NotificationResult(notified=True, message=uri) if is_own else _not_notified("already notified")
        return _NextStep(update, result)

    def _send(self, comparison: Comparison, message: Message, uri: str, claim: NotificationClaim) -> NotificationResult:
        attributes = {"pipeline": comparison.pipeline, "date": comparison.date}
        try:
            message_id = self.topic.publish(subject=message.subject, body=message.body, attributes=attributes)
        except ResponseLost:
            self.on_outcome_unknown(comparison.pipeline)
            self._release(comparison, claim, notified=True)
            return _not_notified(_may_have_been_notified(claim.attempt, uri))
        except SlackwaterError:
            self._release(comparison, claim, notified=False)
            raise
        # The id comes before the release: from the claim to here, only the id proves that the message was sent. The
        # release happens even if the id cannot be stored, because the message must not be sent again.
        try:
            sent = message.model_copy(update={"message_id": message_id, "sent_at": self.now()})
            self.store.put(uri, sent.model_dump_json().encode())
        finally:
            self._release(comparison, claim, notified=True)
        return NotificationResult(notified=True, message=uri)

    def _release(self, comparison: Comparison, claim: NotificationClaim, *, notified: bool) -> None:
        """Remove the claim, unless another one has replaced it, and mark its attempt as notified."""
        for _ in range(_MAX_WRITES):
            day = self.table.day(comparison.pipeline, comparison.date)
            update: dict[str, Any] = {}
            if day.notification_claim == claim:
                update["notification_claim"] = None
            if notified and day.notified_attempt < claim.attempt:
                update["notified_attempt"] = claim.attempt
            try:
                if update:
                    self.table.save_day(day.model_copy(update=update))
            except DayChanged:
                continue
            return
        raise DayChanged(f"{comparison.pipeline}: {comparison.date} kept changing while its notification was recorded")


def message_uri(comparison: str) -> str:
    """Return the URI of the message about the comparison at that URI."""
    return f"{comparison.rpartition('/')[0]}/message.json"


def _not_notified(reason: str) -> NotificationResult:
    return NotificationResult(notified=False, reason=reason)


def _compared_later(attempt: int) -> str:
    return f"people were notified of attempt {attempt}: the next monitoring compares with it"


def _may_have_been_notified(attempt: int, uri: str) -> str:
    return f"outcome unknown: people may have been notified of attempt {attempt}, or not ({uri})"
