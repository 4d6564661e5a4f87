"""A state machine from its definition, with exactly the permissions that its definition needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct

from infra.constructs import grants
from infra.constructs.common import accept, log_group, removal, states_arn
from infra.constructs.library_function import LibraryFunction
from infra.constructs.spark_application import SparkApplication
from infra.machines import Machine, fillings
from infra.settings import Settings

_EXECUTION_RULE = "StepFunctionsGetEventsForStepFunctionsExecutionRule"
"""The rule by which Step Functions hears of the end of executions that another one has started; likewise its own."""
_JOB_RULE = "StepFunctionsGetEventsForEMRServerlessJobRule"
"""The rule by which Step Functions hears of the end of EMR Serverless jobs; it makes it itself, under this name."""


class StateMachine(Construct):
    """A Standard workflow that logs its failures, and may call the functions given."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        name: str,
        definition: Machine,
        values: Mapping[str, str],
        functions: Sequence[LibraryFunction],
    ) -> None:
        super().__init__(scope, id_)
        self._name = settings.named(name)
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("states.amazonaws.com"))
        self.machine = stepfunctions.StateMachine(
            self,
            "Machine",
            state_machine_name=self._name,
            definition_body=stepfunctions.DefinitionBody.from_string(json.dumps(definition)),
            definition_substitutions=fillings(definition, values, name=name),
            role=self.role,
            removal_policy=removal(settings),
            logs=stepfunctions.LogOptions(
                destination=log_group(self, settings=settings, name=f"/aws/vendedlogs/states/{self._name}"),
                level=stepfunctions.LogLevel.ALL,
                include_execution_data=True,
            ),
        )
        self.arn = states_arn(self, "stateMachine", self._name)
        grants.allow(self.role, ["lambda:InvokeFunction"], [function.function.function_arn for function in functions])
        accept(
            self.machine,
            {"AwsSolutions-SF2": "A correlation id goes through all logs; X-Ray would ask for rights on everything."},
        )
        accept(
            self.role,
            {"AwsSolutions-IAM5[Resource::*]": "CloudWatch's log delivery knows no resources."},
        )

    def let_run(self, application: SparkApplication, role: iam.IRole) -> None:
        """Grant what `startJobRun.sync` needs: start, watch and cancel jobs of one application as that role."""
        home = Stack.of(application)
        # Of another stack by an export, whose name a finding can tell.
        arn = application.arn if home.node.path == Stack.of(self).node.path else home.export_value(application.arn)
        grants.allow(self.role, ["emr-serverless:StartJobRun"], [arn])
        grants.allow(
            self.role,
            ["emr-serverless:GetJobRun", "emr-serverless:CancelJobRun", "emr-serverless:TagResource"],
            [f"{arn}/jobruns/*"],
            wildcard="Job runs of this one application; their ids are made when they start.",
        )
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[role.role_arn],
                conditions={"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}},
            )
        )
        self._let_hear(_JOB_RULE)

    def let_start(self, machines: str, *, wildcard: str = "") -> None:
        """Grant what `startExecution.sync:2` needs, for the state machines whose names match `machines`."""
        started = states_arn(self, "stateMachine", machines)
        grants.allow(self.role, ["states:StartExecution"], [started], wildcard=wildcard)
        grants.allow(
            self.role,
            ["states:DescribeExecution", "states:StopExecution"],
            [states_arn(self, "execution", f"{machines}:*")],
            wildcard="Executions are named when they start.",
        )
        self._let_hear(_EXECUTION_RULE)

    def _let_hear(self, rule: str) -> None:
        arn = Stack.of(self).format_arn(service="events", resource="rule", resource_name=rule)
        grants.allow(self.role, ["events:PutRule", "events:PutTargets", "events:DescribeRule"], [arn])
