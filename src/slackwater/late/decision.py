"""The decision about a day, with the rule and the numbers behind it, and the report of a check."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from slackwater.late.entry import LateInput
from slackwater.model import Record
from slackwater.runs.inputs.difference import SourceDifference
from slackwater.runs.pipeline_records import LedgerDay
from slackwater.state.completeness import SourceCounts

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
    """The rule that led to the decision; `when` says when it applies."""

    when: str

    def __new__(cls, value: str, when: str) -> DecisionRule:
        """Return the rule with this stored value."""
        member = str.__new__(cls, value)
        member._value_, member.when = value, when
        return member

    GROWN = ("grown", "late data reaches a threshold of its source")
    BELOW = ("below", "there is late data, below every threshold")
    AGED = (
        "aged",
        "late data is below every threshold, but the oldest of it has waited for `max_age_hours` of the "
        "pipeline, or `late_max_age_hours` of its source",
    )
    INCOMPLETE = (
        "incomplete",
        "the day would run again, but its sources have reported more events than there are: it waits for them, at most "
        "`max_age_hours`, or without it for `within` of the source's `counts`",
    )
    COOL_DOWN = ("cool_down", "the day would run again, but it was run again less than `cool_down_hours` before")
    TOO_MANY = ("too_many", "today's checks have started `max_reruns_per_day` re-runs")
    OVER_BUDGET = ("over_budget", "the re-run is estimated to cost more than what is left of `budget_per_day`")
    TOO_EXPENSIVE = (
        "not_worth",
        "the re-run is estimated to cost more than `worth_per_percent` allows for the late data",
    )
    TABLE_NOTIFIED = (
        "table_notified",
        "only days of other pipelines have changed, and a table has `on_change: notify`",
    )
    TABLE_IGNORED = (
        "table_ignored",
        "only days of other pipelines have changed, and their tables have `on_change: ignore`",
    )
    INVALID = (
        "invalid",
        "a verdict says that data has failed, which the published run has read or a run would read, and `on_invalid` "
        "is `hold`",
    )
    INVALID_READ = (
        "invalid_read",
        "the published run has read data that has failed by a verdict, the input has changed since, and `on_invalid` "
        "is `rerun`",
    )
    NEW_DEFINITION = ("new_definition", "the definition has changed, and `on_definition` is `rerun`")
    DEFINITION_KEPT = (
        "definition_kept",
        "there is no new data, but the definition has changed, and `on_definition` is `keep`",
    )
    UNCHANGED = ("unchanged", "there is no new data")
    VANISHED = ("vanished", "objects that the published run has read are gone")
    REMOVED = ("removed", "the partner has removed files that the published run has read, and `on_removed` is `hold`")
    SHRANK = ("shrank", "a changed file has fewer rows of the day than before")
    TABLE_CHANGED = ("table_changed", "a day of another pipeline has changed, and the table has `on_change: hold`")
    REPEATED = ("repeated", "a table has changed, and changed tables have run the day again ten times within 24 hours")
    MOVED_HOURS = (
        "moved_hours",
        "the day would run again, but the timezone has changed: its hours are not those of the days around it",
    )
    MANIFEST_GONE = ("manifest_gone", "the input manifest of the published run is gone, so its inputs are unknown")
    UNREADABLE = (
        "unreadable",
        "the day cannot be checked because of an error, such as an object that the receiver has not written "
        "or a damaged manifest",
    )
    CHANGING = ("changing", "its files, objects or record kept changing during the check; a later check decides")
    FAILED = (
        "failed",
        "the day would run again, but its last three attempts failed with the same inputs and definition",
    )
    ROLLED_BACK = ("rolled_back", "a person has published an earlier version again")
    AUDIT = (
        "audit",
        "the rows of the latest attempt did not pass the audit or a rule of `data_quality`, and a run would "
        "have the same inputs and definition",
    )
    RELEASED = (
        "released",
        "a person has released the day with these inputs, for example without the rows that are gone",
    )
    KEPT = (
        "rejected",
        "a person keeps the published version as long as the inputs are the same, and no later verdict asks again",
    )
    OUTCOME_UNKNOWN = (
        "outcome_unknown",
        "a later attempt ended without an outcome and may have published, so the table may not hold the "
        "recorded version; no limit defers this repair, unless the last three attempts failed",
    )
    NEVER_PUBLISHED = ("never_published", "the day has no published run")
    RUNNING = ("running", "a run of the day is active")
    CURRENT = ("current", "the day has not ended yet")


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
    counts: tuple[SourceCounts, ...] = ()
    """What the sources with `counts` have sent, against the rows of the present inputs."""
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


class PendingDay(Record):
    """The decision about one day with late inputs."""

    date: str
    decision: LateDecision
    rule: str
    """A `DecisionRule`, or one of `slackwater.late.entry`."""
    reason: str
    attempt: int
    """Of the published run with whose inputs the check has compared; 0 without one."""
    inputs: tuple[LateInput, ...]


class PassedOver(Record):
    """Late inputs about which no rule of a check decides, and what the ledger's lists have no more to name then."""

    days: tuple[PendingDay, ...] = ()
    published: tuple[str, ...] = ()
    """Days that are published, and whose runs the ledger may lack."""
    unpublished: tuple[str, ...] = ()
    """Days to list until they are published."""
    settled: tuple[LedgerDay, ...] = ()
    """Listed days that need no other look."""
    rejects_until: datetime | None = None
    """Up to when rejected events are among `days`; None if that is unknown."""


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
    events_missing: dict[str, int] = {}
    """By source with `counts`: events of the window that are missing for longer than its `within`."""
    usual_silences: dict[str, float] = {}
    """For how many hours each source is usually silent at this hour of the week. A source that is known for
    less than two weeks is left out."""


def report_uri(exchange_bucket: str, pipeline: str, as_of: str, execution: str) -> str:
    """Return the URI of the report of the execution with that ARN."""
    return f"s3://{exchange_bucket}/checks/{pipeline}/{as_of}/{execution.rpartition(':')[2]}.json"
