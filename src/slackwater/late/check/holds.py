"""What a decision of the check changes in the record of its day: the day is put on hold, or its hold ends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime

from slackwater.late.check.decision import CheckReport, DayDecision, DecisionRule, LateDecision
from slackwater.runs.holds import held, hold_ended
from slackwater.runs.record import DayRecord, Hold

# These rules decide without the day's inputs, so they do not show whether the cause of a hold is gone.
_WITHOUT_INPUTS = frozenset(
    {DecisionRule.RUNNING, DecisionRule.CURRENT, DecisionRule.NEVER_PUBLISHED, DecisionRule.ROLLED_BACK}
)
# These may pass before the next check, so they do not replace the cause of a hold.
_ERRORS = frozenset({DecisionRule.UNREADABLE, DecisionRule.CHANGING})
_MOST_REASONS = 20
MAX_OLDER_DAYS = 10
"""Most days on hold before the window that one check looks at."""


def day_with_decision(
    record: DayRecord, decision: DayDecision, *, inputs: str, execution: str, now: datetime
) -> DayRecord:
    """Return the day's record after a check; an equal record if the decision changes nothing.

    `inputs` is the digest of the inputs that were compared, empty if none were; `execution` the ARN of the monitoring.
    """
    if decision.rule in _WITHOUT_INPUTS:
        return record
    if decision.decision is not LateDecision.HOLD:
        return hold_ended(record, reason=_reason(decision), inputs=inputs, now=now)
    hold = record.hold
    if hold and (decision.rule in _ERRORS or (hold.rule, hold.inputs) == (decision.rule, inputs)):
        return record
    new = Hold(rule=decision.rule, reason=_reason(decision), since=now, inputs=inputs, execution=execution)
    return held(record, new)


def _reason(decision: DayDecision) -> str:
    """Return the reasons in one line, which fits into an item of DynamoDB: a source may have thousands of files."""
    reasons = decision.reasons
    if len(reasons) > _MOST_REASONS:
        # The last one is the remedy.
        reasons = (*reasons[: _MOST_REASONS - 2], f"{len(reasons) - _MOST_REASONS + 1:,} more like these", reasons[-1])
    return "; ".join(reasons)


def older_days(held_dates: Iterable[str], *, first: str) -> list[str]:
    """Return which days on hold before the ISO date `first` a check looks at: `MAX_OLDER_DAYS`, others each day."""
    older = sorted(each for each in held_dates if each < first)
    # The next day's check begins after the last day of this one, so all are looked at in turn.
    start = date.fromisoformat(first).toordinal() * MAX_OLDER_DAYS % max(len(older), 1)
    return (older[start:] + older[:start])[:MAX_OLDER_DAYS]


def days_on_hold(report: CheckReport, held_dates: Iterable[str]) -> int:
    """Return how many days of the pipeline are on hold: those of the report, and others of the index.

    `held_dates` are the dates that the index shows, which may miss what the check has just written.
    """
    decided = {day.date: day.decision for day in report.days if day.rule not in _WITHOUT_INPUTS}
    others = {date for date in held_dates if date not in decided}
    return len(others | {date for date, decision in decided.items() if decision is LateDecision.HOLD})
