"""One cause pages once: every alarm notifies one topic, itself or through one composite alarm."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template

from infra.constructs.alarms.alarm_rule import AlarmGroup
from infra.constructs.alarms.alarm_rules import RULES, alarm_names
from infra.constructs.alarms.alarms import readers
from infra.constructs.alarms.composite_alarms import COMPOSITES, MAX_CHILDREN, CompositeAlarms
from infra.settings import Scheduler, Settings
from slackwater.project.project import Project
from tests.infra.assembly import Assembly
from tests.infra.rights import resource_name

pytestmark = pytest.mark.infra

_NAME = re.compile(r'ALARM\("([^"]+)"\)')
_TOPICS = {"page": "AlarmingTopic", "warning": "WarningTopic"}


def composites(assembly: Assembly) -> dict[str, dict[str, Any]]:
    return assembly.properties("AWS::CloudWatch::CompositeAlarm", "AlarmName")


def children(composite: dict[str, Any]) -> list[str]:
    return _NAME.findall(composite["AlarmRule"])


def severity(alarm: dict[str, Any]) -> str:
    [severity] = re.findall(r"Severity: (\w+)\.", alarm["AlarmDescription"])
    return str(severity)


@pytest.mark.parametrize("of", ["assembly", "scheduled", "divided"])
def test_each_alarm_notifies_the_topic_of_its_severity_in_exactly_one_way(
    of: str, request: pytest.FixtureRequest
) -> None:
    assembly: Assembly = request.getfixturevalue(of)
    covered = Counter(child for composite in composites(assembly).values() for child in children(composite))
    alarms = assembly.properties("AWS::CloudWatch::Alarm", "AlarmName")
    for alarm in alarms.values():
        ways = [resource_name(action) for action in alarm.get("AlarmActions", [])]
        assert len(ways) + covered[alarm["AlarmName"]] == 1, alarm["AlarmName"]
        assert all(_TOPICS[severity(alarm)] in way for way in ways)
        # The composite alarms page.
        assert ways or severity(alarm) == "page"
    assert set(covered) <= set(alarms)
    for composite in composites(assembly).values():
        [action] = composite["AlarmActions"]
        assert _TOPICS[severity(composite)] in resource_name(action)


def test_no_message_is_sent_for_an_alarm_that_clears(assembly: Assembly) -> None:
    for resource_type in ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm"):
        for alarm in assembly.resources(resource_type).values():
            assert {"OKActions", "InsufficientDataActions"} & set(alarm["Properties"]) == set()


def test_a_failed_run_and_its_overdue_day_page_once_for_their_pipeline(assembly: Assembly) -> None:
    rules = {name: composite["AlarmRule"] for name, composite in composites(assembly).items()}
    # No condition: a silent source keeps no overdue day from paging.
    assert rules["slackwater-pipeline-daily_delays"] == (
        'ALARM("slackwater-run-failed-daily_delays") OR ALARM("slackwater-execution-failed-daily_delays") OR '
        'ALARM("slackwater-day-overdue-daily_delays")'
    )


def test_the_page_about_a_silent_source_names_the_pipelines_that_read_it(assembly: Assembly) -> None:
    alarms = assembly.properties("AWS::CloudWatch::Alarm", "AlarmName")
    for source in ("flights", "weather"):
        assert "Read by: daily_delays. " in alarms[f"slackwater-partner-silent-{source}"]["AlarmDescription"]


def test_many_pipelines_that_read_a_silent_source_are_counted(project: Project) -> None:
    pipeline = project.pipeline("daily_delays")
    many = project.model_copy(update={"pipelines": {f"p{number}": pipeline for number in range(10, 21)}})
    assert readers(many, "flights") == "p10, p11, p12, p13, p14, p15, p16, p17 and 3 more"


def test_the_rules_of_a_deployment_name_the_alarms_of_all_pipelines(assembly: Assembly, project: Project) -> None:
    missing = {f"slackwater-monitor-missing-{pipeline}" for pipeline in project.pipelines}
    assert set(children(composites(assembly)["slackwater-monitor"])) == {"slackwater-monitor-failed", *missing}
    assert children(composites(assembly)["slackwater-events"]) == [
        "slackwater-events-waiting",
        "slackwater-event-dead-letters",
    ]


def test_a_composite_alarm_is_created_after_its_alarms_and_deleted_before_them(assembly: Assembly) -> None:
    template = assembly.templates["slackwater-monitoring"]["Resources"]
    assert set(template) >= set(assembly.resources("AWS::CloudWatch::Alarm"))
    for resource in assembly.resources("AWS::CloudWatch::CompositeAlarm").values():
        before = [template[name]["Properties"]["AlarmName"] for name in resource["DependsOn"]]
        assert sorted(before) == sorted(children(resource["Properties"]))


def test_the_stack_of_composite_alarms_is_deployed_after_all_stacks_with_alarms(divided: Assembly) -> None:
    stacks = {name for name, types in divided.types().items() if "AWS::CloudWatch::Alarm" in types}
    assert stacks == {f"slackwater-{name}" for name in ("monitoring", *AlarmGroup)}
    artifacts = divided.manifest()
    assert stacks <= set(artifacts["slackwater-composite-alarms"]["dependencies"])
    # Also a group whose alarms name no topic: alarms leave the monitoring stack before they are created elsewhere.
    for stack in stacks - {"slackwater-monitoring"}:
        assert "slackwater-monitoring" in artifacts[stack]["dependencies"]


def created(project: Project, settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the composite alarms of a project, by name."""
    stack = Stack(App(), "stack")
    topic = sns.Topic(stack, "Topic")
    CompositeAlarms(stack, "Alarms", settings=settings, project=project, topic=topic)
    found = Template.from_stack(stack).find_resources("AWS::CloudWatch::CompositeAlarm")
    assert len(found) <= 500
    return {alarm["Properties"]["AlarmName"]: alarm["Properties"] for alarm in found.values()}


