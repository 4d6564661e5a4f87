"""The JSON Schema of pipelines."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from slackwater.steps.registry import registry
from slackwater.steps.step import Load
from slackwater.validation.pipeline_schema import pipeline_schema
from tests.step_package import example_package, installed_package

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
PIPELINES = sorted(ROOT.glob("examples/*/pipelines/*.yaml"))
PIPELINE = {
    "pipeline": "p",
    "sources": ["a"],
    "steps": {"x": {"step": "sql", "depends_on": ["a"], "with": {"query": "SELECT 1"}}},
    "publish": {"step": "x", "key": ["date"]},
}


@cache
def validator(steps: tuple[str, ...]) -> jsonschema.Draft202012Validator:
    """Return the validator of pipelines while the registry has these steps."""
    return jsonschema.Draft202012Validator(pipeline_schema())


def is_valid(**changes: object) -> bool:
    return validator(tuple(registry())).is_valid(PIPELINE | changes)


def test_the_schema_in_docs_is_up_to_date():
    path = ROOT / "docs" / "contracts" / "pipeline.schema.json"
    documented = json.loads(path.read_text(encoding="utf-8"))
    assert documented == json.loads(json.dumps(pipeline_schema())), (
        f"write it again: slackwater pipeline schema | python -m json.tool > {path}"
    )


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(pipeline_schema())


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_the_schema_accepts_the_examples(path, tmp_path_factory):
    with example_package(tmp_path_factory.mktemp("site")):
        validator(tuple(registry())).validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", sorted(registry()))
def test_the_schema_accepts_the_examples_of_each_step_and_knows_its_parameters(name):
    step = registry()[name]
    section = "load" if isinstance(step, Load) else "steps"
    for example in step.parameters.model_config["json_schema_extra"]["examples"]:
        use = {"step": name, "depends_on": list(step.inputs), "with": example}
        assert is_valid(**{section: {"x": use}})
        assert not is_valid(**{section: {"x": {**use, "with": {**example, "no_such_parameter": 1}}}})
        assert not is_valid(**{section: {"x": {**use, "depends_on": [*step.inputs, "b", "c"]}}}) or step.many_inputs
        assert not is_valid(**{"load" if section == "steps" else "steps": {"x": use}})


def test_editors_complete_the_names_of_steps():
    definitions = pipeline_schema()["$defs"]
    names = {name: set(definitions[name]["properties"]["step"]["enum"]) for name in ("Step", "LoadStep")}
    assert names["LoadStep"] == {name for name, step in registry().items() if isinstance(step, Load)}
    assert names["Step"] == set(registry()) - names["LoadStep"]


def test_steps_of_installed_packages_are_in_the_schema(tmp_path):
    use = {"step": "in_celsius", "depends_on": ["a"], "with": {"column": "temp"}}
    assert not is_valid(steps={"x": use})
    with installed_package(tmp_path):
        assert is_valid(steps={"x": use})
        assert not is_valid(steps={"x": {**use, "with": {}}})
