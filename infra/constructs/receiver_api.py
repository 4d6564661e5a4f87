"""The REST API that partners push to. With the setting `waf`, a web ACL of AWS WAF is before it."""

from __future__ import annotations

import json
from typing import Any, cast

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_wafv2 as waf
from constructs import Construct

from infra.constructs.common import accept, log_group
from infra.settings import Settings

# Variables of API Gateway's access log.
_LOGGED_FIELDS = (
    "requestId",
    "requestTime",
    "httpMethod",
    "path",
    "status",
    "responseLength",
    "responseLatency",
    "identity.sourceIp",
    "integrationErrorMessage",
)
_PATHS = tuple(f"/v1/sources/{{source}}/{body}" for body in ("events", "counts", "verdicts"))
_ACCEPT_NO_AUTHORIZER = (
    "The function checks the bearer token: an authorizer cannot distinguish a wrong token (401) from another partner's "
    "source (403) and an unknown source (404)."
)
# The name of the stage is part of each URL.
_STAGE = "push"
# TLS 1.2 and 1.3. A regional REST API without a policy accepts TLS 1.0.
_TLS_POLICY = "SecurityPolicy_TLS13_1_2_2021_06"
_BLOCKED = {
    "error": {"code": "blocked", "message": "requests from your IP address are blocked: ask the operators of this API"}
}


_TOO_MANY = {
    "error": {
        "code": "too_many_requests",
        "message": "your IP address sends too many requests: wait for a minute, then send the same body again",
    }
}


