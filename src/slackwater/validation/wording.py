"""The problem that an error of a model describes; the JSON Schema of the model says what is expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from typing import Any

from pydantic import BaseModel

from slackwater.model import NAME_PATTERN
from slackwater.problems import Path, Problem, Problems, closest, listed, unknown_name
from slackwater.validation import model_errors
from slackwater.validation.model_errors import KEY, ModelError, cause, value_at

_Schema = Mapping[str, Any]
_WORDS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
_LONGEST_VALUE = 60
# What a value has to be, by pydantic's type of the error.
_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
    "invalid_key": "a string: write it in quotes",
    "greater_than": "a value greater than {gt}",
    "greater_than_equal": "a value of at least {ge}",
    "less_than": "a value less than {lt}",
    "less_than_equal": "a value of at most {le}",
    "string_too_short": "a length of at least {min_length}",
    "string_too_long": "a length of at most {max_length}",
    "too_short": "a length of at least {min_length}",
    "too_long": "a length of at most {max_length}",
    "literal_error": "{expected}",
    "enum": "{expected}",
}


def problems_of(error: ModelError, model: type[BaseModel], value: Any) -> Sequence[Problem]:
    """Return the problem of an error; several, if a validator of the model has found several at once.

    `value` is what the model has refused.
    """
    raised = cause(error.details)
    if isinstance(raised, Problems):
        return raised.below(*error.path).problems
    match error.type:
        case "value_error":
            problem = _own_problem(str(raised), error)
        case "extra_forbidden":
            problem = _unknown_key(error, model, value)
        case "missing":
            problem = Problem(path=error.path, message="missing", expected=words_at(model, error.path, value))
        case "union_tag_not_found":
            tag = error.details["ctx"]["discriminator"].strip("'")
            path = (*error.path, tag)
            problem = Problem(path=path, message="missing", expected=words_at(model, path, value))
        case "union_tag_invalid":
            problem = _unknown_tag(error, value)
        case "string_pattern_mismatch":
            problem = _wrong_form(error)
        case model_errors.NO_MEMBER:
            message = _wrong(value_at(value, error.path))
            problem = Problem(path=error.path, message=message, expected=_expected_of_members(error))
        case _:
            problem = _wrong_value(error)
    return [problem]


def _own_problem(message: str, error: ModelError) -> Problem:
    """Return the problem of a validator's own message; in a mapping, `field: message` is about one of its fields."""
    field, _, rest = message.partition(": ")
    if isinstance(error.details["input"], Mapping) and field in error.details["input"]:
        return Problem(path=(*error.path, field), message=rest)
    return Problem(path=error.path, message=message)


def _unknown_key(error: ModelError, model: type[BaseModel], value: Any) -> Problem:
    *parents, key = error.path
    member = error.members[-1][1] if error.members else ""
    known = keys_at(model, tuple(parents), value, member=member)
    mapping = value_at(value, parents)
    similar = closest(str(key), [name for name in known if name not in mapping])
    return Problem(
        path=error.path,
        at_key=True,
        message="unknown key",
        expected="" if similar else listed(known),
        suggestion=similar,
    )


def _unknown_tag(error: ModelError, value: Any) -> Problem:
    """Return the problem of a value that has to name one of several types."""
    context = error.details["ctx"]
    # A short form, such as `format: csv`, has no key that names the type.
    is_mapping = isinstance(value_at(value, error.path), Mapping)
    path = (*error.path, context["discriminator"].strip("'")) if is_mapping else error.path
    names = [tag.strip("'") for tag in context["expected_tags"].split(", ")]
    return unknown_name(_wrong(context["tag"]), context["tag"], names, path=path)


def _wrong_form(error: ModelError) -> Problem:
    given, pattern = error.details["input"], error.details["ctx"]["pattern"]
    expected = f"a match of {pattern}"
    if pattern == NAME_PATTERN:
        expected = "up to 63 lower-case letters, digits and _, beginning with a letter"
    return Problem(path=error.path, at_key=_is_key(error), message=_wrong(given), expected=expected)


