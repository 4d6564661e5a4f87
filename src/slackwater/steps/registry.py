"""The registry of steps: every module of this package that defines a `STEP`."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from pydantic import ValidationError

from slackwater import steps
from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline, StepUse
from slackwater.steps.step import Parameters, Step


@cache
def registry() -> Mapping[str, Step]:
    """Return every step by name."""
    by_name: dict[str, Step] = {}
    for module in pkgutil.iter_modules(steps.__path__):
        # Packages such as `spark` contain no steps.
        if module.ispkg:
            continue
        step = getattr(importlib.import_module(f"{steps.__name__}.{module.name}"), "STEP", None)
        if isinstance(step, Step):
            by_name[module.name] = step
    return MappingProxyType(dict(sorted(by_name.items())))


def check(pipeline: Pipeline) -> None:
    """Check every step of a pipeline against the registry.

    Raises `DefinitionError` with all faults, one per line, each naming step and parameter: an unknown step, missing or
    wrong parameters, a wrong number of inputs.
    """
    faults = []
    for name, use in pipeline.steps.items():
        try:
            parameters_of(name, use)
        except DefinitionError as error:
            faults.append(str(error))
    if faults:
        raise DefinitionError("\n".join(f"pipeline {pipeline.pipeline}: {fault}" for fault in faults))


def parameters_of(name: str, use: StepUse) -> Parameters:
    """Return the checked parameters of a step.

    `name` is the name of the step in the pipeline. Raises `DefinitionError` naming each faulty parameter or input.
    """
    step = step_of(name, use)
    try:
        parameters = step.parameters.model_validate(use.parameters)
    except ValidationError as error:
        fields = [".".join([f"steps.{name}.with", *map(str, fault["loc"])]) for fault in error.errors()]
        faults = [f"{field}: {fault['msg']}" for field, fault in zip(fields, error.errors(), strict=True)]
        raise DefinitionError("\n  ".join(faults)) from error
    if len(use.depends_on) not in step.inputs:
        least, most = step.inputs[0], step.inputs[-1]  # `inputs` is a range
        count = f"{least} to {most} inputs" if least < most else "one input" if most == 1 else f"{most} inputs"
        raise DefinitionError(
            f"steps.{name}.depends_on: {step.name} accepts {count}, not {len(use.depends_on)} "
            f"({', '.join(use.depends_on)})"
        )
    if len(set(use.depends_on)) < len(use.depends_on):
        raise DefinitionError(f"steps.{name}.depends_on: an input is named twice ({', '.join(use.depends_on)})")
    try:
        step.check(use.depends_on, parameters)
    except DefinitionError as error:
        raise DefinitionError(f"steps.{name}.with.{error}") from error
    return parameters


def step_of(name: str, use: StepUse) -> Step:
    """Return the `Step` that a step of the pipeline uses; `name` is its name in the pipeline.

    Raises `DefinitionError` that suggests similar names if there is no such step.
    """
    known = registry()
    if use.step in known:
        return known[use.step]
    similar = difflib.get_close_matches(use.step, known, n=3)
    hint = f"did you mean {' or '.join(similar)}?" if similar else f"known steps: {', '.join(known)}"
    raise DefinitionError(f"steps.{name}.step: no step {use.step!r} ({hint})")
