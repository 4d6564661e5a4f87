"""Checks the calls of AWS services in state machines against botocore's models of the services.

asl-validator accepts any arguments and any error names. A state with a wrong argument fails when it runs, and a rule
for an error that the service does not have never applies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StringShape, StructureShape

from slackwater import errors

_RESOURCE = re.compile(r"arn:[\w-]+:states:::(?P<sdk>aws-sdk:)?(?P<service>[\w-]+):(?P<action>\w+)(\.\w+(:\d)?)?")


class _Integration(NamedTuple):
    """A service that states call."""

    model: str
    """The name of botocore's model."""
    prefix: str
    """What precedes the names of its errors."""
    other_errors: frozenset[str]
    """Error names outside of the model: for throttled calls, and base exceptions of the SDK."""
    json_members: frozenset[str] = frozenset()
    """Members that take any JSON value, although the API takes a string or bytes."""


# The prefixes, other errors and JSON members are from Step Functions' developer guide ("Handle transient Lambda service
# exceptions", "Start a new state machine from a running execution") and from machines in public repositories.
_OPTIMISED = {
    "lambda": _Integration(
        "lambda",
        "Lambda",
        frozenset({"AWSLambdaException", "SdkClientException", "ClientExecutionTimeoutException", "Unknown"}),
        frozenset({"Payload"}),
    ),
    "emr-serverless": _Integration(
        "emr-serverless",
        "EMRServerless",
        frozenset({"ThrottlingException", "EmrServerlessException", "AWSEMRServerlessException"}),
    ),
    "states": _Integration(
        "stepfunctions",
        "StepFunctions",
        frozenset({"ThrottlingException", "AWSStepFunctionsException"}),
        frozenset({"Input"}),
    ),
    "sns": _Integration("sns", "SNS", frozenset({"AmazonSNSException"}), frozenset({"Message"})),
    "sqs": _Integration("sqs", "SQS", frozenset({"AmazonSQSException"}), frozenset({"MessageBody"})),
}
# What Lambda reports when the process of a function has ended.
_RUNTIME_ERRORS = frozenset({"Runtime.ExitError"})
# Names of packages that differ from botocore's.
_PACKAGES = {"sfn": "stepfunctions", "cloudwatchlogs": "logs", "eventbridge": "events"}
_TYPES: dict[str, Any] = {
    "structure": dict,
    "map": dict,
    "list": list,
    "string": str,
    "integer": int,
    "long": int,
    "float": int | float,
    "double": int | float,
    "boolean": bool,
}
# Amazon States Language, "Error names".
_STATES_ERRORS = frozenset(
    f"States.{name}"
    for name in (
        *("ALL", "BranchFailed", "DataLimitExceeded", "ExceedToleratedFailureThreshold", "HeartbeatTimeout"),
        *("IntrinsicFailure", "ItemReaderFailed", "NoChoiceMatched", "ParameterPathFailure", "Permissions"),
        *("QueryEvaluationError", "ResultPathMatchFailure", "ResultWriterFailed", "Runtime", "TaskFailed", "Timeout"),
    )
)


def call_findings(machine: Mapping[str, Any], *, unknown: str, path: str = "") -> Iterator[str]:
    """Yield what is wrong with the calls of services in a state machine, also inside `Map` and `Parallel` states.

    A string that is a JSONata expression or that contains `unknown`, the value of all placeholders, is not checked.
    """
    for name, state in machine["States"].items():
        place = f"{path}/{name}"
        if state["Type"] == "Task":
            for finding in _task_findings(state, unknown):
                yield f"{place}: {finding}"
        for part in ("ItemProcessor", "Branches"):
            inner = state.get(part, [])
            for branch in inner if isinstance(inner, list) else [inner]:
                yield from call_findings(branch, unknown=unknown, path=place)


def _task_findings(state: Mapping[str, Any], unknown: str) -> Iterator[str]:
    match = _RESOURCE.fullmatch(state["Resource"])
    service = _service(match["service"], is_sdk=bool(match["sdk"])) if match else None
    operation = _operation(service, match["action"]) if match and service else None
    if service is None or operation is None:
        yield f"Resource: {state['Resource']} names no operation of a service"
        return
    arguments = state.get("Arguments", {})
    if not _is_unknown(arguments, unknown):
        given = {name: unknown if name in service.json_members else value for name, value in arguments.items()}
        yield from _value_findings(operation.input_shape, given, "Arguments", unknown)
    for field in ("Retry", "Catch"):
        for rule in state.get(field, []):
            for error in rule["ErrorEquals"]:
                if not _is_error(error, service):
                    yield f"{field}: {error} is no error of {service.prefix}, of Step Functions or of our functions"


