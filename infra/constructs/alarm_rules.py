"""The alarms that exist once for each pipeline or source. Each description says what to do and where to look."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from slackwater.cron import cron_matches
from slackwater.metrics import Metric, Subject
from slackwater.model import Cron
from slackwater.project import Project

# Long enough for data points that reach CloudWatch late, short enough that two failures fire the alarm twice.
COUNTER_PERIOD = Duration.minutes(5)
# The highest value of a period counts. Short, so that the check that clears an alarm is in a period of its own.
_GAUGE_PERIOD = Duration.minutes(1)
# Pulls in a row, each in a period of its own, that have to leave files before an alarm fires.
_PULLS_IN_A_ROW = 3


class AlarmGroup(StrEnum):
    """The rules whose alarms one stack creates, by the stack's name.

    CloudFormation allows 500 resources in a stack. The stack of a rule never changes: an alarm that moves to another
    stack would be created there before it is deleted here, and its name would still be taken.
    """

    RUNS = "run-alarms"
    LATE_DATA = "late-alarms"
    OLDER_DATA = "older-alarms"
    SOURCES = "source-alarms"


@dataclass(frozen=True, kw_only=True)
class AlarmRule:
    """An alarm that exists once for each pipeline or for each source, depending on its metric's subject."""

    name: str
    group: AlarmGroup
    metric: Metric
    description: str
    """What has happened, where to look and what to do. `{subject}` is the pipeline or source."""
    statistic: str = cloudwatch.Stats.SUM
    threshold: int = 1
    """The alarm fires at this value and above, unless the source has a limit of its own (`silent_hours`)."""
    several_pulls: bool = False
    """Whether one pull is not enough, for a source that is pulled daily or more often."""

    @property
    def missing_data(self) -> cloudwatch.TreatMissingData:
        """How missing data is treated.

        A counter has no data when nothing happened. A check or a pull puts a gauge; until the next one, the last value
        stays valid.
        """
        gauge = self.metric.gauge
        return cloudwatch.TreatMissingData.IGNORE if gauge else cloudwatch.TreatMissingData.NOT_BREACHING

    def evaluation(self, project: Project, subject: str) -> tuple[Duration, int]:
        """Return the period of a data point, and the number of periods in a row that have to reach the threshold."""
        if self.several_pulls and (period := _pull_period(project.source(subject).require_pull().schedule)):
            return period, _PULLS_IN_A_ROW
        return _GAUGE_PERIOD if self.metric.gauge else COUNTER_PERIOD, 1

    def thresholds(self, project: Project) -> list[tuple[str, int]]:
        """Return each pipeline or source that has this alarm, with its threshold: the alarm fires at it and above."""
        if self.metric.subject is Subject.PIPELINE:
            return [(name, self.threshold) for name in sorted(project.pipelines)]
        if self.metric is Metric.FILES_DOUBTFUL:
            return [(name, self.threshold) for name in sorted(project.sources) if project.records_removed(name)]
        if self.metric is not Metric.HOURS_SINCE_ARRIVAL:
            return [(name, self.threshold) for name, source in sorted(project.sources.items()) if source.pull]
        # A source's age is known only from the check of a pipeline that reads it.
        read = {name for pipeline in project.pipelines.values() for name in pipeline.sources}
        return [(name, project.source(name).silent_hours) for name in sorted(read)]


def _pull_period(schedule: Cron) -> Duration | None:
    """Return the period of which several in a row have a pull each, None if pulls are rarer.

    The periods of an alarm have at most seven days together, so it cannot compare pulls that are days apart.
    """
    _, hour, *days = schedule.split()
    if hour == "*":
        return Duration.hours(1)
    year = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(366)]
    pulls = "".join("x" if cron_matches(" ".join(("0", "0", *days)), day) else "-" for day in year)
    weeks = (pulls[first : first + 7] for first in range(len(year) - 6))
    return Duration.days(1) if all("x" * _PULLS_IN_A_ROW in week for week in weeks) else None


