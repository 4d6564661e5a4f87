"""The decision about a day, with the rule and the numbers behind it, and the report of a check."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from slackwater.late.entry import LateInput
from slackwater.model import Record
from slackwater.runs.inputs.difference import SourceDifference

MAX_FAILURES = 3
"""Attempts of a day that may fail one after the other: the next one would most likely fail too, and each costs a Spark
job. With the same inputs and definition the day is then on hold; with others, limits apply to its repair as well."""
MAX_TABLE_RERUNS = 10
"""Runs of a day within 24 hours after its tables have changed, before the next change puts the day on hold. Pipelines
that change each other's inputs would run without an end, up to 24 times a day with the default cool-down of an hour.
Days of a chain seldom change so often, and with `late.cool_down_hours: 3` no day reaches the limit."""
_MOST_REASONS = 20


class LateDecision(StrEnum):
    """What to do with a day."""

    RERUN = "rerun"
    HOLD = "hold"
    """A person must look: a new run would publish less than before, read inputs that are incomplete, or fail."""
    DEFER = "defer"
    """Late data would run the day again, but not now; the next check decides again."""
    IGNORE = "ignore"


class DecisionRule(StrEnum):
    """The rule that led to the decision."""

    GROWN = "grown"
    """Late data reaches a threshold of its source."""
    BELOW = "below"
    """There is late data, below every threshold of its source."""
    AGED = "aged"
    """There is late data, below every threshold, and the oldest of it has waited as long as the pipeline allows."""
    COOL_DOWN = "cool_down"
    """The day was run again a short time ago."""
    TOO_MANY = "too_many"
    """The checks of today have started as many re-runs as the pipeline allows."""
    OVER_BUDGET = "over_budget"
    """The re-run is estimated to cost more than what is left of today's budget."""
    TOO_EXPENSIVE = "not_worth"
    """The re-run is estimated to cost more than `late.worth_per_percent` allows for the late data."""
    TABLE_NOTIFIED = "table_notified"
    """Only days of other pipelines have changed, and the definition of a table only notifies people of that."""
    TABLE_IGNORED = "table_ignored"
    """Only days of other pipelines have changed, and the definition of their tables ignores that."""
    NEW_DEFINITION = "new_definition"
    """The definition has changed since the published run, and the pipeline runs such days again."""
    DEFINITION_KEPT = "definition_kept"
    """Only the definition has changed since the published run, and the pipeline keeps such days."""
    UNCHANGED = "unchanged"
    VANISHED = "vanished"
    """Objects that the published run has read are gone without a replacement."""
    REMOVED = "removed"
    """The partner has removed files whose rows the published run has read, and the pipeline holds the day then."""
    SHRANK = "shrank"
    """A changed file has fewer rows than the published run has read from it."""
    TABLE_CHANGED = "table_changed"
    """A day of another pipeline has changed, and the definition of the table holds the day then."""
    REPEATED = "repeated"
    """Changed tables have run the day again too often within 24 hours: pipelines may change each other's inputs."""
    MOVED_HOURS = "moved_hours"
    """The day would run again, but the pipeline has another timezone since: its hours are no longer those of the days
    around it, so a run of this day alone would publish events twice or leave some out."""
    MANIFEST_GONE = "manifest_gone"
    """The input manifest of the published run is gone, so there is nothing to compare with."""
    UNREADABLE = "unreadable"
    """The day cannot be checked because of an error; the other days are checked without it."""
    CHANGING = "changing"
    """Files or objects of the day kept changing while they were listed; the next check decides."""
    FAILED = "failed"
    """The day is late, but its latest attempts have failed with the same inputs and definition that a run has now."""
    ROLLED_BACK = "rolled_back"
    """A person has published an earlier version again; nothing undoes that until somebody releases the day."""
    AUDIT = "audit"
    """The rows of the latest attempt did not pass the audit or a rule of `data_quality`, and a run would have the same
    inputs and definition."""
    RELEASED = "released"
    """Inputs are gone or have shrunk, and a person has released the day with them."""
    KEPT = "rejected"
    """A person keeps the published version as long as the inputs are the same."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """A later attempt has ended without an outcome and may have published.

    The published table may then differ from the version in the run table; a new run makes both agree. No limit defers
    it, unless the latest attempts have all failed.
    """
    NEVER_PUBLISHED = "never_published"
    RUNNING = "running"
    """A run of the day is active; its inputs are checked when it has ended."""
    CURRENT = "current"
    """The day has not ended yet."""


EARLY_RULES = frozenset(
    {DecisionRule.RUNNING, DecisionRule.CURRENT, DecisionRule.NEVER_PUBLISHED, DecisionRule.ROLLED_BACK}
)
"""Rules that decide about a day without its inputs."""


class DecisionFigures(Record):
    """The numbers that a decision about a day with listed inputs is based on."""

    late_rows: int = 0
    """Of all sources."""
    late_percent: float | None = 0.0
    """Late rows in percent of the rows that the published run read, of the source with the most; None if such a source
    had no rows before."""
    late_bytes: int = 0
    changed_files: int = 0
    """Changed and removed files."""
    oldest_wait_hours: float | None = None
    """How long the oldest late object, or dropped file, has waited; None without late data."""
    max_age_hours: float | None = None
    """How long late data of these inputs may wait, the least of them; None if none has a limit."""
    is_aged: bool = False
    """Whether late data of an input has waited for so long."""
    input_rows: int = 0
    """What a re-run would read."""
    input_bytes: int = 0
    attempt: int = 0
    """The attempt that a re-run would get."""
    last_rerun_at: datetime | None = None
    """When the latest re-run of the day started, also one that failed; None if there was none."""
    estimated_usd: float | None = None
    """Price of a re-run; None if no run has a price, or nothing would run again."""
    worth_usd: float | None = None
    """What a re-run for the late data may cost; None without `late.worth_per_percent`, or without rows before."""
    spent_usd: float | None = None
    """Estimated price of the other re-runs of today; None if nothing would run again. So are the fields below."""
    budget_usd: float | None = None
    reruns: int | None = None
    """Other re-runs of today."""
    max_reruns: int | None = None
    position: int | None = None
    """Of the day among the re-runs of its check, from 0; None if the day does not run again."""
    not_before: datetime | None = None
    """From when on a deferred day may run again, UTC."""


class TableChange(Record):
    """Another version of a day of another pipeline, of which people are notified."""

    table: str
    """The name with which the pipeline's steps read it."""
    day: str
    """The other pipeline and its day, such as `daily_sales 2013-03-10`."""
    version: str
    """Identifies the rows of the day; empty if it is not published any more."""
    rows_before: int
    """In the version that the published run has read."""
    rows_now: int

    @property
    def name(self) -> str:
        """The table and the day."""
        return f"{self.table} {self.day}"


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
    figures: DecisionFigures | None = None
    """None if the inputs were not listed."""
    error_may_pass: bool = False
    """Whether the day could not be read because of an error that is no reason to wait for a person: a later check
    decides."""
    ages_at: datetime | None = None
    """When late data will have waited for `max_age_hours`, UTC; None if the next daily check comes before."""
    table_changes: tuple[TableChange, ...] = ()
    """Days of tables with `on_change: notify` that have changed since the published run."""
    new_definition: tuple[str, ...] = ()
    """What has changed in the definition since the published run; empty if nothing has, or if it is unknown."""
    late_inputs: tuple[LateInput, ...] = Field(default=(), exclude=True, repr=False)
    """Not part of the stored report: `slackwater.late.pending` stores them until they are in the ledger."""

    @property
    def reason(self) -> str:
        """At most 20 reasons in one line, the last one among them, which may name the remedy."""
        reasons = self.reasons
        # A source may have thousands of files, and each row of the ledger has the reason.
        if len(reasons) > _MOST_REASONS:
            others = f"{len(reasons) - _MOST_REASONS + 1:,} more like these"
            reasons = (*reasons[: _MOST_REASONS - 2], others, reasons[-1])
        return "; ".join(reasons)


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
    complete: bool = True
    """Whether the whole window was checked, or only days that new objects had arrived for."""
    overdue: tuple[str, ...] = ()
    """Days of the window that are past their deadline and not published; none before the first published day."""
    notifications_due: tuple[str, ...] = ()
    """Days before the window, run again by hand, whose published version still needs a notification."""
    older: tuple[str, ...] = ()
    """Days before the window with late data that waits for a run, at most 1,000: `slackwater late --older`."""
    last_arrivals: dict[str, datetime | None] = {}
    """When the newest object of each source was written, in the checked days or, without one there, in the days before
    as far back as the source's `silent_hours`. A source that could not be listed is left out."""
    usual_silences: dict[str, float] = {}
    """For how many hours each source is usually silent at this hour of the week. A source that is known for
    less than two weeks is left out."""


def report_uri(exchange_bucket: str, pipeline: str, as_of: str, execution: str) -> str:
    """Return the URI of the report of the execution with that ARN."""
    return f"s3://{exchange_bucket}/checks/{pipeline}/{as_of}/{execution.rpartition(':')[2]}.json"
