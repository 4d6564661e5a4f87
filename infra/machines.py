"""State machines' definitions: read, compiled, and held to have every placeholder filled."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slackwater.errors import DefinitionError

Machine = dict[str, Any]
"""A definition in Amazon States Language."""

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


def read_machine(path: Path) -> Machine:
    """Read an `*.asl.json`. Raises `DefinitionError`."""
    try:
        machine: Machine = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DefinitionError(f"no state machine at {path}") from error
    except ValueError as error:
        raise DefinitionError(f"{path}: not readable as JSON: {error}") from error
    return machine


def fillings(machine: Machine, values: Mapping[str, str], *, name: str) -> dict[str, str]:
    """Return what the definition's placeholders stand for. Raises `DefinitionError` for one that has no value."""
    wanted = set(_PLACEHOLDER.findall(json.dumps(machine)))
    missing = sorted(wanted - values.keys())
    if missing:
        raise DefinitionError(
            f"state machine {name}: nothing fills {', '.join(f'${{{key}}}' for key in missing)} "
            f"(known: {', '.join(sorted(values))})"
        )
    return {key: values[key] for key in sorted(wanted)}
