"""The rules that have small objects packed: each hour, and each minute where an open period reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template

from infra.lint import placeholder_artefacts
from infra.settings import Settings
from infra.stacks.receiver import ReceiverStack
from infra.stacks.storage import StorageStack
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from tests.fakes_receiver import a_source
from tests.infra.assembly import parts_of

pytestmark = pytest.mark.infra

LIVE = {"every": "5m"}


@pytest.mark.parametrize(
    ("packed", "live", "expected"),
    [
        ({}, LIVE, {"rate(1 hour)": ("DISABLED", None)}),
        ({"a"}, None, {"rate(1 hour)": ("ENABLED", None)}),
        # The open period reads the other source.
        ({"b"}, LIVE, {"rate(1 hour)": ("ENABLED", None)}),
        ({"a"}, LIVE, {"rate(1 hour)": ("ENABLED", None), "rate(1 minute)": ("ENABLED", '{"is_open":true}')}),
    ],
)
def test_a_rule_for_each_kind_of_hours_invokes_the_function(tmp_path: Path, packed, live, expected) -> None:
    sources = {name: a_source(source=name, pack={"max_objects": 9} if name in packed else None) for name in "ab"}
    definition = {"pipeline": "p", "sources": ["a"], "publish": {"step": "end", "key": ["date"]}, "live": live}
    pipeline = Pipeline.model_validate({**definition, "steps": {"end": {"step": "sql", "depends_on": ["a"]}}})
    project = Project(sources=sources, pipelines={"p": pipeline})
    app, parts = App(), parts_of(Settings(), project, placeholder_artefacts(tmp_path))
    template = Template.from_stack(ReceiverStack(app, parts, StorageStack(app, parts)))
    rules = [rule["Properties"] for rule in template.find_resources("AWS::Events::Rule").values()]
    of_packing = [rule for rule in rules if rule.get("Description", "").startswith("Small objects")]
    assert {rule["ScheduleExpression"]: (rule["State"], rule["Targets"][0].get("Input")) for rule in of_packing} == (
        expected
    )
    # Each rule may invoke the function, and only it.
    assert len({rule["Targets"][0]["Arn"]["Fn::GetAtt"][0] for rule in of_packing}) == 1
    permissions = template.find_resources("AWS::Lambda::Permission").values()
    allowed = [item["Properties"]["FunctionName"]["Fn::GetAtt"][0] for item in permissions]
    assert allowed.count(of_packing[0]["Targets"][0]["Arn"]["Fn::GetAtt"][0]) == len(expected)
