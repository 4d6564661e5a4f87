"""Lets processes of deployed functions die at their writes: `tests/kills/killed_at_writes.py` becomes their handler."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT, Cloud


class Deaths:
    """What a folder says about the processes that have died."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def spare(self, *functions: str) -> None:
        """Let no process of these functions die from now on."""
        for function in functions:
            (self._folder / f"spared-slackwater-{function}").touch()

    def by_function(self) -> Counter[str]:
        """Return how many processes of each function have died."""
        return Counter(path.name.partition("@")[0] for path in self._folder.glob("*@*"))


@contextmanager
def deaths(cloud: Cloud, folder: Path) -> Iterator[Deaths]:
    """Let each deployed function die once before and once after each of its writes, and send messages again soon."""
    functions, sqs = cloud.client("lambda"), cloud.client("sqs")
    before, attributes = {}, {}
    for page in functions.get_paginator("list_functions").paginate():
        for function in page["Functions"]:
            name, handler = function["FunctionName"], function["Handler"]
            if not name.startswith("slackwater-") or not function.get("Layers"):
                continue
            variables = function["Environment"]["Variables"]
            before[name] = (handler, variables)
            killed = {"PYTHONPATH": str(ROOT / "tests" / "kills"), "KILLED_FOLDER": str(folder)}
            functions.update_function_configuration(
                FunctionName=name,
                Handler="killed_at_writes.handler",
                Environment={"Variables": {**variables, **killed, "KILLED_HANDLER": handler}},
            )
    for mapping in functions.list_event_source_mappings()["EventSourceMappings"]:
        url = sqs.get_queue_url(QueueName=mapping["EventSourceArn"].rpartition(":")[2])["QueueUrl"]
        names = ["VisibilityTimeout", "RedrivePolicy"]
        attributes[url] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        # Half an hour, in which nothing would happen; and more processes die here than a message is delivered.
        policy = json.dumps({**json.loads(attributes[url]["RedrivePolicy"]), "maxReceiveCount": 1000})
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "8", "RedrivePolicy": policy})
    try:
        yield Deaths(folder)
    finally:
        for name, (handler, variables) in before.items():
            functions.update_function_configuration(
                FunctionName=name, Handler=handler, Environment={"Variables": variables}
            )
        for url, values in attributes.items():
            sqs.set_queue_attributes(QueueUrl=url, Attributes=values)