def _wrong_value(error: ModelError) -> Problem:
    given, context = error.details["input"], error.details.get("ctx", {})
    suggestion = ""
    if error.type == "string_type" and isinstance(given, bool | int | float | date):
        expected = "a string: write it in quotes"
    elif error.type in _EXPECTED:
        expected = _EXPECTED[error.type].format(**context)
    else:
        expected = error.details["msg"].removeprefix("Input should be ")
    if error.type in ("literal_error", "enum") and isinstance(given, str):
        suggestion = closest(given, [option.strip("'") for option in expected.replace(" or ", ", ").split(", ")])
    return Problem(
        path=error.path, at_key=_is_key(error), message=_wrong(given), expected=expected, suggestion=suggestion
    )


def _expected_of_members(error: ModelError) -> str:
    """Return what the members of a union expect: values, or else keys."""
    values = [_EXPECTED[one.type] for one in error.alternatives if one.type in _EXPECTED]
    if values:
        return " or ".join(dict.fromkeys(values))
    keys: dict[str, list[str]] = {}
    for one in error.alternatives:
        if one.type == "missing":
            keys.setdefault(one.members[-1][1], []).append(str(one.path[-1]))
    forms = ", or ".join(" and ".join(names) for names in keys.values())
    return f"the keys {forms}" if forms else "the keys of only one of its forms"


def _is_key(error: ModelError) -> bool:
    return error.type == "invalid_key" or error.details["loc"][-1:] == (KEY,)


def _wrong(value: Any) -> str:
    """Return the message for a wrong value. Only a plain value is shown, because others may contain secrets."""
    match value:
        case None:
            return "no value"
        case Mapping():
            return "wrong value: a mapping" if value else "an empty mapping"
        case list() | tuple():
            return "wrong value: a list" if value else "an empty list"
        case bool():
            return f"wrong value: {str(value).lower()}"
        case _:
            shown = repr(value) if isinstance(value, str) else str(value)
            return f"wrong value: {shown[:_LONGEST_VALUE]}{'...' if len(shown) > _LONGEST_VALUE else ''}"


def keys_at(model: type[BaseModel], path: Path, value: Any, *, member: str) -> list[str]:
    """Return the keys that the mapping at a path may have; `value` is the whole value.

    Of the members of a union, only those count that fit the constants in the mapping, such as `type: csv`, and that
    `member` contains the name of, if it contains one of them.
    """
    objects = [schema for schema in _at(model, path, value) if "properties" in schema]
    named = [schema for schema in objects if schema.get("title", "") in member]
    return list(dict.fromkeys(key for schema in named or objects for key in schema["properties"]))


def words_at(model: type[BaseModel], path: Path, value: Any) -> str:
    """Return what the value at a path may be, such as `a string`; empty if the schema does not say it."""
    schemas = _at(model, path, value)
    options = [
        option for schema in schemas for option in schema.get("enum", [schema["const"]] if "const" in schema else [])
    ]
    words = (_WORDS.get(schema.get("type", "")) for schema in schemas)
    return listed(map(str, options)) or " or ".join(dict.fromkeys(word for word in words if word))


@cache
def _json_schema(model: type[BaseModel]) -> _Schema:
    return model.model_json_schema(by_alias=True)


def _at(model: type[BaseModel], path: Path, value: Any) -> list[_Schema]:
    """Return the schemas of the value at a path: several for a union."""
    root = _json_schema(model)
    schemas = list(_alternatives(root, root, value))
    for part in path:
        value = value_at(value, (part,))
        schemas = [
            alternative
            for schema in schemas
            for child in _children(schema, part)
            for alternative in _alternatives(child, root, value)
        ]
    return schemas


def _children(schema: _Schema, part: str | int) -> Iterator[_Schema]:
    if isinstance(part, int):
        yield schema.get("items", {})
    elif part in schema.get("properties", {}):
        yield schema["properties"][part]
    else:
        values = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
        yield from (value for value in values if isinstance(value, Mapping))


def _alternatives(schema: _Schema, root: _Schema, value: Any) -> Iterator[_Schema]:
    """Yield a schema, or the members of its union that fit the constants in a value."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    members = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    for member in members:
        yield from _alternatives(member, root, value)
    if not members and _fits(schema, value):
        yield schema


def _fits(schema: _Schema, value: Any) -> bool:
    if not isinstance(value, Mapping):
        return True
    constants = {key: field["const"] for key, field in schema.get("properties", {}).items() if "const" in field}
    return all(value.get(key, constant) == constant for key, constant in constants.items())
