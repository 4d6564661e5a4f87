"""The REST API that partners push to. With the setting `waf`, a web ACL is before it."""

from __future__ import annotations

import json

from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.common import accept, log_group
from infra.constructs.web_acl import WebAcl
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
_EVENTS_PATH = "/v1/sources/{source}/events"
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


class ReceiverApi(Construct):
    """The regional REST API with its one route `POST /v1/sources/{source}/events`, answered by one function."""

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
                access_log_format=apigateway.AccessLogFormat.custom(_access_log_format()),
            ),
        )
        self.api.node.try_remove_child("Endpoint")  # an output with a generated name: ours is `ApiUrl`
        self._accept_tls_1_2_only()
        method = self.api.root.resource_for_path(_EVENTS_PATH).add_method(
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
        resource = self.api.node.default_child
        if not isinstance(resource, apigateway.CfnRestApi):
            raise TypeError(f"the default child of RestApi is {type(resource).__name__}, not CfnRestApi")
        resource.security_policy = _TLS_POLICY
        # Required with this policy: a request must name the API's own host, also while TLS is negotiated.
        resource.endpoint_access_mode = "STRICT"


def _access_log_format() -> str:
    """Return the format of the API's access log: one JSON object for each request."""
    return json.dumps({name.rpartition(".")[2]: f"$context.{name}" for name in _LOGGED_FIELDS})
