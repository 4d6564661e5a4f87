"""What is deployed, and where: the outputs of the stacks as one typed record."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_pascal

from slackwater.aws.failures import code_of, translated
from slackwater.errors import NotDeployed

STACKS = ("storage", "receiver", "processing", "late", "monitoring")
"""In the order in which they are deployed; each stack's name is this under the deployment's prefix."""

_ABSENT = {"DELETE_COMPLETE", "REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE", "CREATE_FAILED"}


class Deployment(BaseModel):
    """Names and addresses of everything deployed; each field is the stack output of its name in PascalCase."""

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
    """Address of the deployed `slackwater.project.Project` as JSON."""
    log_prefix: str
    """Address under which Spark jobs leave their logs."""

    compare_machine_arn: str
    monitor_machine_arn: str
    change_topic_arn: str
    alarm_topic_arn: str
    dashboard_name: str
    dead_letter_queue_url: str


def read_deployment(cloudformation: Any, *, prefix: str = "slackwater") -> Deployment:
    """Return what the stacks of that prefix say. Raises `NotDeployed` when one is missing or lacks an output."""
    found: dict[str, str] = {}
    for stack in STACKS:
        name = f"{prefix}-{stack}"
        outputs = _outputs(cloudformation, name)
        if outputs is None:
            raise NotDeployed(f"there is no stack {name} here: slackwater deploy")
        found |= outputs
    try:
        return Deployment.model_validate(found)
    except ValidationError as error:
        missing = ", ".join(sorted(str(fault["loc"][0]) for fault in error.errors()))
        raise NotDeployed(f"the stacks {prefix}-* lack {missing}: slackwater deploy") from error


def deployed_project(cloudformation: Any, *, prefix: str = "slackwater") -> str | None:
    """Return the address of the project that is deployed, whatever else is; None when there is none."""
    return (_outputs(cloudformation, f"{prefix}-processing") or {}).get("ProjectUri")


def bootstrap_version(cloudformation: Any) -> int:
    """Return the version of the account's and region's CDK bootstrap; 0 when there is none."""
    outputs = _outputs(cloudformation, "CDKToolkit") or {}
    return int(outputs.get("BootstrapVersion", 0))


def _outputs(cloudformation: Any, stack: str) -> dict[str, str] | None:
    with translated(f"describe stack {stack}"):
        try:
            [description] = cloudformation.describe_stacks(StackName=stack)["Stacks"]
        except ClientError as error:
            if code_of(error) == "ValidationError":
                return None
            raise
    if description["StackStatus"] in _ABSENT:
        return None
    return {output["OutputKey"]: output["OutputValue"] for output in description.get("Outputs", [])}
