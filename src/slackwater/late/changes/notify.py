"""Notifies people of what a new version of a day has changed: at most one message for a change (`outbox`).

The order of writes guarantees that no message is sent twice:

1. The message is stored next to its comparison, after the report as a page and the document for programs.
2. The execution claims the notification in the day's record.
3. The message is sent.
4. The id of the sent message is stored.
5. The day's record marks the attempt as notified, and the claim is removed.

After a crash, the claim is still in the day's record. The message was sent if its id is stored. Otherwise it may or
may not have been sent, because the crash was between 2 and 4: the message is not sent again, and an alarm fires.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

from slackwater.errors import InputError, ObjectMissing, SlackwaterError
from slackwater.late.changes.outbox import Outbox
from slackwater.late.changes.pairs import message_uri, pair_prefix
from slackwater.late.changes.split import stored_split
from slackwater.late.comparison import Comparison
from slackwater.late.effect import effect_percent, needs_message
from slackwater.late.report.document import ChangeDocument, Document, change_document
from slackwater.late.report.message import Message, compose
from slackwater.late.report.page import report_page
from slackwater.model import Record
from slackwater.runs.comparison_run import AttemptCosts
from slackwater.runs.cost_recorder import CostRecorder
from slackwater.runs.record import DayRecord, NotificationClaim
from slackwater.runs.table import RunTable, update_day
from slackwater.storage import ObjectStore

# Of the minute that the function `notify_change` has.
_COSTS_SECONDS = 10


class NotificationResult(Record):
    """The result of a notification."""

    notified: bool
    reason: str = ""
    """Why people were not notified; empty if they were."""
    message: str = ""
    """URI of the message that was sent; empty if none was."""


class _NextStep(NamedTuple):
    """What a call does next, decided from the state of the day's record."""

    update: dict[str, Any]
    """The fields of the day's record to change; when it is empty, nothing is written."""
    result: NotificationResult | None = None
    """The final result; None if the message is sent next."""
    outcome_unknown: bool = False
    """Whether the message of an interrupted call may or may not have been sent."""


@dataclass(frozen=True, kw_only=True)
class ReadyMessage:
    """The message about one comparison before it is claimed."""

    comparison: Comparison
    message: Message
    document: ChangeDocument
    uri: str
    """Where the message is stored."""
    claim: NotificationClaim


