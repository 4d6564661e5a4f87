"""The types of settings. Each is also read from a string, which is how a command line gives it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from slackwater.errors import DefinitionError
from slackwater.outbound.guard import Outbound
from slackwater.sources.kms_keys import parse_source_keys


def _split_list(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _split_keys(value: Any) -> Any:
    return parse_source_keys(value) if isinstance(value, str) else value


def _read_json(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from error


def _read_int(value: Any) -> Any:
    """Read a string of digits as a number. A `Literal` does not do this."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _check_outbound(value: tuple[str, ...]) -> tuple[str, ...]:
    try:
        Outbound.of(value)
    except DefinitionError as error:
        raise ValueError(str(error)) from error
    return value


def _matching(pattern: str) -> StringConstraints:
    return StringConstraints(pattern=pattern)


JSON = BeforeValidator(_read_json)
"""A value that may also be JSON in a string."""
COMMA_SEPARATED = BeforeValidator(_split_list)
DIGITS = BeforeValidator(_read_int)
PositiveInt = Annotated[int, Field(gt=0)]
NotNegativeInt = Annotated[int, Field(ge=0)]
Cores = Annotated[Literal[1, 2, 4, 8, 16], DIGITS]
KmsKeyArn = Annotated[str, _matching(r"^arn:[\w-]+:kms:[\w-]+:\d{12}:key/[\w-]+$")]
CREATE_KEY: Final = "create"
"""The value of `kms_key` for a new key."""
SourceKeys = Annotated[dict[str, KmsKeyArn], BeforeValidator(_split_keys)]
"""ARNs by source, or `source=ARN,source=ARN`."""
Strings = Annotated[tuple[str, ...], COMMA_SEPARATED]
OutboundHosts = Annotated[tuple[str, ...], COMMA_SEPARATED, AfterValidator(_check_outbound)]
Zones = Annotated[tuple[Annotated[str, _matching(r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")], ...], COMMA_SEPARATED]
Jars = Annotated[tuple[Annotated[str, _matching(r"^(/|s3://[a-z0-9.-]+/)[^\s,]+\.jar$")], ...], COMMA_SEPARATED]
EmailAddresses = Annotated[tuple[Annotated[str, _matching(r"^[^@\s,]+@[^@\s,]+$")], ...], COMMA_SEPARATED]
"""E-mail addresses. AWS asks each to confirm before it sends anything."""