class ReceiverApi(Construct):
    """The regional REST API: it takes a POST to each of `_PATHS`, which one function answers."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, function: lambda_.IFunction) -> None:
        super().__init__(scope, id_)
        name = settings.named("receiver")
        # The log group that the HTTP API of earlier versions had, at its place: an upgrade keeps their logs.
        group = log_group(Construct(scope, "Receiver"), settings=settings, name=f"/aws/vendedlogs/apis/{name}")
        self.api = apigateway.RestApi(
            self,
            "Api",
            rest_api_name=name,
            description="Slackwater: push API",
            endpoint_types=[apigateway.EndpointType.REGIONAL],
            # The function gets each body in Base64: as a string, bytes that are not UTF-8 would be lost.
            binary_media_types=["*/*"],
            # The role is one for all APIs of the account and region: a stack of ours would replace that of others.
            cloud_watch_role=False,
            deploy_options=apigateway.StageOptions(
                stage_name=_STAGE,
                throttling_rate_limit=settings.api_requests_per_second,
                throttling_burst_limit=settings.api_burst,
                access_log_destination=apigateway.LogGroupLogDestination(group),
                # One JSON object for each request.
                access_log_format=apigateway.AccessLogFormat.custom(
                    json.dumps({name.rpartition(".")[2]: f"$context.{name}" for name in _LOGGED_FIELDS})
                ),
            ),
        )
        self.api.node.try_remove_child("Endpoint")  # an output with a generated name: ours is `ApiUrl`
        self._accept_tls_1_2_only()
        for path in _PATHS:
            method = self.api.root.resource_for_path(path).add_method(
                "POST", apigateway.LambdaIntegration(function, allow_test_invoke=False)
            )
            accept(method, {"AwsSolutions-APIG4": _ACCEPT_NO_AUTHORIZER, "AwsSolutions-COG4": _ACCEPT_NO_AUTHORIZER})
        accept(self.api, {"AwsSolutions-APIG2": "The function validates each request, also bodies in NDJSON."})
        accept(
            self.api.deployment_stage,
            {
                "AwsSolutions-APIG6": "The access log has each request. API Gateway would write execution logs into a "
                "group of its own, which has no retention and outlives the stack."
            },
        )
        if settings.waf:
            self._add_web_acl(settings)
        else:
            accept(self.api.deployment_stage, {"AwsSolutions-APIG3": "The setting `waf` adds a web ACL."})

    @property
    def url(self) -> str:
        """The base URL of the API, without a trailing slash."""
        return self.api.deployment_stage.url_for_path("/").removesuffix("/")

    def _add_web_acl(self, settings: Settings) -> None:
        WebAcl(self, "WebAcl", settings=settings, stage=self.api.deployment_stage)
        # Without it, the body would be {"message":"Forbidden"}.
        self.api.add_gateway_response(
            "Blocked",
            type=apigateway.ResponseType.WAF_FILTERED,
            status_code="403",
            templates={"application/json": json.dumps(_BLOCKED)},
        )

    def _accept_tls_1_2_only(self) -> None:
        resource = cast("apigateway.CfnRestApi", self.api.node.default_child)
        resource.security_policy = _TLS_POLICY
        # Required with this policy: a request must name the API's own host, also while TLS is negotiated.
        resource.endpoint_access_mode = "STRICT"


class WebAcl(Construct):
    """A web ACL before a stage of a REST API. It writes the requests that it blocks to a log group.

    No rule reads bodies: partners' events may contain anything, and WAF reads at most 64 KB of a body.
    """

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, stage: apigateway.Stage) -> None:
        super().__init__(scope, id_)
        name = settings.named("receiver")
        acl = waf.CfnWebACL(
            self,
            "Acl",
            name=name,
            scope="REGIONAL",
            default_action={"allow": {}},
            visibility_config=_metrics(name),
            custom_response_bodies={
                "too_many": {"contentType": "APPLICATION_JSON", "content": json.dumps(_TOO_MANY)},
            },
            rules=[
                {
                    "name": "known-bad-addresses",
                    "priority": 0,
                    "overrideAction": {"none": {}},
                    "statement": {
                        "managedRuleGroupStatement": {
                            "vendorName": "AWS",
                            "name": "AWSManagedRulesAmazonIpReputationList",
                        }
                    },
                    "visibilityConfig": _metrics(f"{name}-known-bad-addresses"),
                },
                {
                    "name": "rate-of-each-address",
                    "priority": 1,
                    # 429 and not WAF's own 403: partners' clients send the batch again later.
                    "action": {
                        "block": {"customResponse": {"responseCode": 429, "customResponseBodyKey": "too_many"}},
                    },
                    "statement": {
                        "rateBasedStatement": {
                            "limit": settings.waf_limit,
                            "aggregateKeyType": "IP",
                            "evaluationWindowSec": 60,
                        }
                    },
                    "visibilityConfig": _metrics(f"{name}-rate-of-each-address"),
                },
            ],
        )
        waf.CfnWebACLAssociation(self, "Association", resource_arn=stage.stage_arn, web_acl_arn=acl.attr_arn)
        # AWS WAF requires this beginning of the name.
        group = log_group(self, settings=settings, name=f"aws-waf-logs-{name}")
        blocked = {"ActionCondition": {"Action": "BLOCK"}}
        waf.CfnLoggingConfiguration(
            self,
            "Logging",
            resource_arn=acl.attr_arn,
            # Without the `:*` at the end of a log group's own attribute.
            log_destination_configs=[
                Stack.of(self).format_arn(
                    service="logs",
                    resource="log-group",
                    resource_name=group.log_group_name,
                    arn_format=ArnFormat.COLON_RESOURCE_NAME,
                )
            ],
            # It has the partner's token.
            redacted_fields=[{"singleHeader": {"Name": "authorization"}}],
            logging_filter={
                "DefaultBehavior": "DROP",
                "Filters": [{"Behavior": "KEEP", "Requirement": "MEETS_ANY", "Conditions": [blocked]}],
            },
        )


def _metrics(name: str) -> dict[str, Any]:
    # Samples would keep headers, and so tokens, for three hours.
    return {"cloudWatchMetricsEnabled": True, "metricName": name, "sampledRequestsEnabled": False}
