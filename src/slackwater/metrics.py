"""The CloudWatch metrics of a deployment's own namespace, each with its unit and its subject; and warnings.

Every data point belongs to one pipeline or one source, its subject.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Unit(StrEnum):
    """CloudWatch's names of units."""

    COUNT = "Count"
    BYTES = "Bytes"
    PERCENT = "Percent"
    NONE = "None"
    """For hours, minutes and USD, which CloudWatch has no unit for."""


class Subject(StrEnum):
    """What a data point belongs to: a pipeline or a source. The value is the name of the dimension."""

    PIPELINE = "pipeline"
    SOURCE = "source"


class Metric(StrEnum):
    """The metrics; the value is the name in CloudWatch."""

    RUNS_PUBLISHED = "RunsPublished"
    RUNS_FAILED = "RunsFailed"
    RUN_COST = "RunCost"
    """Price of a run or a comparison in USD, put once, by the function that has recorded its final cost."""
    JOB_QUEUE_MINUTES = "JobQueueMinutes"
    """For how long the Spark job of a run or a comparison that waited longest was in the queue, put with its price."""
    DAYS_RERUN = "DaysRerun"
    """Late days that were run again by the decision of a check, each published run once."""
    DAYS_OVERDUE = "DaysOverdue"
    """Gauge: days of the window for late data that are past their deadline and not published."""
    DAYS_ON_HOLD = "DaysOnHold"
    """Gauge: days of the window that wait for a person's decision."""
    LATE_BYTES = "LateBytes"
    """Late data that runs a day again, is deferred or on hold: each object once, when the ledger first says so."""
    LATE_BYTES_UNPROCESSED = "LateBytesUnprocessed"
    """Gauge: late data of days on hold, or deferred by the number or the budget of re-runs.

    A day on hold only because inputs are missing adds nothing.
    """
    LATE_BYTES_IGNORED = "LateBytesIgnored"
    """Gauge: late data that reaches no threshold."""
    LATE_OBJECTS_OLDER = "LateObjectsOlder"
    """Late objects of published days before the window, which are not processed by themselves: each once, when the
    ledger first says so."""
    LATE_DAYS_OLDER = "LateDaysOlder"
    """Gauge: days before the window with late data that waits for a run, at most 1,000."""
    BUDGET_PERCENT = "BudgetPercent"
    """Gauge: the estimated price of today's re-runs, with those that the budget defers, in percent of the budget."""
    CHECK_PARTS_FAILED = "CheckPartsFailed"
    """Parts of a check, such as a message or a cost, that failed after its decisions and are left to the next check."""
    NOTIFICATIONS_SENT = "NotificationsSent"
    NOTIFICATION_OUTCOME_UNKNOWN = "NotificationOutcomeUnknown"
    """Notifications that may or may not have been sent, or that are not sent because the comparison keeps failing."""
    HOURS_SINCE_ARRIVAL = "HoursSinceArrival"
    """Gauge: hours since the newest object of the source was written."""
    SILENCE_PERCENT = "SilencePercent"
    """Gauge: hours since the newest object of the source, in percent of its usual silence at that hour of the week."""
    REJECTED_PERCENT_ABOVE_NORMAL = "RejectedPercentAboveNormal"
    """Gauge: by how many percentage points the reject rate of the source in 24 hours is above its normal one."""
    EVENTS_MISSING = "EventsMissing"
    """Gauge: events that the source has reported and that are neither stored nor rejected, of periods of the window
    that have ended before the source's `within`."""
    EVENTS_ACCEPTED = "EventsAccepted"
    EVENTS_DUPLICATE = "EventsDuplicate"
    EVENTS_REJECTED = "EventsRejected"
    FILES_STORED = "FilesStored"
    """New or changed files whose rows are stored."""
    FILES_LEFT = "FilesLeft"
    """Gauge: files of the look-back window that a pull leaves to the next pull."""
    FILES_DOUBTFUL = "FilesDoubtful"
    """Gauge: stored files that the partner does not list, and whose removal no pull records before a person accepts it.
    """
    HOURS_NOT_TAKEN = "HoursNotTaken"
    """Gauge: hours since a file that is not taken was first tried, of all such files the longest; 0 without any."""

    @property
    def unit(self) -> Unit:
        """The unit of its values."""
        if self in _BYTES:
            return Unit.BYTES
        if self in _PERCENT:
            return Unit.PERCENT
        return Unit.NONE if self in _WITHOUT_UNIT else Unit.COUNT

    @property
    def subject(self) -> Subject:
        """Whether its data points belong to pipelines or to sources."""
        return Subject.SOURCE if self in _SOURCE_METRICS else Subject.PIPELINE

    @property
    def has_dimension(self) -> bool:
        """Whether CloudWatch has a metric for each subject. Otherwise it has one metric, with the total.

        CloudWatch bills each of them, for each hour with a data point: 0.30 USD a month if written hourly. Metrics of
        sources are written hourly, so they have a dimension only if an alarm needs it.
        """
        return self not in _TOTALS

    @property
    def gauge(self) -> bool:
        """Whether it is a level, which each check or pull of the current day puts. The other metrics are counters."""
        return self in _GAUGES


_BYTES = {Metric.LATE_BYTES, Metric.LATE_BYTES_UNPROCESSED, Metric.LATE_BYTES_IGNORED}
_PERCENT = {Metric.SILENCE_PERCENT, Metric.REJECTED_PERCENT_ABOVE_NORMAL, Metric.BUDGET_PERCENT}
_WITHOUT_UNIT = {
    Metric.HOURS_SINCE_ARRIVAL,
    Metric.HOURS_NOT_TAKEN,
    Metric.JOB_QUEUE_MINUTES,
    Metric.RUN_COST,
}
_GAUGES = {
    Metric.DAYS_OVERDUE,
    Metric.DAYS_ON_HOLD,
    Metric.LATE_DAYS_OLDER,
    Metric.LATE_BYTES_UNPROCESSED,
    Metric.LATE_BYTES_IGNORED,
    Metric.HOURS_SINCE_ARRIVAL,
    Metric.SILENCE_PERCENT,
    Metric.REJECTED_PERCENT_ABOVE_NORMAL,
    Metric.EVENTS_MISSING,
    Metric.BUDGET_PERCENT,
    Metric.FILES_LEFT,
    Metric.FILES_DOUBTFUL,
    Metric.HOURS_NOT_TAKEN,
}
_SOURCE_TOTALS = {Metric.EVENTS_ACCEPTED, Metric.EVENTS_DUPLICATE, Metric.EVENTS_REJECTED, Metric.FILES_STORED}
_TOTALS = _SOURCE_TOTALS | {Metric.CHECK_PARTS_FAILED}
_SOURCE_METRICS = _SOURCE_TOTALS | {
    Metric.HOURS_SINCE_ARRIVAL,
    Metric.SILENCE_PERCENT,
    Metric.REJECTED_PERCENT_ABOVE_NORMAL,
    Metric.EVENTS_MISSING,
    Metric.FILES_LEFT,
    Metric.FILES_DOUBTFUL,
    Metric.HOURS_NOT_TAKEN,
}


class PutsMetric(Protocol):
    """Puts metrics."""

    def __call__(self, metric: Metric, value: float, *, pipeline: str | None = None, source: str | None = None) -> None:
        """Put a value of a metric of the pipeline, or of the source."""


class Warns(Protocol):
    """Logs warnings."""

    def __call__(self, message: str, **fields: object) -> None:
        """Log the message with these fields."""
