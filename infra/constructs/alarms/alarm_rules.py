"""All alarms. Each description says what to do and where to look."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk.aws_cloudwatch import ComparisonOperator, Stats, TreatMissingData

from infra.constructs.alarms import subjects
from infra.constructs.alarms.alarm_rule import AlarmGroup, AlarmRule, Severity
from infra.constructs.alarms.cloudwatch_metrics import ERRORS, FAILED, OLDEST_SECONDS, WAITING
from infra.settings import Settings
from slackwater.metrics import Metric
from slackwater.project.project import Project
from slackwater.project.schedule import MONITOR_MACHINE, PIPELINE_MACHINE_PREFIX

# By then two attempts to store an event have failed, or the function is too slow. Not longer, because SQS excludes
# messages that were received three times from the age of a queue.
_MAX_MINUTES_WAITING = 10
# By then two attempts to start the checks have failed: each 17 minutes, after 5 minutes of collecting.
_MAX_ARRIVAL_MINUTES = 40
# By then two attempts to compute the states have failed: each 31 minutes.
_MAX_STATE_MINUTES = 70


RULES = (
    AlarmRule(
        name="monitor-failed",
        metric=FAILED,
        of=MONITOR_MACHINE,
        severity=Severity.PAGE,
        description="An execution of the monitor has failed: late days may not have been detected, run again or "
        "reported. Look: the failed execution of {named} names the pipeline in its input, and the days or the "
        "cause. Fix the cause, then `slackwater monitor PIPELINE`.",
    ),
    AlarmRule(
        name="dead-letters",
        metric=WAITING,
        of="dead-letters",
        severity=Severity.WARNING,
        description="Messages of the topics, or starts of scheduled tasks, that could not be delivered wait in the "
        "dead-letter queue for 14 days. Look: receive one. A message has a TopicArn: fix the subscription that "
        "refused it, then send it again. A start has a task: fix the cause in the log of start-scheduled, then "
        "`slackwater pull`, `run` or `monitor` its subject.",
    ),
    AlarmRule(
        name="events-waiting",
        metric=OLDEST_SECONDS,
        of="events",
        severity=Severity.PAGE,
        threshold=_MAX_MINUTES_WAITING * 60,
        description=f"Accepted events have waited in their queue for {_MAX_MINUTES_WAITING} minutes or more and "
        "are in no partition yet. Look: the log of store-events shows why, `slackwater buffer status` how many "
        "wait. Fix the cause; they are retried automatically.",
    ),
    AlarmRule(
        name="event-dead-letters",
        metric=WAITING,
        of="event-dead-letters",
        severity=Severity.PAGE,
        description="Accepted events could not be stored in five attempts. They wait in the dead-letter queue of "
        "the events until 14 days after they were sent. Look: the log of store-events shows why. Fix the cause, "
        "such as a source that was removed, then `slackwater buffer redrive`.",
    ),
    AlarmRule(
        name="arrivals-waiting",
        metric=OLDEST_SECONDS,
        of="arrivals",
        severity=Severity.WARNING,
        threshold=_MAX_ARRIVAL_MINUTES * 60,
        description=f"New objects have waited in their queue for {_MAX_ARRIVAL_MINUTES} minutes or more: late data "
        "is detected by the daily check only. Look: the log of check-arrivals shows why. Fix the cause; they are "
        "retried automatically.",
    ),
    AlarmRule(
        name="arrival-dead-letters",
        metric=WAITING,
        of="arrival-dead-letters",
        severity=Severity.WARNING,
        description="New objects could not be put into the queue of arrivals, or no check could be started for "
        "them in five attempts. The daily check detects late data of the window only. Look: the log of "
        "check-arrivals, and a message of the dead-letter queue of the arrivals. Fix the cause, then redrive the "
        "dead-letter queue.",
    ),
    AlarmRule(
        name="states-waiting",
        metric=OLDEST_SECONDS,
        of="states",
        severity=Severity.WARNING,
        threshold=_MAX_STATE_MINUTES * 60,
        description=f"New objects or reports of sources with counts have waited in the queue of states for "
        f"{_MAX_STATE_MINUTES} minutes or more: `slackwater state` lacks them. Look: the log of fold-state shows why. "
        "Fix the cause; they are retried automatically.",
    ),
    AlarmRule(
        name="state-dead-letters",
        metric=WAITING,
        of="state-dead-letters",
        severity=Severity.WARNING,
        description="Objects or reports of sources with counts could not be put into the queue of states, or the "
        "states of their hours not be computed in five attempts. Look: the log of fold-state, and a message of the "
        "dead-letter queue of the states. Fix the cause, then redrive the dead-letter queue.",
    ),
    AlarmRule(
        name="stale-objects",
        metric=ERRORS,
        of="remove-stale",
        severity=Severity.WARNING,
        description="The weekly deletion of stale objects of pulled files has failed, or has found objects without a "
        "record in the file cache, which nobody reads. Look: the log of {named} shows why. If the records were lost, "
        "restore the file table. After another cause is fixed, the next invocation deletes the rest.",
    ),
    AlarmRule(
        name="pack-objects",
        metric=ERRORS,
        of="pack-objects",
        # One that fails once is repeated twice, and an hour later.
        threshold=3,
        severity=Severity.WARNING,
        description="The small objects of an hour could not be packed: runs read them one by one. Or a packed object "
        "is damaged. Look: the log of {named} names the hour and the object. Fix the cause; the next invocation packs "
        "the hour, or, if it is more than five weeks old, a later one in turn.",
    ),
    AlarmRule(
        name="raw-tables",
        metric=ERRORS,
        of="update-raw-tables",
        # Lambda repeats an invocation twice, so all attempts of one have failed.
        threshold=3,
        severity=Severity.WARNING,
        description="The Iceberg tables of raw events do not follow the objects: other engines miss new ones, or "
        "read replaced ones. Runs and checks do not read them. Look: the log of {named} shows why. Fix the cause; the "
        "daily check lets them follow, and `slackwater source rebuild-table SOURCE` creates a table again.",
    ),
    AlarmRule(
        name="monitor-missing",
        group=AlarmGroup.RUNS,
        # Each check of the current day puts it, even if it is 0.
        metric=Metric.DAYS_OVERDUE,
        statistic=Stats.SAMPLE_COUNT,
        comparison=ComparisonOperator.LESS_THAN_THRESHOLD,
        missing_data=TreatMissingData.BREACHING,
        subjects=subjects.checked_pipelines,
        evaluate=subjects.between_checks,
        severity=Severity.PAGE,
        description="No check of {subject} has included the current day for {periods} hours: late and overdue days are "
        "not detected, and gauges keep their last value. Look: {scheduler}. Then `slackwater monitor {subject}`.",
    ),
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
        subjects=subjects.pipelines,
        severity=Severity.PAGE,
        description="Days of {subject} are past their deadline and not published. Look: the latest report under "
        "checks/{subject}/ in the exchange bucket lists them (`overdue`), `slackwater runs {subject}` shows their "
        "runs. Then `slackwater run {subject} --date DATE`. The next check clears the alarm.",
    ),
    AlarmRule(
        name="day-on-hold",
        group=AlarmGroup.LATE_DATA,
        metric=Metric.DAYS_ON_HOLD,
        subjects=subjects.pipelines,
        severity=Severity.WARNING,
        description="Days of {subject} are on hold: inputs are missing or smaller than before, a day cannot be "
        "checked, its audit failed, or its runs keep failing. Look: `slackwater late {subject}` lists days and "
        "reasons. Ask the partner. If the current data is right: `slackwater late release {subject} --date DATE "
        "--reason TEXT`. To keep the published version: `slackwater late keep`, with the same arguments. The next "
        "check clears the alarm.",
    ),
    AlarmRule(
        name="late-bytes-unprocessed",
        group=AlarmGroup.LATE_DATA,
        metric=Metric.LATE_BYTES_UNPROCESSED,
        subjects=subjects.pipelines,
        severity=Severity.WARNING,
        description="Late data of {subject} belongs to days on hold, or to days that the number or the budget of "
        "re-runs defers. Look: `slackwater late {subject}` lists days on hold with reasons, `slackwater monitor "
        "{subject}` deferred ones. On hold: ask the partner; if the current data is right, `slackwater late release "
        "{subject} --date DATE --reason TEXT`. Deferred: raise late.max_reruns_per_day or late.budget_per_day, or "
        "`slackwater run {subject} --date DATE`. The next check clears the alarm.",
    ),
    AlarmRule(
        name="late-days-older",
        group=AlarmGroup.OLDER_DATA,
        metric=Metric.LATE_DAYS_OLDER,
        subjects=subjects.pipelines,
        severity=Severity.WARNING,
        description="Days of {subject} before the window have late data that nothing processes by itself. Look: "
        "`slackwater late --older {subject}` lists them and what has changed, and removes days without late data from "
        "the list. Then `slackwater run {subject} --date DATE`, or raise late.window_days. The next check clears the "
        "alarm.",
    ),
    AlarmRule(
        name="notification-outcome-unknown",
        group=AlarmGroup.LATE_DATA,
        metric=Metric.NOTIFICATION_OUTCOME_UNKNOWN,
        subjects=subjects.pipelines,
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
        subjects=subjects.silent_after,
        severity=Severity.PAGE,
        description="{subject} has delivered nothing new for {threshold} hours or more. Read by: {pipelines}. Their "
        "days are published without its data, unless a data-quality rule fails. Look: the dashboard, and for files the "
        "executions of pull-source. Ask the partner. The next check after new data clears the alarm.",
        # Each pipeline that reads the source puts this metric; the check that saw the newest object is right.
        statistic=Stats.MINIMUM,
    ),
    AlarmRule(
        name="events-missing",
        group=AlarmGroup.UNUSUAL,
        metric=Metric.EVENTS_MISSING,
        subjects=subjects.counted_sources,
        severity=Severity.WARNING,
        description="{subject} has reported events that are neither stored nor rejected, for longer than its "
        "counts.within. Read by: {pipelines}. Look: `slackwater counts {subject} --date DATE` shows the hours, and the "
        "days with `short` in the latest report under checks/ in the exchange bucket. Ask the partner to send them, or "
        "to correct its counts. The next check without missing events clears the alarm.",
    ),
    AlarmRule(
        name="file-not-taken",
        group=AlarmGroup.SOURCES,
        metric=Metric.HOURS_NOT_TAKEN,
        subjects=subjects.pulled_sources,
        severity=Severity.WARNING,
        description="A file of {subject} could not be fetched for {threshold} hours or more. It is tried again, at the "
        "latest after a day. Look: `slackwater files {subject} --state failed` lists such files with the reasons. Fix "
        "the cause, or ask the partner. If a file will never be readable, `slackwater files give-up {subject} PATH`. "
        "The next pull clears the alarm.",
        threshold=24,
    ),
    AlarmRule(
        name="files-doubtful",
        group=AlarmGroup.SOURCES,
        metric=Metric.FILES_DOUBTFUL,
        subjects=subjects.recorded_sources,
        severity=Severity.WARNING,
        description="The partner of {subject} does not list stored files, and lists fewer others, so no removal is "
        "recorded and all rows still count. Look: `slackwater late` names some of the files. Ask the partner whether "
        "its folder is complete. If it has removed the files on purpose: `slackwater pull {subject} --accept-removed "
        "NUMBER`. The next pull clears the alarm.",
    ),
    AlarmRule(
        name="files-left",
        group=AlarmGroup.SOURCES,
        metric=Metric.FILES_LEFT,
        subjects=subjects.pulled_sources,
        severity=Severity.WARNING,
        description="The pulls of {subject} do not keep up: they leave files to the next pull. Look: the dashboard "
        "shows how many. Run `slackwater pull {subject}` until none is left, and let `schedule` pull more often.",
        # The pull of the period that has left the fewest counts.
        statistic=Stats.MINIMUM,
        evaluate=subjects.several_pulls,
    ),
    AlarmRule(
        name="partner-unusually-silent",
        group=AlarmGroup.UNUSUAL,
        metric=Metric.SILENCE_PERCENT,
        subjects=subjects.read_sources,
        severity=Severity.WARNING,
        description="{subject} has delivered nothing new for {threshold} % of its usual silence at this hour of the "
        "week, or longer. Look: the dashboard, and for files `slackwater files {subject} --state failed` and the "
        "executions of pull-source. Ask the partner. The next check after new data clears the alarm.",
        statistic=Stats.MINIMUM,
        # At an hour of the week there are 12 silences in 4 weeks, so the usual one is the longest of them. One in 13
        # would be longer by chance.
        threshold=150,
    ),
    AlarmRule(
        name="rejects-unusual",
        group=AlarmGroup.UNUSUAL,
        metric=Metric.REJECTED_PERCENT_ABOVE_NORMAL,
        subjects=subjects.read_sources,
        severity=Severity.WARNING,
        description="The reject rate of {subject} in the latest 24 hours is {threshold} percentage points or more over "
        "the median of the 14 days before. Look: `slackwater sideline list {subject}` counts rejected events by rule, "
        "`slackwater sideline show {subject}` shows them with their reasons. Ask the partner to correct and send them "
        "again, or correct the definition of the source. The next check with a normal rate clears the alarm.",
        threshold=5,
    ),
    AlarmRule(
        name="budget-spent",
        group=AlarmGroup.SPENDING,
        metric=Metric.BUDGET_PERCENT,
        subjects=subjects.limited_pipelines,
        severity=Severity.WARNING,
        description="The late days of {subject} cost more to run again today than late.budget_per_day. Look: "
        "`slackwater monitor {subject}` names the days that are deferred. They run on a later day. To run one now, "
        "`slackwater run {subject} --date DATE`; if this happens often, raise late.budget_per_day.",
        threshold=100,
    ),
    AlarmRule(
        name="cost-per-day",
        group=AlarmGroup.SPENDING,
        metric=Metric.RUN_COST,
        subjects=subjects.cost_limits,
        evaluate=lambda *_: subjects.Evaluation(Duration.days(1), datapoints=1),
        severity=Severity.WARNING,
        description="Runs and comparisons of {subject} whose cost became known in the last 24 hours have cost "
        "{threshold} USD or more. Look: `slackwater cost {subject}` shows which days, `slackwater runs {subject}` why "
        "they ran. Limit re-runs with late.budget_per_day, or raise the setting alarm_usd_per_day.",
    ),
    AlarmRule(
        name="spark-queued",
        group=AlarmGroup.SPENDING,
        metric=Metric.JOB_QUEUE_MINUTES,
        statistic=Stats.MAXIMUM,
        subjects=subjects.queue_limits,
        severity=Severity.WARNING,
        description="A Spark job of {subject} has waited in the queue for {threshold} minutes or more. Look: "
        "`slackwater runs {subject} --date DATE --timeline` shows for how long each stage has waited. Raise "
        "concurrent_runs and maximum_vcpu, or let pipelines start at other times.",
    ),
    # A run that fails before it has an attempt, such as one whose inputs cannot be frozen, has no record and no other
    # metric. No state machine has a timeout of its own, so no execution times out: a state that does fails its
    # execution. An execution is aborted only when a person or a command stops it, which is no reason for an alarm.
    AlarmRule(
        name="execution-failed",
        group=AlarmGroup.EXECUTIONS,
        metric=FAILED,
        of=f"{PIPELINE_MACHINE_PREFIX}{{subject}}",
        evaluate=subjects.every_hour,
        severity=Severity.PAGE,
        description="An execution of {subject} has failed, perhaps before its run had an attempt. Look: `slackwater "
        "runs {subject}` shows failed runs. If there is none, the failed execution of the state machine names the "
        "cause. Fix it, then `slackwater run {subject} --date DATE`.",
    ),
    AlarmRule(
        name="machine-failed",
        group=AlarmGroup.EXECUTIONS,
        metric=FAILED,
        of="{subject}",
        subjects=subjects.state_machines,
        evaluate=subjects.every_hour,
        severity=Severity.WARNING,
        description="An execution of {subject} has failed. Look: the failed execution has the source, the day or the "
        "pipeline in its input, and names the cause. Fix it, and start the same again.",
    ),
)


def alarm_names(settings: Settings, project: Project) -> list[str]:
    """Return the full names of all alarms of a deployment."""
    return [
        settings.named(rule.alarm_name(subject)) for rule in RULES for subject, _ in rule.thresholds(settings, project)
    ]
