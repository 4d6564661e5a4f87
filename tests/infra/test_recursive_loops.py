"""Which functions Lambda takes for recursive loops: it stops a chain through queues, topics, buckets or invocations."""

from __future__ import annotations

import re

import pytest

from tests.infra.assembly import Assembly
from tests.infra.rights import resource_name
from tests.rights import EVENTBRIDGE, FUNCTIONS, calls

pytestmark = pytest.mark.infra


def queue(name: str) -> str:
    """A queue, which has several names."""
    [found] = re.findall(r"arrivals|states|eventbuffer|dead-letters", name.lower())
    return str(found)


def next_of(assembly: Assembly) -> dict[str, set[str]]:
    """What each function sends to or invokes, and which function each queue invokes."""
    following: dict[str, set[str]] = {}
    for function, rows in (FUNCTIONS | EVENTBRIDGE).items():
        made = set(calls(rows))
        following[function] = {queue(name) for action, name in made if action == "sqs:SendMessage"}
        following[function] |= {name for action, name in made if action == "lambda:InvokeFunction"}
        # Rules of EventBridge send an event of each written object.
        if any(action == "s3:PutObject" and name.startswith("Raw/") for action, name in made):
            following[function] |= {"arrivals", "states"}
    for mapping in assembly.properties("AWS::Lambda::EventSourceMapping").values():
        function = function_name(mapping["FunctionName"]["Ref"])
        following.setdefault(queue(resource_name(mapping["EventSourceArn"])), set()).add(function)
    return following


def function_name(logical_id: str) -> str:
    return re.sub(r"Function\w{8}$", "", logical_id)


def reached(start: str, following: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    new = following[start]
    while new:
        found |= new
        new = set().union(*(following.get(name, set()) for name in new)) - found
    return found


def test_check_arrivals_is_the_only_loop_and_lambda_allows_it(assembly: Assembly) -> None:
    following = next_of(assembly)
    functions = assembly.properties("AWS::Lambda::Function")
    loops = {name for name in map(function_name, functions) if name in reached(name, following)}
    assert (loops, {*FUNCTIONS, "startscheduled"}) == ({"checkarrivals"}, {*map(function_name, functions)})
    allowed = {
        function_name(name): function["RecursiveLoop"]
        for name, function in functions.items()
        if "RecursiveLoop" in function
    }
    assert allowed == {"checkarrivals": "Allow"}


def test_no_topic_and_no_bucket_invokes_a_function(assembly: Assembly) -> None:
    assert set(assembly.properties("AWS::SNS::Subscription", "Protocol")) <= {"email", "sqs"}
    for bucket in assembly.properties("AWS::S3::Bucket").values():
        assert bucket.get("NotificationConfiguration", {}).keys() <= {"EventBridgeConfiguration"}
