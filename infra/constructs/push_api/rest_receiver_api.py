"""The REST API that partners push to with the setting `waf`: AWS WAF protects REST APIs, and no HTTP APIs."""

from __future__ import annotations

import json

from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.common import accept, log_group
from infra.constructs.push_api.receiver_api import ACCEPT_NO_AUTHORIZER, EVENTS_PATH, access_log_format
from infra.constructs.push_api.web_acl import WebAcl
from infra.settings import Settings

# A REST API has no `$default` stage: the name of its stage is part of each URL.
_STAGE = "push"
# TLS 1.2 and 1.3, as HTTP APIs have them. A regional REST API without a policy accepts TLS 1.0.
_TLS_POLICY = "SecurityPolicy_TLS13_1_2_2021_06"
_BLOCKED = {
    "error": {"code": "blocked", "message": "requests from your IP address are blocked: ask the operators of this API"}
}


class RestReceiverApi(Construct):
    """The regional REST API with its one route `POST /v1/sources/{source}/events` behind a web ACL."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, function: lambda_.IFunction) -> None:
        super().__init__(scope, id_)
        name = settings.named("receiver")
        # Not the name that the HTTP API's log group has: when the setting is changed, both exist for a while. Nor that
        # of another deployment's: `rest-receiver` would be the group of the HTTP API with the prefix PREFIX-rest.
        group = log_group(self, settings=settings, name=f"/aws/vendedlogs/apis/{settings.named('receiver-rest')}")
        self.api = apigateway.RestApi(
            self,
            "Api",
            rest_api_name=name,
            description="Slackwater: push API",
            endpoint_types=[apigateway.EndpointType.REGIONAL],
            # The function gets each body in Base64, which never doubles its size as the escaping of JSON can.
            binary_media_types=["*/*"],
            # The role is one for all APIs of the account and region: a stack of ours would replace that of others.
            cloud_watch_role=False,
            deploy_options=apigateway.StageOptions(
                stage_name=_STAGE,
                throttling_rate_limit=settings.api_requests_per_second,
                throttling_burst_limit=settings.api_burst,
                access_log_destination=apigateway.LogGroupLogDestination(group),
                access_log_format=apigateway.AccessLogFormat.custom(access_log_format()),
            ),
        )
        self.api.node.try_remove_child("Endpoint")  # an output with a generated name: ours is `ApiUrl`
        self._accept_tls_1_2_only()
        # Without it, the body would be {"message":"Forbidden"}.
        self.api.add_gateway_response(
            "Blocked",
            type=apigateway.ResponseType.WAF_FILTERED,
            status_code="403",
            templates={"application/json": json.dumps(_BLOCKED)},
        )
        method = self.api.root.resource_for_path(EVENTS_PATH).add_method(
            "POST", apigateway.LambdaIntegration(function, allow_test_invoke=False)
        )
        accept(method, {"AwsSolutions-APIG4": ACCEPT_NO_AUTHORIZER, "AwsSolutions-COG4": ACCEPT_NO_AUTHORIZER})
        accept(self.api, {"AwsSolutions-APIG2": "The function validates each request, also bodies in NDJSON."})
        accept(
            self.api.deployment_stage,
            {
                "AwsSolutions-APIG6": "The access log has each request. API Gateway would write execution logs into a "
                "group of its own, which has no retention and outlives the stack."
            },
        )
        WebAcl(self, "WebAcl", settings=settings, stage=self.api.deployment_stage)

    @property
    def url(self) -> str:
        """The base URL of the API, without a trailing slash."""
        return self.api.deployment_stage.url_for_path("/").removesuffix("/")

    def _accept_tls_1_2_only(self) -> None:
        resource = self.api.node.default_child
        if not isinstance(resource, apigateway.CfnRestApi):
            raise TypeError(f"the default child of RestApi is {type(resource).__name__}, not CfnRestApi")
        resource.security_policy = _TLS_POLICY
        # Required with this policy: a request must name the API's own host, also while TLS is negotiated.
        resource.endpoint_access_mode = "STRICT"
