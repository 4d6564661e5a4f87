"""The errors of a pydantic model, at their places in the value, and one for each mistake of the user.

pydantic names the members of unions in the location of an error, and reports the errors of all members. A user means
one of them: the one whose keys fit best.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from slackwater.problems import Path, closest

KEY = "[key]"
"""The last part of pydantic's location of an error in a key."""
NO_MEMBER = "no_member"
"""The type of an error of a value that fits no member of a union."""


@dataclass(frozen=True, kw_only=True)
class ModelError:
    """An error of a model."""

    path: Path
    """Where it is in the value."""
    type: str
    """pydantic's name for the type of the error, or `NO_MEMBER`."""
    details: Mapping[str, Any]
    """All that pydantic says."""
    members: tuple[tuple[int, str], ...] = ()
    """The members of unions that the error belongs to: after how many parts of the path, and which member."""
    alternatives: tuple[ModelError, ...] = ()
    """For `NO_MEMBER`: the errors of the members that it may be meant to be."""


def model_errors(error: ValidationError, value: Any) -> list[ModelError]:
    """Return the errors of a value, without those that only follow from others."""
    located = [_located(details, value) for details in error.errors()]
    # A list seems too short without its invalid items.
    return _of_one_member([one for one in located if one.type != "too_short" or not one.details["input"]])


def cause(details: Mapping[str, Any]) -> Exception | None:
    """Return the exception that a validator of ours has raised, from the details of an error."""
    raised: Exception | None = details.get("ctx", {}).get("error")
    return raised


def value_at(value: Any, path: Iterable[str | int]) -> Any:
    """Return the part of a value at a path; None if there is none."""
    for part in path:
        is_there = (
            part < len(value)
            if isinstance(value, list) and isinstance(part, int)
            else (isinstance(value, Mapping) and part in value)
        )
        value = value[part] if is_there else None
    return value


def _located(details: Mapping[str, Any], value: Any) -> ModelError:
    path: list[str | int] = []
    members = []
    location = details["loc"]
    for index, part in enumerate(location):
        is_last = index == len(location) - 1
        if _is_part(value, part, is_last=is_last):
            # pydantic names the key `false` of a mapping 0.
            path.append(part if isinstance(value, list) else next(key for key in value if key == part))
            value = value[part]
        elif is_last and details["type"] == "missing":
            path.append(part)
        elif part != KEY:
            members.append((len(path), str(part)))
    return ModelError(path=tuple(path), type=details["type"], details=details, members=tuple(members))


def _is_part(value: Any, part: str | int, *, is_last: bool) -> bool:
    """Whether a part of pydantic's location is a key or an index of the value, and not the member of a union."""
    if isinstance(value, list):
        return isinstance(part, int) and part < len(value)
    if not isinstance(value, Mapping) or part not in value:
        return False
    # In `{by: cursor, cursor: next}`, the member of the union is named like one of its keys.
    return is_last or isinstance(value[part], Mapping | list) or part not in value.values()


def _of_one_member(errors: Sequence[ModelError], level: int = 0) -> list[ModelError]:
    """Return the errors of one member of each union; `level` is how many unions contain the errors already."""
    kept = [error for error in errors if len(error.members) <= level]
    unions: dict[Path, dict[str, list[ModelError]]] = defaultdict(lambda: defaultdict(list))
    for error in errors:
        if len(error.members) > level:
            depth, member = error.members[level]
            unions[error.path[:depth]][member].append(error)
    for path, by_member in unions.items():
        kept += _best(path, [_of_one_member(found, level + 1) for found in by_member.values()])
    return kept


def _best(path: Path, members: Sequence[list[ModelError]]) -> list[ModelError]:
    """Return the errors of the member with the fewest wrong keys; one error if that does not tell the members apart."""
    costs = [_cost(errors) for errors in members]
    if len(members) == 1 or costs.count(min(costs)) == 1:
        return members[costs.index(min(costs))]
    every = tuple(error for errors in members for error in errors)
    if any(error.type != "missing" for error in every):  # an empty mapping fits no member better than another
        best = [errors for errors, cost in zip(members, costs, strict=True) if cost == min(costs)]
        every = tuple(error for errors in best for error in errors)
    return [replace(every[0], path=path, type=NO_MEMBER, alternatives=every)]


def _cost(errors: Sequence[ModelError]) -> int:
    """Return how many keys are missing or unknown; a misspelt key is one of them, and not both."""
    missing = [str(error.path[-1]) for error in errors if error.type == "missing"]
    unknown = [str(error.path[-1]) for error in errors if error.type == "extra_forbidden"]
    return len(errors) - sum(bool(closest(name, missing)) for name in unknown)
