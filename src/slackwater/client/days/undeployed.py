"""Run a pipeline that is not deployed: its state machine exists for one run."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

from slackwater import __version__
from slackwater.aws.deployment import Deployment, read_project
from slackwater.aws.executions.temporary_state_machines import definition_of, started, temporary_machine
from slackwater.client.days.executions import Executions
from slackwater.errors import DefinitionError, NotDeployed
from slackwater.pipeline.compile import compile_machine
from slackwater.pipeline.definition import Pipeline
from slackwater.project.installation import pipeline_frame
from slackwater.project.project import Project
from slackwater.runs.record import UNDEPLOYED_PROJECTS
from slackwater.storage import ObjectStore

# Characters of a state machine's name that Step Functions allows.
_MAX_NAME = 80


@contextmanager
def undeployed_run(
    pipeline: Pipeline,
    date: str,
    payload: Mapping[str, Any],
    *,
    project: Project,
    deployment: Deployment,
    store: ObjectStore,
    executions: Executions,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[str]:
    """Start a run of `date` on what is deployed, and yield its execution's ARN.

    `project` has the definitions of the user's project, with the sources that the pipeline was checked with. At the end
    of the `with` statement, the execution is stopped if it still runs, and its state machine is deleted. A pipeline
    that is deployed with the same definition runs in its own state machine.

    Raises `NotDeployed` if the sources or tables that it reads are not deployed as they are defined, if one of its
    steps is not deployed, or if another version of the library is; `DefinitionError` if another definition is
    deployed under the pipeline's name.
    """
    if deployment.library_version != __version__:
        raise NotDeployed(
            f"version {deployment.library_version} of slackwater is deployed, and this is {__version__}: "
            "run slackwater deploy"
        )
    deployed, name = read_project(store, deployment.project_uri), pipeline.pipeline
    project = _with(pipeline, deployed, project)
    # Names of deployed pipelines begin with it, and the functions have permissions on such names.
    prefix = deployment.pipeline_machine_prefix
    with ExitStack() as stack:
        if name not in deployed.pipelines:
            content = project.model_dump_json(by_alias=True).encode()
            uri = f"s3://{deployment.exchange_bucket}/{UNDEPLOYED_PROJECTS}{hashlib.sha256(content).hexdigest()}.json"
            store.put(uri, content)
            end = f"-{uuid4().hex[:8]}"
            machine = stack.enter_context(
                temporary_machine(
                    executions.state_machines,
                    f"{prefix.rpartition(':')[2]}{name}"[: _MAX_NAME - len(end)] + end,
                    definition=definition_of(
                        # A person's run; and nothing knows the pipeline that could let it go on.
                        compile_machine(pipeline, pipeline_frame(), waits=False),
                        deployment,
                        ProjectUri=uri,
                    ),
                    role=deployment.any_pipeline_role_arn,
                )
            )
        elif deployed.definition_digest(name) == project.definition_digest(name):
            machine = f"{prefix}{name}"
        else:
            raise DefinitionError(
                f"the pipeline {name} is deployed with another definition, whose days a run of this file would "
                "replace: give the pipeline in the file another name, or deploy it (slackwater deploy)"
            )
        start = partial(executions.start, machine, name=date, payload=payload)
        yield stack.enter_context(started(executions.state_machines, start, sleep=sleep))


def _with(pipeline: Pipeline, deployed: Project, project: Project) -> Project:
    """Return the deployed project with the pipeline. Raises `NotDeployed` if an input or a step is not deployed."""
    for source in pipeline.sources:
        if source not in deployed.sources or deployed.source_shape(source) != project.source_shape(source):
            raise NotDeployed(f"the source {source} is not deployed as it is defined: run slackwater deploy")
    for table in pipeline.published_tables.values():
        if table.table not in deployed.pipelines:
            raise NotDeployed(f"the pipeline {table.table}, whose table this one reads, is not deployed")
    # The role of the jobs has the permissions on what deployed pipelines read.
    readable = {item for other in deployed.pipelines.values() for item in other.foreign_tables.values()}
    for name, foreign in pipeline.foreign_tables.items():
        if foreign not in readable:
            raise NotDeployed(
                f"tables.{name}: no deployed pipeline reads {foreign.iceberg} in {foreign.location}, and the "
                "permissions on it come with a deployment: deploy a pipeline that reads it (slackwater deploy)"
            )
    for section, uses in (("steps", pipeline.steps), ("load", pipeline.load)):
        for place, use in uses.items():
            if use.step not in deployed.code.steps:
                raise NotDeployed(
                    f"{section}.{place}.step: the step {use.step} is not deployed: add its package to the setting "
                    "step_packages, and run slackwater deploy"
                )
    return deployed.model_copy(update={"pipelines": {**deployed.pipelines, pipeline.pipeline: pipeline}})
