"""The decision about a day, with the rule and the numbers behind it, and the report of a check."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from slackwater.runs.inputs.difference import SourceDifference
from slackwater.runs.inputs.manifest import Record


class LateDecision(StrEnum):
    """What to do with a day."""

    RERUN = "rerun"
    HOLD = "hold"
    """A person must look: a new run would publish less than before, read inputs that are incomplete, or fail."""
    IGNORE = "ignore"


class DecisionRule(StrEnum):
    """The rule that led to the decision."""

    GROWN = "grown"
    """Late data reaches a threshold of its source."""
    BELOW = "below"
    """There is late data, below every threshold of its source."""
    UNCHANGED = "unchanged"
    VANISHED = "vanished"
    """Objects that the published run has read are gone without a replacement."""
    SHRANK = "shrank"
    """A changed file has fewer rows than the published run has read from it."""
    MANIFEST_GONE = "manifest_gone"
    """The input manifest of the published run is gone, so there is nothing to compare with."""
    UNREADABLE = "unreadable"
    """The day cannot be checked because of an error; the other days are checked without it."""
    CHANGING = "changing"
    """Files or objects of the day kept changing while they were listed; the next check decides."""
    FAILED = "failed"
    """The day is late, but its latest attempts have failed with the same inputs and definition that a run has now."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """Nothing reaches a threshold, but a later attempt has ended without an outcome and may have published.

    The published table may then differ from the version in the run table; a new run makes both agree.
    """
    NEVER_PUBLISHED = "never_published"
    RUNNING = "running"
    """A run of the day is active; its inputs are checked when it has ended."""
    CURRENT = "current"
    """The day has not ended yet."""


class DayDecision(Record):
    """The decision about one day of one pipeline."""

    pipeline: str
    date: str
    decision: LateDecision
    rule: DecisionRule
    reasons: tuple[str, ...]
    """Why, with the numbers and the threshold that decided: one clause for each source or file."""
    run_id: str | None = None
    """Of the published run."""
    attempt: int | None = None
    """Of the published run."""
    frozen_at: datetime | None = None
    """When the published run listed its inputs."""
    notification_due: bool = False
    """Whether people have not been notified of the published version."""
    sources: tuple[SourceDifference, ...] = ()

    @property
    def reason(self) -> str:
        """The reasons in one line."""
        return "; ".join(self.reasons)


class CheckReport(Record):
    """The result of one check of a pipeline."""

    pipeline: str
    as_of: str
    """The current day, in the pipeline's timezone."""
    checked_at: datetime
    correlation_id: str = ""
    """Of the monitoring, as in its logs."""
    seconds: float
    days: tuple[DayDecision, ...]
    """In order of date, the current day last."""
    overdue: tuple[str, ...] = ()
    """Days of the window that are past their deadline and not published; none before the first published day."""
    notifications_due: tuple[str, ...] = ()
    """Days before the window, run again by hand, whose published version still needs a notification."""
    last_arrivals: dict[str, datetime | None] = {}
    """When the newest object of each source was written, in the checked days or, without one there, in the days before
    as far back as the source's `silent_hours`. A source that could not be listed is left out."""
