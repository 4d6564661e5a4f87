"""The settings of the environments `dev`, `staging` and `prod`.

`slackwater:environment` chooses one. A setting of its preset is replaced by the one for it in `slackwater:environments`
of cdk.json, and that by an explicit setting (`--set`, `--context` or `slackwater:SETTING` in cdk.json).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypedDict

from slackwater.errors import DefinitionError
from slackwater.project.environments import EnvironmentName, environment_values


class Preset(TypedDict, total=False):
    """The settings that an environment has by default. `infra.settings.Settings` describes them."""

    schedule: Literal["eventbridge", "airflow"]
    removal_policy: Literal["retain", "destroy"]
    termination_protection: bool
    log_retention_days: int
    exchange_days: int
    intermediate_days: int
    version_days: int
    noncurrent_days: int
    alarm_usd_per_day: float
    idle_minutes: int
    concurrent_runs: int
    maximum_vcpu: int
    maximum_memory_gb: int
    maximum_disk_gb: int


PRESETS: Mapping[EnvironmentName, Preset] = MappingProxyType(
    {
        EnvironmentName.DEV: Preset(
            schedule="eventbridge",
            removal_policy="destroy",
            log_retention_days=7,
            exchange_days=7,
            intermediate_days=7,
            version_days=14,
            noncurrent_days=7,
            alarm_usd_per_day=2.0,
            idle_minutes=5,
        ),
        EnvironmentName.STAGING: Preset(
            schedule="eventbridge",
            removal_policy="retain",
            log_retention_days=14,
            exchange_days=14,
            intermediate_days=14,
            version_days=30,
            noncurrent_days=14,
            alarm_usd_per_day=10.0,
        ),
        EnvironmentName.PROD: Preset(
            schedule="airflow",
            removal_policy="retain",
            termination_protection=True,
            log_retention_days=90,
            exchange_days=30,
            intermediate_days=30,
            version_days=365,
            noncurrent_days=90,
            alarm_usd_per_day=50.0,
            concurrent_runs=10,
            maximum_vcpu=64,
            maximum_memory_gb=256,
            maximum_disk_gb=2880,
        ),
    }
)


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
