"""The queue of states: its rules name the sources with counts, and without one nothing is sent and nothing polls it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template
from aws_cdk.aws_s3 import Bucket

from infra.constructs.state_queue import StateQueue
from infra.settings import Settings
from slackwater.project.project import Project
from tests.fakes_receiver import a_source
from tests.infra.assembly import Assembly

pytestmark = pytest.mark.infra


def rules_of(counted: int, *, minutes: int = 5) -> list[dict[str, Any]]:
    """Create the rules of a project with so many sources with counts, and one without."""
    names = [f"s{number:03d}{'x' * 59}" for number in range(counted)]
    sources = {name: a_source(source=name, counts={"window": "1h"}) for name in names}
    project = Project(sources={**sources, "other": a_source(source="other")}, pipelines={})
    stack = Stack(App(), "stack")
    raw = Bucket.from_bucket_name(stack, "Raw", "raw")
    StateQueue(stack, "States", settings=Settings(collect_minutes=minutes), project=project, raw=raw)
    found = Template.from_stack(stack).find_resources("AWS::Events::Rule").values()
    return [rule["Properties"] for rule in found]


@pytest.mark.parametrize(("counted", "rules"), [(0, 0), (1, 1), (20, 1), (21, 2), (400, 20), (401, 1)])
def test_rules_name_the_sources_with_counts(counted: int, rules: int) -> None:
    found = rules_of(counted)
    assert len(found) == rules
    prefixes = [item["prefix"] for rule in found for item in rule["EventPattern"]["detail"]["object"]["key"]]
    assert prefixes == (
        [f"raw/source=s{number:03d}{'x' * 59}/" for number in range(counted)]
        if rules != 1 or counted < 401
        else ["raw/source="]
    )
    # The quota of EventBridge.
    assert all(len(json.dumps(rule["EventPattern"])) <= 2048 for rule in found)
    assert {rule["State"] for rule in found} <= {"ENABLED"}


def test_without_events_objects_wait_for_the_daily_check() -> None:
    assert [rule["State"] for rule in rules_of(1, minutes=0)] == ["DISABLED"]


def test_without_a_source_with_counts_nothing_polls_the_queue(assembly: Assembly) -> None:
    assert assembly.one("AWS::Lambda::EventSourceMapping", "foldstate")["Enabled"] is False
    assert not [name for name in assembly.resources("AWS::Events::Rule") if name.startswith("States")]
