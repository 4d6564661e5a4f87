"""Reads state machine definitions and fills their placeholders."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from aws_cdk import Token

from slackwater.errors import DefinitionError
from slackwater.pipeline.retries import Machine

# `${name}`, also with a name that is not valid, so that a mistyped placeholder is reported and not deployed.
_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


def read_machine(path: Path) -> Machine:
    """Read an `*.asl.json` file. Raises `DefinitionError` when it is missing or is not JSON."""
    try:
        machine: Machine = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DefinitionError(f"no state machine at {path}") from error
    except ValueError as error:
        raise DefinitionError(f"{path}: not readable as JSON: {error}") from error
    return machine


def fill_placeholders(machine: Machine, values: Mapping[str, str], *, name: str) -> tuple[str, dict[str, str]]:
    """Return the definition as JSON, and the substitutions that CloudFormation has to make in it.

    A value that is known now replaces its `${placeholder}`, and may contain other placeholders. A value that only
    CloudFormation knows, such as an ARN, becomes a substitution. Raises `DefinitionError` for a placeholder that has no
    value.
    """
    definition = json.dumps(machine)
    for key, value in values.items():
        if not Token.is_unresolved(value):
            # A placeholder stands inside of a JSON string: the value is escaped, but has no quotes of its own.
            definition = definition.replace(f"${{{key}}}", json.dumps(value)[1:-1])
    placeholders = sorted(set(_PLACEHOLDER.findall(definition)))
    missing = [key for key in placeholders if key not in values]
    if missing:
        raise DefinitionError(
            f"state machine {name}: no value for {', '.join(f'${{{key}}}' for key in missing)} "
            f"(known: {', '.join(sorted(values))})"
        )
    return definition, {key: values[key] for key in placeholders}
