"""The registry of steps: the modules of this package that define a `STEP`, and the steps of installed packages.

A package adds steps through the entry point group `slackwater.steps`: each entry names a module with a `STEP`, and the
name of the entry is the name of the step.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import metadata

from pydantic import ValidationError

from slackwater.errors import DefinitionError, UnknownName
from slackwater.pipeline.definition import StepUse
from slackwater.steps import extract, load, transform
from slackwater.steps.step import Parameters, Step

ENTRY_POINTS = "slackwater.steps"
"""The entry point group."""


class _Registry(Mapping[str, Step]):
    """Every step by name. The module of a step is imported when the step is looked up."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        """`modules` are the names of the steps' modules, by the name of the step."""
        self._modules = modules

    def __getitem__(self, name: str) -> Step:
        """Return the step. Raises `KeyError`, and `DefinitionError` for a module that does not define the step."""
        module = self._modules[name]
        try:
            step = getattr(importlib.import_module(module), "STEP", None)
        except ImportError as error:
            raise DefinitionError(f"step {name}: the module {module} cannot be imported: {error}") from error
        if not isinstance(step, Step) or step.name != name:
            raise DefinitionError(f"step {name}: the module {module} has no variable STEP with a step of this name")
        return step

    def __contains__(self, name: object) -> bool:
        # Inherited, it would look the step up, and take a `KeyError` of the module's code for a missing step.
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


@cache
def registry() -> Mapping[str, Step]:
    """Return every step by name, in alphabetical order.

    Raises `DefinitionError` if an installed package takes the name of another step. A look-up of a step raises it if
    the module cannot be imported or defines no step of its name.
    """
    modules: dict[str, str] = {}
    for name, module in step_modules():
        if name in modules:
            raise DefinitionError(f"step {name}: there are two steps of this name; one of them is in {module}")
        modules[name] = module
    return _Registry(dict(sorted(modules.items())))


def step_modules() -> Iterator[tuple[str, str]]:
    """Yield the name and the module of each step, without importing the modules."""
    for package in (extract, transform, load):
        for module in pkgutil.iter_modules(package.__path__):
            yield module.name, f"{package.__name__}.{module.name}"
    yield from installed_steps()


def installed_steps() -> Iterator[tuple[str, str]]:
    """Yield the name and the module of each step that an installed package adds."""
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        yield entry.name, entry.value


def written_target(parameters: Parameters) -> tuple[str, str] | None:
    """Return the parameter of a load step that names what it replaces, and what that is.

    None for the steps of other packages, which may replace anything.
    """
    # Pipelines with less than two load steps need not wait for these modules, which import pyarrow.
    from slackwater.steps.io.written_files import WrittenFiles  # noqa: PLC0415
    from slackwater.steps.load.write_table import WriteTable  # noqa: PLC0415

    match parameters:
        case WrittenFiles():
            return "path", parameters.path.rstrip("/")
        case WriteTable():
            return "table", f"{parameters.url}/{parameters.table}"
        case _:
            return None


def parameters_of(place: str, use: StepUse) -> Parameters:
    """Return the checked parameters of a step.

    `place` is where the pipeline uses the step, such as `steps.joined`. Raises `DefinitionError` naming each invalid
    parameter or input.
    """
    step = step_of(place, use)
    problem = inputs_problem(step, use.depends_on)
    if problem:
        raise DefinitionError(f"{place}.depends_on: {problem}")
    parameters = validated(step, use.parameters, place=f"{place}.with")
    try:
        step.check(use.depends_on, parameters)
    except DefinitionError as error:
        raise DefinitionError(f"{place}.with.{error}") from error
    return parameters


def validated(step: Step, parameters: Mapping[str, object], *, place: str) -> Parameters:
    """Return the parameters as the step's model. Raises `DefinitionError` naming each invalid one, below `place`."""
    try:
        return step.parameters.model_validate(dict(parameters))
    except ValidationError as error:
        problems = [
            f"{'.'.join([place, *map(str, problem['loc'])])}: {problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors()
        ]
        raise DefinitionError("\n  ".join(problems)) from error


def step_of(place: str, use: StepUse) -> Step:
    """Return the `Step` that a pipeline uses at `place`. Raises `DefinitionError` as `find_step` raises."""
    try:
        return find_step(use.step)
    except UnknownName as error:
        raise DefinitionError(f"{place}.step: {error}") from error


def find_step(name: str) -> Step:
    """Return the step of this name. Raises `UnknownName` that suggests similar names."""
    known = registry()
    if name in known:
        return known[name]
    similar = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(similar)}?" if similar else f"known steps: {', '.join(known)}"
    raise UnknownName(f"no step {name!r} ({hint})")


def inputs_problem(step: Step, names: Collection[str]) -> str | None:
    """Return why the step does not accept these inputs: their number, or one that is named twice; None if it does."""
    least, most = len(step.inputs), len(step.inputs) + len(step.optional_inputs)
    if not (least <= len(names) and (len(names) <= most or step.many_inputs)):
        count = f"{least} or more" if step.many_inputs else str(least) if least == most else f"{least} to {most}"
        roles = ", ".join([*step.inputs, *(f"{name} (optional)" for name in step.optional_inputs)])
        return (
            f"{step.name} reads {count} input{'' if most == 1 else 's'} ({roles or 'none'}), "
            f"not {len(names)} ({', '.join(names) or 'none'})"
        )
    if len(set(names)) < len(names):
        return f"an input is named twice ({', '.join(names)})"
    return None
