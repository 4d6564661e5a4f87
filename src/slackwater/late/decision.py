"""What is to be done about a day, with the rule that decided and its numbers."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from slackwater.runs.difference import SourceDifference
from slackwater.runs.manifest import Record


class LateDecision(StrEnum):
    """What is to be done about a day."""

    RERUN = "rerun"
    HOLD = "hold"
    """A person must look: running it again would publish less than before or from inputs that are gone, or fail."""
    IGNORE = "ignore"


class DecisionRule(StrEnum):
    """Why it is to be done."""

    GROWN = "grown"
    """Late data reaches a threshold of its source."""
    BELOW = "below"
    """There is late data, less than every threshold of its source."""
    UNCHANGED = "unchanged"
    VANISHED = "vanished"
    """Objects that the published run has read are gone, and nothing has taken their place."""
    SHRANK = "shrank"
    """A changed file has fewer rows than the published run has read of it."""
    MANIFEST_GONE = "manifest_gone"
    """Nobody can say what the published run has read."""
    UNREADABLE = "unreadable"
    """What it has read, or what is there now, cannot be looked at: the other days are decided over without it."""
    FAILED = "failed"
    """It would be run again, but the latest attempts have failed with the very inputs and definition of a new one."""
    UNSURE = "unsure"
    """Nothing has grown, but a later attempt has ended without saying whether it had published, and none is under way.

    What stands in the table may not be what is recorded: a new run makes both the same.
    """
    NEVER_PUBLISHED = "never_published"
    RUNNING = "running"
    """A run of the day is under way: what it reads is seen when it has ended."""
    CURRENT = "current"
    """The day that the check stands on: it is not over."""


class DayDecision(Record):
    """The decision about one day of one pipeline."""

    pipeline: str
    date: str
    decision: LateDecision
    rule: DecisionRule
    reason: str
    """In words, with the numbers and the threshold that decided."""
    run_id: str | None = None
    """Of the published run."""
    attempt: int | None = None
    """Of the published run."""
    frozen_at: datetime | None = None
    """When the published run listed its inputs."""
    notification_due: bool = False
    """Whether the published version is one that people have not been told of."""
    sources: tuple[SourceDifference, ...] = ()


class CheckReport(Record):
    """What one check of a pipeline has found."""

    pipeline: str
    as_of: str
    """The current day, in the pipeline's time zone."""
    checked_at: datetime
    seconds: float
    days: tuple[DayDecision, ...]
    """In order of date, the current day last."""
    overdue: tuple[str, ...] = ()
    """Days of the window, after the first one ever published, that are past their deadline and not published."""
    owed: tuple[str, ...] = ()
    """Days before the window whose published version people have not been told of, as somebody has run them again."""
    last_arrivals: dict[str, datetime | None] = {}
    """By source: when the newest object of the days looked at was written; of a source that has none there, of the days
    before, as far back as its `silent_hours`."""
