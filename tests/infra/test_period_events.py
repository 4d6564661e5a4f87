"""The stack in the README of `examples/period_events`."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template

from infra.app import ROOT
from lambdas.pack_objects import PackRequest

pytestmark = pytest.mark.infra

EXAMPLE = ROOT / "examples" / "period_events"
CHANGED = {"source": ["slackwater"], "detail-type": ["Slackwater Period Changed"]}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    [block] = re.findall(r"^```python\n(.*?)^```$", (EXAMPLE / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    # The page names the folder as seen from the root of a clone.
    exec(block.replace('"examples/period_events"', repr(str(EXAMPLE))), names)  # noqa: S102
    app = App(outdir=str(tmp_path_factory.mktemp("period_events")))
    return Template.from_stack(names["PeriodEvents"](app, raw="raw", exchange="exchange", distribution="E1"))


def function_of(template: Template, module: str, variables: set[str]) -> tuple[str, dict[str, Any]]:
    """Return the name and the properties of the function with this module, which has these variables."""
    functions = template.find_resources("AWS::Lambda::Function", {"Properties": {"Handler": f"{module}.handler"}})
    [(name, function)] = functions.items()
    assert set(function["Properties"]["Environment"]["Variables"]) == variables
    assert (EXAMPLE / f"{module}.py").exists()
    return name, function["Properties"]


def pattern_of(template: Template, target: str) -> dict[str, Any]:
    """Return the pattern of the events that a rule sends to the resource with this name."""
    rules = [rule["Properties"] for rule in template.find_resources("AWS::Events::Rule").values()]
    [rule] = [rule for rule in rules if rule["Targets"][0]["Arn"] == {"Fn::GetAtt": [target, "Arn"]}]
    return dict(rule["EventPattern"])


def test_a_rule_calls_the_function_that_copies_with_complete_periods(template):
    name, _ = function_of(template, "copy_period", {"COPY_BUCKET"})
    detail = {"source": ["clicks"], "state": ["complete"]}
    assert pattern_of(template, name) == {**CHANGED, "detail": detail}


def test_the_function_that_invalidates_gets_each_event_from_a_queue_that_repeats_it_for_days(template):
    name, function = function_of(template, "invalidate_cache", {"DISTRIBUTION", "VERSIONS_TABLE"})
    [mapping] = [item["Properties"] for item in template.find_resources("AWS::Lambda::EventSourceMapping").values()]
    assert (mapping["FunctionName"], mapping["BatchSize"]) == ({"Ref": name}, 1)
    queue_name = mapping["EventSourceArn"]["Fn::GetAtt"][0]
    assert pattern_of(template, queue_name) == {**CHANGED, "detail": {"source": ["clicks"]}}
    queues = template.find_resources("AWS::SQS::Queue")
    queue = queues[queue_name]["Properties"]
    # As AWS recommends: a message is not sent again while the function works on it.
    assert queue["VisibilityTimeout"] >= 6 * function["Timeout"]
    # An invalidation is in progress for minutes. The queue deletes a message at the end of its retention.
    repeated = queue["RedrivePolicy"]["maxReceiveCount"] * queue["VisibilityTimeout"]
    assert 3 * 86_400 < repeated < queue["MessageRetentionPeriod"]
    assert queue["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0] in queues


def test_a_rule_has_complete_hours_packed(template):
    [rule] = [
        rule["Properties"]
        for rule in template.find_resources("AWS::Events::Rule").values()
        if "InputTransformer" in rule["Properties"]["Targets"][0]
    ]
    assert rule["EventPattern"]["detail"] == {"source": ["clicks"], "state": ["complete"]}
    [target] = rule["Targets"]
    assert target["Arn"]["Fn::Join"][1][-1].endswith(":function:slackwater-pack-objects")
    # What EventBridge makes of it: strings get quotes.
    paths, text = target["InputTransformer"]["InputPathsMap"], target["InputTransformer"]["InputTemplate"]
    event = {"detail": {"source": "clicks", "start": "2026-01-01T15:00:00Z", "end": "2026-01-01T16:00:00Z"}}
    for name, path in paths.items():
        text = text.replace(f"<{name}>", json.dumps(event["detail"][path.removeprefix("$.detail.")]))
    request = PackRequest.model_validate_json(text)
    assert request.model_dump(mode="json") == {"is_open": False, "period": event["detail"]}
    permissions = template.find_resources("AWS::Lambda::Permission").values()
    assert target["Arn"] in [permission["Properties"]["FunctionName"] for permission in permissions]


def test_the_functions_may_make_their_calls(template):
    statements = [
        statement
        for policy in template.find_resources("AWS::IAM::Policy").values()
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
    ]
    actions = set[str]()
    for statement in statements:
        named = statement["Action"]
        actions.update([named] if isinstance(named, str) else named)
    needed = {"s3:GetObject*", "s3:PutObject", "s3:DeleteObject*", "s3:List*"}
    assert (
        needed | {"dynamodb:GetItem", "dynamodb:PutItem", "cloudfront:CreateInvalidation", "sqs:DeleteMessage"}
        <= actions
    )
