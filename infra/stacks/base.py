"""What the stacks of a deployment have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from aws_cdk import ArnFormat, Duration, Environment, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.artefacts import Artefacts, write_project
from infra.constructs.arrivals import ARRIVALS
from infra.constructs.library_function import Library, LibraryFunction
from infra.constructs.permissions import grants
from infra.constructs.state_machine import StateMachine
from infra.constructs.state_queue import STATES
from infra.settings import Settings
from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.retries import Machine, with_retries
from slackwater.project.project import Project

UPDATE_RAW_TABLES = "update_raw_tables"
"""The function that lets the Iceberg tables of raw events follow the listing."""
SEND_LINEAGE = "send_lineage"
"""The function that sends events of OpenLineage, with the setting `openlineage`."""
AWAIT_INPUTS = "await_inputs"
"""The function that evaluates what runs wait for."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What every stack of a deployment is built from."""

    settings: Settings
    project: Project
    artefacts: Artefacts
    root: Path
    """The folder of deployed files."""
    env: Environment | None = None
    """Account and region of the stacks; None if they fit every one."""

    @cached_property
    def project_file(self) -> Path:
        """The `project.json` of the project."""
        return write_project(root=self.root, project=self.project)

    def machine(self, name: str) -> Machine:
        """Return the definition `step_functions/<name>.asl.json`, without retries.

        Raises `DefinitionError` when it is missing or is not JSON.
        """
        path = self.root / "step_functions" / f"{name}.asl.json"
        try:
            machine: Machine = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise DefinitionError(f"no state machine at {path}") from error
        except ValueError as error:
            raise DefinitionError(f"{path}: not readable as JSON: {error}") from error
        return machine


class DeploymentStack(Stack):
    """The stack `PREFIX-NAME`. `options` are those of a stack of the CDK."""

    def __init__(self, scope: Construct, name: str, parts: Parts, description: str, **options: Any) -> None:
        full_name, description = parts.settings.named(name), f"Slackwater: {description}"
        super().__init__(scope, full_name, env=parts.env, description=description, **options)
        self.parts, self.settings = parts, parts.settings


class FunctionStack(DeploymentStack):
    """A stack with functions, which have the library's layer, and with state machines."""

    def __init__(self, scope: Construct, name: str, parts: Parts, description: str) -> None:
        super().__init__(scope, name, parts, description)
        layer, lambdas = parts.artefacts.layer, parts.root / "lambdas"
        self.library = Library(self, "Library", settings=parts.settings, artefact=layer, lambdas=lambdas)

    @cached_property
    def project(self) -> assets.Asset:
        """The deployed `project.json`."""
        return assets.Asset(self, "Project", path=str(self.parts.project_file))

    def invoke_every(
        self,
        pause: Duration,
        function: LibraryFunction,
        *,
        description: str,
        is_enabled: bool = True,
        name: str = "",
        event: Mapping[str, object] | None = None,
    ) -> None:
        """Invoke the function after each pause, for the first time after one.

        A second rule of a function has a name and an event of its own.
        """
        # Not a task of the scheduler, which is a setting: files would accumulate without one.
        events.Rule(
            function,
            f"{name.capitalize()}Rule",
            rule_name="-".join(filter(None, (function.function.function_name, name))),
            description=description,
            schedule=events.Schedule.rate(pause),
            targets=[
                targets.LambdaFunction(
                    function.function, event=events.RuleTargetInput.from_object(event) if event else None
                )
            ],
            enabled=is_enabled,
        )

    def function(
        self,
        name: str,
        *,
        sends_arrivals: bool = False,
        sends_states: bool = False,
        updates_raw_tables: bool = False,
        wakes_runs: bool = False,
        stores_verdicts: bool = False,
        sends_lineage: bool = False,
        **options: Any,
    ) -> LibraryFunction:
        """Create a `LibraryFunction`. It may read the project if its environment has `PROJECT_URI`.

        With `sends_arrivals`, it may send messages to the queue of arrivals. With the setting `collect_minutes` 0 it
        gets no queue: days wait for the daily check. With `sends_states`, it may send messages to the queue of states.
        With `updates_raw_tables`, it may invoke the function that lets the Iceberg tables of raw events follow the
        listing. With `wakes_runs`, it may invoke the function that evaluates what runs wait for, if any pipeline waits,
        gives verdicts or has `live.windows`; with `stores_verdicts` in any case, because that function also has
        published days checked.
        With `sends_lineage`, it may invoke the function that sends lineage, if the deployment has a receiver.
        """
        function = LibraryFunction(self.library, name, **options)
        if "PROJECT_URI" in options["environment"]:
            grants.read_asset(function.role, self.project, settings=self.settings)
        if sends_arrivals:
            # By its name: the stacks of most of these functions are deployed before the queue's stack.
            arn = self.format_arn(service="sqs", resource=self.settings.named(ARRIVALS))
            queue = sqs.Queue.from_queue_arn(function, "Arrivals", arn)
            grants.use_queue(function.role, queue, "SendMessage")
            url = queue.queue_url if self.settings.collect_minutes else ""
            function.function.add_environment("ARRIVAL_QUEUE_URL", url)
        if sends_states:
            arn = self.format_arn(service="sqs", resource=self.settings.named(STATES))
            queue = sqs.Queue.from_queue_arn(function, "States", arn)
            grants.use_queue(function.role, queue, "SendMessage")
            function.function.add_environment("STATE_QUEUE_URL", queue.queue_url)
        if updates_raw_tables:
            updater = self._allow_invocation(function, UPDATE_RAW_TABLES)
            function.function.add_environment("RAW_TABLES_FUNCTION", updater)
        if wakes_runs or stores_verdicts:
            pipelines = self.parts.project.pipelines.values()
            is_needed = stores_verdicts or any(map(_needs_wakes, pipelines))
            waker = self._allow_invocation(function, AWAIT_INPUTS) if is_needed else ""
            function.function.add_environment("AWAIT_INPUTS_FUNCTION", waker)
        if sends_lineage and self.settings.openlineage:
            sender = self._allow_invocation(function, SEND_LINEAGE)
            function.function.add_environment("LINEAGE_FUNCTION", sender)
        return function

    def _allow_invocation(self, function: LibraryFunction, other: str) -> str:
        """Let a function invoke another one, whose stack may be deployed later; return the name of that one."""
        name = self.settings.named(other.replace("_", "-"))
        arn = self.format_arn(
            service="lambda", resource="function", resource_name=name, arn_format=ArnFormat.COLON_RESOURCE_NAME
        )
        grants.allow(function.role, ["lambda:InvokeFunction"], [arn])
        return name

    def machine(self, role: iam.Role, name: str, definition: Machine, values: Mapping[str, str]) -> StateMachine:
        """Create a state machine with the retries of its tasks."""
        definition = with_retries(definition)
        # Beside the role: logical ids of deployed machines never change.
        scope = cast("Construct", role.node.scope)
        return StateMachine(
            scope, "Machine", settings=self.settings, name=name, definition=definition, values=values, role=role
        )


def _needs_wakes(pipeline: Pipeline) -> bool:
    return pipeline.waits or bool(pipeline.judged_inputs or (pipeline.live and pipeline.live.windows))
