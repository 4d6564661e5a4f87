"""Check the structure of a definition in a file: its keys and the types of its values."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from slackwater.faults import Fault, Faults, Path
from slackwater.validation.wording import faults_of
from slackwater.validation.wrong_values import cause, value_at, wrong_values
from slackwater.validation.yaml_file import YamlFile

_Definition = TypeVar("_Definition", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Structure(Generic[_Definition]):
    """What was found in a definition."""

    definition: _Definition | None
    """The definition without its unknown keys; None if it has other problems."""
    faulty: tuple[Path, ...] = ()
    """Paths of values that cannot be used: they are missing, or have a wrong type."""
    rules_are_checked: bool = True
    """Whether the model has checked its own rules, which compare values; it does so only if it could read all."""

    def can_read(self, path: Path) -> bool:
        """Whether neither the value at a path nor one that contains it is faulty."""
        return not any(path[: len(faulty)] == faulty for faulty in self.faulty)

    def can_read_all(self, path: Path) -> bool:
        """Whether no value at a path, in it or around it is faulty."""
        return self.can_read(path) and not any(faulty[: len(path)] == path for faulty in self.faulty)


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
            errors = wrong_values(error, value)
        unknown = [one for one in errors if one.type == "extra_forbidden"]
        faults = [fault for one in unknown or errors for fault in faults_of(one, model, value)]
        for fault in faults:
            file.report(fault, below=at)
        if not unknown:
            if all(one.path == () and isinstance(cause(one.details), Faults) for one in errors):
                return Structure(definition=None)
            faulty = tuple(fault.path for fault in faults if not fault.at_key)
            return Structure(definition=None, faulty=faulty, rules_are_checked=False)
        for fault in faults:
            if fault.suggestion:
                file.rename((*at, *fault.path), fault.suggestion)
            else:
                file.remove((*at, *fault.path))


def rule_faults(model: type[BaseModel], value: Any, faulty: Iterable[Path]) -> tuple[Fault, ...]:
    """Return the faults that the model's own rules find in a value without its faulty parts.

    Empty if the model needs these parts.
    """
    while True:
        value = _without(value, faulty)
        try:
            model.model_validate(value)
        except ValidationError as error:
            causes = [cause(details) for details in error.errors()]
            rules = [one for one in causes if isinstance(one, Faults)]
            if len(rules) == len(causes):
                return tuple(fault for one in rules for fault in one.faults)
            # A part that contains a faulty one needs it.
            faulty = {one.path[:-1] for one in wrong_values(error, value) if one.type == "missing"}
            if not faulty or () in faulty:
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
