"""Settings of a deployment: context values named `slackwater:<setting>`, in cdk.json or given with `--context`."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from slackwater.errors import DefinitionError
from slackwater.project import describe
from slackwater.receiver.partners.outbound import Outbound

_CONTEXT = "slackwater:"
Whole = Annotated[int, Field(gt=0)]


def _listed(value: Any) -> Any:
    """What a command line can only give as one text: values with commas between them."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _reachable(value: tuple[str, ...]) -> tuple[str, ...]:
    try:
        Outbound.of(value)
    except DefinitionError as error:
        raise ValueError(str(error)) from error
    return value


Addresses = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=r"^[^@\s,]+@[^@\s,]+$")], ...], BeforeValidator(_listed)
]
"""E-mail addresses; each is asked to confirm before anything is sent to it."""


class Architecture(StrEnum):
    """The machine that functions and Spark jobs run on, as Lambda writes it."""

    X86_64 = "x86_64"
    ARM64 = "arm64"


def _host_architecture() -> Architecture:
    return Architecture.ARM64 if platform.machine().lower() in {"arm64", "aarch64"} else Architecture.X86_64


def _running_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


class Settings(BaseModel):
    """What may differ from one deployment to another; a key that is none of these is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prefix: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,23}$")] = "slackwater"
    """What the names of stacks, functions, state machines and databases begin with."""
    project: Path = Path("examples/nyc_flights")
    """The project folder, from the root of the repository."""
    python_version: Annotated[Literal["3.11", "3.12", "3.13"], Field(validate_default=True)] = Field(
        default_factory=_running_python  # type: ignore[arg-type]
    )
    architecture: Architecture = Field(default_factory=_host_architecture)
    removal_policy: Literal["retain", "destroy"] = "retain"
    """What becomes of buckets, tables and logs when a stack is deleted; a bucket that holds objects always stays."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_retention_days: Literal[1, 3, 5, 7, 14, 30, 90, 180, 365, 731, 1827] = 30
    """One of the retentions that CloudWatch Logs offers."""
    exchange_days: Whole = 30
    """How long a run's Arrow files, a pull's work list and a pushed batch's receipt are kept."""
    noncurrent_days: Whole = 30
    """How long an overwritten or deleted raw object can be brought back."""

    airflow: bool = False
    """Whether Airflow, on Amazon MWAA, starts all work by the clock. At its smallest it costs about 360 USD a month,
    and its network's way out 33, whatever it has to do."""

    alarm_emails: Addresses = ()
    """Who is written to when an alarm rings."""
    change_emails: Addresses = ()
    """Who is written to when late data has changed a published day."""

    api_requests_per_second: Whole = 50
    api_burst: Whole = 100
    oidc_issuer: Annotated[str, StringConstraints(pattern=r"^https?://.+[^/]$")] | None = None
    """Whose JSON Web Tokens partners may push with, besides our own tokens."""
    oidc_audience: str = "slackwater"
    """What those tokens must be made for."""

    outbound_allow: Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_reachable)] = ()
    """Hosts, addresses or networks, each with a port or without, that partners' files and the issuer's keys may come
    from although they are private or on another port: `10.20.0.0/16`, `files.partner.example:8443`."""

    emr_release: Annotated[str, StringConstraints(pattern=r"^emr-(spark-)?\d+\.\d+\.\d+$")] = "emr-spark-8.0.0"
    job_subnets: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    """Private subnets with a way out (NAT). Without them jobs reach AWS alone, and no partner by HTTP or SFTP."""
    job_security_groups: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    idle_minutes: Annotated[int, Field(gt=0, le=10_080)] = 15
    """After this long without a job the application stops, and costs nothing."""
    pre_warmed_executors: Annotated[int, Field(ge=0)] = 0
    """Workers that wait, paid for, while the application is started: jobs begin within seconds. 0 keeps none."""
    maximum_vcpu: Whole = 32
    maximum_memory_gb: Whole = 128
    maximum_disk_gb: Whole = 1000
    concurrent_runs: Annotated[int, Field(gt=0, le=1000)] = 15
    queue_minutes: Annotated[int, Field(ge=15, le=720)] = 60
    """A job that found no room for this long fails."""
    parallel_days: Annotated[int, Field(gt=0, le=40)] = 4
    """Late days of one pipeline that are run again at once."""
    driver_cores: Literal[1, 2, 4, 8, 16] = 1
    driver_memory_gb: Whole = 3
    executor_cores: Literal[1, 2, 4, 8, 16] = 2
    executor_memory_gb: Whole = 6
    maximum_executors: Whole = 8

    @property
    def database_prefix(self) -> str:
        """The prefix as Glue and SQL take it."""
        return self.prefix.replace("-", "_")

    def named(self, name: str) -> str:
        """Return `name` under the prefix."""
        return f"{self.prefix}-{name}"


def load_settings(context: Mapping[str, Any]) -> Settings:
    """Read the settings among an app's context values. Raises `DefinitionError` naming every wrong one."""
    given = {key.removeprefix(_CONTEXT): value for key, value in context.items() if key.startswith(_CONTEXT)}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        raise DefinitionError(f"settings ({_CONTEXT}<setting> in cdk.json or --context): {describe(error)}") from error
