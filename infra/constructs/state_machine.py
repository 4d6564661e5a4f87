"""A state machine with exactly the permissions that its definition needs."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from aws_cdk import Stack, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct

from infra.constructs.common import accept, log_group, states_arn
from infra.constructs.library_function import LibraryFunction
from infra.constructs.permissions import grants
from infra.constructs.permissions.roles import Grantee, InlineRole
from infra.constructs.spark_application import SparkApplication
from infra.settings import Settings
from slackwater.errors import DefinitionError
from slackwater.pipeline.retries import Machine

# Characters. Step Functions allows no more in a name (`CreateStateMachine` in its API reference).
_MAX_NAME = 80
# Step Functions creates these EventBridge rules itself, to get notified when a `.sync` task has ended.
_EXECUTION_RULE = "StepFunctionsGetEventsForStepFunctionsExecutionRule"
_JOB_RULE = "StepFunctionsGetEventsForEMRServerlessJobRule"
# `${name}`, also with a name that is not valid, so that a mistyped placeholder is reported and not deployed.
_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


def machine_role(
    scope: Construct,
    id_: str,
    *,
    functions: Sequence[LibraryFunction] = (),
    policies: Sequence[iam.IManagedPolicy] = (),
) -> InlineRole:
    """Create the role of a state machine, in a construct of its own. It may call the given functions."""
    role = InlineRole(
        Construct(scope, id_),
        "Role",
        assumed_by=iam.ServicePrincipal("states.amazonaws.com"),
        description="Permissions of a state machine",
    )
    if functions:
        allow_functions(role, functions)
    for policy in policies:
        role.add_managed_policy(policy)
    accept(role, {"AwsSolutions-IAM5[Resource::*]": "CloudWatch's log delivery has no resource-level permissions."})
    return role


def pass_role(role: iam.Role, job_role: iam.IRole) -> None:
    """Let a state machine's `role` start jobs with that job role."""
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["iam:PassRole"],
            resources=[job_role.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}},
        )
    )


def allow_executions(role: Grantee, machines: str) -> None:
    """Grant what `startExecution.sync:2` needs, for the state machines whose full names match `machines`."""
    arn = states_arn(role, "stateMachine", machines)
    grants.allow(role, ["states:StartExecution"], [arn], wildcard="One machine for each pipeline.")
    grants.allow(
        role,
        ["states:DescribeExecution", "states:StopExecution"],
        [states_arn(role, "execution", f"{machines}:*")],
        wildcard="Executions are named when they start.",
    )
    _allow_event_rule(role, _EXECUTION_RULE)


def allow_answers(role: Grantee, machines: str) -> None:
    """Let `role` end states that wait for a token, of the state machines whose full names match `machines`."""
    arn = states_arn(role, "stateMachine", machines)
    actions = ["states:SendTaskSuccess", "states:SendTaskFailure"]
    grants.allow(role, actions, [arn], wildcard="One machine for each pipeline.")


def allow_functions(role: Grantee, functions: Sequence[LibraryFunction]) -> None:
    """Let a state machine's `role` call these functions."""
    grants.allow(role, ["lambda:InvokeFunction"], [function.arn for function in functions])


def allow_jobs(role: Grantee, application: SparkApplication) -> None:
    """Let a state machine's `role` start, poll and cancel jobs of one application."""
    arn = _application_arn(role, application)
    # A job run is started with tags. AWS documents that this needs TagResource, but not on which of the two.
    grants.allow(role, ["emr-serverless:StartJobRun", "emr-serverless:TagResource"], [arn])
    grants.allow(
        role,
        ["emr-serverless:GetJobRun", "emr-serverless:CancelJobRun", "emr-serverless:TagResource"],
        [f"{arn}/jobruns/*"],
        wildcard="Job runs of this one application; their ids are assigned when they start.",
    )
    _allow_event_rule(role, _JOB_RULE)


def allow_job_reads(role: Grantee, application: SparkApplication) -> None:
    """Let `role` read job runs of one application."""
    grants.allow(
        role,
        ["emr-serverless:GetJobRun"],
        [f"{_application_arn(role, application)}/jobruns/*"],
        wildcard="Job runs of this one application; their ids are assigned when they start.",
    )


def _application_arn(role: Grantee, application: SparkApplication) -> str:
    """Return the ARN for use in the role's stack."""
    application_stack = Stack.of(application)
    # An exported ARN of another stack has a fixed name, which the accepted cdk-nag finding can state.
    same_stack = application_stack.node.path == Stack.of(role).node.path
    return application.arn if same_stack else application_stack.export_value(application.arn)


def _allow_event_rule(role: Grantee, rule: str) -> None:
    arn = Stack.of(role).format_arn(service="events", resource="rule", resource_name=rule)
    grants.allow(role, ["events:PutRule", "events:PutTargets", "events:DescribeRule"], [arn])


def fill_placeholders(machine: Machine, values: Mapping[str, str], *, name: str) -> tuple[str, dict[str, str]]:
    """Return the definition as JSON, and the substitutions that CloudFormation has to make in it.

    A value that is known now replaces its `${placeholder}`, and may contain other placeholders. A value that only
    CloudFormation knows, such as an ARN, becomes a substitution. Raises `DefinitionError` for a placeholder that has no
    value.
    """
    definition = json.dumps(machine)
    for key, value in values.items():
        if not Token.is_unresolved(value):
            # A placeholder stands inside of a JSON string: the value is escaped, but has no quotes of its own.
            definition = definition.replace(f"${{{key}}}", json.dumps(value)[1:-1])
    placeholders = sorted(set(_PLACEHOLDER.findall(definition)))
    missing = [key for key in placeholders if key not in values]
    if missing:
        raise DefinitionError(
            f"state machine {name}: no value for {', '.join(f'${{{key}}}' for key in missing)} "
            f"(known: {', '.join(sorted(values))})"
        )
    return definition, {key: values[key] for key in placeholders}


class StateMachine(Construct):
    """A Standard workflow that logs its events."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        name: str,
        definition: Machine,
        values: Mapping[str, str],
        role: iam.Role,
    ) -> None:
        """Raises `DefinitionError` for a name that is too long, and for a placeholder that has no value."""
        super().__init__(scope, id_)
        full_name = settings.named(name)
        if len(full_name) > _MAX_NAME:
            raise DefinitionError(
                f"the state machine {full_name} would have a name of {len(full_name)} characters, and Step Functions "
                f"allows {_MAX_NAME}: shorten the name of the pipeline, or the setting prefix"
            )
        definition_json, substitutions = fill_placeholders(definition, values, name=name)
        logs = stepfunctions.LogOptions(
            destination=log_group(self, settings=settings, name=f"/aws/vendedlogs/states/{full_name}"),
            level=stepfunctions.LogLevel.ALL,
            include_execution_data=True,
        )
        # A file in S3: a template may have 1 MB, and the definitions of 100 pipelines are as large.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{name}.asl.json")
            path.write_text(definition_json, encoding="utf-8")
            self.machine = stepfunctions.StateMachine(
                self,
                "Machine",
                state_machine_name=full_name,
                definition_body=stepfunctions.DefinitionBody.from_file(str(path)),
                definition_substitutions=substitutions,
                role=role,
                logs=logs,
            )
        # Built from the name, so that policies and other stacks can use it without an export.
        self.arn = states_arn(self, "stateMachine", full_name)
        accept(
            self.machine,
            {"AwsSolutions-SF2": "All logs carry a correlation id; X-Ray would need permissions on all resources."},
        )
