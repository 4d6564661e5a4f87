"""The alarms that exist once for each pipeline or source. Each description says what to do and where to look."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.settings import Settings
from slackwater.metrics import Metric, Subject
from slackwater.model import Cron
from slackwater.project.cron import cron_matches
from slackwater.project.project import Project

# Long enough for data points that reach CloudWatch late, short enough that two failures fire the alarm twice.
COUNTER_PERIOD = Duration.minutes(5)
# The highest value of a period counts. Short, so that the check that clears an alarm is in a period of its own.
_GAUGE_PERIOD = Duration.minutes(1)
# Of the latest minutes, one at the threshold is enough. A data point may be the only one of its day, and it reaches
# CloudWatch through a log, which may take minutes.
_GAUGE_PERIODS = 10
_OF_READ_SOURCES = {Metric.SILENCE_PERCENT, Metric.REJECTED_PERCENT_ABOVE_NORMAL}
# Pulls in a row, each in a period of its own, that have to leave files before an alarm fires.
_PULLS_IN_A_ROW = 3


class Severity(StrEnum):
    """How soon somebody has to look at an alarm."""

    PAGE = "page"
    """Now: a published table is missing, or events may be lost."""
    WARNING = "warning"
    """On the next working day."""


class AlarmGroup(StrEnum):
    """The rules whose alarms one stack creates if there are too many for the monitoring stack, by the stack's name.

    CloudFormation allows 500 resources in a stack. The group of a rule never changes: an alarm that moves to the stack
    of another group would be created there before it is deleted here, and CloudFormation refuses a name that exists.
    """

    RUNS = "run-alarms"
    LATE_DATA = "late-alarms"
    OLDER_DATA = "older-alarms"
    SOURCES = "source-alarms"
    UNUSUAL = "unusual-alarms"
    """What differs from the past of a source."""
    SPENDING = "spending-alarms"
    """Budgets, cost, and capacity of Spark jobs."""
    EXECUTIONS = "execution-alarms"
    """Those of `execution_alarms`."""


@dataclass(frozen=True, kw_only=True)
class AlarmRule:
    """An alarm that exists once for each pipeline or for each source, depending on its metric's subject."""

    name: str
    group: AlarmGroup
    metric: Metric
    severity: Severity
    description: str
    """What has happened, where to look and what to do. `{subject}` is the pipeline or source,
    `{pipelines}` those that read the source. The page `docs/runbooks/NAME.md` has the details."""
    statistic: str = cloudwatch.Stats.SUM
    threshold: float = 1
    """The alarm fires at this value and above, unless the source or the settings have a limit of their own."""
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

    def evaluation(self, project: Project, subject: str) -> tuple[Duration, int, int]:
        """Return the length of a period, how many periods count, and how many of them have to reach the threshold."""
        if self.metric is Metric.RUN_COST:
            return Duration.days(1), 1, 1
        if self.several_pulls and (period := _pull_period(project.source(subject).require_pull().schedule)):
            return period, _PULLS_IN_A_ROW, _PULLS_IN_A_ROW
        return (_GAUGE_PERIOD, _GAUGE_PERIODS, 1) if self.metric.gauge else (COUNTER_PERIOD, 1, 1)

    def thresholds(self, settings: Settings, project: Project) -> list[tuple[str, float]]:
        """Return each pipeline or source that has this alarm, with its threshold: the alarm fires at it and above."""
        if self.metric.subject is Subject.PIPELINE:
            return self._pipeline_thresholds(settings, project)
        if self.metric is Metric.FILES_DOUBTFUL:
            return [(name, self.threshold) for name in sorted(project.sources) if project.records_removed(name)]
        if self.metric not in {Metric.HOURS_SINCE_ARRIVAL, *_OF_READ_SOURCES}:
            return [(name, self.threshold) for name, source in sorted(project.sources.items()) if source.pull]
        # These are known only from the check of a pipeline that reads the source.
        read = sorted({name for pipeline in project.pipelines.values() for name in pipeline.sources})
        if self.metric in _OF_READ_SOURCES:
            return [(name, self.threshold) for name in read]
        return [(name, project.source(name).silent_hours) for name in read]

    def _pipeline_thresholds(self, settings: Settings, project: Project) -> list[tuple[str, float]]:
        pipelines = sorted(project.pipelines)
        match self.metric:
            case Metric.RUN_COST:
                usd = settings.alarm_usd_per_day
                return [] if usd is None else [(name, usd) for name in pipelines]
            case Metric.JOB_QUEUE_MINUTES:
                return [(name, settings.alarm_queue_minutes) for name in pipelines]
            case Metric.BUDGET_PERCENT:
                pipelines = [name for name in pipelines if project.pipelines[name].late.budget_per_day is not None]
        return [(name, self.threshold) for name in pipelines]


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
        severity=Severity.PAGE,
        description="A run of {subject} has failed. The day that was published before is unchanged. Look: "
        "`slackwater runs {subject}` shows which day and why, `slackwater logs {subject} --date DATE` shows Spark's "
        "log. Fix the cause, then `slackwater run {subject} --date DATE`.",
    ),
    AlarmRule(
        name="day-overdue",
        group=AlarmGroup.RUNS,
        metric=Metric.DAYS_OVERDUE,
        severity=Severity.PAGE,
        description="Days of {subject} are past their deadline and not published. Look: the latest report under "
        "checks/{subject}/ in the exchange bucket lists them (`overdue`), `slackwater runs {subject}` shows their "
        "runs. Then `slackwater run {subject} --date DATE`. The next check clears the alarm.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
    AlarmRule(
        name="day-on-hold",
        group=AlarmGroup.LATE_DATA,
        metric=Metric.DAYS_ON_HOLD,
        severity=Severity.WARNING,
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
        severity=Severity.WARNING,
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
        severity=Severity.WARNING,
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
        severity=Severity.WARNING,
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
        severity=Severity.PAGE,
        description="{subject} has delivered nothing new for {threshold} hours or more. Read by: {pipelines}. Their "
        "days are published without its data, unless a data-quality rule fails. Look: the dashboard, and for files the "
        "executions of pull-source. Ask the partner. The next check after new data clears the alarm.",
        # Each pipeline that reads the source puts this metric; the check that saw the newest object is right.
        statistic=cloudwatch.Stats.MINIMUM,
    ),
    AlarmRule(
        name="file-not-taken",
        group=AlarmGroup.SOURCES,
        metric=Metric.HOURS_NOT_TAKEN,
        severity=Severity.WARNING,
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
        severity=Severity.WARNING,
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
        severity=Severity.WARNING,
        description="The pulls of {subject} do not keep up: they leave files to the next pull. Look: the dashboard "
        "shows how many. Run `slackwater pull {subject}` until none is left, and let `schedule` pull more often.",
        # The pull of the period that has left the fewest counts.
        statistic=cloudwatch.Stats.MINIMUM,
        several_pulls=True,
    ),
    AlarmRule(
        name="partner-unusually-silent",
        group=AlarmGroup.UNUSUAL,
        metric=Metric.SILENCE_PERCENT,
        severity=Severity.WARNING,
        description="{subject} has delivered nothing new for {threshold} % of its usual silence at this hour of the "
        "week, or longer. Look: the dashboard, and for files `slackwater files {subject} --state failed` and the "
        "executions of pull-source. Ask the partner. The next check after new data clears the alarm.",
        statistic=cloudwatch.Stats.MINIMUM,
        # At an hour of the week there are 12 silences in 4 weeks, so the usual one is the longest of them. One in 13
        # would be longer by chance.
        threshold=150,
    ),
    AlarmRule(
        name="rejects-unusual",
        group=AlarmGroup.UNUSUAL,
        metric=Metric.REJECTED_PERCENT_ABOVE_NORMAL,
        severity=Severity.WARNING,
        description="The reject rate of {subject} in the latest 24 hours is {threshold} percentage points or more over "
        "the median of the 14 days before. Look: `slackwater sideline list {subject}` counts rejected events by rule, "
        "`slackwater sideline show {subject}` shows them with their reasons. Ask the partner to correct and send them "
        "again, or correct the definition of the source. The next check with a normal rate clears the alarm.",
        statistic=cloudwatch.Stats.MAXIMUM,
        threshold=5,
    ),
    AlarmRule(
        name="budget-spent",
        group=AlarmGroup.SPENDING,
        metric=Metric.BUDGET_PERCENT,
        severity=Severity.WARNING,
        description="The late days of {subject} cost more to run again today than late.budget_per_day. Look: "
        "`slackwater monitor {subject}` names the days that are deferred. They run on a later day. To run one now, "
        "`slackwater run {subject} --date DATE`; if this happens often, raise late.budget_per_day.",
        statistic=cloudwatch.Stats.MAXIMUM,
        threshold=100,
    ),
    AlarmRule(
        name="cost-per-day",
        group=AlarmGroup.SPENDING,
        metric=Metric.RUN_COST,
        severity=Severity.WARNING,
        description="Runs and comparisons of {subject} whose cost became known in the last 24 hours have cost "
        "{threshold} USD or more. Look: `slackwater cost {subject}` shows which days, `slackwater runs {subject}` why "
        "they ran. Limit re-runs with late.budget_per_day, or raise the setting alarm_usd_per_day.",
    ),
    AlarmRule(
        name="spark-queued",
        group=AlarmGroup.SPENDING,
        metric=Metric.JOB_QUEUE_MINUTES,
        severity=Severity.WARNING,
        description="A Spark job of {subject} has waited in the queue for {threshold} minutes or more. Look: "
        "`slackwater runs {subject} --date DATE --timeline` shows for how long each stage has waited. Raise "
        "concurrent_runs and maximum_vcpu, or let pipelines start at other times.",
        statistic=cloudwatch.Stats.MAXIMUM,
    ),
)
