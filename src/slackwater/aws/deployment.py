"""The outputs of the deployed stacks as one typed record."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_pascal

from slackwater.aws.failures import translated, unless_refused
from slackwater.errors import NotDeployed
from slackwater.project.project import Project
from slackwater.storage import ObjectStore

STACKS = ("storage", "receiver", "processing", "late", "monitoring")
"""The stacks in order of deployment. A stack's full name is `<prefix>-<name>`."""

ALARM_STACKS = (
    *("run-alarms", "late-alarms", "older-alarms", "source-alarms", "unusual-alarms", "spending-alarms"),
    *("execution-alarms", "composite-alarms"),
)
"""The stacks that exist only if the monitoring stack has no room for all alarms, in order of deployment."""
OPTIONAL_STACKS = (*ALARM_STACKS, "pipeline-dashboards", "source-dashboards", "schedule")
"""The stacks that exist only if the project or the settings need them. They have no outputs that we read."""
REQUIRED_BOOTSTRAP = 6
"""The oldest version of the CDK bootstrap that the stacks can be deployed with, as the synthesised app states it."""
DEFAULT_QUALIFIER = "hnb659fds"
"""The qualifier of a CDK bootstrap without a name of its own."""

# In these states a stack has no resources: it was deleted, or its first deployment failed or never started.
_ABSENT = {"DELETE_COMPLETE", "REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE", "CREATE_FAILED"}


class Deployment(BaseModel):
    """Names, ARNs and URIs of what is deployed. Each field is the stack output with its name in PascalCase."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_pascal)

    raw_bucket: str
    exchange_bucket: str
    warehouse_bucket: str
    file_table: str
    run_table: str
    token_table: str
    raw_database: str
    warehouse_database: str
    event_queue_url: str
    event_dead_letter_queue_url: str
    api_url: str
    application_id: str
    pull_machine_arn: str
    pipeline_machine_prefix: str
    """The ARN of a pipeline's state machine, up to the pipeline's name."""
    project_uri: str
    """URI of the deployed `slackwater.project.project.Project` as JSON."""
    log_prefix: str
    """URI prefix of the Spark jobs' logs."""
    library_version: str
    """The version of this library that is deployed."""
    any_pipeline_role_arn: str
    """The role of state machines of pipelines that are not deployed."""
    job_role_arn: str
    """The role of their Spark jobs."""
    freeze_inputs_function: str
    record_run_function: str
    await_inputs_function: str = ""
    """Deployments of older versions do not name it."""
    lineage_function: str = ""
    """The function that sends events of OpenLineage; empty without the setting `openlineage`."""
    redrive_events_function: str = ""
    """Deployments of older versions do not name it."""
    run_stage_uri: str
    """URI of the entry point of the jobs that run stages."""
    files_prefix: str
    """URI prefix of the files that steps write."""
    outbound_allow: str = ""
    """Comma-separated names of the hosts in private networks that steps may reach."""
    source_kms_keys: str = ""
    """KMS keys of sources, as `source=ARN,source=ARN`."""
    check_release_uri: str
    """URI of the entry point of the job that `slackwater doctor --job` runs."""
    spark_submit_parameters: str
    """The parameters of every Spark job."""
    concurrent_runs: int
    """How many Spark jobs run at the same time. Further ones wait in the application's queue."""

    compare_machine_arn: str
    monitor_machine_arn: str
    backfill_machine_arn: str
    schedule: str = "eventbridge"
    """The setting: what starts scheduled work. Deployments of older versions do not say it."""
    state_table: str = ""
    """Deployments of older versions have none."""
    collect_minutes: int = 5
    """The setting: for how long new objects are collected before their days are checked."""
    change_topic_arn: str
    alarm_topic_arn: str
    dashboard_name: str
    dead_letter_queue_url: str


def read_deployment(cloudformation: Any, *, prefix: str) -> Deployment:
    """Return the outputs of the stacks. Raises `NotDeployed` when a stack or an output is missing, or `CloudError`."""
    values: dict[str, str] = {}
    for stack in STACKS:
        name = f"{prefix}-{stack}"
        outputs = _outputs(cloudformation, name)
        if outputs is None:
            raise NotDeployed(
                f"there is no stack {name} in this account and region: run slackwater deploy. If the deployment has "
                f"another prefix than {prefix!r}, set SLACKWATER_PREFIX, or slackwater:prefix in the context of "
                f"cdk.json, or SLACKWATER_ENVIRONMENT; if it is elsewhere, set AWS_PROFILE or AWS_REGION"
            )
        values |= outputs
    try:
        return Deployment.model_validate(values)
    except ValidationError as error:
        missing = ", ".join(sorted(str(fault["loc"][0]) for fault in error.errors()))
        raise NotDeployed(f"the stacks {prefix}-* have no output {missing}: run slackwater deploy") from error


def deployed_project(cloudformation: Any, *, prefix: str) -> str | None:
    """Return the URI of the deployed project, even if other stacks are missing; None when no project is deployed."""
    return (_outputs(cloudformation, f"{prefix}-processing") or {}).get("ProjectUri")


def read_project(store: ObjectStore, uri: str) -> Project:
    """Return the deployed project at `uri`. Raises `NotDeployed` for one of another format, or `CloudError`."""
    try:
        return Project.model_validate_json(store.get(uri))
    except ValidationError as error:
        raise NotDeployed(
            "the deployed project has the format of another version of slackwater: run slackwater deploy"
        ) from error


def deployed_storage(cloudformation: Any, *, prefix: str) -> dict[str, str] | None:
    """Return the outputs of the stack with data, even if other stacks are missing; None without it."""
    return _outputs(cloudformation, f"{prefix}-storage")


def bootstrap_version(ssm: Any, *, qualifier: str) -> int:
    """Return the version of the CDK bootstrap with this qualifier in this account and region; 0 when there is none.

    Raises `CloudError`, or `AccessDenied` when the caller may not read the bootstrap's parameter.
    """
    # The stacks' templates check this parameter too. The name of the bootstrap's own stack can be chosen.
    name = f"/cdk-bootstrap/{qualifier}/version"
    with translated(f"read the parameter {name}"):
        found = unless_refused("ParameterNotFound", lambda: ssm.get_parameter(Name=name))
    return int(found["Parameter"]["Value"]) if found else 0


def stack_states(cloudformation: Any, *, prefix: str) -> dict[str, str]:
    """Return the CloudFormation status of each of the stacks that exists, by its name. Raises `CloudError`."""
    names = [f"{prefix}-{stack}" for stack in (*STACKS, *OPTIONAL_STACKS)]
    descriptions = {name: _describe(cloudformation, name) for name in names}
    return {name: stack["StackStatus"] for name, stack in descriptions.items() if stack}


def _outputs(cloudformation: Any, stack: str) -> dict[str, str] | None:
    """Return the outputs of a stack; None when it does not exist or has no resources."""
    description = _describe(cloudformation, stack)
    if description is None or description["StackStatus"] in _ABSENT:
        return None
    return {output["OutputKey"]: output["OutputValue"] for output in description.get("Outputs", [])}


def _describe(cloudformation: Any, stack: str) -> dict[str, Any] | None:
    """Return the description of a stack; None when it does not exist."""
    with translated(f"describe stack {stack}"):
        # CloudFormation's answer for a stack that does not exist
        found = unless_refused("ValidationError", lambda: cloudformation.describe_stacks(StackName=stack))
    return dict(found["Stacks"][0]) if found else None
