"""The environments of a project: `dev`, `staging` and `prod`, and settings that a person gives.

`infra/environments.py` has the settings of the environments.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from slackwater.errors import DefinitionError, InputError

ENVIRONMENT_VARIABLE = "SLACKWATER_ENVIRONMENT"
DEFAULT_PREFIX = "slackwater"
"""The prefix of a deployment that is in no environment."""


class EnvironmentName(StrEnum):
    """An environment. Each is a deployment of its own."""

    DEV = "dev"
    STAGING = "staging"
    PROD = "prod"


def environment_values(name: str, environments: Any) -> dict[str, Any]:
    """Return the prefix of an environment, and the settings that the project has for it.

    `environments` is the value of `slackwater:environments` in cdk.json: settings by environment. Raises
    `DefinitionError` for an unknown environment, and for a value that is not an object of objects.
    """
    choices = ", ".join(EnvironmentName)
    if name not in set(EnvironmentName):
        raise DefinitionError(
            f"environment: {name!r} is none of {choices}: correct --environment, {ENVIRONMENT_VARIABLE} or "
            "slackwater:environment in cdk.json"
        )
    if not isinstance(environments, Mapping) or not all(isinstance(item, Mapping) for item in environments.values()):
        raise DefinitionError(
            f"cdk.json: slackwater:environments: write an object with the settings of each environment ({choices}), "
            'such as {"prod": {"account": "123456789012"}}'
        )
    if unknown := sorted(environments.keys() - set(EnvironmentName)):
        raise DefinitionError(f"cdk.json: slackwater:environments.{unknown[0]}: no such environment, only {choices}")
    return {"prefix": f"{DEFAULT_PREFIX}-{name}", **environments.get(name, {})}


def check_target(*, account: str | None, region: str | None, credentials: Mapping[str, str | None]) -> None:
    """Check that the credentials are for the account and the region of a deployment.

    `account` and `region` are the settings, `credentials` has the values of the credentials under the same names. What
    is missing on either side is not compared. Raises `DefinitionError`.
    """
    problems = [
        f"{name}: this deployment belongs to {wanted}, and the credentials are for {actual}: choose other credentials "
        f"({variable}) or another environment, or correct slackwater:{name}, or {name} in slackwater:environments, in "
        "cdk.json"
        for name, wanted, variable in (("account", account, "AWS_PROFILE"), ("region", region, "AWS_REGION"))
        if wanted and (actual := credentials.get(name)) and wanted != actual
    ]
    if problems:
        raise DefinitionError("\n".join(problems))


def parse_settings(words: Sequence[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` settings. The last value of a name counts.

    Raises `InputError` for any other form, and for what every command needs, not only `deploy`: prefix and environment.
    """
    settings = {}
    for word in words:
        name, _, value = word.partition("=")
        if not (name and "=" in word):
            raise InputError(f"--set: {word!r} is not of the form NAME=VALUE, such as outbound_allow=10.20.0.0/16")
        if name == "prefix":
            raise InputError(
                f"--set {word}: the other commands would not find this deployment: set the environment variable "
                f"SLACKWATER_PREFIX={value}, or slackwater:prefix in the context of cdk.json"
            )
        if name == "environment":
            raise InputError(
                f"--set {word}: the other commands would not find this deployment: use --environment {value}, and set "
                f"the environment variable {ENVIRONMENT_VARIABLE}={value} for the other commands"
            )
        settings[name] = value
    return settings


def settings_of_environment() -> dict[str, str]:
    """Return the settings in SLACKWATER_SET, `NAME=VALUE` separated by blanks. Raises `InputError`."""
    return parse_settings(os.environ.get("SLACKWATER_SET", "").split())
