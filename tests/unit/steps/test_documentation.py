"""The documentation of steps: what a description contains."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field

from slackwater.pipeline.definition import StepUse
from slackwater.steps import documentation, registry
from slackwater.steps.documentation import describe, example_use, page
from slackwater.steps.step import Parameters, Transform

pytestmark = pytest.mark.unit

NAMES = sorted(registry.registry())


class Limit(Parameters):
    """A limit | of values."""

    least: float | None = None
    """The smallest
    value."""


class Limits(Parameters):
    """Parameters of `limits`."""

    column: str
    """A | column."""
    limit: Limit | Literal["none"] = "none"
    limits: dict[str, Limit] = {}
    names: Annotated[tuple[str, ...], Field(min_length=1)] = ("a", "b")


def test_types_and_defaults_are_in_plain_words(monkeypatch):
    step = Transform(name="limits", parameters=Limits, apply=lambda *_: None, inputs=("a", "b"), optional_inputs=("c",))
    monkeypatch.setattr(registry, "registry", lambda: {"limits": step})
    monkeypatch.setattr(documentation, "step_modules", lambda: [("limits", "slackwater.errors")])
    description = describe("limits")
    assert [(field.name, field.type, field.default) for field in description.parameters] == [
        ("column", "string", "required"),
        ("limit", 'Limit or "none"', '"none"'),
        ("limits", "mapping of names to Limit", ""),
        ("names", "list of string", '["a", "b"]'),
    ]
    assert description.inputs == "`a`, `b`, `c` (optional), in this order."
    [group] = description.groups
    assert (group.name, group.description, group.fields[0].description) == (
        "Limit",
        "A limit | of values.",
        "The smallest value.",
    )
    assert "| `column` | string | required | A \\| column. |" in page("limits")


@pytest.mark.parametrize("name", NAMES)
def test_a_step_and_each_of_its_parameters_are_described(name):
    description = describe(name)
    assert description.summary.endswith(".")
    assert "\n" not in description.summary
    assert [field.name for field in description.parameters if not field.description] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_step_is_valid(name):
    examples = describe(name).examples
    assert examples, f"{name}: give its parameters an example: json_schema_extra={{'examples': [...]}}"
    for example in examples:
        use = StepUse.model_validate(example_use(registry.registry()[name], example))
        registry.parameters_of(f"steps.{name}", use)
