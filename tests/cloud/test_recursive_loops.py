"""A function that sends to its own queue: Lambda stops it after 16 turns, unless its definition allows it."""

from __future__ import annotations

import json
import time

import pytest

from slackwater.local.layout import PYTHON
from tests.cloud.roles import create_role

pytestmark = pytest.mark.cloud

LAST = 20
"""The message that the function does not answer with another one."""
CODE = f"""
import os
import boto3

queues = boto3.client("sqs")

def handler(event, context):
    for record in event["Records"]:
        if int(record["body"]) < {LAST}:
            body = str(int(record["body"]) + 1)
            entry = {{"Id": "0", "MessageBody": body, "DelaySeconds": 0}}
            queues.send_message_batch(QueueUrl=os.environ["QUEUE"], Entries=[entry])
        queues.send_message(QueueUrl=os.environ["LOG"], MessageBody=record["body"])
"""


def template(role, **properties):
    """Return a stack with a function, its queue, its dead-letter queue, and a queue of the messages it has handled."""
    redrive = {"deadLetterTargetArn": {"Fn::GetAtt": ["Dead", "Arn"]}, "maxReceiveCount": 2}
    queue = {"VisibilityTimeout": 6, "RedrivePolicy": redrive}
    function = {
        "Runtime": f"python{PYTHON}", "Handler": "index.handler", "Role": role, "Timeout": 6, "Code": {"ZipFile": CODE},
        "Environment": {"Variables": {"QUEUE": {"Ref": "Queue"}, "LOG": {"Ref": "Log"}}}, **properties,
    }  # fmt: skip
    mapping = {"EventSourceArn": {"Fn::GetAtt": ["Queue", "Arn"]}, "FunctionName": {"Ref": "Function"}}
    resources = {
        "Dead": ("AWS::SQS::Queue", {}),
        "Log": ("AWS::SQS::Queue", {}),
        "Queue": ("AWS::SQS::Queue", queue),
        "Function": ("AWS::Lambda::Function", function),
        "Mapping": ("AWS::Lambda::EventSourceMapping", {**mapping, "MaximumBatchingWindowInSeconds": 0}),
    }
    names = ("Dead", "Log", "Queue", "Function")
    return json.dumps(
        {
            "Resources": {name: {"Type": kind, "Properties": item} for name, (kind, item) in resources.items()},
            "Outputs": {name: {"Value": {"Ref": name}} for name in names},
        }
    )


def until_received(queues, url, last):
    """Receive the messages of a queue until one is `last`, and return all of them in order."""
    received, deadline = [], time.monotonic() + 60
    while last not in received:
        assert time.monotonic() < deadline, received
        messages = queues.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", [])
        received += [int(message["Body"]) for message in messages]
    return sorted(received)


def test_a_function_that_sends_to_its_own_queue_is_stopped_after_16_turns_unless_it_is_allowed(bare):
    stacks, queues, functions = (bare.client(name) for name in ("cloudformation", "sqs", "lambda"))
    role = create_role(bare.client("iam"), "loop", "lambda")
    outputs = {}
    for name, properties in {"stopped": {}, "allowed": {"RecursiveLoop": "Allow"}}.items():
        stacks.create_stack(StackName=name, TemplateBody=template(role, **properties))
        stacks.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
        [stack] = stacks.describe_stacks(StackName=name)["Stacks"]
        outputs[name] = {item["OutputKey"]: item["OutputValue"] for item in stack["Outputs"]}
        queues.send_message(QueueUrl=outputs[name]["Queue"], MessageBody="0")
    stopped, allowed = outputs["stopped"], outputs["allowed"]
    assert until_received(queues, allowed["Log"], LAST) == list(range(LAST + 1))
    assert until_received(queues, stopped["Log"], 15) == list(range(16))
    # Lambda refuses the message in each attempt.
    assert until_received(queues, stopped["Dead"], 16) == [16]
    assert not queues.receive_message(QueueUrl=stopped["Log"]).get("Messages")
    # The count of another chain begins anew.
    queues.send_message(QueueUrl=stopped["Queue"], MessageBody=str(LAST - 1))
    assert until_received(queues, stopped["Log"], LAST) == [LAST - 1, LAST]
    # A property that a template does not have any more has its default again.
    stacks.update_stack(StackName="allowed", TemplateBody=template(role))
    stacks.get_waiter("stack_update_complete").wait(StackName="allowed", WaiterConfig={"Delay": 1})
    settings = [
        functions.get_function_recursion_config(FunctionName=item["Function"])["RecursiveLoop"]
        for item in (stopped, allowed)
    ]
    assert settings == ["Terminate", "Terminate"]
