"""Check the structure of a definition in a file: its keys and the types of its values."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from slackwater.problems import Path, Problem, Problems
from slackwater.validation.model_errors import cause, model_errors, value_at
from slackwater.validation.wording import problems_of
from slackwater.validation.yaml_file import YamlFile

_Definition = TypeVar("_Definition", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Structure(Generic[_Definition]):
    """What was found in a definition."""

    definition: _Definition | None
    """The definition without its unknown keys; None if it has other problems."""
    invalid: tuple[Path, ...] = ()
    """Paths of values that cannot be used: they are missing, or have a wrong type."""
    rules_are_checked: bool = True
    """Whether the model has checked its own rules, which compare values; it does so only if it could read all."""

    def can_read(self, path: Path) -> bool:
        """Whether neither the value at a path nor one that contains it is invalid."""
        return not any(path[: len(invalid)] == invalid for invalid in self.invalid)

    def can_read_all(self, path: Path) -> bool:
        """Whether no value at a path, in it or around it is invalid."""
        return self.can_read(path) and not any(invalid[: len(path)] == path for invalid in self.invalid)


def check_structure(file: YamlFile, model: type[_Definition], *, at: Path = ()) -> Structure[_Definition]:
    """Check the value at a path of a file against a model, and report all problems to the file.

    A misspelt key is then read as the key that it resembles, and any other unknown key is dropped, so that the problems
    of the other keys are found as well.
    """
    while True:
        value = value_at(file.value, at)
        value = {} if value is None else value
        try:
            return Structure(definition=model.model_validate(value))
        except ValidationError as error:
            errors = model_errors(error, value)
        unknown = [one for one in errors if one.type == "extra_forbidden"]
        problems = [problem for one in unknown or errors for problem in problems_of(one, model, value)]
        for problem in problems:
            file.report(problem, below=at)
        if not unknown:
            if all(one.path == () and isinstance(cause(one.details), Problems) for one in errors):
                return Structure(definition=None)
            invalid = tuple(problem.path for problem in problems if not problem.at_key)
            return Structure(definition=None, invalid=invalid, rules_are_checked=False)
        for problem in problems:
            if problem.suggestion:
                file.rename((*at, *problem.path), problem.suggestion)
            else:
                file.remove((*at, *problem.path))


def rule_problems(model: type[BaseModel], value: Any, invalid: Iterable[Path]) -> tuple[Problem, ...]:
    """Return the problems that the model's own rules find in a value without its invalid parts.

    Empty if the model needs these parts.
    """
    while True:
        value = _without(value, invalid)
        try:
            model.model_validate(value)
        except ValidationError as error:
            causes = [cause(details) for details in error.errors()]
            rules = [one for one in causes if isinstance(one, Problems)]
            if len(rules) == len(causes):
                return tuple(problem for one in rules for problem in one.problems)
            # A part that contains an invalid one needs it.
            invalid = {one.path[:-1] for one in model_errors(error, value) if one.type == "missing"}
            if not invalid or () in invalid:
                return ()
        else:
            return ()


def _without(value: Any, paths: Iterable[Path]) -> Any:
    """Return a copy of a value without the parts at some paths."""
    copied = copy.deepcopy(value)
    # The last items of a list first, so that the others keep their indices.
    for *parents, last in sorted(set(paths), key=_order, reverse=True):
        parent = value_at(copied, parents)
        if isinstance(parent, dict):
            parent.pop(last, None)
        elif isinstance(parent, list) and isinstance(last, int) and last < len(parent):
            del parent[last]
    return copied


def _order(path: Path) -> list[tuple[str, int]]:
    return [("", part) if isinstance(part, int) else (part, 0) for part in path]
