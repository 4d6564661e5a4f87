"""Settings of the tests for what differs between small and large days (docs/decisions/0027, docs/decisions/0025)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from slackwater.arrow.session import SMALL_WAY

if TYPE_CHECKING:
    from tests.conftest import Cloud

IN_THE_LARGE_WAY = ("weekly_delays", "carrier_rates")
"""Pipelines of the shared cloud whose runs treat few rows like many."""


def set_ways(emr: Any) -> None:
    """With `SLACKWATER_TEST_LARGE`, let all jobs of a cloud, which has run none yet, treat few rows like many."""
    if os.environ.get("SLACKWATER_TEST_LARGE"):
        properties = {"classification": "spark-defaults", "properties": {SMALL_WAY: "false"}}
        for application in emr.list_applications()["applications"]:
            emr.update_application(applicationId=application["id"], runtimeConfiguration=[properties])


def mix_ways(cloud: Cloud) -> None:
    """Let some of the shared cloud's pipelines treat few rows like many."""
    for pipeline in IN_THE_LARGE_WAY:
        _let_take_the_large_way(cloud.client("stepfunctions"), cloud.outputs()["PipelineMachinePrefix"] + pipeline)


@contextmanager
def large_way(cloud: Cloud, pipeline: str = "") -> Iterator[None]:
    """Treat few rows like many in jobs that start inside the `with` block: of the pipeline, or of all comparisons."""
    states, outputs = cloud.client("stepfunctions"), cloud.outputs()
    machine = outputs["PipelineMachinePrefix"] + pipeline if pipeline else outputs["CompareMachineArn"]
    definition = _let_take_the_large_way(states, machine)
    try:
        yield
    finally:
        states.update_state_machine(stateMachineArn=machine, definition=definition)


def merge_from(states: Any, machine: str, rows: int) -> None:
    """Let late runs of a pipeline compute added objects alone on days of at least so many rows.

    `machine` is the ARN of its state machine.
    """
    definition = json.loads(states.describe_state_machine(stateMachineArn=machine)["definition"])
    definition["States"]["Freeze inputs"]["Arguments"]["Payload"]["large_rows"] = rows
    states.update_state_machine(stateMachineArn=machine, definition=json.dumps(definition))


def _let_take_the_large_way(states: Any, machine: str) -> str:
    """Let jobs of a state machine treat few rows like many; return its definition before."""
    definition: str = states.describe_state_machine(stateMachineArn=machine)["definition"]
    conf = "--conf spark.driver.cores="
    assert conf in definition
    changed = definition.replace(conf, f"--conf {SMALL_WAY}=false {conf}")
    states.update_state_machine(stateMachineArn=machine, definition=changed)
    return definition
