"""The machines of the largest pipelines of every shape, with the values of a deployment."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from infra.lint import PLACEHOLDER_VALUE, machine_findings
from infra.stacks.storage import MOST_KEYS_BYTES
from slackwater.pipeline.compile import compile_machine
from tests.infra.assembly import Assembly, submit_parameters
from tests.pipeline_shapes import LONGEST, SHAPES, build

pytestmark = pytest.mark.infra

FRAME = json.loads(Path("step_functions/pipeline.asl.json").read_text(encoding="utf-8"))
MOST_STEPS, DEFINITION_LIMIT = 200, 2**20
"""The characters of a definition are those that Step Functions allows."""


@pytest.fixture(scope="session")
def values(assembly: Assembly) -> dict[str, str]:
    """The longest values of the placeholders, which CloudFormation fills in."""
    machine = assembly.one("AWS::StepFunctions::StateMachine", "Pipelinedailydelays")
    values = {name: longest(value) for name, value in machine["DefinitionSubstitutions"].items()}
    parameters = submit_parameters(machine, assembly.folder)
    return values | {"SparkSubmitParameters": re.sub(r"\$\{(\w+)\}", lambda name: values[name[1]], parameters)}


def longest(value: Any) -> str:
    """Return a value of a template with the longest account, region, ARN or name of a bucket in it."""
    match value:
        case str():
            return value
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(map(longest, parts))
        case {"Fn::Sub": str(pattern)}:
            return pattern.replace("${AWS::AccountId}", "1" * 12).replace("${AWS::Region}", "ap-southeast-1")
        case {"Fn::GetAtt": [_, attribute]}:
            return PLACEHOLDER_VALUE.replace("any", "x" * 64) if attribute == "Arn" else "x" * 16
        case {"Fn::ImportValue": _}:
            return "b" * 63
        case {"Ref": "AWS::Region"}:
            return "ap-southeast-1"
    raise AssertionError(f"no longest value of {value}")


def test_machines_of_200_steps_are_valid_and_short_enough(values):
    steps, definitions = range(MOST_STEPS), {}
    known = {"WarehouseDatabase": "slackwater_warehouse", "OutboundAllow": "", "VersionDays": "90", **values}
    known["SourceKmsKeys"] = "k" * MOST_KEYS_BYTES
    for shape, make_steps in SHAPES.items():
        pipeline = build(make_steps(MOST_STEPS), exchanges=steps, two_sinks=True, name="p" * LONGEST, padding=LONGEST)
        compiled = json.dumps(compile_machine(pipeline, FRAME))
        definitions[shape] = re.sub(r"\$\{(\w+)\}", lambda name: known[name[1]], compiled)
    assert {shape: len(text) for shape, text in definitions.items() if len(text) >= DEFINITION_LIMIT} == {}
    assert list(machine_findings(definitions)) == []


def test_the_values_are_not_longer_than_those_with_which_payloads_are_tested(values):
    parameters = values.pop("SparkSubmitParameters")
    assert len(parameters) <= 2000
    assert max(map(len, values.values())) <= 128
