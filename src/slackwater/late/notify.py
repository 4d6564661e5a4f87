"""Telling people what a new version of a day has changed: one message for a change, never two.

The order of writes is what that rests on. The message is kept before anything else, the day is claimed right before
sending, and the message's id is kept right after. So a claim that was left behind says: sent, when the id is there, or
perhaps sent, when it is not; and then an alarm rings instead of a second message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from slackwater.errors import AnswerLost, DayChanged, InputError, ObjectMissing, SlackwaterError
from slackwater.late.comparison import Comparison
from slackwater.late.message import Message, compose
from slackwater.runs.manifest import Record
from slackwater.runs.record import DayRecord, NotificationClaim
from slackwater.runs.table import Executions, RunTable, is_alive
from slackwater.storage import ObjectStore

_TRIES = 20
"""Writes of one day at most: each is lost only to another one that came between reading and writing."""


class NotificationTopic(Protocol):
    """Where messages are sent to."""

    def publish(self, *, subject: str, body: str, attributes: Mapping[str, str]) -> str:
        """Send the message once, and return its id.

        Raises `AnswerLost` when nobody knows whether it was sent; any other error means that it was not.
        """


class NotificationResult(Record):
    """What has become of telling."""

    told: bool
    why: str = ""
    """Why people were not told."""
    message: str = ""
    """Address of what they were told."""


class _Step(NamedTuple):
    """What the day as it stands asks for."""

    update: dict[str, Any]
    """Of the day's record; nothing is written without any."""
    answer: NotificationResult | None = None
    """None to go on, and send."""
    unsure: bool = False


@dataclass(frozen=True, kw_only=True)
class Notifier:
    """Tells people of changed days."""

    store: ObjectStore
    table: RunTable
    executions: Executions
    topic: NotificationTopic
    now: Callable[[], datetime]
    unsure: Callable[[str], None]
    """Called with the pipeline when a message may have been sent or not, before that is settled: to ring an alarm."""

    def tell(self, *, pipeline: str, date: str, comparison: str, execution: str) -> NotificationResult:
        """Tell people what the comparison at that address says, unless they know or it is overtaken.

        Raises the topic's error when it has refused the message: nothing was sent, and the call may be repeated.
        Raises `DayChanged` when the day keeps changing.
        """
        found = Comparison.model_validate_json(self.store.get(comparison))
        if (found.pipeline, found.date) != (pipeline, date):
            raise InputError(f"comparison: {comparison} is one of {found.pipeline} for {found.date}")
        address, message = message_uri(comparison), compose(found)
        claim = NotificationClaim(execution=execution, attempt=found.after.attempt, since=self.now(), call=uuid4().hex)
        answer = self._claim(found, message, address, claim)
        return answer or self._send(found, message, address, claim)

    def _claim(
        self, found: Comparison, message: Message, address: str, claim: NotificationClaim
    ) -> NotificationResult | None:
        """Make the telling this execution's; return the answer if there is nothing to tell."""
        for _ in range(_TRIES):
            day = self.table.day(found.pipeline, found.date)
            if day.telling == claim:  # written before, and the answer was lost
                return None
            step = self._step(day, found, address, claim)
            if step.unsure:
                self.unsure(found.pipeline)
            if step.answer is None:
                self.store.put_new(address, message.model_dump_json().encode())
            try:
                if step.update:
                    self.table.save_day(day.model_copy(update=step.update))
            except DayChanged:
                continue
            return step.answer
        raise DayChanged(f"{found.pipeline}: {found.date} kept changing while people were to be told of it")

    def _step(self, day: DayRecord, found: Comparison, address: str, claim: NotificationClaim) -> _Step:
        attempt, published = claim.attempt, day.published.run.attempt if day.published else 0
        if day.told >= attempt:
            return _Step({}, NotificationResult(told=False, why="already told"))
        if published != attempt:
            why = f"overtaken by attempt {published}: the next monitoring compares it"
            return _Step({}, NotificationResult(told=False, why=why))
        if day.telling:
            return self._left_behind(day, day.telling, address, claim)
        if found.before.attempt < day.told:
            return _Step({}, _told_of(day.told))
        if not found.rows.differing:
            return _Step({"told": attempt}, NotificationResult(told=False, why="the output did not change"))
        return _Step({"telling": claim})

    def _left_behind(self, day: DayRecord, telling: NotificationClaim, address: str, claim: NotificationClaim) -> _Step:
        """Settle a telling that was begun before: nobody sends it again."""
        mine = telling.execution == claim.execution
        if not mine and is_alive(self.executions, telling.execution, since=telling.since, now=self.now()):
            return _Step({}, NotificationResult(told=False, why="another monitoring tells it"))
        update = {"told": max(day.told, telling.attempt), "telling": None}
        if telling.attempt != claim.attempt:
            comparisons = address.rsplit("/", 2)[0]
            address = f"{comparisons}/{day.told}-{telling.attempt}/message.json"
        if not self._was_sent(address):
            return _Step(update, _perhaps(telling.attempt, address), unsure=True)
        if telling.attempt != claim.attempt:
            return _Step(update, _told_of(telling.attempt))
        return _Step(
            update,
            NotificationResult(told=True, message=address)
            if mine
            else NotificationResult(told=False, why="already told"),
        )

    def _send(self, found: Comparison, message: Message, address: str, claim: NotificationClaim) -> NotificationResult:
        day = (found.pipeline, found.date)
        attributes = {"pipeline": found.pipeline, "date": found.date}
        try:
            message_id = self.topic.publish(subject=message.subject, body=message.body, attributes=attributes)
        except AnswerLost:
            self.unsure(found.pipeline)
            self._change(day, lambda record: _settled(record, claim))
            return _perhaps(claim.attempt, address)
        except SlackwaterError:
            self._change(day, lambda record: _without(record, claim))
            raise
        try:
            sent = message.model_copy(update={"message_id": message_id, "sent_at": self.now()})
            self.store.put(address, sent.model_dump_json().encode())
        finally:
            self._change(day, lambda record: _settled(record, claim))
        return NotificationResult(told=True, message=address)

    def _change(self, day: tuple[str, str], change: Callable[[DayRecord], DayRecord]) -> None:
        """Change the day, whatever else changes it meanwhile."""
        for _ in range(_TRIES):
            record = self.table.day(*day)
            changed = change(record)
            try:
                if changed != record:
                    self.table.save_day(changed)
            except DayChanged:
                continue
            return
        raise DayChanged(f"{day[0]}: {day[1]} kept changing while it was written down that people were told of it")

    def _was_sent(self, address: str) -> bool:
        try:
            return Message.model_validate_json(self.store.get(address)).message_id is not None
        except ObjectMissing:
            return False


def message_uri(comparison: str) -> str:
    """Return the address of what people are told of the comparison at that address."""
    return f"{comparison.rpartition('/')[0]}/message.json"


def _told_of(attempt: int) -> NotificationResult:
    return NotificationResult(
        told=False, why=f"people were told of attempt {attempt}: the next monitoring compares with it"
    )


def _perhaps(attempt: int, address: str) -> NotificationResult:
    return NotificationResult(
        told=False, why=f"unsure: people may have been told of attempt {attempt}, or not ({address})"
    )


def _settled(day: DayRecord, claim: NotificationClaim) -> DayRecord:
    return _without(day, claim).model_copy(update={"told": max(day.told, claim.attempt)})


def _without(day: DayRecord, claim: NotificationClaim) -> DayRecord:
    return day.model_copy(update={"telling": None}) if day.telling == claim else day
