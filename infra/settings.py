"""Settings of a deployment: context values named `slackwater:<setting>`, in cdk.json or given with `--context`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from infra import setting_types as types
from infra.environments import with_environment
from infra.openlineage import AnyOpenLineage
from infra.teams import Teams
from infra.workers import LARGE_FILE_DISK_GB, Worker, capacity_of, worker_for
from slackwater.errors import DefinitionError
from slackwater.pipeline.spark_workers import SparkSizes, WorkerSize
from slackwater.project.project import describe_validation_error

_CONTEXT = "slackwater:"
# The permissions of a deployment `acme` include `acme-pipeline-*`, its queues `acme-arrivals-dead-letters`, and its
# alarms `acme-event-dead-letters`.
_NAME_BEGINNINGS = ("pipeline", "schedule", "arrivals", "arrival", "event", "states", "state")


class Architecture(StrEnum):
    """The processor architecture of functions and Spark jobs, in Lambda's notation."""

    X86_64 = "x86_64"
    ARM64 = "arm64"


class Scheduler(StrEnum):
    """What starts the scheduled work of a deployment."""

    EVENTBRIDGE = "eventbridge"
    AIRFLOW = "airflow"
    NONE = "none"


class Settings(BaseModel):
    """The settings of one deployment. An unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # 24 characters leave 40 of the 64 that Lambda allows in the name of a function.
    prefix: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,23}$")] = "slackwater"
    """Prefix of the names of stacks, functions, state machines and databases."""
    account: Annotated[str, StringConstraints(pattern=r"^\d{12}$")] | None = None
    """The account, if the stacks may be deployed to no other."""
    region: Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")] | None = None
    """The region, if the stacks may be deployed to no other."""
    project: Path = Path("examples/nyc_flights")
    """The project folder, relative to the root of the repository."""
    step_packages: Annotated[tuple[Path, ...], types.COMMA_SEPARATED] = ()
    """Your own packages of steps, which Spark jobs get: wheels, or folders with a `pyproject.toml`, relative to the
    root of the repository, or without a clone to the project. They are installed without their dependencies."""
    bootstrap_bucket: str | None = None
    """The bucket of the CDK bootstrap, if it was bootstrapped with `--bootstrap-bucket-name`. The context value
    `@aws-cdk/core:bootstrapQualifier` names a bootstrap with `--qualifier`."""
    bootstrap_kms_key: types.KmsKeyArn | None = None
    """ARN of the key of that bucket, if it was bootstrapped with `--bootstrap-kms-key-id`: roles that read deployed
    files may then decrypt with it. The key that `--bootstrap-customer-key` creates allows this itself."""
    # The next three do not depend on the machine that deploys; the local cloud sets them to what it runs.
    lambda_python: Literal["3.11", "3.12", "3.13"] = "3.13"
    """Python of the functions. Lambda creates no function on 3.11 from 2027-07-31, on 3.13 from 2029-07-31."""
    spark_python: Literal["3.11", "3.12", "3.13"] = "3.11"
    """Python of the Spark jobs. 3.11 is EMR's default. The release guide of emr-spark-8.1.0 lists 3.11 and 3.13; only
    the release notes of EMR Serverless add 3.12."""
    architecture: Architecture = Architecture.X86_64
    """Processor of functions and Spark jobs. `arm64` costs about 20 % less; `x86_64` is in every region."""
    removal_policy: Literal["retain", "destroy"] = "retain"
    """Whether buckets, tables and the queues of events are deleted with their stack. CloudFormation deletes no bucket
    that contains objects."""
    termination_protection: bool = False
    """Whether CloudFormation refuses to delete the stacks that have buckets or tables."""
    kms_key: Literal["create"] | types.KmsKeyArn | None = None
    """The key that encrypts the buckets, the tables and the queue of events: the ARN of a KMS key of the same region,
    whose policy must allow IAM policies of the account, or `create`. Without it, AWS's own keys do it."""
    source_kms_keys: types.SourceKeys = {}
    """ARNs of KMS keys, by source: objects of these sources in the raw bucket are encrypted with them, and not with
    `kms_key`. The same conditions apply to them."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The level of functions' logs. On AWS, `WARNING` and `ERROR` may log as `INFO` does: Lambda passes all from `INFO`
    on, because metrics are lines of that level."""
    log_retention_days: Annotated[Literal[1, 3, 5, 7, 14, 30, 90, 180, 365, 731, 1827], types.DIGITS] = 30
    """One of the retentions that CloudWatch Logs offers."""
    exchange_days: types.PositiveInt = 30
    """Retention of work lists of pulls, and of logs of Spark jobs."""
    intermediate_days: types.NotNegativeInt = 30
    """Retention of the Arrow files of stages. With 0, a run's files are removed as soon as it has published its day."""
    version_days: types.NotNegativeInt = 0
    """How long a published version of a day can be read after a later one has replaced it (docs/versions.md). The first
    version stays. With 0, all versions stay."""
    noncurrent_days: types.PositiveInt = 30
    """How long an overwritten or deleted raw object can be restored."""

    schedule: Scheduler = Scheduler.EVENTBRIDGE
    """What starts pulls, runs and checks at their times: `eventbridge` for a few cents a month, `airflow` on Amazon
    MWAA, or `none`. The smallest environment of MWAA costs about 360 USD a month, and its NAT gateway with its public
    address 37 USD, even when idle."""
    airflow_zones: types.Zones = ()
    """Two availability zones for `schedule=airflow`, such as `eu-west-1a,eu-west-1b`; by default, two that AWS chooses.
    MWAA does not offer every zone. Choose before the first deployment: an environment keeps its subnets."""
    airflow_environment: Annotated[str, Field(pattern=r"^([a-zA-Z][0-9a-zA-Z_-]{0,79})?$")] = ""
    """With `schedule=airflow`: an Airflow environment that exists, and has the DAGs. The deployment then creates none.
    The local cloud sets it: `slackwater airflow up` runs this Airflow."""

    alarm_emails: types.EmailAddresses = ()
    """Who gets an e-mail when an alarm fires that somebody has to look at now."""
    warning_emails: types.EmailAddresses = ()
    """Who gets an e-mail when any other alarm fires."""
    change_emails: types.EmailAddresses = ()
    """Who gets an e-mail when late data has changed a published day."""
    teams: Teams = {}
    """Who gets messages about changed days of the pipelines of a team (`team` in their definitions)."""
    openlineage: AnyOpenLineage = None
    """A receiver of OpenLineage events about runs: `{url, api_key_secret, namespace}` (docs/lineage.md)."""
    subject_dashboards: bool = False
    """Whether each pipeline and each source has a dashboard of its own. CloudWatch bills 3 USD a month for each
    dashboard of an account above three."""
    alarm_queue_minutes: types.PositiveInt = 60
    """An alarm fires for a run whose Spark job has waited in the queue for this time."""
    alarm_usd_per_day: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """An alarm fires for a pipeline whose runs and comparisons cost this in 24 hours. Without it, there is none."""

    api_requests_per_second: types.PositiveInt = 50
    api_burst: types.PositiveInt = 100
    waf: bool = False
    """Whether AWS WAF limits the requests of each IP address to the push API, and blocks addresses that are known for
    attacks (docs/environments.md). WAF costs 7 USD a month, and 0.60 USD for a million requests."""
    # The range of AWS WAF.
    waf_requests_per_ip: Annotated[int, Field(ge=10, le=2_000_000_000)] | None = None
    """With `waf`: requests in a minute from which on WAF answers 429 to an IP address. By default twice what the API
    accepts of all partners: one address may be a whole partner, and WAF also counts requests that the API throttles."""
    oidc_issuer: Annotated[str, StringConstraints(pattern=r"^https?://.+[^/]$")] | None = None
    """An OpenID Connect issuer whose JSON Web Tokens are accepted for pushes, besides Slackwater's own tokens."""
    oidc_audience: str = "slackwater"
    """The audience that those tokens must have."""

    outbound_allow: types.OutboundHosts = ()
    """Private hosts, IP addresses or networks, and hosts with a non-standard port, that the receiver may connect to for
    partners' files and the issuer's keys: `10.20.0.0/16`, `files.partner.example:8443`."""

    # Jobs need Spark 4: emr-7 and earlier have Spark 3.
    emr_release: Annotated[str, StringConstraints(pattern=r"^emr-spark-\d+\.\d+\.\d+$")] = "emr-spark-8.1.0"
    spark_jars: types.Jars = ()
    """Jars that jobs need and that are not on the class path of `emr_release`: paths in its image, or `s3://` URIs.
    That Iceberg is on it is an assumption (docs/deploy.md)."""
    job_subnets: types.Strings = ()
    """Private subnets with a NAT gateway. Without them, jobs reach AWS only, and no partner over HTTP or SFTP."""
    job_security_groups: types.Strings = ()
    # The limits of idle minutes, concurrent runs and queue minutes are those of EMR Serverless' API.
    idle_minutes: Annotated[int, Field(gt=0, le=10_080)] = 15
    """After this time without a job, the application stops and costs nothing."""
    pre_warmed_drivers: types.NotNegativeInt = 0
    """Drivers that are kept ready while the application is started, so that jobs start in seconds. AWS bills them all
    this time, also when they wait: a driver of 1 vCPU and 4 GB costs about 0.08 USD an hour."""
    pre_warmed_executors: types.NotNegativeInt = 0
    """Executors that are kept ready in the same way. One of 2 vCPU and 7 GB costs about 0.15 USD an hour."""
    # A job fails if its driver gets no capacity. So the defaults fit even if each of the concurrent jobs has all of its
    # executors: 3 x (1 + 2 x 2) vCPU.
    maximum_vcpu: types.PositiveInt = 16
    """vCPU of all drivers and executors at the same time. A new account may use 16 in a region (quota "Max concurrent
    vCPUs per account"): raise the quota before this setting."""
    maximum_memory_gb: types.PositiveInt = 64
    maximum_disk_gb: types.PositiveInt = 720
    concurrent_runs: Annotated[int, Field(gt=0, le=1000)] = 3
    """Jobs at the same time. Further ones wait in the queue, in order."""
    queue_minutes: Annotated[int, Field(ge=15, le=720)] = 360
    """A job that waits in the queue for this time fails."""
    # Step Functions runs at most 40 iterations of an inline `Map` state at the same time.
    parallel_days: Annotated[int, Field(gt=0, le=40)] = 4
    """How many late days of one pipeline are run again at the same time."""
    # Lambda collects messages of a queue for at most 300 seconds.
    collect_minutes: Annotated[int, Field(ge=0, le=5)] = 5
    """For how long new objects of finished days are collected before these days are checked. With 0, late data waits
    for the daily check."""
    driver_cores: types.Cores = 1
    driver_memory_gb: types.PositiveInt = 3
    """Memory of the driver's Spark. Its worker has at least 10 % more, in full GB."""
    executor_cores: types.Cores = 2
    executor_memory_gb: types.PositiveInt = 6
    """Memory of an executor's Spark. Its worker has at least 10 % more, in full GB."""
    maximum_executors: types.PositiveInt = 2
    """The most executors of a job. A job starts with one; Spark adds executors while tasks wait."""

    @property
    def driver(self) -> Worker:
        """The worker of a job's driver."""
        return worker_for(self.driver_cores, self.driver_memory_gb)

    @property
    def executor(self) -> Worker:
        """The worker of an executor."""
        return worker_for(self.executor_cores, self.executor_memory_gb)

    @property
    def spark_sizes(self) -> SparkSizes:
        """The workers of the jobs of a pipeline that states none."""
        return SparkSizes(
            driver=WorkerSize(vcpu=self.driver_cores, memory_gb=self.driver.memory_gb),
            executor=WorkerSize(vcpu=self.executor_cores, memory_gb=self.executor.memory_gb),
            max_executors=self.maximum_executors,
        )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if problems := [*self._name_and_network_problems(), *self._capacity_problems()]:
            raise ValueError("; ".join(problems))
        return self

    def _name_and_network_problems(self) -> Iterator[str]:
        if word := next((word for word in _NAME_BEGINNINGS if f"-{word}-" in f"{self.prefix}-"), None):
            yield (
                f"prefix: {self.prefix!r} contains -{word}, with which names of another deployment may begin: choose "
                "another prefix"
            )
        # CloudFormation's schema refuses an application whose list of security groups is empty.
        if bool(self.job_subnets) != bool(self.job_security_groups):
            yield "job_subnets and job_security_groups: set both, or neither"
        if self.airflow_zones and (len(self.airflow_zones), len(set(self.airflow_zones))) != (2, 2):
            yield "airflow_zones: name two different zones, as MWAA requires"

    def _capacity_problems(self) -> Iterator[str]:
        """Yield workers that do not exist, and jobs that could not all have a driver and an executor.

        If drivers hold the whole capacity and wait for executors, EMR Serverless fails their jobs after minutes.
        """
        if wrong := list(self._worker_problems()):
            yield from wrong
            return
        driver, executor = self.driver, self.executor
        job = capacity_of((1, driver._replace(disk_gb=LARGE_FILE_DISK_GB)), (1, executor))
        if missing := self.too_small({name: self.concurrent_runs * needed for name, needed in job.items()}):
            fitting = min(getattr(self, name) // needed for name, needed in job.items())
            remedy = f"lower concurrent_runs to {fitting}" if fitting else "choose smaller workers"
            yield (
                f"concurrent_runs: {self.concurrent_runs} jobs with a driver and an executor each need {missing}: "
                f"raise these settings, or {remedy}"
            )
        drivers, executors = self.pre_warmed_drivers, self.pre_warmed_executors
        if missing := self.too_small(capacity_of((drivers, driver), (executors, executor))):
            yield (
                f"pre_warmed_drivers, pre_warmed_executors: {drivers} drivers and {executors} executors need "
                f"{missing}: raise these settings, or keep fewer ready"
            )

    def _worker_problems(self) -> Iterator[str]:
        for role in ("driver", "executor"):
            try:
                getattr(self, role)
            except ValueError as error:
                yield f"{role}_memory_gb: {error}"

    def too_small(self, needed: Mapping[str, int]) -> str:
        """Return `setting = value` for each setting that is smaller than the value it needs; empty if none is."""
        return ", ".join(f"{name} = {value}" for name, value in needed.items() if getattr(self, name) < value)

    @property
    def waf_limit(self) -> int:
        """Requests in a minute from which on WAF answers 429 to an IP address."""
        return self.waf_requests_per_ip or 2 * 60 * self.api_requests_per_second + self.api_burst

    @property
    def database_prefix(self) -> str:
        """The prefix with the characters that Glue and SQL accept without quotes."""
        return self.prefix.replace("-", "_")

    @property
    def raw_database(self) -> str:
        """Glue's database of the tables of raw events."""
        return f"{self.database_prefix}_raw"

    @property
    def warehouse_database(self) -> str:
        """Glue's database of the published tables and the ledger."""
        return f"{self.database_prefix}_warehouse"

    @property
    def metric_namespace(self) -> str:
        """The CloudWatch namespace of this deployment's metrics: an account can have several deployments."""
        return f"Slackwater/{self.prefix}"

    def named(self, name: str) -> str:
        """Return `name` with the prefix."""
        return f"{self.prefix}-{name}"


def load_settings(context: Mapping[str, Any]) -> Settings:
    """Read the settings from an app's context values, with those of the environment `slackwater:environment`.

    Raises `DefinitionError` that names every invalid one.
    """
    explicit = {key.removeprefix(_CONTEXT): value for key, value in context.items() if key.startswith(_CONTEXT)}
    values = with_environment(explicit, known=Settings.model_fields)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise DefinitionError(
            f"settings ({_CONTEXT}<setting> in cdk.json or --context): {describe_validation_error(error)}"
        ) from error
