"""`slackwater run` on the local cloud after an edit: the changed definition is deployed first, without the CDK."""

from __future__ import annotations

import json

import pytest

from tests.cloud.conftest import PAST

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(600)]


def projects(cloud) -> set[str]:
    """The URIs of the project that functions and state machines read."""
    functions = cloud.client("lambda").get_paginator("list_functions").paginate()
    variables = [item.get("Environment", {}).get("Variables", {}) for page in functions for item in page["Functions"]]
    states = cloud.client("stepfunctions")
    definitions = [
        json.loads(states.describe_state_machine(stateMachineArn=machine["stateMachineArn"])["definition"])
        for machine in states.list_state_machines()["stateMachines"]
    ]
    words = [word for definition in definitions for word in json.dumps(definition).split('"')]
    return {item["PROJECT_URI"] for item in variables if "PROJECT_URI" in item} | {
        word.rstrip("\\") for word in words if word.startswith("s3://cdk-") and word.rstrip("\\").endswith(".json")
    }


def test_an_edited_definition_is_deployed_before_the_run(cloud, published):
    file, run = cloud.project / "sources" / "weather.yaml", ("run", "daily_delays", "--date", PAST[0])
    before, [deployed] = file.read_text(), projects(cloud)
    try:
        file.write_text(before.replace("description: ", "description: Edited. "))
        assert (
            "sources/weather.yaml changed. To apply: slackwater deploy" in cloud.slackwater("runs", "daily_delays").err
        )
        shown = cloud.slackwater(*run)
        assert "deploying first (not with --no-deploy): sources/weather.yaml changed" in shown.err
        # The description of a source decides nothing that a run publishes.
        assert "unchanged" in shown.out
        [edited] = projects(cloud)
        assert edited != deployed
        assert cloud.json("plan")["changes"] == []
    finally:
        file.write_text(before)
        cloud.slackwater(*run)
    assert "deploying" not in cloud.slackwater(*run).err
