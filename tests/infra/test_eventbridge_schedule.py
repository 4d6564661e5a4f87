"""The stack of EventBridge Scheduler: a schedule for each task, and who may do what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.app import context, create_app
from infra.lint import nag_findings, placeholder_artefacts, written
from infra.settings import Settings
from infra.stacks.eventbridge_schedule import EventBridgeScheduleStack
from slackwater.local.services.schedules import check_schedule
from slackwater.project.project import Project, load_project
from slackwater.project.schedule import ScheduledTask, schedule_of
from slackwater.project.scheduled_starts import ScheduledStart
from tests.infra.assembly import Assembly, parts_of
from tests.infra.large_project import write_project
from tests.infra.rights import resource_name

pytestmark = pytest.mark.infra

_STACK = "slackwater-schedule"


@pytest.fixture(scope="module")
def stack(assembly: Assembly) -> Assembly:
    return Assembly(assembly.folder, {_STACK: assembly.templates[_STACK]})


def _schedules(assembly: Assembly) -> dict[str, dict[str, Any]]:
    return assembly.properties("AWS::Scheduler::Schedule", "Name")


def _task(schedule: dict[str, Any]) -> ScheduledTask:
    return ScheduledTask.model_validate(json.loads(schedule["Target"]["Input"])["task"])


def test_every_scheduled_task_has_a_schedule_in_its_timezone(stack: Assembly, project: Project) -> None:
    tasks, schedules = schedule_of(project).tasks, _schedules(stack)
    # Airflow alone shows stages.
    assert [_task(schedule) for schedule in schedules.values()] == [
        task.model_copy(update={"stages": ()}) for task in tasks
    ]
    assert {
        name: (schedule["ScheduleExpression"], schedule["ScheduleExpressionTimezone"])
        for name, schedule in schedules.items()
    } == {
        "pull-flights": ("cron(15 * * * ? *)", "America/New_York"),
        "process-daily_delays": ("cron(0 3 * * ? *)", "America/New_York"),
        "monitor-daily_delays": ("cron(0 6 * * ? *)", "America/New_York"),
        "process-weekly_delays": ("cron(0 0 ? * MON *)", "America/New_York"),
        "monitor-weekly_delays": ("cron(30 6 * * ? *)", "America/New_York"),
    }


def test_every_schedule_is_one_that_aws_accepts(stack: Assembly) -> None:
    for schedule in _schedules(stack).values():
        target = {
            **schedule["Target"],
            "Arn": "arn:aws:lambda:us-east-1:000000000000:function:f",
            "RoleArn": "arn:aws:iam::000000000000:role/r",
            "DeadLetterConfig": {"Arn": "arn:aws:sqs:us-east-1:000000000000:q"},
        }
        check_schedule({**schedule, "GroupName": "g", "Target": target})


def test_schedules_start_at_their_time_are_repeated_and_end_in_the_dead_letter_queue(stack: Assembly) -> None:
    [group] = stack.resources("AWS::Scheduler::ScheduleGroup")
    for schedule in _schedules(stack).values():
        target = schedule["Target"]
        assert schedule["GroupName"] == {"Ref": group}
        assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
        assert "State" not in schedule
        assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185}
        assert resource_name(target["DeadLetterConfig"]["Arn"]).endswith("slackwater-dead-letters")
    failures = stack.one("AWS::Lambda::EventInvokeConfig", "Failures")
    assert resource_name(failures["DestinationConfig"]["OnFailure"]["Destination"]).endswith("slackwater-dead-letters")
    assert (failures["MaximumRetryAttempts"], failures["Qualifier"]) == (2, "$LATEST")


def test_the_input_of_a_schedule_is_a_start_at_its_scheduled_time(stack: Assembly) -> None:
    payload = _schedules(stack)["process-daily_delays"]["Target"]["Input"]
    assert payload.count("<aws.scheduler.scheduled-time>") == 1
    start = ScheduledStart.model_validate_json(
        payload.replace("<aws.scheduler.scheduled-time>", "2013-03-09T08:00:00Z")
    )
    assert start.input == {"date": "2013-03-08", "correlation_id": "process-daily_delays-20130309T080000Z"}


def test_only_the_schedules_of_the_group_have_their_role(stack: Assembly) -> None:
    [trust] = stack.one("AWS::IAM::Role", "ScheduleRole")["AssumeRolePolicyDocument"]["Statement"]
    [group] = stack.resources("AWS::Scheduler::ScheduleGroup")
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}},
        "ArnEquals": {"aws:SourceArn": {"Fn::GetAtt": [group, "Arn"]}},
    }


def test_another_scheduler_can_replace_this_one(stack: Assembly, scheduled: Assembly) -> None:
    """Both have the same stack, and no other stack depends on its resources, nor it on exports of others."""
    assert _STACK in scheduled.templates
    assert "Outputs" not in stack.templates[_STACK]
    assert "Fn::ImportValue" not in json.dumps(stack.templates[_STACK])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """100 sources and 100 pipelines with names of the greatest length; each pipeline has two schedules more."""
    folder = tmp_path_factory.mktemp("large")
    return scheduled_project(folder, write_project(folder / "project", schedule="0 5 1 * MON"))


def scheduled_project(folder: Path, project: Path) -> Assembly:
    """The stack of the schedule of a project, without the others, which take longer."""
    out, settings = folder / "cdk.out", Settings()
    app = create_app(settings, context=context(), folder=str(out))
    EventBridgeScheduleStack(app, parts_of(settings, load_project(project), placeholder_artefacts(folder)))
    return Assembly(out, written(app, out))


def test_the_schedules_of_a_large_project_have_different_names_and_fit(large: Assembly) -> None:
    """ "Quotas for EventBridge Scheduler" and "CloudFormation quotas"."""
    created = large.resources("AWS::Scheduler::Schedule")
    schedules = _schedules(large)
    assert len(schedules) == len(created) == 100 * 2 + 100 * 2
    for name, schedule in schedules.items():
        assert len(name) <= 64
        assert len(schedule["ScheduleExpression"]) <= 256
        assert len(schedule["Description"]) <= 512
        assert len(schedule["Target"]["Input"]) <= 256 * 1024
        start = ScheduledStart(task=_task(schedule), scheduled_at="2026-05-02T07:00:00Z")
        assert len(start.name) <= 80
    assert len(large.templates[_STACK]["Resources"]) <= 500
    assert Path(large.folder, f"{_STACK}.template.json").stat().st_size <= 1_000_000
    assert list(nag_findings(large.folder)) == []


def test_a_task_whose_time_is_skipped_in_spring_has_another_schedule(tmp_path: Path) -> None:
    project = write_project(tmp_path / "project", source="tides", pipeline="heights", count=1)
    path = project / "pipelines" / "heights.yaml"
    path.write_text(f"{path.read_text()}timezone: America/New_York\nschedule: {{process: '30 2 * * *'}}\n")
    schedules = _schedules(scheduled_project(tmp_path, project))
    assert set(schedules) == {"pull-tides", "process-heights", "process-heights-dst", "monitor-heights"}
    usual, other = schedules["process-heights"], schedules["process-heights-dst"]
    assert (usual["ScheduleExpression"], other["ScheduleExpression"]) == (
        "cron(30 2 * * ? *)",
        "cron(30 3 ? 3 SUN *)",
    )
    payloads = [json.loads(schedule["Target"]["Input"]) for schedule in (usual, other)]
    assert payloads[1] == {**payloads[0], "for_skipped_time": True}


@pytest.mark.parametrize("timezone", ["America/New_York", "Australia/Lord_Howe"])
def test_an_open_day_is_published_at_minutes_of_utc_whatever_the_clocks_do(tmp_path: Path, timezone: str) -> None:
    project = write_project(tmp_path / "project", source="tides", pipeline="heights", count=1)
    path = project / "pipelines" / "heights.yaml"
    path.write_text(f"{path.read_text()}timezone: {timezone}\nlive: {{every: 60m}}\n")
    schedules = _schedules(scheduled_project(tmp_path, project))
    assert {name for name in schedules if name.startswith("live-")} == {"live-heights"}
    live = schedules["live-heights"]
    assert (live["ScheduleExpression"], live["ScheduleExpressionTimezone"]) == ("cron(0 * * * ? *)", "UTC")
    assert _task(live).timezone == timezone


def test_without_a_scheduler_nothing_starts_by_itself_and_nothing_waits_for_it(divided: Assembly) -> None:
    assert _STACK not in divided.templates
    assert "monitor-missing" not in json.dumps(divided.templates)
    dashboard = divided.one("AWS::CloudWatch::Dashboard", "")["DashboardBody"]
    assert "check-days" in json.dumps(dashboard)
    assert "start-scheduled" not in json.dumps(dashboard)
