"""The scenario of `make scenario`, with the settings of the tests: `python -m tests.cloud.play_scenario`.

Late runs of `daily_orders` compute added objects alone, although its days are small (docs/decisions/0025).
"""

from __future__ import annotations

import os
import sys

import boto3

from examples.late_orders import scenario
from slackwater.client.workspace import Workspace
from tests.cloud.ways import merge_from, set_ways

deploy_project = scenario.deploy_project
LARGE_ROWS = 100
"""Monday has 90 orders, then 105, and 111 when a late file has arrived."""


def deploy_with_settings(workspace: Workspace) -> None:
    """Deploy the project, and change its cloud. The second deployment replaces the changed state machine."""
    scenario.deploy_project = deploy_project
    deploy_project(workspace)
    emr, states = (
        boto3.client(name, region_name=os.environ["AWS_REGION"]) for name in ("emr-serverless", "stepfunctions")
    )
    set_ways(emr)
    machines = [machine["stateMachineArn"] for machine in states.list_state_machines()["stateMachines"]]
    [machine] = [arn for arn in machines if arn.endswith(f"-{scenario.DAILY}")]
    merge_from(states, machine, LARGE_ROWS)


if __name__ == "__main__":
    scenario.deploy_project = deploy_with_settings
    sys.exit(scenario.main())
