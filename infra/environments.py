"""The settings of the environments `dev`, `staging` and `prod`.

`slackwater:environment` chooses one. A setting of its preset is replaced by the one for it in `slackwater:environments`
of cdk.json, and that by an explicit setting (`--set`, `--context` or `slackwater:SETTING` in cdk.json).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from slackwater.errors import DefinitionError
from slackwater.project.environments import EnvironmentName, environment_values

# By setting: its values in the environments, in the order of `EnvironmentName`. With None, it has its default.
_VALUES: Mapping[str, tuple[Any, Any, Any]] = {
    "schedule": ("eventbridge", "eventbridge", "airflow"),
    "removal_policy": ("destroy", "retain", "retain"),
    "termination_protection": (None, None, True),
    "log_retention_days": (7, 14, 90),
    "exchange_days": (7, 14, 30),
    "intermediate_days": (7, 14, 30),
    "version_days": (14, 30, None),
    "noncurrent_days": (7, 14, 90),
    "alarm_usd_per_day": (2.0, 10.0, 50.0),
    "idle_minutes": (5, None, None),
    "concurrent_runs": (None, None, 10),
    "maximum_vcpu": (None, None, 64),
    "maximum_memory_gb": (None, None, 256),
    "maximum_disk_gb": (None, None, 2880),
}
PRESETS: Mapping[EnvironmentName, Mapping[str, Any]] = {
    name: {setting: values[position] for setting, values in _VALUES.items() if values[position] is not None}
    for position, name in enumerate(EnvironmentName)
}
"""The settings that each environment has by default. `infra.settings.Settings` describes them."""


def with_environment(values: Mapping[str, Any], *, known: Collection[str]) -> dict[str, Any]:
    """Return the settings of a deployment: `values` and, for what they lack, those of their `environment`.

    `known` are the names of all settings. Raises `DefinitionError` for an unknown environment, and for an unknown
    setting of any environment.
    """
    explicit = dict(values)
    name, environments = explicit.pop("environment", None), explicit.pop("environments", {})
    # Also the settings of the other environments are checked: a mistake in `prod` is found when `dev` is deployed.
    chosen = {each: environment_values(each, environments) for each in EnvironmentName}
    for each, settings in chosen.items():
        if unknown := sorted(settings.keys() - set(known)):
            raise DefinitionError(
                f"cdk.json: slackwater:environments.{each}.{unknown[0]}: there is no such setting: correct the name "
                "(infra/settings.py lists them), or remove it"
            )
    if name is None:
        return explicit
    environment_values(name, environments)  # raises for an unknown environment
    environment = EnvironmentName(name)
    return {**PRESETS[environment], **chosen[environment], **explicit}