@dataclass(frozen=True, kw_only=True)
class Notifier:
    """Notifies people of changed days."""

    store: ObjectStore
    table: RunTable
    outbox: Outbox
    costs: CostRecorder | None = None
    """None sends messages without costs."""

    def notify(self, *, pipeline: str, date: str, comparison: str, execution: str) -> NotificationResult:
        """Send the message about a comparison, unless people were notified already or a later version is published.

        `comparison` is the URI of the `Comparison`, and `execution` is the ARN of the calling execution. Raises
        `InputError` when the comparison is of another day, the topic's error when the topic has refused the message
        (nothing was sent, the call may be repeated), and `DayChanged` when the day's record keeps changing.
        """
        ready = self.prepare(pipeline=pipeline, date=date, comparison=comparison, execution=execution)
        if result := self.claim(ready):
            return result
        (result,) = self.send([ready], ready.document, date=date, body=ready.message.body)
        return result

    def prepare(
        self, *, pipeline: str, date: str, comparison: str, execution: str, with_costs: bool = True
    ) -> ReadyMessage:
        """Compose the message about a comparison, and store its page and its document. Raises as `notify` does."""
        content = Comparison.model_validate_json(self.store.get(comparison))
        if (content.pipeline, content.date) != (pipeline, date):
            raise InputError(
                f"comparison: {comparison} compares {content.pipeline} for {content.date}, not {pipeline} for {date}"
            )
        if with_costs and (costs := self.known_costs(content)):
            content = content.with_costs(costs)
        prefix = f"{comparison.rpartition('/')[0]}/"
        content = content.model_copy(update={"split": stored_split(self.store, prefix)})
        report = f"{prefix}report.html"
        message = compose(content, report=report)
        document = change_document(content, summary=message.subject, comparison_uri=comparison, report_uri=report)
        if content.rows.differing:
            # A repeated call may replace them: its content differs at most in costs that are known by then.
            self.store.put(report, report_page(content).encode())
            self.store.put(f"{prefix}notification.json", document.model_dump_json().encode())
        claim = NotificationClaim(
            execution=execution, attempt=content.after.attempt, since=self.outbox.now(), call=uuid4().hex
        )
        uri = message_uri(prefix)
        return ReadyMessage(comparison=content, message=message, document=document, uri=uri, claim=claim)

    def known_costs(self, comparison: Comparison) -> AttemptCosts | None:
        """Return what the run and the comparison have cost until now; None after an error or `_COSTS_SECONDS`.

        An error is only logged: a message may lack costs.
        """
        if self.costs is None:
            return None
        pair = {"before": comparison.before.attempt, "after": comparison.after.attempt}
        # A long history has many pages. After the time the thread reads on, but nothing waits for it.
        reader = ThreadPoolExecutor(1)
        costs = reader.submit(self.costs.attempt_costs, comparison.pipeline, comparison.date, **pair)
        try:
            return costs.result(timeout=_COSTS_SECONDS)
        except (SlackwaterError, TimeoutError) as error:
            reason = str(error) or f"not read within {_COSTS_SECONDS} seconds"
            self.outbox.warn("the message has no costs", reason=reason)
            return None
        finally:
            reader.shutdown(wait=False)

    def claim(self, ready: ReadyMessage) -> NotificationResult | None:
        """Claim the notification for this call. Returns the final result when there is nothing to send."""
        comparison, uri, claim = ready.comparison, ready.uri, ready.claim
        allowed = (
            _NextStep({"notification_claim": claim}) if needs_message(comparison) else _without_message(comparison)
        )
        result: NotificationResult | None = None

        def change(day: DayRecord) -> DayRecord:
            nonlocal result
            if day.notification_claim == claim:
                # This call has written the claim in an earlier iteration, but lost the response.
                return day
            step = self._next_step(day, comparison.before.attempt, uri, claim) or allowed
            result = step.result
            if step.outcome_unknown:
                self.outbox.report_unknown_outcome(comparison.pipeline, comparison.date)
            # The message is stored before the claim, so that after a crash every claim has its message. It must not
            # replace a message: since the record was read, another execution may have sent it and stored its id.
            if step.result is None:
                self.store.put_new(uri, ready.message.model_dump_json().encode())
            return day.model_copy(update=step.update)

        update_day(self.table, comparison.pipeline, comparison.date, change, what="its notification was claimed")
        return result

    def _next_step(self, day: DayRecord, before: int, uri: str, claim: NotificationClaim) -> _NextStep | None:
        """Return the step if the day's record does not allow the claim, or None if it does.

        `before` is the attempt of the earlier version, and `uri` the one of the message.
        """
        attempt, published = claim.attempt, day.published.run.attempt if day.published else 0
        if day.notified_attempt >= attempt:
            return _NextStep({}, _not_notified("already notified"))
        if published != attempt:
            reason = f"attempt {published} was published meanwhile: the next monitoring compares it"
            if not published:
                reason = "the day has no published version any more"
            return _NextStep({}, _not_notified(reason))
        if day.notification_claim:
            return self._resolve_claim(day, day.notification_claim, uri, claim)
        if before < day.seen_attempt:
            return _NextStep({}, _not_notified(_compared_later(day.seen_attempt)))
        return None

    def _resolve_claim(
        self, day: DayRecord, existing: NotificationClaim, uri: str, claim: NotificationClaim
    ) -> _NextStep:
        """Decide what to do about an `existing` claim.

        The claim of another running execution stays. The claim of an interrupted call is removed, and its attempt is
        marked as notified: its message is never sent again.
        """
        if self.outbox.is_claimed(existing, execution=claim.execution):
            return _NextStep({}, _not_notified("another monitoring sends the notification"))
        update: dict[str, Any] = {"notification_claim": None}
        if day.notified_attempt < existing.attempt:
            update |= _notified(existing.attempt)
        if existing.attempt != claim.attempt:
            # The comparisons of the day: the URI without the folder of the pair and the name of the message.
            comparisons = f"{uri.rsplit('/', 2)[0]}/"
            uri = message_uri(pair_prefix(comparisons, before=day.seen_attempt, after=existing.attempt))
        try:
            was_sent = Message.model_validate_json(self.store.get(uri)).message_id is not None
        except ObjectMissing:
            was_sent = False
        if not was_sent:
            result = _not_notified(_may_have_been_notified(existing.attempt, uri))
            return _NextStep(update, result, outcome_unknown=True)
        if existing.attempt != claim.attempt:
            return _NextStep(update, _not_notified(_compared_later(existing.attempt)))
        is_own = existing.execution == claim.execution
        result = NotificationResult(notified=True, message=uri) if is_own else _not_notified("already notified")
        return _NextStep(update, result)

    def send(
        self, ready: Sequence[ReadyMessage], document: Document, *, date: str, body: str
    ) -> list[NotificationResult]:
        """Send one message for claimed ones, store its id with each, and release the claims, also after an error.

        `date` is the day that the message is about. Raises the topic's error when it has refused the message.
        """
        message_id, refusal = self.outbox.send(document, date=date, body=body)
        # The id is stored before the release: while the claim exists, only the id proves that the message was sent.
        # The release happens even if the id cannot be stored, because the message must not be sent again.
        for item in ready:
            try:
                if message_id is not None:
                    sent = item.message.model_copy(update={"message_id": message_id, "sent_at": self.outbox.now()})
                    self.store.put(item.uri, sent.model_dump_json().encode())
            finally:
                self._release(item.document, item.claim, notified=refusal is None)
        if refusal:
            raise refusal
        return [
            _not_notified(_may_have_been_notified(item.claim.attempt, item.uri))
            if message_id is None
            else NotificationResult(notified=True, message=item.uri)
            for item in ready
        ]

    def _release(self, document: ChangeDocument, claim: NotificationClaim, *, notified: bool) -> None:
        """Remove the claim, unless another one has replaced it; with `notified`, mark its attempt as notified."""

        def change(day: DayRecord) -> DayRecord:
            update: dict[str, Any] = {}
            if day.notification_claim == claim:
                update["notification_claim"] = None
            if notified and day.notified_attempt < claim.attempt:
                update |= _notified(claim.attempt)
            return day.model_copy(update=update)

        update_day(self.table, document.pipeline, document.date, change, what="its notification was recorded")


def _without_message(comparison: Comparison) -> _NextStep:
    """Return the step after a comparison that needs no message."""
    attempt = comparison.after.attempt
    if not comparison.rows.differing:
        return _NextStep(_notified(attempt), _not_notified("the output did not change"))
    # The next version is compared with the one that people know, so that small changes add up.
    update = {"notified_attempt": attempt, "baseline_attempt": comparison.before.attempt}
    least = comparison.notify.min_effect_percent
    reason = f"the effect of {effect_percent(comparison):.3g} % is below late.notify.min_effect_percent, {least:g}"
    return _NextStep(update, _not_notified(reason))


def _notified(attempt: int) -> dict[str, Any]:
    """Return the fields of a day's record that say that people know the version of an attempt."""
    return {"notified_attempt": attempt, "baseline_attempt": 0}


def _not_notified(reason: str) -> NotificationResult:
    return NotificationResult(notified=False, reason=reason)


def _compared_later(attempt: int) -> str:
    return f"people were notified of attempt {attempt}: the next monitoring compares with it"


def _may_have_been_notified(attempt: int, uri: str) -> str:
    return f"outcome unknown: people may have been notified of attempt {attempt}, or not ({uri})"
