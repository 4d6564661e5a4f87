"""The web ACL of the push API: AWS WAF limits the requests of each IP address, and blocks known bad addresses."""

from __future__ import annotations

import json
from typing import Any

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_wafv2 as waf
from constructs import Construct

from infra.constructs.common import log_group
from infra.settings import Settings

_TOO_MANY = {
    "error": {
        "code": "too_many_requests",
        "message": "your IP address sends too many requests: wait for a minute, then send the same body again",
    }
}


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
