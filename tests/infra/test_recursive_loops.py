"""Which functions Lambda takes for recursive loops: it stops a chain through queues, topics, buckets or invocations."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.infra.assembly import Assembly
from tests.infra.rights import granted, resource_name

pytestmark = pytest.mark.infra


def queue(arn: Any) -> str:
    """A queue of the templates, which stacks name in several ways."""
    found = re.search(r"arrivals|eventbuffer|dead-letters", resource_name(arn).lower())
    assert found, arn
    return found[0]


def function_name(logical_id: str) -> str:
    return re.sub(r"Function\w{8}$", "", logical_id)


def next_of(assembly: Assembly) -> dict[str, set[str]]:
    """What each function sends to or invokes, and which function each queue invokes."""
    following: dict[str, set[str]] = {}
    for logical_id in assembly.resources("AWS::Lambda::Function"):
        name = function_name(logical_id)
        rights = granted(assembly, name)
        following[name] = {queue(arn) for arn in rights.get("sqs:SendMessage", ())}
        following[name] |= rights.get("lambda:InvokeFunction", set())
        # The rule of EventBridge sends an event of each written object.
        if any(uri.startswith("Raw/") for uri in rights.get("s3:PutObject", ())):
            following[name].add("arrivals")
    for mapping in assembly.resources("AWS::Lambda::EventSourceMapping").values():
        properties = mapping["Properties"]
        function = function_name(properties["FunctionName"]["Ref"])
        following.setdefault(queue(properties["EventSourceArn"]), set()).add(function)
    return following


def reached(start: str, following: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    new = following[start]
    while new:
        found |= new
        new = set().union(*(following.get(name, set()) for name in new)) - found
    return found


def test_check_arrivals_is_the_only_loop_and_lambda_allows_it(assembly: Assembly) -> None:
    following = next_of(assembly)
    functions = assembly.resources("AWS::Lambda::Function")
    loops = {name for name in map(function_name, functions) if name in reached(name, following)}
    assert (loops, len(functions)) == ({"checkarrivals"}, 13)
    allowed = {
        function_name(name): function["Properties"]["RecursiveLoop"]
        for name, function in functions.items()
        if "RecursiveLoop" in function["Properties"]
    }
    assert allowed == {"checkarrivals": "Allow"}


def test_no_topic_and_no_bucket_invokes_a_function(assembly: Assembly) -> None:
    assert {item["Properties"]["Protocol"] for item in assembly.resources("AWS::SNS::Subscription").values()} <= {
        "email"
    }
    for bucket in assembly.resources("AWS::S3::Bucket").values():
        assert bucket["Properties"].get("NotificationConfiguration", {}).keys() <= {"EventBridgeConfiguration"}
