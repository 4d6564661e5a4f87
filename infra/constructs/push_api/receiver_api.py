"""The HTTP API that partners push to. With the setting `waf`, `rest_receiver_api` replaces it."""

from __future__ import annotations

import json

from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_apigatewayv2_integrations import HttpLambdaIntegration
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
EVENTS_PATH = "/v1/sources/{source}/events"
ACCEPT_NO_AUTHORIZER = (
    "The function checks the bearer token: an authorizer cannot distinguish a wrong token (401) from another partner's "
    "source (403) and an unknown source (404)."
)


def access_log_format() -> str:
    """Return the format of the API's access log: one JSON object for each request."""
    return json.dumps({name.rpartition(".")[2]: f"$context.{name}" for name in _LOGGED_FIELDS})


class ReceiverApi(Construct):
    """The HTTP API with its one route `POST /v1/sources/{source}/events`, answered by one function."""

    def __init__(self, scope: Construct, id_: str, *, settings: Settings, function: lambda_.IFunction) -> None:
        super().__init__(scope, id_)
        name = settings.named("receiver")
        self.api = apigateway.HttpApi(self, "Api", api_name=name, create_default_stage=False)
        routes = self.api.add_routes(
            path=EVENTS_PATH,
            methods=[apigateway.HttpMethod.POST],
            integration=HttpLambdaIntegration("Integration", function),
        )
        group = log_group(self, settings=settings, name=f"/aws/vendedlogs/apis/{name}")
        self.stage = apigateway.HttpStage(
            self,
            "Stage",
            http_api=self.api,
            stage_name="$default",
            auto_deploy=True,
            throttle=apigateway.ThrottleSettings(
                rate_limit=settings.api_requests_per_second, burst_limit=settings.api_burst
            ),
        )
        # One JSON line per request. HttpStage's own property needs an interface that Python cannot implement, so the
        # setting is made on the CloudFormation resource below it.
        stage = self.stage.node.default_child
        if not isinstance(stage, apigateway.CfnStage):
            raise TypeError(f"the default child of HttpStage is {type(stage).__name__}, not CfnStage")
        stage.access_log_settings = apigateway.CfnStage.AccessLogSettingsProperty(
            destination_arn=group.log_group_arn,
            format=access_log_format(),
        )
        for route in routes:
            accept(route, {"AwsSolutions-APIG4": ACCEPT_NO_AUTHORIZER})

    @property
    def url(self) -> str:
        """The base URL of the API, without a trailing slash."""
        return self.api.api_endpoint
