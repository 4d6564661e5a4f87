"""The web ACL of the push API: AWS WAF limits the requests of each IP address, and blocks known bad addresses."""

from __future__ import annotations

import json

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
            default_action=waf.CfnWebACL.DefaultActionProperty(allow={}),
            visibility_config=_metrics(name),
            custom_response_bodies={
                "too_many": waf.CfnWebACL.CustomResponseBodyProperty(
                    content_type="APPLICATION_JSON", content=json.dumps(_TOO_MANY)
                )
            },
            rules=[_known_bad_addresses(name), _rate_of_each_address(name, settings.waf_limit)],
        )
        waf.CfnWebACLAssociation(self, "Association", resource_arn=stage.stage_arn, web_acl_arn=acl.attr_arn)
        self._log_blocked_requests(acl, settings)

    def _log_blocked_requests(self, acl: waf.CfnWebACL, settings: Settings) -> None:
        # AWS WAF requires this beginning of the name.
        group = log_group(self, settings=settings, name=f"aws-waf-logs-{settings.named('receiver')}")
        logging = waf.CfnLoggingConfiguration
        logging(
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
            redacted_fields=[logging.FieldToMatchProperty(single_header={"Name": "authorization"})],
            logging_filter={
                "DefaultBehavior": "DROP",
                "Filters": [
                    {
                        "Behavior": "KEEP",
                        "Requirement": "MEETS_ANY",
                        "Conditions": [{"ActionCondition": {"Action": "BLOCK"}}],
                    }
                ],
            },
        )


def _metrics(name: str) -> waf.CfnWebACL.VisibilityConfigProperty:
    # Samples would keep headers, and so tokens, for three hours.
    return waf.CfnWebACL.VisibilityConfigProperty(
        cloud_watch_metrics_enabled=True, metric_name=name, sampled_requests_enabled=False
    )


def _known_bad_addresses(name: str) -> waf.CfnWebACL.RuleProperty:
    return waf.CfnWebACL.RuleProperty(
        name="known-bad-addresses",
        priority=0,
        override_action=waf.CfnWebACL.OverrideActionProperty(none={}),
        statement=waf.CfnWebACL.StatementProperty(
            managed_rule_group_statement=waf.CfnWebACL.ManagedRuleGroupStatementProperty(
                vendor_name="AWS", name="AWSManagedRulesAmazonIpReputationList"
            )
        ),
        visibility_config=_metrics(f"{name}-known-bad-addresses"),
    )


def _rate_of_each_address(name: str, limit: int) -> waf.CfnWebACL.RuleProperty:
    # 429 and not WAF's own 403: partners' clients send the batch again later.
    response = waf.CfnWebACL.CustomResponseProperty(response_code=429, custom_response_body_key="too_many")
    return waf.CfnWebACL.RuleProperty(
        name="rate-of-each-address",
        priority=1,
        action=waf.CfnWebACL.RuleActionProperty(block=waf.CfnWebACL.BlockActionProperty(custom_response=response)),
        statement=waf.CfnWebACL.StatementProperty(
            rate_based_statement=waf.CfnWebACL.RateBasedStatementProperty(
                limit=limit, aggregate_key_type="IP", evaluation_window_sec=60
            )
        ),
        visibility_config=_metrics(f"{name}-rate-of-each-address"),
    )