def _value_findings(shape: Shape, value: Any, place: str, unknown: str) -> Iterator[str]:
    """Yield what is wrong with a value: its type, its members, its limits, its pattern."""
    if _is_unknown(value, unknown) or shape.type_name in {"blob", "timestamp"}:
        return
    if not _has_type(shape, value):
        yield f"{place}: {value!r} is not of type {shape.type_name}"
        return
    limits = shape.metadata
    size = len(value) if isinstance(value, str | list | dict) else value
    if not limits.get("min", size) <= size <= limits.get("max", size):
        yield f"{place}: {value!r} is not within {limits.get('min', '')} to {limits.get('max', '')}"
    if isinstance(shape, StructureShape):
        yield from _structure_findings(shape, value, place, unknown)
    elif isinstance(shape, ListShape):
        for index, item in enumerate(value):
            yield from _value_findings(shape.member, item, f"{place}[{index}]", unknown)
    elif isinstance(shape, MapShape):
        for key, item in value.items():
            yield from _value_findings(shape.key, key, f"{place} (key {key})", unknown)
            yield from _value_findings(shape.value, item, f"{place}.{key}", unknown)
    elif isinstance(shape, StringShape):
        if shape.enum and value not in shape.enum:
            yield f"{place}: {value!r} is not one of {', '.join(shape.enum)}"
        if (pattern := _pattern(limits.get("pattern"))) and not pattern.fullmatch(value):
            yield f"{place}: {value!r} does not match {limits['pattern']}"


def _structure_findings(shape: StructureShape, value: Mapping[str, Any], place: str, unknown: str) -> Iterator[str]:
    # Step Functions writes `jobDriver` as `JobDriver`.
    members = {_argument_name(name): member for name, member in shape.members.items()}
    for name, item in value.items():
        if name in members:
            yield from _value_findings(members[name], item, f"{place}.{name}", unknown)
        else:
            yield f"{place}.{name}: there is no such argument"
    for name in sorted({_argument_name(name) for name in shape.required_members} - set(value)):
        yield f"{place}.{name}: this argument is required"
    if shape.is_tagged_union and len(value) != 1:
        yield f"{place}: exactly one of its members must be set"


def _argument_name(name: str) -> str:
    return name[:1].upper() + name[1:]


def _has_type(shape: Shape, value: Any) -> bool:
    if isinstance(value, bool):
        return bool(shape.type_name == "boolean")
    return isinstance(value, _TYPES[shape.type_name])


def _pattern(pattern: str | None) -> re.Pattern[str] | None:
    """Return the pattern, or None if Python cannot read it, or reads it in another way than AWS."""
    try:
        return re.compile(pattern, re.DOTALL) if pattern and r"\uD800" not in pattern else None
    except re.error:
        return None


def _is_error(error: str, service: _Integration) -> bool:
    prefix, dot, name = error.rpartition(".")
    if prefix == "States":
        return error in _STATES_ERRORS
    if not dot:
        # A Lambda function's exception is reported with the name of its class.
        return service.model == "lambda" and isinstance(getattr(errors, error, None), type)
    if service.model == "lambda" and error in _RUNTIME_ERRORS:
        return True
    model = _model(service.model)
    # The SDK for Java, which Step Functions uses, adds `Exception` to the names of a model that lack it.
    known = {
        shape.removesuffix("Exception")
        for shape in model.shape_names
        if model.shape_for(shape).metadata.get("exception")
    }
    return prefix == service.prefix and (name in service.other_errors or name.removesuffix("Exception") in known)


@cache
def _service(name: str, *, is_sdk: bool) -> _Integration | None:
    if not is_sdk:
        return _OPTIMISED.get(name)
    # `aws-sdk:emrserverless`: the name of the service's package in the SDK for Java 2.
    for model in Loader().list_available_services("service-2"):
        if model == _PACKAGES.get(name) or model.replace("-", "") == name:
            words = re.sub(r"([a-z])([A-Z])", r"\1 \2", _model(model).service_id).split()
            prefix = "".join(word.capitalize() for word in words)
            return _Integration(model, prefix, frozenset({f"{prefix}Exception"}))
    return None


@cache
def _model(name: str) -> ServiceModel:
    return ServiceModel(Loader().load_service_model(name, "service-2"), name)


def _operation(service: _Integration, action: str) -> OperationModel | None:
    model, name = _model(service.model), _argument_name(action)
    return model.operation_model(name) if name in model.operation_names else None


def _is_unknown(value: Any, unknown: str) -> bool:
    return isinstance(value, str) and (value.startswith("{%") or unknown in value)
