"""The role for the logs of API Gateway, over a fake of an account."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.api_log_role import ensure_log_role
from slackwater.errors import AccessDenied, CloudError

pytestmark = pytest.mark.unit

ARN = "arn:aws-cn:iam::111111111111:role/api-gateway-logs"


def refusal(code):
    return ClientError({"Error": {"Code": code, "Message": "why"}}, "Operation")


class Account:
    """API Gateway and IAM of an account. API Gateway sees a role only after some attempts."""

    def __init__(self, *, role=None, roles=(), unseen=0, denied=()):
        self.role, self.roles, self.unseen, self.denied = role, set(roles), unseen, denied
        self.policies, self.waited = [], []

    def get_account(self):
        return {"cloudwatchRoleArn": self.role} if self.role else {}

    def create_role(self, *, RoleName, AssumeRolePolicyDocument):  # noqa: N803 - boto3's names
        if "create_role" in self.denied:
            raise refusal("AccessDenied")
        if RoleName in self.roles:
            raise refusal("EntityAlreadyExists")
        [statement] = json.loads(AssumeRolePolicyDocument)["Statement"]
        assert statement["Principal"] == {"Service": "apigateway.amazonaws.com"}
        self.roles.add(RoleName)
        return self.get_role(RoleName=RoleName)

    def get_role(self, *, RoleName):  # noqa: N803 - boto3's name
        assert RoleName in self.roles
        return {"Role": {"Arn": ARN}}

    def attach_role_policy(self, *, RoleName, PolicyArn):  # noqa: N803 - boto3's names
        assert RoleName in self.roles
        self.policies.append(PolicyArn)

    def update_account(self, *, patchOperations):  # noqa: N803 - boto3's name
        if self.unseen:
            self.unseen -= 1
            raise refusal("BadRequestException")
        [change] = patchOperations
        assert (change["op"], change["path"]) == ("replace", "/cloudwatchRoleArn")
        self.role = change["value"]


def ensure(account):
    return ensure_log_role(account, account, sleep=account.waited.append)


def test_the_role_of_the_account_is_never_replaced():
    account = Account(role="arn:aws:iam::111111111111:role/of-others")
    assert ensure(account) is None
    assert (account.role, account.roles) == ("arn:aws:iam::111111111111:role/of-others", set())


@pytest.mark.parametrize("roles", [(), ("api-gateway-logs",)])
def test_an_account_without_a_role_gets_one_and_later_regions_use_it(roles):
    account = Account(roles=roles)
    assert ensure(account) == account.role == ARN
    assert account.policies == ["arn:aws-cn:iam::aws:policy/service-role/AmazonAPIGatewayPushToCloudWatchLogs"]
    assert ensure(account) is None


def test_a_new_role_is_offered_until_api_gateway_sees_it():
    account = Account(unseen=3)
    assert ensure(account) == ARN
    assert len(account.waited) == 3


def test_a_role_that_api_gateway_never_accepts_is_an_error():
    account = Account(unseen=1000)
    with pytest.raises(CloudError, match=r"does not accept the role arn:aws-cn:.*why"):
        ensure(account)
    assert sum(account.waited) == 60


def test_a_caller_who_may_not_create_the_role_gets_its_name():
    with pytest.raises(AccessDenied, match="create the role api-gateway-logs for the logs of API Gateway"):
        ensure(Account(denied=["create_role"]))