RULES = (
    AlarmRule(
        name="run-failed",
        group=AlarmGroup.RUNS,
        metric=Metric.RUNS_FAILED,
        description="A run of {subject} has failed. The day that was published before is unchanged. Look: "
        "`slackwater runs {subject}` shows which day and why, `slackwater logs {subject} --date DATE` shows Spark's "
        "log. Fix the cause, then `slackwater run {subject} --date DATE`.",
    ),
    AlarmRule(
        name="day-overdue",
        group=AlarmGroup.RUNS,
        metric=Metric.DAYS_OVERDUE,
        description="Days of {subject} are past their deadline and not published. Look: the latest report under "
        "checks/{subject}/ in the exchange bucket lists them (`overdue`), `slackwater runs {subject}` shows their "
        "runs. Then `slackwater run {subject} --date DATE`. The next check clears the alarm.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
    AlarmRule(
        name="day-on-hold",
        group=AlarmGroup.LATE_DATA,
        metric=Metric.DAYS_ON_HOLD,
        description="Days of {subject} are on hold: inputs are missing or smaller than before, a day cannot be "
        "checked, its audit failed, or its runs keep failing. Look: `slackwater late {subject}` lists days and "
        "reasons. Ask the partner. If the current data is right: `slackwater late release {subject} --date DATE "
        "--reason TEXT`. To keep the published version: `slackwater late reject`, with the same arguments. The next "
        "check clears the alarm.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
    AlarmRule(
        name="late-bytes-unprocessed",
        group=AlarmGroup.LATE_DATA,
        metric=Metric.LATE_BYTES_UNPROCESSED,
        description="Late data of {subject} belongs to days on hold, or to days that the number or the budget of "
        "re-runs defers. Look: `slackwater late {subject}` lists days on hold with reasons, `slackwater monitor "
        "{subject}` deferred ones. On hold: ask the partner; if the current data is right, `slackwater late release "
        "{subject} --date DATE --reason TEXT`. Deferred: raise late.max_reruns_per_day or late.budget_per_day, or "
        "`slackwater run {subject} --date DATE`. The next check clears the alarm.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
    AlarmRule(
        name="late-days-older",
        group=AlarmGroup.OLDER_DATA,
        metric=Metric.LATE_DAYS_OLDER,
        description="Days of {subject} before the window have late data that nothing processes by itself. Look: "
        "`slackwater late --older {subject}` lists them and what has changed, and removes days without late data from "
        "the list. Then `slackwater run {subject} --date DATE`, or raise late.window_days. The next check clears the "
        "alarm.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
    AlarmRule(
        name="notification-outcome-unknown",
        group=AlarmGroup.LATE_DATA,
        metric=Metric.NOTIFICATION_OUTCOME_UNKNOWN,
        description="A notification about a changed day of {subject} is not sent because its comparison keeps failing, "
        "or may or may not have been sent: its sender was interrupted. Look: `slackwater late {subject}` names a day "
        "whose comparison keeps failing, and the remedy. If it names none, the log of notify-change names the day, and "
        "`slackwater diff {subject} --date DATE` shows what changed. It is not sent again: ask one reader; if it did "
        "not arrive, notify the readers yourself.",
    ),
    AlarmRule(
        name="partner-silent",
        group=AlarmGroup.SOURCES,
        metric=Metric.HOURS_SINCE_ARRIVAL,
        description="{subject} has delivered nothing new for {threshold} hours or more. Look: the dashboard, and for "
        "files the executions of pull-source. Ask the partner. The next check after new data clears the alarm.",
        # Each pipeline that reads the source puts this metric; the check that saw the newest object is right.
        statistic=cloudwatch.Stats.MINIMUM,
    ),
    AlarmRule(
        name="file-not-taken",
        group=AlarmGroup.SOURCES,
        metric=Metric.HOURS_NOT_TAKEN,
        description="A file of {subject} could not be fetched for {threshold} hours or more. It is tried again, at the "
        "latest after a day. Look: `slackwater files {subject} --state failed` lists such files with the reasons. Fix "
        "the cause, or ask the partner. If a file will never be readable, `slackwater files give-up {subject} PATH`. "
        "The next pull clears the alarm.",
        statistic=cloudwatch.Stats.MAXIMUM,
        threshold=24,
    ),
    AlarmRule(
        name="files-doubtful",
        group=AlarmGroup.SOURCES,
        metric=Metric.FILES_DOUBTFUL,
        description="The partner of {subject} does not list stored files, and lists fewer others, so no removal is "
        "recorded and all rows still count. Look: `slackwater late` names some of the files. Ask the partner whether "
        "its folder is complete. If it has removed the files on purpose: `slackwater pull {subject} --accept-removed "
        "NUMBER`. The next pull clears the alarm.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
    AlarmRule(
        name="files-left",
        group=AlarmGroup.SOURCES,
        metric=Metric.FILES_LEFT,
        description="The pulls of {subject} do not keep up: they leave files to the next pull. Look: the dashboard "
        "shows how many. Run `slackwater pull {subject}` until none is left, and let `schedule` pull more often.",
        # The pull of the period that has left the fewest counts.
        statistic=cloudwatch.Stats.MINIMUM,
        several_pulls=True,
    ),
)
