"""What became of the rejected events of a batch that were sent again, by rule: the answer to a client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Self

from slackwater.model import Record
from slackwater.receiver.writing.redrives import FailedAgain, SentAgain
from slackwater.receiver.writing.stored_rejects import StoredReject


class FailedRule(Record):
    """Events that a rule rejects again."""

    rule: str
    events: int
    reason: str
    """Of the first of them."""


class RuleOutcome(Record):
    """What became of the events that were rejected by one rule."""

    rule: str
    """Of their latest rejection."""
    accepted: int
    failed: tuple[FailedRule, ...]


class Redriven(Record):
    """What became of the rejected events of a batch."""

    rules: tuple[RuleOutcome, ...]
    stored_before: int
    """Events that an earlier call has stored."""

    @property
    def accepted(self) -> int:
        """The events that were accepted, or would be."""
        return sum(rule.accepted for rule in self.rules)

    @property
    def rejected(self) -> int:
        """The events that were rejected again, or would be."""
        return sum(failed.events for rule in self.rules for failed in rule.failed)

    @classmethod
    def of(cls, events: Mapping[int, StoredReject], before: SentAgain, after: SentAgain, rule: str | None) -> Self:
        """Return what became of the events that were not stored before, by the rule of their rejection then.

        `events` are those of the batch. With `rule`, events of other rules are left out, unless they were accepted.
        """
        accepted, failed = defaultdict[str, int](int), defaultdict[str, list[FailedAgain]](list)
        for index, event in events.items():
            name = before.rule_of(event)
            if index in before.stored or (rule not in {None, name} and index not in after.accepted):
                continue
            if index in after.accepted:
                accepted[name] += 1
            else:
                failed[name].append(after.newest.get(index) or FailedAgain(index, event.rule, event.reason))
        rules = tuple(
            RuleOutcome(rule=name, accepted=accepted[name], failed=_failed_rules(failed[name]))
            for name in sorted({*accepted, *failed})
        )
        return cls(rules=rules, stored_before=len(before.stored))


def _failed_rules(events: Iterable[FailedAgain]) -> tuple[FailedRule, ...]:
    by_rule: dict[str, list[FailedAgain]] = {}
    for event in events:
        by_rule.setdefault(event.rule, []).append(event)
    return tuple(
        FailedRule(rule=rule, events=len(found), reason=found[0].reason) for rule, found in sorted(by_rule.items())
    )
