"""What a decision of the check changes in the record of its day: the day is put on hold, or its hold ends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from slackwater.late.decision import EARLY_RULES, DayDecision, DecisionRule, LateDecision
from slackwater.runs.holds import held, hold_ended
from slackwater.runs.period import distance
from slackwater.runs.record import DayRecord, Hold

ERROR_RULES = frozenset({DecisionRule.UNREADABLE, DecisionRule.CHANGING})
"""Rules of days that a check could not read."""
# Other data alone does not end the hold of a failed attempt, because the day may not run again. It leaves the list when
# it does, when nothing has changed any more, or when a person keeps the version.
_FAILURES = frozenset({DecisionRule.AUDIT, DecisionRule.FAILED})
_END_FAILURES = frozenset({DecisionRule.UNCHANGED, DecisionRule.DEFINITION_KEPT, DecisionRule.KEPT})
LONGEST_ERROR = timedelta(hours=12)
"""For how long an error that may pass puts no day on hold."""
MAX_OLDER_DAYS = 10
"""Most days on hold before the window that one check looks at."""


def day_with_decision(
    record: DayRecord, decision: DayDecision, *, inputs: str, execution: str, now: datetime
) -> DayRecord:
    """Return the day's record after a check; an equal record if the decision changes nothing.

    `decision` is the final one, after the limits of the pipeline. `inputs` is the digest of the inputs that were
    compared, empty if none were; `execution` the ARN of the monitoring.
    """
    unreadable_since = (record.unreadable_since or now) if decision.error_may_pass else None
    record = record.model_copy(update={"unreadable_since": unreadable_since})
    if decision.rule in EARLY_RULES:
        return record  # They do not show whether the cause of a hold is gone.
    if unreadable_since and now - unreadable_since < LONGEST_ERROR:
        return record
    if decision.decision is not LateDecision.HOLD:
        if record.hold and record.hold.rule in _FAILURES and not ends_failure(decision):
            return record
        return hold_ended(record, reason=decision.reason, inputs=inputs, now=now)
    hold = record.hold
    # Errors may pass before the next check, so they do not replace the cause of a hold.
    if hold and (decision.rule in ERROR_RULES or (hold.rule, hold.inputs) == (decision.rule, inputs)):
        return record
    new = Hold(rule=decision.rule, reason=decision.reason, since=now, inputs=inputs, execution=execution)
    return held(record, new)


def ends_older_hold(record: DayRecord, decision: DayDecision) -> bool:
    """Return whether the decision about a day on hold before the window may end its hold.

    No check runs such a day again, so most holds stay then. That of an error does not: a check could read the day.
    """
    return decision.decision is not LateDecision.RERUN or (record.hold is not None and record.hold.rule in ERROR_RULES)


def ends_failure(decision: DayDecision) -> bool:
    """Return whether the decision ends the hold of a failed attempt."""
    return decision.decision is LateDecision.RERUN or decision.rule in _END_FAILURES


def older_days(dates: Iterable[str], *, first: str, most: int = MAX_OLDER_DAYS) -> list[str]:
    """Return which of the days or hours before `first` a check looks at: at most `most`, others each time.

    `dates` are those of an index, all of which are read.
    """
    older = sorted(each for each in dates if each < first)
    # The next day's check begins after the last day of this one, so all are looked at in turn.
    start = distance(f"0001-01-01{first[10:]}", first) * most % max(len(older), 1)
    return (older[start:] + older[:start])[:most]
