"""Every bucket, queue and topic refuses requests without TLS."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.infra.assembly import Assembly

pytestmark = pytest.mark.infra

# The policy of each type, and the property that names what it applies to.
_POLICIES = {
    "AWS::S3::Bucket": ("AWS::S3::BucketPolicy", "Bucket"),
    "AWS::SQS::Queue": ("AWS::SQS::QueuePolicy", "Queues"),
    "AWS::SNS::Topic": ("AWS::SNS::TopicPolicy", "Topics"),
}


@pytest.mark.parametrize("of", ["assembly", "scheduled"])
@pytest.mark.parametrize("kind", _POLICIES)
def test_requests_without_tls_are_denied(of: str, kind: str, request: pytest.FixtureRequest) -> None:
    synthesised: Assembly = request.getfixturevalue(of)
    policy_type, target = _POLICIES[kind]
    protected = [
        json.dumps(policy["Properties"][target])
        for policy in synthesised.resources(policy_type).values()
        if any(map(_denies_without_tls, policy["Properties"]["PolicyDocument"]["Statement"]))
    ]
    resources = synthesised.resources(kind)
    assert resources
    assert {name for name in resources if not any(f'"{name}"' in targets for targets in protected)} == set()


def _denies_without_tls(statement: dict[str, Any]) -> bool:
    return (
        statement["Effect"] == "Deny"
        and statement["Principal"] in ("*", {"AWS": "*"})
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    )
