"""The outputs of the deployed stacks as one typed record."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_pascal

from slackwater.aws.failures import code_of, translated
from slackwater.errors import NotDeployed

STACKS = ("storage", "receiver", "processing", "late", "monitoring")
"""The stacks in order of deployment. A stack's full name is `<prefix>-<name>`."""

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
    """URI of the deployed `slackwater.project.Project` as JSON."""
    log_prefix: str
    """URI prefix of the Spark jobs' logs."""

    compare_machine_arn: str
    monitor_machine_arn: str
    change_topic_arn: str
    alarm_topic_arn: str
    dashboard_name: str
    dead_letter_queue_url: str


def read_deployment(cloudformation: Any, *, prefix: str = "slackwater") -> Deployment:
    """Return the outputs of the stacks. Raises `NotDeployed` when a stack or an output is missing, or `CloudError`."""
    values: dict[str, str] = {}
    for stack in STACKS:
        name = f"{prefix}-{stack}"
        outputs = _outputs(cloudformation, name)
        if outputs is None:
            raise NotDeployed(f"there is no stack {name} in this account and region: run slackwater deploy")
        values |= outputs
    try:
        return Deployment.model_validate(values)
    except ValidationError as error:
        missing = ", ".join(sorted(str(fault["loc"][0]) for fault in error.errors()))
        raise NotDeployed(f"the stacks {prefix}-* have no output {missing}: run slackwater deploy") from error


def deployed_project(cloudformation: Any, *, prefix: str = "slackwater") -> str | None:
    """Return the URI of the deployed project, even if other stacks are missing; None when no project is deployed."""
    return (_outputs(cloudformation, f"{prefix}-processing") or {}).get("ProjectUri")


def deployed_storage(cloudformation: Any, *, prefix: str = "slackwater") -> tuple[str, str] | None:
    """Return the raw bucket and the warehouse database, even if other stacks are missing; None without storage."""
    outputs = _outputs(cloudformation, f"{prefix}-storage")
    return (outputs["RawBucket"], outputs["WarehouseDatabase"]) if outputs else None


def bootstrap_version(cloudformation: Any) -> int:
    """Return the version of the CDK bootstrap in this account and region; 0 when there is none."""
    outputs = _outputs(cloudformation, "CDKToolkit") or {}
    return int(outputs.get("BootstrapVersion", 0))


def _outputs(cloudformation: Any, stack: str) -> dict[str, str] | None:
    """Return the outputs of a stack; None when it does not exist or has no resources."""
    with translated(f"describe stack {stack}"):
        try:
            [description] = cloudformation.describe_stacks(StackName=stack)["Stacks"]
        except ClientError as error:
            if code_of(error) == "ValidationError":  # CloudFormation's answer for a stack that does not exist
                return None
            raise
    if description["StackStatus"] in _ABSENT:
        return None
    return {output["OutputKey"]: output["OutputValue"] for output in description.get("Outputs", [])}