def test_without_a_schedule_a_missing_check_is_in_no_rule(project: Project) -> None:
    alarms = created(project, Settings(schedule=Scheduler.NONE))
    assert children(alarms["slackwater-monitor"]) == ["slackwater-monitor-failed"]


def test_150_pipelines_with_the_longest_names_fit_cloudwatch(project: Project) -> None:
    """`PutCompositeAlarm` in the API reference, and the quotas of CloudWatch's user guide."""
    source = f"source_{'x' * 56}"
    pipeline = project.pipeline("daily_delays").model_copy(update={"sources": (source,)})
    # With the longest prefix, the name of a state machine leaves 46 of 80 characters.
    names = [f"pipeline_{number:03}_{'x' * 33}" for number in range(150)]
    settings = Settings(prefix="p" * 24)
    large = project.model_copy(
        update={"pipelines": dict.fromkeys(names, pipeline), "sources": {source: project.source("weather")}}
    )
    alarms = created(large, settings)
    assert len(alarms) == 150 + 3
    [silent_rule] = [rule for rule in RULES if rule.name == "partner-silent"]
    text = silent_rule.description.format(subject=source, threshold="9999", pipelines=readers(large, source))
    assert len(f"{text} Severity: page. Prefix: {settings.prefix}. Runbook: docs/runbooks/partner-silent.md.") <= 1024
    for name, alarm in alarms.items():
        assert len(name) <= 255
        assert len(alarm["AlarmRule"]) <= 10_240
        assert 1 <= len(children(alarm)) <= MAX_CHILDREN <= 100
        # "Elements are child alarms, TRUE or FALSE statements, and parentheses."
        assert len(_NAME.findall(alarm["AlarmRule"])) + len(re.findall(r"[()]", alarm["AlarmRule"])) <= 500
        assert len(alarm["AlarmDescription"]) <= 1024
        assert "{" not in alarm["AlarmDescription"]
    covered = Counter(child for alarm in alarms.values() for child in children(alarm))
    assert set(covered.values()) == {1}
    of_rules = {alarm for rule in COMPOSITES for alarm in rule.alarms}
    expected = {name for name in alarm_names(settings, large) if name[25:].split("-pipeline_")[0] in of_rules}
    assert set(covered) == expected
