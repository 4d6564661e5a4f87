"""Roles and queues that tests create beside those of the deployment."""

from __future__ import annotations

import json
from typing import Any


def create_role(iam: Any, name: str, *services: str, actions: str = "*") -> str:
    """Create a role with these permissions, which these services may assume: `lambda`, `states`. Return its ARN."""
    principals = [f"{service}.amazonaws.com" for service in services]
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": principals}}
    allowed = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))["Role"]
    iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=json.dumps({"Statement": [allowed]}))
    return str(role["Arn"])


def create_queue(sqs: Any, name: str) -> tuple[str, str]:
    """Create a queue that SNS may send to. Return its URL and its ARN."""
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns = {"Service": "sns.amazonaws.com"}
    allowed = {"Effect": "Allow", "Action": "sqs:SendMessage", "Principal": sns, "Resource": arn}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps({"Statement": [allowed]})})
    return url, arn
