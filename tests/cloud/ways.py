"""The two ways in which a job reads and writes few rows (docs/decisions/0027)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slackwater.arrow.session import SMALL_WAY
from tests.conftest import Cloud


@contextmanager
def large_way(cloud: Cloud, pipeline: str) -> Iterator[None]:
    """Treat few rows like many in the runs of the pipeline that start inside the `with` block."""
    states, machine = cloud.client("stepfunctions"), cloud.outputs()["PipelineMachinePrefix"] + pipeline
    definition = states.describe_state_machine(stateMachineArn=machine)["definition"]
    conf = "--conf spark.driver.cores="
    assert conf in definition
    changed = definition.replace(conf, f"--conf {SMALL_WAY}=false {conf}")
    states.update_state_machine(stateMachineArn=machine, definition=changed)
    try:
        yield
    finally:
        states.update_state_machine(stateMachineArn=machine, definition=definition)
