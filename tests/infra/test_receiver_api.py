"""The push API, and the web ACL before it with the setting `waf`."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import permutations
from typing import Any

import pytest
from aws_cdk import App
from pydantic import ValidationError

from infra.environments import PRESETS
from infra.lint import placeholder_artefacts, written
from infra.settings import Settings
from infra.stacks.receiver import ReceiverStack
from infra.stacks.storage import StorageStack
from slackwater.project.project import Project
from tests.infra.assembly import Assembly, parts_of, settings_of
from tests.infra.test_environments import fixed_names

pytestmark = pytest.mark.infra


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Assembly:
    """The stacks of the API. cdk-nag and cfn-lint check the web ACL of the fixture `prod`."""
    folder = tmp_path_factory.mktemp("protected")
    app = App(outdir=str(folder))
    nothing_waits = project.model_copy(update={"pipelines": {}})
    parts = parts_of(settings_of(waf=True, waf_requests_per_ip=600), nothing_waits, placeholder_artefacts(folder))
    ReceiverStack(app, parts, StorageStack(app, parts))
    return Assembly(folder, written(app, folder))


def test_published_days_are_checked_after_a_verdict_of_a_partner_also_if_no_pipeline_waits(protected: Assembly) -> None:
    variables = protected.one("AWS::Lambda::Function", "receiveevents")["Environment"]["Variables"]
    assert variables["AWAIT_INPUTS_FUNCTION"] == "slackwater-await-inputs"


def rules(protected: Assembly) -> dict[str, Any]:
    return {rule["Name"]: rule for rule in protected.one("AWS::WAFv2::WebACL", "RestReceiver")["Rules"]}


def test_the_api_is_regional_throttled_and_gets_every_body_as_bytes(assembly: Assembly) -> None:
    expected: dict[str, dict[str, Any]] = {
        "RestApi": {
            "EndpointConfiguration": {"Types": ["REGIONAL"]},
            "BinaryMediaTypes": ["*/*"],
            "MinimumCompressionSize": None,
            "SecurityPolicy": "SecurityPolicy_TLS13_1_2_2021_06",
            "EndpointAccessMode": "STRICT",
        },
    }
    for kind, values in expected.items():
        properties = assembly.one(f"AWS::ApiGateway::{kind}", "RestReceiver")
        assert {name: properties.get(name) for name in values} == values
    methods = [item["Properties"] for item in assembly.resources("AWS::ApiGateway::Method").values()]
    assert [(each["HttpMethod"], each["Integration"]["Type"]) for each in methods] == [("POST", "AWS_PROXY")] * 3
    [throttled] = assembly.one("AWS::ApiGateway::Stage", "RestReceiver")["MethodSettings"]
    of_all = {"HttpMethod": "*", "ResourcePath": "/*", "DataTraceEnabled": False}
    assert throttled == {**of_all, "ThrottlingRateLimit": 50, "ThrottlingBurstLimit": 100}


def test_the_api_has_three_routes_and_a_log(assembly: Assembly) -> None:
    parts = {"counts", "events", "sources", "v1", "verdicts", "{source}"}
    assert set(assembly.properties("AWS::ApiGateway::Resource", "PathPart")) == parts
    log = assembly.one("AWS::ApiGateway::Stage", "RestReceiver")["AccessLogSetting"]["Format"]
    assert json.loads(log)["status"] == "$context.status"
    # One role for the logs of all APIs of the account: a stack of ours would replace that of others.
    assert not assembly.resources("AWS::ApiGateway::Account")


def test_the_function_answers_before_the_api_gives_up(assembly: Assembly) -> None:
    # API Gateway waits 30 seconds for its integration, and a cold start is part of them.
    assert assembly.one("AWS::Lambda::Function", "receiveevents")["Timeout"] + 5 <= 30
    permissions = json.dumps(list(assembly.resources("AWS::Lambda::Permission").values()))
    assert "/POST/v1/sources/*/events" in permissions
    assert "/POST/v1/sources/*/counts" in permissions
    assert "/POST/v1/sources/*/verdicts" in permissions
    assert "test-invoke-stage" not in permissions


def test_the_url_names_the_stage(assembly: Assembly) -> None:
    outputs = assembly.templates["slackwater-receiver"]["Outputs"]
    [api], [stage] = assembly.resources("AWS::ApiGateway::RestApi"), assembly.resources("AWS::ApiGateway::Stage")
    host = [".execute-api.", {"Ref": "AWS::Region"}, ".", {"Ref": "AWS::URLSuffix"}, "/"]
    assert outputs["ApiUrl"]["Value"] == {"Fn::Join": ["", ["https://", {"Ref": api}, *host, {"Ref": stage}]]}
    assert not [name for name in outputs if "Endpoint" in name]


def test_waf_is_off_by_default_and_in_each_preset(assembly: Assembly) -> None:
    assert not Settings().waf
    assert not any("waf" in preset for preset in PRESETS.values())
    assert not [kind for types in assembly.types().values() for kind in types if kind.startswith("AWS::WAFv2::")]


def test_by_default_an_address_may_send_twice_what_the_api_accepts() -> None:
    """WAF counts also those that the API throttles and clients repeat."""
    assert Settings().waf_limit == 2 * 60 * 50 + 100
    assert Settings(api_requests_per_second=1, api_burst=10).waf_limit == 130
    assert settings_of(waf_requests_per_ip="10").waf_limit == 10


def test_the_web_acl_is_before_the_stage_of_the_api(protected: Assembly) -> None:
    association = protected.one("AWS::WAFv2::WebACLAssociation", "RestReceiver")
    [api], [stage] = protected.resources("AWS::ApiGateway::RestApi"), protected.resources("AWS::ApiGateway::Stage")
    arn = ["arn:aws:apigateway:us-east-1::/restapis/", {"Ref": api}, "/stages/", {"Ref": stage}]
    arn = ["arn:", {"Ref": "AWS::Partition"}, ":apigateway:", {"Ref": "AWS::Region"}, *["::/restapis/", *arn[1:]]]
    assert association["ResourceArn"] == {"Fn::Join": ["", arn]}
    [acl] = protected.resources("AWS::WAFv2::WebACL")
    assert association["WebACLArn"] == {"Fn::GetAtt": [acl, "Arn"]}


def test_the_setting_changes_neither_the_url_nor_any_other_resource(assembly: Assembly, protected: Assembly) -> None:
    def ids(templates: Assembly) -> set[tuple[str, str, str]]:
        return {
            (stack, name, resource["Type"])
            for stack, template in templates.templates.items()
            for name, resource in template["Resources"].items()
            if resource["Type"] != "AWS::ApiGateway::Deployment"
        }

    assert {each for each in ids(assembly) if each[0] in protected.templates} <= ids(protected)
    added = sorted(kind for _, _, kind in ids(protected) - ids(assembly))
    waf = [f"AWS::WAFv2::{kind}" for kind in ("LoggingConfiguration", "WebACL", "WebACLAssociation")]
    assert added == ["AWS::ApiGateway::GatewayResponse", "AWS::Logs::LogGroup", *waf]


def test_no_prefix_gives_a_name_that_a_deployment_with_another_prefix_has(
    assembly: Assembly, protected: Assembly, scheduled: Assembly
) -> None:
    ends = defaultdict(set)
    for kind, name in fixed_names(assembly) | fixed_names(protected) | fixed_names(scheduled):
        begin, prefix, end = name.partition("slackwater")
        if prefix:
            ends[kind, begin].add(end)
    assert ends["AWS::Logs::LogGroup", "/aws/vendedlogs/apis/"] == {"-receiver"}
    found = [
        (kind, f"{begin}a{own}", f"prefix a{more}")
        for (kind, begin), names in ends.items()
        for own, other in permutations(names, 2)
        if own.endswith(other) and is_prefix(f"a{(more := own.removesuffix(other))}")
    ]
    assert found == []


def is_prefix(name: str) -> bool:
    try:
        return bool(Settings(prefix=name))
    except ValidationError:
        return False


def test_each_address_is_limited_with_an_answer_after_which_clients_send_again(protected: Assembly) -> None:
    rule = rules(protected)["rate-of-each-address"]
    rate = {"Limit": 600, "AggregateKeyType": "IP", "EvaluationWindowSec": 60}
    assert rule["Statement"] == {"RateBasedStatement": rate}
    assert rule["Action"]["Block"]["CustomResponse"]["ResponseCode"] == 429
    acl = protected.one("AWS::WAFv2::WebACL", "RestReceiver")
    body = acl["CustomResponseBodies"][rule["Action"]["Block"]["CustomResponse"]["CustomResponseBodyKey"]]
    assert json.loads(body["Content"])["error"]["code"] == "too_many_requests"
    assert acl["DefaultAction"] == {"Allow": {}}
    assert acl["Scope"] == "REGIONAL"


def test_no_rule_reads_a_body(protected: Assembly) -> None:
    groups = [
        rule["Statement"]["ManagedRuleGroupStatement"]["Name"]
        for rule in rules(protected).values()
        if "ManagedRuleGroupStatement" in rule["Statement"]
    ]
    assert groups == ["AWSManagedRulesAmazonIpReputationList"]
    assert "Body" not in json.dumps([rule["Statement"] for rule in rules(protected).values()])


def test_a_blocked_request_gets_an_error_of_our_form_and_is_logged_without_its_token(protected: Assembly) -> None:
    response = protected.one("AWS::ApiGateway::GatewayResponse", "RestReceiver")
    assert (response["ResponseType"], response["StatusCode"]) == ("WAF_FILTERED", "403")
    body = json.loads(response["ResponseTemplates"]["application/json"])
    assert body["error"]["code"] == "blocked"
    logging = protected.one("AWS::WAFv2::LoggingConfiguration", "RestReceiver")
    assert logging["RedactedFields"] == [{"SingleHeader": {"Name": "authorization"}}]
    assert logging["LoggingFilter"]["DefaultBehavior"] == "DROP"
    acl = protected.one("AWS::WAFv2::WebACL", "RestReceiver")
    configurations = [acl["VisibilityConfig"], *(rule["VisibilityConfig"] for rule in acl["Rules"])]
    assert [each["SampledRequestsEnabled"] for each in configurations] == [False] * 3
