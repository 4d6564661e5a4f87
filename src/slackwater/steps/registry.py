"""The steps there are, found by looking: every module of this package that holds a `STEP`."""

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
    found: dict[str, Step] = {}
    for module in pkgutil.iter_modules(steps.__path__):
        if module.ispkg:
            continue
        step = getattr(importlib.import_module(f"{steps.__name__}.{module.name}"), "STEP", None)
        if isinstance(step, Step):
            found[module.name] = step
    return MappingProxyType(dict(sorted(found.items())))


def check(pipeline: Pipeline) -> None:
    """Check every step of a pipeline against the registry.

    Raises `DefinitionError` with all faults, each naming step and parameter: a step that does not exist, parameters
    that are missing or wrong, a wrong number of inputs.
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
    """Return the checked parameters of the step that a pipeline calls `name`. Raises `DefinitionError`."""
    step = step_of(name, use)
    try:
        parameters = step.parameters.model_validate(use.parameters)
    except ValidationError as error:
        raise DefinitionError("\n  ".join(_describe(name, fault) for fault in error.errors())) from error
    if len(use.depends_on) not in step.inputs:
        raise DefinitionError(
            f"steps.{name}.depends_on: {step.name} takes {_count(step.inputs)}, not {len(use.depends_on)} "
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
    """Return the step that a pipeline uses under `name`. Raises `DefinitionError` with near names."""
    known = registry()
    if use.step in known:
        return known[use.step]
    near = difflib.get_close_matches(use.step, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known)}"
    raise DefinitionError(f"steps.{name}.step: no step {use.step!r} ({hint})")


def _describe(name: str, fault: Mapping[str, object]) -> str:
    place = fault["loc"]
    path = ".".join(str(part) for part in place) if isinstance(place, tuple) else str(place)
    return f"steps.{name}.with{'.' + path if path else ''}: {fault['msg']}"


def _count(numbers: range) -> str:
    least, most = numbers[0], numbers[-1]
    if least == most:
        return "one input" if least == 1 else f"{least} inputs"
    return f"{least} to {most} inputs"
