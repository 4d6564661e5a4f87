"""The CloudWatch metrics of Slackwater's own namespace, each with its unit and its one dimension.

Every data point belongs to one pipeline or one source, so an alarm can name it.
"""

from __future__ import annotations

from enum import StrEnum

NAMESPACE = "Slackwater"


class Unit(StrEnum):
    """CloudWatch's names of units."""

    COUNT = "Count"
    BYTES = "Bytes"
    NONE = "None"
    """For hours, which CloudWatch has no unit for."""


class Dimension(StrEnum):
    """The dimension of a metric: a data point belongs to a pipeline or to a source."""

    PIPELINE = "pipeline"
    SOURCE = "source"


class Metric(StrEnum):
    """The metrics; the value is the name in CloudWatch."""

    RUNS_PUBLISHED = "RunsPublished"
    RUNS_FAILED = "RunsFailed"
    DAYS_RERUN = "DaysRerun"
    """Late days that a check orders to run again. Two concurrent checks count a day twice."""
    DAYS_OVERDUE = "DaysOverdue"
    """Gauge: days of the window for late data that are past their deadline and not published."""
    DAYS_ON_HOLD = "DaysOnHold"
    """Gauge: days of the window that wait for a decision of a person."""
    LATE_BYTES = "LateBytes"
    """Late data on days to run again or on hold. The next check counts what is still unprocessed again."""
    LATE_BYTES_UNPROCESSED = "LateBytesUnprocessed"
    """Gauge: late data on days on hold; 0 where inputs are only missing."""
    LATE_BYTES_IGNORED = "LateBytesIgnored"
    """Gauge: late data below the thresholds."""
    NOTIFICATIONS_SENT = "NotificationsSent"
    NOTIFICATION_OUTCOME_UNKNOWN = "NotificationOutcomeUnknown"
    """Notifications that may or may not have been sent."""
    HOURS_SINCE_ARRIVAL = "HoursSinceArrival"
    """Gauge: hours since the newest object of the source was written."""
    EVENTS_ACCEPTED = "EventsAccepted"
    EVENTS_DUPLICATE = "EventsDuplicate"
    EVENTS_REJECTED = "EventsRejected"
    FILES_STORED = "FilesStored"
    """New or changed files whose rows are stored."""

    @property
    def unit(self) -> Unit:
        """The unit of its values."""
        if self in _BYTES:
            return Unit.BYTES
        return Unit.NONE if self is Metric.HOURS_SINCE_ARRIVAL else Unit.COUNT

    @property
    def dimension(self) -> Dimension:
        """Whether its data points belong to pipelines or to sources."""
        return Dimension.SOURCE if self in _SOURCE_METRICS else Dimension.PIPELINE

    @property
    def gauge(self) -> bool:
        """Whether it is a level that each check of the current day puts. The others are counters."""
        return self in _GAUGES


_BYTES = {Metric.LATE_BYTES, Metric.LATE_BYTES_UNPROCESSED, Metric.LATE_BYTES_IGNORED}
_GAUGES = {
    Metric.DAYS_OVERDUE,
    Metric.DAYS_ON_HOLD,
    Metric.LATE_BYTES_UNPROCESSED,
    Metric.LATE_BYTES_IGNORED,
    Metric.HOURS_SINCE_ARRIVAL,
}
_SOURCE_METRICS = {
    Metric.HOURS_SINCE_ARRIVAL,
    Metric.EVENTS_ACCEPTED,
    Metric.EVENTS_DUPLICATE,
    Metric.EVENTS_REJECTED,
    Metric.FILES_STORED,
}
