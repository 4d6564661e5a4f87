"""What a model accepts at a path, from its JSON Schema: valid keys, and values in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from slackwater.faults import Path, listed
from slackwater.validation.wrong_values import value_at

_Schema = Mapping[str, Any]
_WORDS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


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
