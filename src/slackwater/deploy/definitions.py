"""Deploys changed definitions without the CDK, if no resource changes: on the local cloud, where people wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slackwater.aws.clients import client
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.template_files import replace_file
from slackwater.client.workspace import Workspace
from slackwater.deploy.deploy import OnNote, check_definitions, deploy, latest_settings, only_deployment
from slackwater.pipeline.compile import compile_machine
from slackwater.pipeline.definition import Pipeline
from slackwater.project.installation import pipeline_frame
from slackwater.project.project import Project

# Only the deployed project has these keys, and no resource depends on them (`infra`).
_PIPELINE_KEYS = {"steps", "publish"}
_SOURCE_KEYS = {"description", "timestamp", "fields", "trim", "null_values", "unknown_fields", "enrich"}


def deploy_changes(workspace: Workspace, *, deployed: Project, uri: str, on_note: OnNote) -> None:
    """Deploy the workspace's definitions: only the deployed project, at `uri`, if no resource changes.

    Otherwise the CDK deploys everything, with the settings of the latest `slackwater deploy`. Raises what `deploy`
    raises.
    """
    project = workspace.load_project()
    if changes_resources(project, deployed):
        deploy(workspace, latest_settings(workspace), on_note=on_note)
        return
    content = project.model_copy(update={"code": deployed.code}).model_dump_json(by_alias=True).encode()
    store = S3ObjectStore(client("s3"))
    with only_deployment(workspace, on_note=on_note):
        check_definitions(project, prefix=workspace.prefix, on_note=on_note)
        replace_file(client("cloudformation"), store, prefix=workspace.prefix, uri=uri, content=content)


def changes_resources(project: Project, deployed: Project) -> bool:
    """Return whether a deployment of `project` may change resources, and not only the deployed project."""
    frame = pipeline_frame()
    if _resource_keys(project) != _resource_keys(deployed):
        return True
    for name, pipeline in project.pipelines.items():
        before = deployed.pipelines[name]
        if pipeline != before and (
            compile_machine(pipeline, frame) != compile_machine(before, frame)
            # Roles have permissions on the credentials that steps name.
            or _steps_with_credentials(pipeline) != _steps_with_credentials(before)
            # Functions may wake runs if a pipeline gives verdicts.
            or bool(pipeline.judged_inputs) != bool(before.judged_inputs)
            or not {use.step for use in pipeline.steps.values()} <= deployed.code.steps.keys()
        ):
            return True
    return False


def _resource_keys(project: Project) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the part of each definition that resources may depend on."""
    return (
        {name: item.model_dump(exclude=_PIPELINE_KEYS) for name, item in project.pipelines.items()},
        {name: item.model_dump(exclude=_SOURCE_KEYS) for name, item in project.sources.items()},
    )


def _steps_with_credentials(pipeline: Pipeline) -> dict[str, str]:
    steps = {name: use.model_dump_json() for name, use in pipeline.steps.items()}
    return {name: step for name, step in steps.items() if "credentials" in step}
