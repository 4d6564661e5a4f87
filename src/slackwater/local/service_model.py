"""Reads and checks requests against botocore's model of the EMR Serverless API."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape
from botocore.utils import parse_timestamp
from botocore.validate import ParamValidator

# Models of botocore until 2023 have this pattern; the present one has none, and no page says that AWS allows more.
_PATTERNS = {"EntryPointArgument": r".*\S.*"}


class EmrError(Exception):
    """Base of the errors that the API returns; `status` and `code` are those of the model."""

    status = 500
    code = "InternalServerException"


class EmrValidationError(EmrError):
    """The request breaks a constraint."""

    status = 400
    code = "ValidationException"


class EmrAccessDenied(EmrError):
    """The caller lacks a permission."""

    status = 403
    code = "AccessDeniedException"


class EmrResourceNotFound(EmrError):
    """The application or job run does not exist."""

    status = 404
    code = "ResourceNotFoundException"


class EmrConflict(EmrError):
    """The client token was already used for a different request."""

    status = 409
    code = "ConflictException"


class EmrThrottled(EmrError):
    """The account makes too many requests."""

    status = 400
    code = "ThrottlingException"


@functools.cache
def service_model(service: str = "emr-serverless") -> ServiceModel:
    """Return botocore's model of an API."""
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def input_shape(operation: str, *, service: str = "emr-serverless") -> StructureShape:
    """Return the shape of an operation's parameters."""
    shape: StructureShape = service_model(service).operation_model(operation).input_shape
    return shape


def read_request(method: str, path: str, query: Mapping[str, list[str]], body: bytes) -> tuple[str, dict[str, Any]]:
    """Return the operation that an HTTP request calls, with its parameters.

    Raises `EmrResourceNotFound` when no operation has this method and path, `EmrValidationError` for parameters that
    break the model.
    """
    for operation, pattern, verb in _routes():
        match = pattern.fullmatch(path)
        if match is None or verb != method:
            continue
        try:
            document = json.loads(body or b"{}")
        except ValueError as error:
            raise EmrValidationError(f"The request's body is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise EmrValidationError("The request's body is not a JSON object")
        parameters: dict[str, Any] = {}
        for name, shape in input_shape(operation).members.items():
            location, wire_name = shape.serialization.get("location"), shape.serialization.get("name", name)
            if location == "uri":
                parameters[name] = unquote(match[wire_name])
            elif location == "querystring" and wire_name in query:
                parameters[name] = _read_query_value(shape, query[wire_name])
            elif location is None and document.get(name) is not None:
                parameters[name] = document[name]
        check(input_shape(operation), parameters)
        return operation, parameters
    raise EmrResourceNotFound(f"No operation has the method and path {method} {path}")


def check(shape: Shape, value: Any) -> None:
    """Raise `EmrValidationError`, with every constraint of the model that `value` breaks."""
    report = ParamValidator().validate(value, shape).generate_report()
    if problems := report or "\n".join(_broken_limits(shape, value, "")):
        raise EmrValidationError(problems)


def rename_members(
    shape: Shape | None,
    value: Any,
    rename: Callable[[str], str],
    convert: Callable[[Shape | None, Any], Any] = lambda shape, scalar: scalar,  # noqa: ARG005
) -> Any:
    """Return `value` with the members of every structure renamed and every scalar converted by `convert`.

    The keys of maps belong to the user and stay as they are.
    """
    if isinstance(shape, StructureShape) and isinstance(value, Mapping):
        return {
            rename(name): rename_members(shape.members.get(camel_case(name)), item, rename, convert)
            for name, item in value.items()
        }
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [rename_members(shape.member, item, rename, convert) for item in value]
    if isinstance(shape, MapShape) and isinstance(value, Mapping):
        return {key: rename_members(shape.value, item, rename, convert) for key, item in value.items()}
    return convert(shape, value)


def pascal_case(name: str) -> str:
    """Return `jobRunId` as Step Functions and CloudFormation write it: `JobRunId`."""
    return name[:1].upper() + name[1:]


def camel_case(name: str) -> str:
    """Return `JobRunId` as the API writes it: `jobRunId`."""
    return name[:1].lower() + name[1:]


@functools.cache
def _routes() -> list[tuple[str, re.Pattern[str], str]]:
    """Return operation, path and method of every route. botocore uses the model as a client only; it has no router."""
    routes = []
    for operation in service_model().operation_names:
        http = service_model().operation_model(operation).http
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", http["requestUri"])
        # An ARN contains slashes, and clients send them as they are or escaped.
        pattern = pattern.replace("(?P<resourceArn>[^/]+)", "(?P<resourceArn>.+)")
        routes.append((operation, re.compile(pattern), http["method"]))
    return routes


def _read_query_value(shape: Shape, values: list[str]) -> Any:
    if shape.type_name == "list":
        return values
    try:
        if shape.type_name in {"integer", "long"}:
            return int(values[0])
        return parse_timestamp(values[0]).timestamp() if shape.type_name == "timestamp" else values[0]
    except ValueError as error:
        raise EmrValidationError(f"{shape.name}: {values[0]!r} is not a {shape.type_name}") from error


def _broken_limits(shape: Shape, value: Any, path: str) -> Iterator[str]:
    """Yield the broken constraints that AWS checks and botocore does not: maxima, patterns, enums, `true` as a number.

    `value` has the types of the model: botocore's validator has checked them.
    """
    if isinstance(shape, StructureShape):
        for name, item in value.items():
            yield from _broken_limits(shape.members[name], item, f"{path}.{name}")
    elif isinstance(shape, ListShape):
        for index, item in enumerate(value):
            yield from _broken_limits(shape.member, item, f"{path}[{index}]")
    elif isinstance(shape, MapShape):
        for key, item in value.items():
            yield from _broken_limits(shape.key, key, f"{path} (key: {key})")
            yield from _broken_limits(shape.value, item, f"{path}.{key}")
    if "max" in shape.metadata and (len(value) if hasattr(value, "__len__") else value) > shape.metadata["max"]:
        yield f"Invalid value for parameter {path[1:]}, value: {value}, valid max value: {shape.metadata['max']}"
    if shape.type_name in {"integer", "long"} and isinstance(value, bool):
        yield f"Invalid type for parameter {path[1:]}, value: {value}, valid types: int"
    if shape.type_name == "string":
        if shape.enum and value not in shape.enum:
            yield f"Invalid value for parameter {path[1:]}, value: {value}, must be one of: {', '.join(shape.enum)}"
        # UriString's pattern means something else in Python; it allows every string of the right length.
        pattern = None if shape.name == "UriString" else shape.metadata.get("pattern", _PATTERNS.get(shape.name))
        if pattern and not re.fullmatch(pattern, value, re.DOTALL):
            yield f"Invalid value for parameter {path[1:]}, value: {value}, valid pattern: {pattern}"
