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
from slackwater.project import describe_validation_error
from slackwater.receiver.partners.outbound import Outbound

_CONTEXT = "slackwater:"
_ARM64 = frozenset({"arm64", "aarch64"})
PositiveInt = Annotated[int, Field(gt=0)]


def _split_list(value: Any) -> Any:
    """Split a comma-separated string, which is how a command line gives a list."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _check_outbound(value: tuple[str, ...]) -> tuple[str, ...]:
    try:
        Outbound.of(value)
    except DefinitionError as error:
        raise ValueError(str(error)) from error
    return value


EmailAddresses = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=r"^[^@\s,]+@[^@\s,]+$")], ...], BeforeValidator(_split_list)
]
"""E-mail addresses. AWS asks each to confirm before it sends anything."""


class Architecture(StrEnum):
    """The processor architecture of functions and Spark jobs, in Lambda's notation."""

    X86_64 = "x86_64"
    ARM64 = "arm64"


class Settings(BaseModel):
    """The settings of one deployment. An unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # 24 characters leave 40 of the 64 that Lambda allows in the name of a function.
    prefix: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,23}$")] = "slackwater"
    """Prefix of the names of stacks, functions, state machines and databases."""
    project: Path = Path("examples/nyc_flights")
    """The project folder, relative to the root of the repository."""
    python_version: Annotated[Literal["3.11", "3.12", "3.13"], Field(validate_default=True)] = Field(
        default_factory=lambda: f"{sys.version_info.major}.{sys.version_info.minor}"  # type: ignore[arg-type]
    )
    architecture: Architecture = Field(
        default_factory=lambda: Architecture.ARM64 if platform.machine().lower() in _ARM64 else Architecture.X86_64
    )
    removal_policy: Literal["retain", "destroy"] = "retain"
    """Whether buckets, tables and logs are deleted with their stack. A bucket that contains objects is always kept."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_retention_days: Literal[1, 3, 5, 7, 14, 30, 90, 180, 365, 731, 1827] = 30
    """One of the retentions that CloudWatch Logs offers."""
    exchange_days: PositiveInt = 30
    """Retention of Arrow files of runs, work lists of pulls, and logs of Spark jobs."""
    noncurrent_days: PositiveInt = 30
    """How long an overwritten or deleted raw object can be restored."""

    airflow: bool = False
    """Whether to deploy Airflow on Amazon MWAA, which starts all scheduled work. The smallest environment costs about
    360 USD a month and its NAT gateway 33 USD, even when idle."""

    alarm_emails: EmailAddresses = ()
    """Who gets an e-mail when an alarm fires."""
    change_emails: EmailAddresses = ()
    """Who gets an e-mail when late data has changed a published day."""

    api_requests_per_second: PositiveInt = 50
    api_burst: PositiveInt = 100
    oidc_issuer: Annotated[str, StringConstraints(pattern=r"^https?://.+[^/]$")] | None = None
    """An OpenID Connect issuer whose JSON Web Tokens are accepted for pushes, besides Slackwater's own tokens."""
    oidc_audience: str = "slackwater"
    """The audience that those tokens must have."""

    outbound_allow: Annotated[tuple[str, ...], BeforeValidator(_split_list), AfterValidator(_check_outbound)] = ()
    """Private hosts, IP addresses or networks, and hosts with a non-standard port, that the receiver may connect to for
    partners' files and the issuer's keys: `10.20.0.0/16`, `files.partner.example:8443`."""

    emr_release: Annotated[str, StringConstraints(pattern=r"^emr-(spark-)?\d+\.\d+\.\d+$")] = "emr-spark-8.0.0"
    job_subnets: Annotated[tuple[str, ...], BeforeValidator(_split_list)] = ()
    """Private subnets with a NAT gateway. Without them, jobs reach AWS only, and no partner over HTTP or SFTP."""
    job_security_groups: Annotated[tuple[str, ...], BeforeValidator(_split_list)] = ()
    # The limits of idle minutes, concurrent runs and queue minutes are those of EMR Serverless' API.
    idle_minutes: Annotated[int, Field(gt=0, le=10_080)] = 15
    """After this time without a job, the application stops and costs nothing."""
    pre_warmed_executors: Annotated[int, Field(ge=0)] = 0
    """Executors that are kept ready and billed while the application is started, so that jobs start in seconds."""
    maximum_vcpu: PositiveInt = 32
    maximum_memory_gb: PositiveInt = 128
    maximum_disk_gb: PositiveInt = 1000
    concurrent_runs: Annotated[int, Field(gt=0, le=1000)] = 15
    queue_minutes: Annotated[int, Field(ge=15, le=720)] = 60
    """A job that gets no capacity for this time fails."""
    # Step Functions runs at most 40 iterations of an inline `Map` state at the same time.
    parallel_days: Annotated[int, Field(gt=0, le=40)] = 4
    """How many late days of one pipeline are run again at the same time."""
    driver_cores: Literal[1, 2, 4, 8, 16] = 1
    driver_memory_gb: PositiveInt = 3
    executor_cores: Literal[1, 2, 4, 8, 16] = 2
    executor_memory_gb: PositiveInt = 6
    maximum_executors: PositiveInt = 8

    @property
    def database_prefix(self) -> str:
        """The prefix with the characters that Glue and SQL accept without quotes."""
        return self.prefix.replace("-", "_")

    def named(self, name: str) -> str:
        """Return `name` with the prefix."""
        return f"{self.prefix}-{name}"


def load_settings(context: Mapping[str, Any]) -> Settings:
    """Read the settings from an app's context values. Raises `DefinitionError` that names every invalid one."""
    values = {key.removeprefix(_CONTEXT): value for key, value in context.items() if key.startswith(_CONTEXT)}
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise DefinitionError(
            f"settings ({_CONTEXT}<setting> in cdk.json or --context): {describe_validation_error(error)}"
        ) from error
