"""Check the steps of a pipeline against the registry: their names, inputs and parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline, StepUse
from slackwater.problems import Path, Problem, Problems, unknown_name
from slackwater.steps.registry import inputs_problem, registry, written_target
from slackwater.steps.step import Extract, Load, Parameters, Step
from slackwater.validation.model_errors import value_at
from slackwater.validation.structure import Structure, check_structure
from slackwater.validation.yaml_file import YamlFile


@dataclass(frozen=True)
class CheckedStep:
    """A step of a pipeline whose inputs and parameters are valid."""

    step: Step
    parameters: Parameters


def check_steps(file: YamlFile, pipeline: Pipeline, structure: Structure[Pipeline]) -> dict[str, CheckedStep]:
    """Check every step of a pipeline, and report all problems to its file.

    Returns those of the section `steps` that are valid, by name.
    """
    checked: dict[str, dict[str, CheckedStep]] = {"steps": {}, "load": {}}
    for section, uses in (("steps", pipeline.steps), ("load", pipeline.load)):
        for name, use in uses.items():
            path: Path = (section, name)
            step = _find_step(file, path, use) if structure.can_read((*path, "step")) else None
            parameters = _check_use(file, path, use, step, pipeline=pipeline, structure=structure) if step else None
            if pipeline.period == "hour" and isinstance(step, Extract) and step.name != "read_partition":
                message = f"{step.name} reads the rows of a day, which each hour would read again: use a source"
                file.report(Problem(path=("step",), message=message), below=path)
            if step and parameters:
                checked[section][name] = CheckedStep(step, parameters)
    # Each load step would replace the rows of another one that writes to the same place.
    writers: dict[str, str] = {}
    for name, load in checked["load"].items():
        for field, target in _targets(load, pipeline.load[name]):
            other = writers.setdefault(target, name)
            if other != name:
                message = f"load.{other} writes {target} too, and {name} would replace it: set another {field}"
                file.report(Problem(path=("load", name, "with", field), message=message))
    return checked["steps"]


def _targets(load: CheckedStep, use: StepUse) -> Iterator[tuple[str, str]]:
    """Yield what a load step replaces for each of its inputs, with the parameter that names it, as far as known."""
    if isinstance(load.step, Load):
        for read in use.depends_on:
            if target := written_target(load.step.of_input(load.parameters, read)):
                yield target


def _find_step(file: YamlFile, path: Path, use: StepUse) -> Step | None:
    try:
        known = registry()
        # `get` would take a `KeyError` of the module's code for a missing step.
        step = known[use.step] if use.step in known else None  # noqa: SIM401
    except DefinitionError as error:  # of a module that cannot be imported
        file.report(Problem(path=("step",), message=str(error)), below=path)
        return None
    if step is None:
        file.report(unknown_name(f"no step {use.step!r}", use.step, known, path=("step",)), below=path)
    elif isinstance(step, Load) != (path[0] == "load"):
        is_load = isinstance(step, Load)
        rule = "writes rows: move it to `load`" if is_load else "does not write rows: move it to `steps`"
        file.report(Problem(path=("step",), message=f"{step.name} {rule}"), below=path)
    return step


def _check_use(
    file: YamlFile, path: Path, use: StepUse, step: Step, *, pipeline: Pipeline, structure: Structure[Pipeline]
) -> Parameters | None:
    """Check the inputs and the parameters of a step. Return the parameters if both are valid."""
    can_read_inputs = structure.can_read_all((*path, "depends_on"))
    problem = inputs_problem(step, use.depends_on) if can_read_inputs else None
    if problem:
        file.report(Problem(path=("depends_on",), message=problem), below=path)
    place = (*path, "with")
    if not structure.can_read(place):
        return None
    parameters = check_structure(file, step.parameters, at=place).definition
    has_inputs = can_read_inputs and {*use.depends_on} <= {*pipeline.inputs, *pipeline.steps}
    if parameters is None or problem or not has_inputs:
        return None
    problems = _own_problems(step, use, parameters, value_at(file.value, place), pipeline)
    for one in problems:
        file.report(one, below=place)
    return None if problems else parameters


def _own_problems(
    step: Step, use: StepUse, parameters: Parameters, value: Any, pipeline: Pipeline
) -> Sequence[Problem]:
    """Return what the step's own check finds. `value` is what the file states as parameters."""
    try:
        step.check(use.depends_on, parameters)
        if isinstance(step, Load):
            step.check_period(parameters, pipeline.period)
    except Problems as error:
        return error.problems
    except DefinitionError as error:
        return [problem_of(str(error), value)]
    return []


def problem_of(message: str, parameters: Any) -> Problem:
    """Return the problem that a step reports as `FIELD: problem`, where FIELD may be `rules.0.min`."""
    field, separator, rest = message.partition(": ")
    if not separator or " " in field:
        return Problem(message=message)
    return Problem(path=tuple(_parts(field, parameters)), message=rest)


def _parts(field: str, value: Any) -> list[str | int]:
    """Return the keys and indices in a dotted name. A key may contain dots itself."""
    if isinstance(value, Mapping):
        key = next(
            (key for key in sorted(map(str, value), key=len, reverse=True) if f"{field}.".startswith(f"{key}.")), None
        )
        if key is not None:
            rest = field[len(key) + 1 :]
            return [key, *(_parts(rest, value.get(key)) if rest else [])]
    first, _, rest = field.partition(".")
    if isinstance(value, list) and first.isdecimal() and int(first) < len(value):
        return [int(first), *(_parts(rest, value[int(first)]) if rest else [])]
    return [field]
