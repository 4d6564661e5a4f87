"""The JSON Schema of pipelines, with which editors check `pipelines/*.yaml` and complete the parameters of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from slackwater.model import NAME_PATTERN
from slackwater.pipeline.definition import Pipeline
from slackwater.steps.registry import registry
from slackwater.steps.step import Load, Step


def pipeline_schema() -> dict[str, Any]:
    """Return the JSON Schema of a pipeline whose steps are those of the registry, also of installed packages.

    The name of a step decides how many inputs it has and which parameters: `with` follows from `step`.
    """
    steps = registry()
    models: list[type[BaseModel]] = [Pipeline, *(step.parameters for step in steps.values())]
    references, schema = models_json_schema([(model, "validation") for model in models], by_alias=True)
    definitions = schema["$defs"]
    root, use = definitions.pop("Pipeline"), definitions.pop("StepUse")
    parameters = {name: references[step.parameters, "validation"] for name, step in steps.items()}
    for section, title in (("steps", "Step"), ("load", "LoadStep")):
        known = {name: step for name, step in steps.items() if isinstance(step, Load) == (section == "load")}
        definitions[title] = _with_parameters(use, title, known, parameters)
        root["properties"][section]["patternProperties"][NAME_PATTERN] = {"$ref": f"#/$defs/{title}"}
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, **root, "$defs": dict(sorted(definitions.items()))}


def _with_parameters(
    use: Mapping[str, Any], title: str, steps: Mapping[str, Step], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the schema of a step's use, which may be any of `steps`."""
    step = {**use["properties"]["step"], "enum": list(steps)}
    return {
        **use,
        "title": title,
        "properties": {**use["properties"], "step": step},
        "allOf": [_rule(name, step, parameters[name]) for name, step in steps.items()],
    }


def _rule(name: str, step: Step, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what holds for the inputs and the parameters of one step."""
    inputs: dict[str, Any] = {"minItems": len(step.inputs)}
    if not step.many_inputs:
        inputs["maxItems"] = len(step.inputs) + len(step.optional_inputs)
    required = [key for key, is_required in (("depends_on", step.inputs), ("with", _is_required(step))) if is_required]
    return {
        "if": {"properties": {"step": {"const": name}}, "required": ["step"]},
        "then": {"properties": {"depends_on": inputs, "with": parameters}, "required": required},
    }


def _is_required(step: Step) -> bool:
    return any(field.is_required() for field in step.parameters.model_fields.values())
