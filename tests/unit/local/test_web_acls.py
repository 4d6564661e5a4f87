"""Resources of AWS WAF in the local cloud."""

from __future__ import annotations

import pytest
from ministack.services import apigateway_v1, waf
from ministack.services.cloudformation import provisioners

from slackwater.local.services import web_acls

pytestmark = pytest.mark.unit

ASSOCIATION, LOGGING = "AWS::WAFv2::WebACLAssociation", "AWS::WAFv2::LoggingConfiguration"
GROUP = "arn:aws:logs:us-east-1:000000000000:log-group:"


@pytest.fixture
def handlers(monkeypatch):
    """The handlers of stacks, with ours until the test ends."""
    table = dict(provisioners._RESOURCE_HANDLERS)
    monkeypatch.setattr(provisioners, "_RESOURCE_HANDLERS", table)
    monkeypatch.setattr(waf, "_associate_web_acl", waf._associate_web_acl)
    web_acls.register()
    yield table
    waf.reset()
    apigateway_v1.reset()


@pytest.fixture
def stage(handlers):
    """The ARN of a stage of a REST API."""
    api, _ = handlers["AWS::ApiGateway::RestApi"]["create"]("Api", {"Name": "a"}, "stack")
    handlers["AWS::ApiGateway::Stage"]["create"]("Stage", {"RestApiId": api, "StageName": "push"}, "stack")
    return f"arn:aws:apigateway:us-east-1::/restapis/{api}/stages/push"


def a_web_acl(handlers, name="a"):
    return handlers["AWS::WAFv2::WebACL"]["create"]("Acl", {"Name": name, "Scope": "REGIONAL"}, "stack")[1]["Arn"]


def test_a_web_acl_is_associated_with_a_stage_until_it_is_replaced_or_deleted(handlers, stage):
    first, second = a_web_acl(handlers, "a"), a_web_acl(handlers, "b")
    old, new = ({"ResourceArn": stage, "WebACLArn": arn} for arn in (first, second))
    before, _ = handlers[ASSOCIATION]["create"]("Any", old, "stack")
    assert dict(waf._associations.items()) == {stage: first}
    after, _ = handlers[ASSOCIATION]["update"](before, old, new, "stack")
    assert after != before
    handlers[ASSOCIATION]["delete"](before, old)
    assert dict(waf._associations.items()) == {stage: second}
    handlers[ASSOCIATION]["delete"](after, new)
    assert not waf._associations


@pytest.mark.parametrize(
    "resource",
    ["arn:aws:apigateway:us-east-1::/restapis/a1b2c3d4", ""],
)
def test_a_web_acl_is_associated_with_nothing_but_stages(handlers, resource):
    properties = {"ResourceArn": resource, "WebACLArn": a_web_acl(handlers)}
    with pytest.raises(ValueError, match="field: RESOURCE_ARN"):
        handlers[ASSOCIATION]["create"]("Any", properties, "stack")
    assert waf._associate_web_acl(properties)[0] == 400
    assert not waf._associations


def test_a_stage_and_a_web_acl_must_exist(handlers, stage):
    acl = a_web_acl(handlers)
    for resource, arn in ((f"{stage}-two", acl), (stage, f"{acl}-two")):
        with pytest.raises(ValueError, match=ASSOCIATION):
            handlers[ASSOCIATION]["create"]("Any", {"ResourceArn": resource, "WebACLArn": arn}, "stack")


def test_the_log_group_of_a_web_acl_has_a_name_that_aws_waf_accepts(handlers):
    acl = a_web_acl(handlers)
    accepted = {"ResourceArn": acl, "LogDestinationConfigs": [f"{GROUP}aws-waf-logs-slackwater-receiver"]}
    assert handlers[LOGGING]["create"]("Any", accepted, "stack") == (acl, {})
    for name in ("slackwater-waf", "aws-waf-logs-slackwater:*"):
        refused = {**accepted, "LogDestinationConfigs": [f"{GROUP}{name}"]}
        with pytest.raises(ValueError, match="begins with aws-waf-logs-"):
            handlers[LOGGING]["update"](acl, accepted, refused, "stack")
    handlers[LOGGING]["delete"](acl, accepted)
