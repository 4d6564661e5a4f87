"""The dashboard and the alarms in the template of the monitoring stack."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template

from infra.app import ROOT
from infra.constructs.alarms.alarm_rules import RULES, AlarmGroup, Severity
from infra.constructs.alarms.alarm_topics import AlarmTopic
from infra.constructs.alarms.alarms import SubjectAlarms, alarm_names
from infra.lint import context, placeholder_artefacts, synthesise
from infra.settings import Scheduler, Settings, load_settings
from slackwater.errors import DefinitionError
from slackwater.metrics import Metric, Subject
from slackwater.project.project import Project, load_project
from slackwater.sources.definition import Source
from tests.infra.assembly import Assembly
from tests.infra.test_templates import resource_name

pytestmark = pytest.mark.infra

NAMESPACE = "Slackwater/slackwater"

_AWS_METRICS = {
    "AWS/Lambda": ({"Errors"}, ["FunctionName"]),
    "AWS/SQS": ({"ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"}, ["QueueName"]),
    "AWS/States": ({"ExecutionsFailed", "ExecutionsAborted"}, ["StateMachineArn"]),
    "AWS/EMRServerless": (
        {"SubmittedJobs", "PendingJobs", "RunningJobs", "SuccessJobs", "FailedJobs", "CancelledJobs"},
        ["ApplicationId", "ApplicationName"],
    ),
}
"""Metrics of AWS services, with their dimensions."""
FILE_ALARMS = {"file-not-taken", "files-left"}
MACHINE_ALARMS = ("machine-failed-pull-source", "machine-failed-compare-day", "machine-failed-backfill")
OTHER_ALARMS = {"slackwater-monitor-failed", "slackwater-stale-objects"}
QUEUE_ALARMS = {
    f"slackwater-{name}"
    for name in (
        *("dead-letters", "events-waiting", "event-dead-letters"),
        *("arrivals-waiting", "arrival-dead-letters"),
    )
}


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project(ROOT / Settings().project)


@pytest.fixture(scope="module")
def widgets(assembly: Assembly) -> list[dict[str, Any]]:
    return _widgets(assembly)


def _widgets(assembly: Assembly) -> list[dict[str, Any]]:
    body = resource_name(assembly.one("AWS::CloudWatch::Dashboard", "Overview")["DashboardBody"])
    result: list[dict[str, Any]] = json.loads(body)["widgets"]
    return result


@pytest.fixture(scope="module")
def shown(widgets: list[dict[str, Any]]) -> list[tuple[str, str, dict[str, str]]]:
    """Every metric on the dashboard: namespace, name, dimensions."""
    metrics = []
    for widget in widgets:
        for namespace, name, *rest in widget["properties"].get("metrics", []):
            of = [part for part in rest if isinstance(part, str)]
            metrics.append((namespace, name, dict(zip(of[::2], of[1::2], strict=True))))
    return metrics


def alarms(assembly: Assembly) -> dict[str, dict[str, Any]]:
    properties = (resource["Properties"] for resource in assembly.resources("AWS::CloudWatch::Alarm").values())
    return {alarm["AlarmName"]: alarm for alarm in properties}


def names(project: Project, metric: Metric) -> list[str]:
    return sorted(project.pipelines if metric.subject is Subject.PIPELINE else project.sources)


@pytest.mark.parametrize("metric", list(Metric))
def test_the_dashboard_shows_every_metric_of_every_pipeline_or_source_or_in_total(
    shown: list[tuple[str, str, dict[str, str]]], project: Project, metric: Metric
) -> None:
    of = [dimensions for namespace, name, dimensions in shown if (namespace, name) == (NAMESPACE, metric)]
    by_subject = [{metric.subject.value: name} for name in names(project, metric)]
    assert of == (by_subject if metric.has_dimension else [{}])


def test_only_metrics_that_an_alarm_reads_are_billed_for_each_source() -> None:
    read = {rule.metric for rule in RULES}
    assert {metric for metric in Metric if metric.subject is Subject.SOURCE and metric.has_dimension} <= read
    assert {metric for metric in read if not metric.has_dimension} == set()


def test_every_metric_on_the_dashboard_exists(shown: list[tuple[str, str, dict[str, str]]]) -> None:
    for namespace, name, dimensions in shown:
        if namespace == NAMESPACE:
            assert list(dimensions) == ([Metric(name).subject] if Metric(name).has_dimension else [])
        else:
            known, by = _AWS_METRICS[namespace]
            assert name in known
            assert list(dimensions) == by
    assert {namespace for namespace, _, _ in shown} == {NAMESPACE, *_AWS_METRICS}


def test_the_dashboard_shows_every_function_and_every_state_machine(
    shown: list[tuple[str, str, dict[str, str]]], assembly: Assembly
) -> None:
    functions = {of["FunctionName"] for namespace, _, of in shown if namespace == "AWS/Lambda"}
    machines = {of["StateMachineArn"].split(":")[-1] for namespace, _, of in shown if namespace == "AWS/States"}
    created = assembly.resources("AWS::Lambda::Function").values()
    assert functions == {function["Properties"]["FunctionName"] for function in created}
    assert machines == set(assembly.machines())


@pytest.mark.parametrize("of", ["assembly", "scheduled"])
def test_the_dashboard_shows_every_alarm(of: str, request: pytest.FixtureRequest) -> None:
    synthesised: Assembly = request.getfixturevalue(of)
    shown = [alarm for widget in _widgets(synthesised) for alarm in widget["properties"].get("alarms", [])]
    assert sorted(arn.rpartition(":")[2] for arn in shown) == sorted(alarms(synthesised))
    assert {arn.rpartition("alarm:")[0] for arn in shown} == {
        "arn:AWS::Partition:cloudwatch:AWS::Region:AWS::AccountId:"
    }


def test_there_is_an_alarm_of_each_rule_for_each_pipeline_or_source(assembly: Assembly, project: Project) -> None:
    expected = {
        f"slackwater-{rule.name}-{of}"
        for rule in RULES
        for of in names(project, rule.metric)
        if rule.name not in FILE_ALARMS or project.source(of).pull
        if rule.name != "files-doubtful" or project.records_removed(of)
        if rule.name not in {"budget-spent", "cost-per-day"}
    }
    machines = [*(f"execution-failed-{name}" for name in project.pipelines), *MACHINE_ALARMS]
    expected |= {f"slackwater-{name}" for name in machines}
    missing = {f"slackwater-monitor-missing-{pipeline}" for pipeline in project.pipelines}
    assert set(alarms(assembly)) == {*expected, *missing, *OTHER_ALARMS, *QUEUE_ALARMS}


def alarms_of(project: Project, **sources: Source) -> dict[str, dict[str, Any]]:
    """Return the alarms of the project with these sources in addition or instead, by name."""
    settings, stack = Settings(schedule=Scheduler.NONE), Stack(App(), "stack")
    topics = {
        severity: AlarmTopic(stack, severity, settings=settings, project=project, severity=severity).topic
        for severity in Severity
    }
    project = project.model_copy(update={"sources": {**project.sources, **sources}})
    for group in AlarmGroup:
        SubjectAlarms(stack, group.value, settings=settings, project=project, topics=topics, group=group)
    created = Template.from_stack(stack).find_resources("AWS::CloudWatch::Alarm").values()
    return {alarm["Properties"]["AlarmName"]: alarm["Properties"] for alarm in created}


def test_a_file_that_is_not_taken_for_a_day_fires_an_alarm_that_keeps_its_state_until_the_next_pull(
    project: Project,
) -> None:
    alarm = alarms_of(project)["slackwater-file-not-taken-flights"]
    assert (alarm["MetricName"], alarm["Statistic"], alarm["Threshold"]) == ("HoursNotTaken", "Maximum", 24)
    assert (alarm["EvaluationPeriods"], alarm["Period"], alarm["TreatMissingData"]) == (10, 60, "ignore")
    assert "slackwater files flights --state failed" in alarm["AlarmDescription"]
    assert "slackwater files give-up flights PATH" in alarm["AlarmDescription"]


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
    flights = project.source("flights")
    scheduled = flights.model_copy(update={"pull": flights.require_pull().model_copy(update={"schedule": schedule})})
    alarm = alarms_of(project, flights=scheduled)["slackwater-files-left-flights"]
    assert (alarm["MetricName"], alarm["Statistic"], alarm["Threshold"]) == ("FilesLeft", "Minimum", 1)
    assert (alarm["EvaluationPeriods"], alarm["Period"]) == (periods, seconds)
    assert alarm["DatapointsToAlarm"] == (1 if seconds == 60 else 3)
    assert alarm["TreatMissingData"] == "ignore"


def test_only_a_source_whose_removed_files_are_recorded_has_an_alarm_about_doubtful_removals(project: Project) -> None:
    assert not [name for name in alarms_of(project) if "doubtful" in name]
    flights = project.source("flights")
    held = flights.model_copy(update={"pull": flights.require_pull().model_copy(update={"on_removed": "hold"})})
    [alarm] = [alarm for name, alarm in alarms_of(project, flights=held).items() if "doubtful" in name]
    assert (alarm["AlarmName"], alarm["Threshold"]) == ("slackwater-files-doubtful-flights", 1)
    assert "`slackwater pull flights --accept-removed NUMBER`" in alarm["AlarmDescription"]


def test_a_pushed_source_has_no_alarm_about_files(project: Project) -> None:
    assert not [name for name in alarms_of(project) if name.endswith("-weather") and "file" in name]


def test_a_source_that_no_pipeline_reads_has_no_alarm_about_silence(project: Project) -> None:
    silent = {name for name in alarms_of(project, tides=project.source("weather")) if "silent" in name}
    rules = ("partner-silent", "partner-unusually-silent")
    assert silent == {f"slackwater-{rule}-{source}" for rule in rules for source in ("flights", "weather")}


def test_a_failed_monitor_fires_an_alarm(assembly: Assembly) -> None:
    alarm = alarms(assembly)["slackwater-monitor-failed"]
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/States", "ExecutionsFailed")
    [dimension] = alarm["Dimensions"]
    assert dimension["Name"] == "StateMachineArn"
    assert resource_name(dimension["Value"]).endswith(":stateMachine:slackwater-monitor-days")
    assert (alarm["Statistic"], alarm["Threshold"], alarm["Period"]) == ("Sum", 1, 300)
    assert alarm["TreatMissingData"] == "notBreaching"


def test_a_check_that_is_missing_for_more_than_a_day_fires_an_alarm(scheduled: Assembly, project: Project) -> None:
    missing = {name: alarm for name, alarm in alarms(scheduled).items() if "monitor-missing" in name}
    assert set(missing) == {f"slackwater-monitor-missing-{name}" for name in project.pipelines}
    for name, alarm in missing.items():
        [pipeline] = alarm["Dimensions"]
        assert name.endswith(pipeline["Value"])
        assert (alarm["MetricName"], alarm["Statistic"]) == ("DaysOverdue", "SampleCount")
        assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)
        assert (alarm["Period"], alarm["EvaluationPeriods"]) == (3600, 26)
        assert "DatapointsToAlarm" not in alarm
        assert alarm["TreatMissingData"] == "breaching"


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
    daily = project.pipeline("daily_delays")
    times = daily.schedule.model_copy(update={"monitor": schedule})
    changed = project.model_copy(update={"pipelines": {"p": daily.model_copy(update={"schedule": times})}})
    stack, settings = Stack(App(), "stack"), Settings()
    topics = {
        severity: AlarmTopic(stack, severity, settings=settings, project=project, severity=severity).topic
        for severity in Severity
    }
    SubjectAlarms(stack, "A", settings=settings, project=changed, topics=topics, group=AlarmGroup.RUNS)
    created = Template.from_stack(stack).find_resources("AWS::CloudWatch::Alarm").values()
    missing = [alarm["Properties"] for alarm in created if "missing" in alarm["Properties"]["AlarmName"]]
    assert [alarm["EvaluationPeriods"] for alarm in missing] == ([hours] if hours else [])
    assert [alarm["AlarmName"] for alarm in missing] == [
        name for name in alarm_names(settings, changed) if "missing" in name
    ]
    assert all(f"for {hours} hours" in alarm["AlarmDescription"] for alarm in missing)


def test_every_alarm_names_the_remedy(scheduled: Assembly) -> None:
    for alarm in alarms(scheduled).values():
        assert "Look: " in alarm["AlarmDescription"]
        assert "{" not in alarm["AlarmDescription"]
        assert len(alarm["AlarmDescription"]) <= 1024


def test_gauges_keep_their_state_until_the_next_value_and_counters_clear_by_themselves(assembly: Assembly) -> None:
    of = {name: (alarm["TreatMissingData"], alarm["Period"]) for name, alarm in alarms(assembly).items()}
    for name in ("slackwater-dead-letters", "slackwater-event-dead-letters", "slackwater-arrival-dead-letters"):
        assert of.pop(name) == ("ignore", 300)
    for name in [name for name in of if "monitor-missing" in name]:
        assert of.pop(name) == ("breaching", 3600)
    # Compares pulls of several periods.
    assert of.pop("slackwater-files-left-flights") == ("ignore", 3600)
    # A pull of every hour that fails each time fires its alarm once.
    for name in [name for name in of if "execution-failed" in name or "machine-failed" in name]:
        assert of.pop(name) == ("notBreaching", 3600)
    level = {alarm["MetricName"] for alarm in alarms(assembly).values()} & {m for m in Metric if m.gauge}
    assert of == {
        name: ("ignore", 60) if alarms(assembly)[name]["MetricName"] in level else ("notBreaching", 300) for name in of
    }


def test_events_that_wait_too_long_or_could_not_be_stored_fire_an_alarm(assembly: Assembly) -> None:
    alarms_of_queues = {}
    for name in QUEUE_ALARMS:
        alarm = alarms(assembly)[name]
        assert (alarm["Namespace"], alarm["Statistic"]) == ("AWS/SQS", "Maximum")
        [queue] = alarm["Dimensions"]
        of = _queue(queue["Value"])
        alarms_of_queues[name.removeprefix("slackwater-")] = (of, alarm["MetricName"], alarm["Threshold"])
    assert alarms_of_queues == {
        "dead-letters": ("slackwater-dead-letters", "ApproximateNumberOfMessagesVisible", 1),
        "arrivals-waiting": ("slackwater-arrivals", "ApproximateAgeOfOldestMessage", 2400),
        "arrival-dead-letters": ("slackwater-arrivals-dead-letters", "ApproximateNumberOfMessagesVisible", 1),
        "events-waiting": ("EventBufferQueue", "ApproximateAgeOfOldestMessage", 600),
        "event-dead-letters": ("EventBufferDeadLetters", "ApproximateNumberOfMessagesVisible", 1),
    }


def test_a_failure_of_the_weekly_deletion_of_stale_objects_fires_an_alarm(assembly: Assembly) -> None:
    alarm = alarms(assembly)["slackwater-stale-objects"]
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Threshold"]) == ("AWS/Lambda", "Errors", 1)
    assert alarm["Dimensions"] == [{"Name": "FunctionName", "Value": "slackwater-remove-stale"}]


def _queue(name: Any) -> str:
    """The fixed name of a queue, or the start of the logical id of a queue whose name is generated."""
    fixed = r"slackwater-(?:dead-letters|arrivals(?:-dead-letters)?)"
    [queue] = re.findall(rf"{fixed}|EventBufferQueue|EventBufferDeadLetters", resource_name(name))
    return str(queue)


def test_every_queue_is_monitored(assembly: Assembly, shown: list[tuple[str, str, dict[str, str]]]) -> None:
    created = {
        _queue(queue["Properties"].get("QueueName", logical_id))
        for logical_id, queue in assembly.resources("AWS::SQS::Queue").items()
    }
    assert len(created) == 5
    assert created == {_queue(alarms(assembly)[name]["Dimensions"][0]["Value"]) for name in QUEUE_ALARMS}
    assert created == {_queue(of["QueueName"]) for namespace, _, of in shown if namespace == "AWS/SQS"}


def test_a_partner_is_silent_after_the_hours_set_in_its_source(assembly: Assembly, project: Project) -> None:
    thresholds = {name: alarm["Threshold"] for name, alarm in alarms(assembly).items() if "partner-silent" in name}
    assert thresholds == {
        f"slackwater-partner-silent-{name}": source.silent_hours for name, source in project.sources.items()
    }


@pytest.mark.parametrize("topic", ["Alarming", "Warning"])
def test_only_our_alarms_may_publish_to_their_topic(assembly: Assembly, topic: str) -> None:
    statements = assembly.one("AWS::SNS::TopicPolicy", topic)["PolicyDocument"]["Statement"]
    [allowed] = [statement for statement in statements if statement["Effect"] == "Allow"]
    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert allowed["Action"] == "sns:Publish"
    patterns = [resource_name(arn).rpartition(":alarm:")[2] for arn in allowed["Condition"]["ArnLike"]["aws:SourceArn"]]
    assert all(any(fnmatchcase(name, pattern) for pattern in patterns) for name in alarms(assembly))
    assert not any(fnmatchcase("slackwater-dev-run-failed-daily_delays", pattern) for pattern in patterns)
    assert allowed["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}


def test_dead_letters_are_kept_for_two_weeks_and_come_from_the_three_topics(assembly: Assembly) -> None:
    queue = assembly.one("AWS::SQS::Queue", "DeadLetters")
    assert (queue["QueueName"], queue["MessageRetentionPeriod"]) == ("slackwater-dead-letters", 14 * 86400)
    assert queue["SqsManagedSseEnabled"]
    statements = assembly.one("AWS::SQS::QueuePolicy", "DeadLetters")["PolicyDocument"]["Statement"]
    [allowed] = [statement for statement in statements if statement["Effect"] == "Allow"]
    assert allowed["Principal"] == {"Service": "sns.amazonaws.com"}
    assert len(allowed["Condition"]["ArnEquals"]["aws:SourceArn"]) == 3


def test_only_addresses_of_the_settings_are_subscribed(assembly: Assembly) -> None:
    assert not assembly.resources("AWS::SNS::Subscription")


def test_addresses_are_subscribed_and_undelivered_messages_are_kept(tmp_path: Path) -> None:
    values = {**context(), "slackwater:alarm_emails": "on@call.example, too@call.example"}
    values["slackwater:change_emails"] = ["reader@example.org"]
    values["slackwater:warning_emails"] = "by@day.example"
    templates = synthesise(
        tmp_path / "cdk.out", settings=load_settings(values), artefacts=placeholder_artefacts(tmp_path)
    )
    subscriptions = Assembly(tmp_path, templates).resources("AWS::SNS::Subscription").values()
    assert sorted(subscription["Properties"]["Endpoint"] for subscription in subscriptions) == [
        "by@day.example",
        "on@call.example",
        "reader@example.org",
        "too@call.example",
    ]
    for subscription in subscriptions:
        assert subscription["Properties"]["Protocol"] == "email"
        assert "DeadLetters" in resource_name(subscription["Properties"]["RedrivePolicy"]["deadLetterTargetArn"])


@pytest.mark.parametrize("address", ["nobody", "a b@example.org", "@"])
def test_an_invalid_address_is_named(address: str) -> None:
    with pytest.raises(DefinitionError, match="alarm_emails"):
        load_settings({"slackwater:alarm_emails": address})


def test_the_operations_page_names_the_topics() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    for topic in ("slackwater-alarms", "slackwater-warnings", "slackwater-changes"):
        assert f"`{topic}`" in page


def test_the_operations_page_names_the_threshold_of_every_alarm() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    for rule in RULES:
        [row] = [line for line in page.splitlines() if line.startswith(f"| `slackwater-{rule.name}-")]
        assert f"| `{rule.metric.value}` ≥ " in row
