"""The API's own model, as botocore ships it: what requests may hold, and how their parts are named."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import unquote

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape

from slackwater.local.emr.errors import Invalid, NotFound


class Call(NamedTuple):
    """A request, read and checked."""

    operation: str
    parameters: dict[str, Any]


@functools.cache
def service_model() -> ServiceModel:
    """Return botocore's model of the API."""
    return ServiceModel(Loader().load_service_model("emr-serverless", "service-2"), "emr-serverless")


def read_request(method: str, path: str, query: Mapping[str, list[str]], body: bytes) -> Call:
    """Return the operation that a request asks for, with its parameters. Raises `Invalid` or `NotFound`."""
    for name, pattern, verb in _routes():
        found = pattern.fullmatch(path)
        if found and verb == method:
            operation = service_model().operation_model(name)
            parameters = _parameters(operation, found.groupdict(), query, body)
            check(operation.input_shape, parameters)
            return Call(name, parameters)
    raise NotFound(f"No operation answers {method} {path}")


def check(shape: Shape, value: Any, where: str = "") -> None:
    """Raise `Invalid` for the first constraint of the model that `value` breaks."""
    _CHECKS.get(shape.type_name, _check_scalar)(shape, value, where)


def renamed(shape: Shape, value: Any, rename: Callable[[str], str]) -> Any:
    """Return `value` with the members of every structure renamed; keys of maps are the user's, and stay."""
    if isinstance(shape, StructureShape) and isinstance(value, Mapping):
        known = {key: uncapitalised(key) for key in value if uncapitalised(key) in shape.members}
        return {
            rename(known[key]) if key in known else key: (
                renamed(shape.members[known[key]], item, rename) if key in known else item
            )
            for key, item in value.items()
        }
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [renamed(shape.member, item, rename) for item in value]
    if isinstance(shape, MapShape) and isinstance(value, Mapping):
        return {key: renamed(shape.value, item, rename) for key, item in value.items()}
    return value


def capitalised(name: str) -> str:
    """`jobRunId` as Step Functions and CloudFormation write it: `JobRunId`."""
    return name[:1].upper() + name[1:]


def uncapitalised(name: str) -> str:
    """`JobRunId` as the API writes it: `jobRunId`."""
    return name[:1].lower() + name[1:]


@functools.cache
def _routes() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    routes = []
    for name in service_model().operation_names:
        http = service_model().operation_model(name).http
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", http["requestUri"])
        pattern = pattern.replace("(?P<resourceArn>[^/]+)", "(?P<resourceArn>.+)")
        routes.append((name, re.compile(pattern), http["method"]))
    return tuple(routes)


def _parameters(
    operation: OperationModel, parts: Mapping[str, str], query: Mapping[str, list[str]], body: bytes
) -> dict[str, Any]:
    document = _document(body) if body else {}
    values: dict[str, Any] = {}
    for name, shape in operation.input_shape.members.items():
        location, wire = shape.serialization.get("location"), shape.serialization.get("name", name)
        if location == "uri" and wire in parts:
            values[name] = unquote(parts[wire])
        elif location == "querystring" and wire in query:
            values[name] = _from_query(shape, query[wire])
        elif location is None and document.get(name) is not None:
            values[name] = document[name]
    return values


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError as error:
        raise Invalid(f"The request's body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise Invalid("The request's body is not a JSON object")
    return document


def _from_query(shape: Shape, texts: list[str]) -> Any:
    if shape.type_name == "list":
        return list(texts)
    if shape.type_name in {"integer", "long"}:
        try:
            return int(texts[0])
        except ValueError as error:
            raise Invalid(f"{shape.name}: {texts[0]!r} is not a whole number") from error
    if shape.type_name == "boolean":
        return texts[0].lower() == "true"
    return _seconds(texts[0]) if shape.type_name == "timestamp" else texts[0]


def _seconds(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Invalid(f"{text!r} is not a time") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _refuse(where: str, value: Any, constraint: str) -> None:
    raise Invalid(
        f"1 validation error detected: Value {value!r} at '{where or 'request'}' failed to satisfy constraint: "
        f"{constraint}"
    )


def _check_structure(shape: Any, value: Any, where: str) -> None:
    if not isinstance(value, Mapping):
        _refuse(where, value, "Member must be an object")
    for name in shape.required_members:
        if value.get(name) is None:
            _refuse(f"{where}.{name}".lstrip("."), None, "Member must not be null")
    for name, member in shape.members.items():
        if value.get(name) is not None:
            check(member, value[name], f"{where}.{name}".lstrip("."))
    if shape.metadata.get("union") and len([name for name in shape.members if value.get(name) is not None]) != 1:
        _refuse(where, sorted(value), f"Member must have exactly one of {sorted(shape.members)}")


def _check_list(shape: Any, value: Any, where: str) -> None:
    if not isinstance(value, list):
        _refuse(where, value, "Member must be a list")
    _check_range(shape, len(value), value, where, "length")
    for number, item in enumerate(value, start=1):
        check(shape.member, item, f"{where}.{number}.member")


def _check_map(shape: Any, value: Any, where: str) -> None:
    if not isinstance(value, Mapping):
        _refuse(where, value, "Member must be an object")
    _check_range(shape, len(value), value, where, "length")
    for key, item in value.items():
        check(shape.key, key, f"{where}.key")
        check(shape.value, item, f"{where}.{key}.member")


def _check_string(shape: Any, value: Any, where: str) -> None:
    if not isinstance(value, str):
        _refuse(where, value, "Member must be a string")
    _check_range(shape, len(value), value, where, "length")
    if shape.enum and value not in shape.enum:
        _refuse(where, value, f"Member must satisfy enum value set: [{', '.join(shape.enum)}]")
    # UriString's pattern is not one that Python reads as meant; it allows everything that its length does.
    pattern = None if shape.name == "UriString" else shape.metadata.get("pattern")
    if pattern and not re.fullmatch(pattern, value, re.DOTALL):
        _refuse(where, value, f"Member must satisfy regular expression pattern: {pattern}")


def _check_scalar(shape: Any, value: Any, where: str) -> None:
    if shape.type_name in {"integer", "long"}:
        if not isinstance(value, int) or isinstance(value, bool):
            _refuse(where, value, "Member must be a whole number")
        _check_range(shape, value, value, where, "value")
    elif shape.type_name == "boolean" and not isinstance(value, bool):
        _refuse(where, value, "Member must be true or false")


def _check_range(shape: Any, size: int, value: Any, where: str, what: str) -> None:
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if low is not None and size < low:
        _refuse(where, value, f"Member must have {what} greater than or equal to {low}")
    if high is not None and size > high:
        _refuse(where, value, f"Member must have {what} less than or equal to {high}")


_CHECKS: dict[str, Callable[[Any, Any, str], None]] = {
    "structure": _check_structure,
    "list": _check_list,
    "map": _check_map,
    "string": _check_string,
}
