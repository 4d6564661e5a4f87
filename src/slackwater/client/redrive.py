"""Send the rejected events of a day again: the function `redrive_events` is invoked for each of its batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from slackwater import errors
from slackwater.aws.clients import Clients
from slackwater.aws.failures import translated
from slackwater.errors import CloudError, InputError, SlackwaterError
from slackwater.receiver.parsing.rejections import RejectionRule
from slackwater.receiver.pull.rejects_reader import RejectsReader
from slackwater.receiver.push.redriven import Redriven
from slackwater.receiver.writing.stored_rejects import UNKNOWN

# Batches that are sent at the same time: each call mostly waits for S3.
_PARALLEL = 8


@dataclass
class RuleTotals:
    """What became of the events of a day that were rejected by one rule."""

    accepted: int = 0
    rejected: int = 0
    reasons: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By the rule that rejects events again: their number, and the reason of the first of them."""


@dataclass
class RedriveTotals:
    """What became of the rejected events of a day."""

    source: str
    date: str
    dry_run: bool
    correlation_id: str
    batches: int = 0
    """Pushed batches with rejected events."""
    sent: int = 0
    """Batches of them that were sent again so far."""
    files: int = 0
    """Pulled files with rejected rows: a pull reads them again."""
    stored_before: int = 0
    """Events that an earlier call has stored."""
    rules: dict[str, RuleTotals] = field(default_factory=dict)
    """By the rule of the latest rejection."""
    failed: dict[str, str] = field(default_factory=dict)
    """Why batches could not be sent again, by their ids."""

    @property
    def accepted(self) -> int:
        """The events that were accepted, or would be."""
        return sum(rule.accepted for rule in self.rules.values())

    @property
    def rejected(self) -> int:
        """The events that were rejected again, or would be."""
        return sum(rule.rejected for rule in self.rules.values())

    def add(self, redriven: Redriven) -> None:
        """Add what became of the events of a batch."""
        self.stored_before += redriven.stored_before
        for outcome in redriven.rules:
            totals = self.rules.setdefault(outcome.rule, RuleTotals())
            totals.accepted += outcome.accepted
            for failed in outcome.failed:
                totals.rejected += failed.events
                number, reason = totals.reasons.get(failed.rule, (0, failed.reason))
                totals.reasons[failed.rule] = (number + failed.events, reason)


@dataclass(frozen=True, kw_only=True)
class DayRedrive:
    """Sends the rejected events of days again."""

    rejects: RejectsReader
    clients: Clients
    function: str
    correlation_id: str

    def redrive(
        self,
        source: str,
        date: str,
        *,
        rule: str | None,
        dry_run: bool,
        on_progress: Callable[[RedriveTotals], None],
    ) -> RedriveTotals:
        """Send the events of each batch of a UTC day; the arguments are those of `Client.redrive`.

        Raises `InputError` for an unknown rule, and `CloudError`: then batches that are being sent are finished, and no
        further one is sent.
        """
        known = [*RejectionRule, UNKNOWN]
        if rule not in {None, *known}:
            raise InputError(f"rule: {rule!r} is no rule that rejects events: use one of {', '.join(known)}")
        batches, files = self.rejects.pushed_batches(source, date)
        totals = RedriveTotals(source, date, dry_run, self.correlation_id, batches=len(batches), files=files)
        request = {"source": source, "date": date, "rule": rule, "dry_run": dry_run}
        on_progress(totals)
        for batch, result in self._send_all(request, batches):
            try:
                totals.add(result.result())
            except InputError as error:
                totals.failed[batch] = str(error)
            totals.sent += 1
            on_progress(totals)
        return totals

    def _send_all(self, request: dict[str, Any], batches: list[str]) -> Iterator[tuple[str, Future[Redriven]]]:
        """Yield each batch, in order, with its result; only a few are sent before the result is used."""
        waiting: dict[str, Future[Redriven]] = {}
        left = iter(batches)
        with ThreadPoolExecutor(_PARALLEL) as pool:
            while True:
                for batch in islice(left, _PARALLEL - len(waiting)):
                    waiting[batch] = pool.submit(self._send, {**request, "batch_id": batch})
                if not waiting:
                    return
                batch = next(iter(waiting))
                yield batch, waiting.pop(batch)

    def _send(self, request: dict[str, Any]) -> Redriven:
        payload = json.dumps({**request, "correlation_id": self.correlation_id})
        with translated("send rejected events again"):
            response = self.clients("lambda").invoke(FunctionName=self.function, Payload=payload)
            answer = json.loads(response["Payload"].read())
        if "FunctionError" in response:
            raise _error(answer)
        return Redriven.model_validate(answer)


def _error(answer: dict[str, Any]) -> SlackwaterError:
    """Return the error of the function: one of the library, as it was raised there."""
    name, message = str(answer.get("errorType")), str(answer.get("errorMessage"))
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, InputError):
        return kind(message)
    return CloudError(f"the function redrive-events failed: {name}: {message}: the same command again does the rest")
