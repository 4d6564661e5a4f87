"""Least privilege on the local cloud, which enforces IAM: a session of each role tries every call.

The other tests show that the roles have all permissions that they need: functions, state machines and jobs work with
their roles in all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.cloud.rights import (
    BUCKETS,
    HERE,
    Attempt,
    machine_attempts,
    message_attempts,
    object_attempts,
    prefixes,
    table_attempts,
)

pytestmark = pytest.mark.cloud

DENIALS = {"AccessDenied", "AccessDeniedException", "AuthorizationError"}


@pytest.fixture(scope="module")
def roles(cloud) -> dict[str, str]:
    """The ARNs of the roles of all stacks, by their logical ids without `Role` and hash: of two pipelines only."""
    formation, iam = cloud.client("cloudformation"), cloud.client("iam")
    names = {
        re.sub(r"Role[0-9A-F]{8}$", "", resource["LogicalResourceId"]): resource["PhysicalResourceId"]
        for stack in formation.describe_stacks()["Stacks"]
        if stack["StackName"].startswith("slackwater-")
        for resource in formation.list_stack_resources(StackName=stack["StackName"])["StackResourceSummaries"]
        if resource["ResourceType"] == "AWS::IAM::Role"
    }
    chosen = {role: name for role, name in names.items() if not role.startswith("Pipeline") or role in HERE}
    return {role: iam.get_role(RoleName=name)["Role"]["Arn"] for role, name in chosen.items()}


@pytest.fixture(scope="module")
def calls(cloud, roles) -> Iterator[list[Attempt]]:
    """All calls, with the objects that they read."""
    outputs, s3 = cloud.outputs(), cloud.client("s3")

    def arn(service: str, resource: str) -> str:
        return f"arn:aws:{service}:{cloud.environment['AWS_REGION']}:000000000000:{resource}"

    there = [{"Bucket": outputs[BUCKETS[bucket]], "Key": f"{prefix}rights"} for bucket, prefix in prefixes()]
    for item in there:
        s3.put_object(**item)
    yield [
        *object_attempts(outputs),
        *table_attempts(outputs),
        *message_attempts(outputs, arn),
        *machine_attempts(outputs, arn, roles),
    ]
    for item in there:
        s3.delete_object(**item)


class RoleClients:
    """Clients whose requests are signed by the role that was assumed last. Creating clients takes long."""

    def __init__(self, cloud) -> None:
        self._cloud, self._session, self._clients = cloud, botocore.session.get_session(), {}
        self._session.set_credentials("none", "none", "none")

    @contextmanager
    def role(self, arn: str) -> Iterator[None]:
        """Assume a role: for this, its trust policy allows the account's root user."""
        iam, sts, name = self._cloud.client("iam"), self._cloud.client("sts"), arn.rpartition("/")[2]
        trust = iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]
        root = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "000000000000"}}
        open_trust = {**trust, "Statement": [*trust["Statement"], root]}
        iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(open_trust))
        try:
            keys = sts.assume_role(RoleArn=arn, RoleSessionName="rights")["Credentials"]
            credentials = self._session.get_credentials()
            credentials.access_key, credentials.secret_key = keys["AccessKeyId"], keys["SecretAccessKey"]
            credentials.token = keys["SessionToken"]
            yield
        finally:
            iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(trust))

    def denied(self, call: Attempt) -> bool:
        """Make a call. Return whether IAM denies it."""
        try:
            getattr(self._client(call.service), call.operation)(**call.arguments)
        except ClientError as error:
            return error.response["Error"]["Code"] in DENIALS
        return False

    def _client(self, service: str):
        if service not in self._clients:
            region = self._cloud.environment["AWS_REGION"]
            endpoint = self._cloud.endpoint
            self._clients[service] = self._session.create_client(
                service, region_name=region, endpoint_url=endpoint, config=Config(inject_host_prefix=False)
            )
        return self._clients[service]


@pytest.fixture(scope="module")
def clients(cloud) -> RoleClients:
    return RoleClients(cloud)


def test_the_list_names_every_deployed_role_and_each_may_do_something(roles, calls):
    assert set(roles) == set(HERE)
    assert {role for call in calls for role in HERE if call.is_allowed(role)} == set(HERE)


@pytest.mark.parametrize("role", sorted(HERE))
def test_a_role_may_make_its_own_calls_and_is_denied_all_others(roles, calls, clients, role):
    with clients.role(roles[role]):
        wrong = [str(call) for call in calls if clients.denied(call) == call.is_allowed(role)]
    assert not wrong


def test_a_missing_object_looks_forbidden_to_a_role_that_may_not_list(cloud, roles, clients):
    """As on AWS: S3 answers 404 only to a caller that may list the object's prefix."""
    missing = Attempt("s3", "get_object", {"Bucket": cloud.outputs()["ExchangeBucket"], "Key": "pulls/none"})
    with clients.role(roles["PullJob"]):
        assert clients.denied(missing)
    with clients.role(roles["fetchfile"]):
        assert not clients.denied(missing)


def test_a_missing_permission_ends_a_run_and_is_named(cloud, roles):
    """The state machine and the command line pass the words of IAM on to the user."""
    iam, role = cloud.client("iam"), roles["freezeinputs"].rpartition("/")[2]
    denial = {"Effect": "Deny", "Action": "s3:ListBucket", "Resource": "*"}
    iam.put_role_policy(RoleName=role, PolicyName="deny", PolicyDocument=json.dumps({"Statement": [denial]}))
    try:
        refused = cloud.slackwater("run", "broken", "--date", "2013-01-01", code=1)
    finally:
        iam.delete_role_policy(RoleName=role, PolicyName="deny")
    assert "AccessDenied" in refused.err
    assert "s3:ListBucket" in refused.err
