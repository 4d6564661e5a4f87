"""What is measured: the metrics of Slackwater's own namespace, each with its unit and its one dimension.

A metric is put for one pipeline or for one source and never without: an alarm then names what it is about.
"""

from __future__ import annotations

from enum import StrEnum

NAMESPACE = "Slackwater"


class Unit(StrEnum):
    """Units, as CloudWatch names them."""

    COUNT = "Count"
    BYTES = "Bytes"
    NONE = "None"
    """CloudWatch has no hours."""


class Dimension(StrEnum):
    """What a metric is told apart by."""

    PIPELINE = "pipeline"
    SOURCE = "source"


class Metric(StrEnum):
    """The metrics, by their names in CloudWatch."""

    RUNS_PUBLISHED = "RunsPublished"
    RUNS_FAILED = "RunsFailed"
    DAYS_RERUN = "DaysRerun"
    """Late days that a check ordered to be run again: two checks at once count a day twice."""
    DAYS_OVERDUE = "DaysOverdue"
    """Gauge: days of the window that are past their deadline and not published."""
    DAYS_ON_HOLD = "DaysOnHold"
    """Gauge: days of the window that wait for a person."""
    LATE_BYTES = "LateBytes"
    """What a check found late on days to run again or on hold: the next one counts what is still there again."""
    LATE_BYTES_UNPROCESSED = "LateBytesUnprocessed"
    """Gauge: late data on days on hold; none where inputs are only gone."""
    LATE_BYTES_IGNORED = "LateBytesIgnored"
    """Gauge: late data below the thresholds."""
    CHANGES_TOLD = "ChangesTold"
    TELLINGS_UNSURE = "TellingsUnsure"
    """Messages that may have been sent or not."""
    HOURS_SINCE_ARRIVAL = "HoursSinceArrival"
    """Gauge: since the source's newest object was written."""
    EVENTS_ACCEPTED = "EventsAccepted"
    EVENTS_DUPLICATE = "EventsDuplicate"
    EVENTS_REJECTED = "EventsRejected"
    FILES_TAKEN = "FilesTaken"

    @property
    def unit(self) -> Unit:
        """In what it is measured."""
        if self in _BYTES:
            return Unit.BYTES
        return Unit.NONE if self is Metric.HOURS_SINCE_ARRIVAL else Unit.COUNT

    @property
    def dimension(self) -> Dimension:
        """What it is told apart by."""
        return Dimension.SOURCE if self in _OF_SOURCES else Dimension.PIPELINE

    @property
    def gauge(self) -> bool:
        """Whether it is a level, put by each check of the present day; the others count what happened."""
        return self in _GAUGES


_BYTES = {Metric.LATE_BYTES, Metric.LATE_BYTES_UNPROCESSED, Metric.LATE_BYTES_IGNORED}
_GAUGES = {
    Metric.DAYS_OVERDUE,
    Metric.DAYS_ON_HOLD,
    Metric.LATE_BYTES_UNPROCESSED,
    Metric.LATE_BYTES_IGNORED,
    Metric.HOURS_SINCE_ARRIVAL,
}
_OF_SOURCES = {
    Metric.HOURS_SINCE_ARRIVAL,
    Metric.EVENTS_ACCEPTED,
    Metric.EVENTS_DUPLICATE,
    Metric.EVENTS_REJECTED,
    Metric.FILES_TAKEN,
}
