"""The alarms, their topics and the dead letters of the topics."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template

from infra.app import ROOT
from infra.constructs.alarms.alarm_rule import AlarmGroup, AlarmRule, Severity
from infra.constructs.alarms.alarm_rules import RULES, alarm_names
from infra.constructs.alarms.alarms import Alarms
from infra.settings import Settings
from slackwater.local.services.monitoring import AlarmDefinition, AlarmState, evaluate
from slackwater.metrics import Metric, Subject
from slackwater.project.project import Project
from slackwater.sources.counts import Counts
from tests.infra.assembly import Assembly
from tests.infra.rights import resource_name

pytestmark = pytest.mark.infra

# CloudFormation allows 500 resources in a stack, and a deployment fits so many pipelines and sources.
_MOST_SUBJECTS, _MOST_RESOURCES = 150, 500
_QUEUES = {
    "dead-letters": ("slackwater-dead-letters", "ApproximateNumberOfMessagesVisible", 1, "ignore"),
    "arrivals-waiting": ("slackwater-arrivals", "ApproximateAgeOfOldestMessage", 2400, "notBreaching"),
    "arrival-dead-letters": ("slackwater-arrivals-dead-letters", "ApproximateNumberOfMessagesVisible", 1, "ignore"),
    "states-waiting": ("slackwater-states", "ApproximateAgeOfOldestMessage", 4200, "notBreaching"),
    "state-dead-letters": ("slackwater-states-dead-letters", "ApproximateNumberOfMessagesVisible", 1, "ignore"),
    "events-waiting": ("EventBufferQueue", "ApproximateAgeOfOldestMessage", 600, "notBreaching"),
    "event-dead-letters": ("EventBufferDeadLetters", "ApproximateNumberOfMessagesVisible", 1, "ignore"),
}
"""By alarm: the queue, the metric, its threshold, and how missing data is treated."""


def alarms(assembly: Assembly) -> dict[str, dict[str, Any]]:
    found = assembly.properties("AWS::CloudWatch::Alarm", "AlarmName")
    return {name.removeprefix("slackwater-"): alarm for name, alarm in found.items()}


def alarms_of(project: Project, settings: Settings | None = None) -> dict[str, dict[str, Any]]:
    """Create the alarms of a project, by name without prefix."""
    stack, settings = Stack(App(), "stack"), settings or Settings()
    topics = {severity: sns.Topic(stack, severity) for severity in Severity}
    for group in AlarmGroup:
        Alarms(stack, group.value, settings=settings, project=project, topics=topics, group=group)
    created = Template.from_stack(stack).find_resources("AWS::CloudWatch::Alarm").values()
    return {of["AlarmName"].removeprefix("slackwater-"): of for of in (alarm["Properties"] for alarm in created)}


def changed(project: Project, *, source: str = "flights", pipeline: str = "daily_delays", **parts: Any) -> Project:
    """The project with other values in `pull` or `counts` of a source, or in `late` or `schedule` of a pipeline."""
    sources, pipelines = dict(project.sources), dict(project.pipelines)
    for part, values in parts.items():
        group, name = (sources, source) if part in {"pull", "counts"} else (pipelines, pipeline)
        whole: Any = group[name]
        new = Counts(**values) if part == "counts" else getattr(whole, part).model_copy(update=values)
        group[name] = whole.model_copy(update={part: new})
    return project.model_copy(update={"sources": sources, "pipelines": pipelines})


def rule(name: str) -> AlarmRule:
    [found] = [rule for rule in RULES if rule.name == name]
    return found


def test_the_alarms_of_the_example_are_these(assembly: Assembly) -> None:
    pipelines, sources, machines = (
        ("daily_delays", "weekly_delays"),
        ("flights", "weather"),
        ("pull-source", "compare-day", "backfill"),
    )
    subjects: dict[str, tuple[str, ...]] = {
        **dict.fromkeys(("run-failed", "day-overdue", "execution-failed", "monitor-missing"), pipelines),
        **dict.fromkeys(("day-on-hold", "late-bytes-unprocessed", "late-days-older"), pipelines),
        **dict.fromkeys(("notification-outcome-unknown", "spark-queued"), pipelines),
        # Known from the checks of the pipelines that read the source.
        **dict.fromkeys(("partner-silent", "partner-unusually-silent", "rejects-unusual"), sources),
        # Of pulled files; those of pushed sources do not exist.
        **dict.fromkeys(("file-not-taken", "files-left"), ("flights",)),
        "machine-failed": machines,
    }
    expected = {f"{name}-{subject}" for name, of in subjects.items() for subject in of}
    assert set(alarms(assembly)) == {
        *expected,
        "monitor-failed",
        "stale-objects",
        "pack-objects",
        "raw-tables",
        *_QUEUES,
    }
    others = {"budget-spent", "cost-per-day", "files-doubtful", "events-missing"}  # tested below
    assert {rule.name for rule in RULES} == {
        *subjects,
        *others,
        "monitor-failed",
        "stale-objects",
        "pack-objects",
        "raw-tables",
        *_QUEUES,
    }


@pytest.mark.parametrize(
    ("parts", "settings", "name", "threshold"),
    [
        ({"late": {"budget_per_day": 2.0}}, {}, "budget-spent-daily_delays", 100),
        ({}, {"alarm_usd_per_day": 2.5}, "cost-per-day-weekly_delays", 2.5),
        ({"pull": {"on_removed": "hold"}}, {}, "files-doubtful-flights", 1),
        ({"counts": {"window": "1h"}}, {}, "events-missing-flights", 1),
    ],
)
def test_some_alarms_exist_only_with_a_definition_or_a_setting(
    project: Project, parts: dict[str, Any], settings: dict[str, Any], name: str, threshold: float
) -> None:
    before, after = alarms_of(project), alarms_of(changed(project, **parts), Settings(**settings))
    assert name not in before
    assert after[name]["Threshold"] == threshold
    kind = name.rpartition("-")[0]
    assert {added.rpartition("-")[0] for added in after.keys() - before.keys()} == {kind}


def test_a_source_that_no_pipeline_reads_has_no_alarm_that_only_a_check_knows(project: Project) -> None:
    more = project.model_copy(update={"sources": {**project.sources, "tides": project.source("weather")}})
    assert not [name for name in alarms_of(more) if name.endswith("-tides")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # metric, statistic, threshold, periods, seconds, data points, missing data
        ("file-not-taken-flights", ("HoursNotTaken", "Maximum", 24, 10, 60, 1, "ignore")),
        ("partner-silent-flights", ("HoursSinceArrival", "Minimum", 48, 10, 60, 1, "ignore")),
        ("partner-unusually-silent-flights", ("SilencePercent", "Minimum", 150, 10, 60, 1, "ignore")),
        ("rejects-unusual-flights", ("RejectedPercentAboveNormal", "Maximum", 5, 10, 60, 1, "ignore")),
        ("spark-queued-daily_delays", ("JobQueueMinutes", "Maximum", 60, 1, 300, 1, "notBreaching")),
        ("cost-per-day-daily_delays", ("RunCost", "Sum", 2.5, 1, 86400, 1, "notBreaching")),
        ("run-failed-daily_delays", ("RunsFailed", "Sum", 1, 1, 300, 1, "notBreaching")),
        ("day-overdue-daily_delays", ("DaysOverdue", "Maximum", 1, 10, 60, 1, "ignore")),
        # Compares pulls of several periods.
        ("files-left-flights", ("FilesLeft", "Minimum", 1, 3, 3600, 3, "ignore")),
        # A pull of every hour that fails each time fires its alarm once.
        ("machine-failed-pull-source", ("ExecutionsFailed", "Sum", 1, 1, 3600, None, "notBreaching")),
        ("monitor-failed", ("ExecutionsFailed", "Sum", 1, 1, 300, None, "notBreaching")),
        ("execution-failed-daily_delays", ("ExecutionsFailed", "Sum", 1, 1, 3600, None, "notBreaching")),
        ("stale-objects", ("Errors", "Sum", 1, 1, 300, None, "notBreaching")),
        ("pack-objects", ("Errors", "Sum", 3, 1, 300, None, "notBreaching")),
        ("raw-tables", ("Errors", "Sum", 3, 1, 300, None, "notBreaching")),
        ("monitor-missing-daily_delays", ("DaysOverdue", "SampleCount", 1, 26, 3600, None, "breaching")),
    ],
)
def test_an_alarm_watches_its_metric(scheduled: Assembly, name: str, expected: tuple[Any, ...]) -> None:
    keys = ("MetricName", "Statistic", "Threshold", "EvaluationPeriods", "Period", "DatapointsToAlarm")
    alarm = alarms(scheduled)[name]
    assert tuple(alarm.get(key) for key in (*keys, "TreatMissingData")) == expected
    less = "monitor-missing" in name
    assert alarm["ComparisonOperator"] == ("LessThanThreshold" if less else "GreaterThanOrEqualToThreshold")
    [dimension] = alarm["Dimensions"]
    watched = {
        "monitor-failed": "monitor-days",
        "execution-failed-daily_delays": "pipeline-daily_delays",
        "stale-objects": "remove-stale",
        "raw-tables": "update-raw-tables",
    }.get(name, name)
    assert watched.endswith(resource_name(dimension["Value"]).rpartition("slackwater-")[2])


def test_gauges_keep_their_state_until_the_next_value_and_counters_clear_by_themselves(scheduled: Assembly) -> None:
    gauges = {metric.value for metric in Metric if metric.gauge}
    for name, alarm in alarms(scheduled).items():
        if alarm["Namespace"] == "Slackwater/slackwater" and "monitor-missing" not in name:
            kept = "ignore" if alarm["MetricName"] in gauges else "notBreaching"
            assert (name, alarm["TreatMissingData"]) == (name, kept)


def test_a_partner_is_silent_after_the_hours_set_in_its_source(assembly: Assembly, project: Project) -> None:
    thresholds = {name: alarm["Threshold"] for name, alarm in alarms(assembly).items() if "partner-silent" in name}
    assert thresholds == {f"partner-silent-{name}": source.silent_hours for name, source in project.sources.items()}


def test_an_alarm_about_the_queue_of_spark_jobs_has_the_limit_of_the_settings(project: Project) -> None:
    assert {limit for _, limit in rule("spark-queued").thresholds(Settings(alarm_queue_minutes=5), project)} == {5}


@pytest.mark.parametrize(
    ("schedule", "periods", "seconds"),
    [
        ("15 * * * *", 3, 3600),
        ("*/5 * * * *", 3, 3600),
        ("0 6 * * *", 3, 86400),
        ("0 */6 * * 1-5", 3, 86400),
        # CloudWatch compares periods of at most seven days together: one pull counts.
        ("0 6 * * 1,3,5", 10, 60),
        ("0 6 */2 * *", 10, 60),
        ("0 6 * * 1", 10, 60),
        ("0 6 1-7 * *", 10, 60),
        ("0 6 1 * *", 10, 60),
    ],
)
def test_pulls_that_leave_files_fire_an_alarm_whose_periods_fit_the_schedule(
    project: Project, schedule: str, periods: int, seconds: int
) -> None:
    found = rule("files-left").evaluation(changed(project, pull={"schedule": schedule}), "flights")
    assert (found.periods, found.period.to_seconds()) == (periods, seconds)
    assert found.datapoints == (1 if seconds == 60 else 3)


@pytest.mark.parametrize(
    ("schedule", "hours"),
    [
        ("0 6 * * *", 26),
        ("0 */2 * * *", 26),
        # From Friday to Monday.
        ("0 6 * * 1-5", 74),
        ("0 6 * * 1,4", 98),
        ("0 6 1-30 * *", 50),
        # The periods of an alarm have at most seven days together.
        ("0 6 * * 1", None),
        ("0 6 1 * *", None),
        ("0 6 29 2 *", None),
        ("0 6 31 2 *", None),
    ],
)
def test_a_check_is_missing_after_the_longest_time_between_two_of_them(
    project: Project, schedule: str, hours: int | None
) -> None:
    other = changed(project, schedule={"monitor": schedule})
    missing = [alarm for name, alarm in alarms_of(other).items() if name == "monitor-missing-daily_delays"]
    assert [alarm["EvaluationPeriods"] for alarm in missing] == ([hours] if hours else [])
    assert [alarm["AlarmName"] for alarm in missing] == [
        name for name in alarm_names(Settings(), other) if "missing-daily" in name
    ]
    assert all(f"for {hours} hours" in alarm["AlarmDescription"] for alarm in missing)


def test_without_a_scheduler_no_check_is_missing(project: Project) -> None:
    assert not [name for name in alarm_names(Settings(schedule="none"), project) if "missing" in name]


def test_an_hourly_pipeline_has_the_alarms_of_pipelines_and_none_of_sources(project: Project) -> None:
    hourly = {name: pipeline.model_copy(update={"period": "hour"}) for name, pipeline in project.pipelines.items()}
    names = alarm_names(Settings(), project.model_copy(update={"pipelines": hourly}))
    of_days = alarm_names(Settings(), project)
    assert [name for name in names if name.endswith("-daily_delays")] == [
        name for name in of_days if name.endswith("-daily_delays")
    ]
    assert not [name for name in names if name.startswith("slackwater-partner-")]


def test_a_data_point_of_a_gauge_that_arrives_five_minutes_late_fires_its_alarm(assembly: Assembly) -> None:
    """Most gauges have one data point a day. An alarm that does not see it misses the day."""
    gauges = {metric.value for metric in Metric if metric.gauge}
    found = [
        item
        for item in alarms(assembly).values()
        if item["MetricName"] in gauges and item["TreatMissingData"] == "ignore"
    ]
    assert len(found) > 10
    for item in found:
        alarm = AlarmDefinition.from_document(item)
        late = int(300 // alarm.period)
        points = [None] * late + [alarm.threshold] * alarm.datapoints_to_alarm
        # CloudWatch documents no range beyond the alarm's own periods.
        assert evaluate(points[: alarm.evaluation_periods], alarm, current=AlarmState.OK) is AlarmState.ALARM
        cleared = [None] * late + [alarm.threshold - 1]
        assert evaluate(cleared[: alarm.evaluation_periods], alarm, current=AlarmState.ALARM) is AlarmState.OK


@pytest.mark.parametrize("group", list(AlarmGroup))
def test_a_stack_has_room_for_the_alarms_of_150_pipelines_and_sources(group: AlarmGroup) -> None:
    resources = sum(rule.group is group for rule in RULES) * _MOST_SUBJECTS
    if group is AlarmGroup.EXECUTIONS:  # one of its rules is for three state machines
        resources -= _MOST_SUBJECTS - 3
    # A source that is read, pulled and recorded has more alarms than fit for 150: it was so when the stack was created.
    assert resources <= (_MOST_RESOURCES if group is not AlarmGroup.SOURCES else 4 * _MOST_SUBJECTS)


def test_every_queue_is_monitored(assembly: Assembly) -> None:
    found = {name: alarm for name, alarm in alarms(assembly).items() if name in _QUEUES}
    keys = ("MetricName", "Threshold", "TreatMissingData")
    assert {
        name: (_queue(alarm["Dimensions"][0]["Value"]), *(alarm[key] for key in keys)) for name, alarm in found.items()
    } == _QUEUES
    created = assembly.properties("AWS::SQS::Queue", "QueueName")
    assert {_queue(name) for name in created} == {queue for queue, *_ in _QUEUES.values()}
    assert all(alarm["Statistic"] == "Maximum" for alarm in found.values())


def _queue(name: Any) -> str:
    """The fixed name of a queue, or the logical id without hash of a queue whose name is generated."""
    fixed = r"slackwater-(?:dead-letters|(?:arrivals|states)(?:-dead-letters)?)"
    [queue] = re.findall(rf"{fixed}|EventBufferQueue|EventBufferDeadLetters", resource_name(name))
    return str(queue)


def test_every_alarm_names_the_remedy(scheduled: Assembly) -> None:
    for alarm in alarms(scheduled).values():
        assert "Look: " in alarm["AlarmDescription"]
        assert "{" not in alarm["AlarmDescription"]
        assert len(alarm["AlarmDescription"]) <= 1024
    taken = alarms(scheduled)["file-not-taken-flights"]["AlarmDescription"]
    assert "slackwater files give-up flights PATH" in taken


@pytest.mark.parametrize("topic", ["Alarming", "Warning"])
def test_only_our_alarms_may_publish_to_their_topic(assembly: Assembly, topic: str) -> None:
    statements = assembly.one("AWS::SNS::TopicPolicy", topic)["PolicyDocument"]["Statement"]
    [allowed] = [statement for statement in statements if statement["Effect"] == "Allow"]
    assert (allowed["Principal"], allowed["Action"]) == ({"Service": "cloudwatch.amazonaws.com"}, "sns:Publish")
    patterns = [resource_name(arn).rpartition(":alarm:")[2] for arn in allowed["Condition"]["ArnLike"]["aws:SourceArn"]]
    own = [f"slackwater-{name}" for name in alarms(assembly)]
    assert all(any(fnmatchcase(name, pattern) for pattern in patterns) for name in own)
    assert not any(fnmatchcase("slackwater-dev-run-failed-daily_delays", pattern) for pattern in patterns)
    assert allowed["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}


def test_dead_letters_are_kept_for_two_weeks_and_come_from_the_three_topics(assembly: Assembly) -> None:
    queue = assembly.one("AWS::SQS::Queue", "DeadLetters")
    assert (queue["QueueName"], queue["MessageRetentionPeriod"]) == ("slackwater-dead-letters", 14 * 86400)
    statements = assembly.one("AWS::SQS::QueuePolicy", "DeadLetters")["PolicyDocument"]["Statement"]
    [allowed] = [statement for statement in statements if statement["Effect"] == "Allow"]
    assert allowed["Principal"] == {"Service": "sns.amazonaws.com"}
    assert len(allowed["Condition"]["ArnEquals"]["aws:SourceArn"]) == 3


def test_only_addresses_of_the_settings_are_subscribed(assembly: Assembly, prod: Assembly) -> None:
    assert not assembly.resources("AWS::SNS::Subscription")
    subscriptions = prod.properties("AWS::SNS::Subscription").values()
    found = {resource_name(item["Endpoint"]): item for item in subscriptions if item["Protocol"] == "sqs"}
    [queue] = found
    found |= {item["Endpoint"]: item for item in subscriptions if item["Protocol"] == "email"}
    mails = {"by@day.example", "on@call.example", "reader@example.org", "team@example.org", "too@call.example"}
    assert found.keys() == {queue, *mails}
    for endpoint, subscription in found.items():
        assert "DeadLetters" in resource_name(subscription["RedrivePolicy"]["deadLetterTargetArn"])
        own = {"team": ["operations"], "severity": ["warning"]} if endpoint in {queue, "team@example.org"} else None
        assert subscription.get("FilterPolicy") == own


def test_the_topic_may_send_to_the_queue_of_a_team(prod: Assembly) -> None:
    assert prod.one("AWS::SQS::Queue", "DeadLettersTeamoperations")["QueueName"] == "slackwater-prod-changes-operations"
    statements = prod.one("AWS::SQS::QueuePolicy", "DeadLettersTeamoperations")["PolicyDocument"]["Statement"]
    [allowed] = [statement for statement in statements if statement["Effect"] == "Allow"]
    assert (allowed["Principal"], allowed["Action"]) == ({"Service": "sns.amazonaws.com"}, "sqs:SendMessage")


def test_the_operations_page_names_the_topics_and_the_threshold_of_every_alarm() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    for topic in ("slackwater-alarms", "slackwater-warnings", "slackwater-changes"):
        assert f"`{topic}`" in page
    for one in RULES:
        if isinstance(one.metric, Metric) and one.name != "monitor-missing":
            [row] = [line for line in page.splitlines() if line.startswith(f"| `slackwater-{one.name}-")]
            assert f"| `{one.metric.value}` ≥ " in row


def test_only_metrics_that_an_alarm_reads_are_billed_for_each_source() -> None:
    read = {rule.metric for rule in RULES if isinstance(rule.metric, Metric)}
    assert {metric for metric in Metric if metric.subject is Subject.SOURCE and metric.has_dimension} <= read
    assert {metric for metric in read if not metric.has_dimension} == set()
