"""What Airflow may do where MWAA runs it."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs import grants
from infra.constructs.common import accept, accept_wildcards, states_arn


class AirflowRole(Construct):
    """The role of one environment: it starts and watches the given state machines, and has what MWAA itself needs.

    The needs are those that MWAA's user guide lists for an execution role whose queue is encrypted by AWS's own key.
    """

    def __init__(
        self, scope: Construct, id_: str, *, environment: str, bucket: s3.IBucket, machines: Iterable[str]
    ) -> None:
        super().__init__(scope, id_)
        self._stack, self._environment = Stack.of(self), environment
        self.role = iam.Role(
            self,
            "Role",
            description="What Airflow may do",
            assumed_by=iam.CompositePrincipal(self._service("airflow"), self._service("airflow-env")),
        )
        for machine in machines:
            self._let_run(machine)
        self._let_read(bucket)
        self._let_log()
        self._let_queue()

    @property
    def _arn(self) -> str:
        return self._stack.format_arn(service="airflow", resource="environment", resource_name=self._environment)

    def _service(self, name: str) -> iam.ServicePrincipal:
        return iam.ServicePrincipal(
            f"{name}.amazonaws.com",
            conditions={
                "StringEquals": {"aws:SourceAccount": self._stack.account},
                "ArnLike": {"aws:SourceArn": self._arn},
            },
        )

    def _let_run(self, machine: str) -> None:
        grants.allow(self.role, ["states:StartExecution"], [states_arn(self.role, "stateMachine", machine)])
        grants.see_executions(self.role, machine)

    def _let_read(self, bucket: s3.IBucket) -> None:
        actions, resources = (
            ["s3:GetObject*", "s3:GetBucket*", "s3:List*"],
            [bucket.bucket_arn, f"{bucket.bucket_arn}/*"],
        )
        grants.allow(self.role, actions, resources, wildcard="The bucket that holds the DAGs, and nothing else.")
        reason = "As MWAA documents it: it reads the DAGs and looks at how their bucket is protected."
        accept(self.role, {f"AwsSolutions-IAM5[Action::{action}]": reason for action in actions})
        anything = "MWAA asks whether the account lets buckets be public; that knows no resources."
        grants.allow(self.role, ["s3:GetAccountPublicAccessBlock"], ["*"], wildcard=anything)

    def _let_log(self) -> None:
        groups = self._stack.format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"airflow-{self._environment}-*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        verbs = ["CreateLogStream", "CreateLogGroup", "PutLogEvents", "GetLogEvents", "GetLogRecord"]
        verbs += ["GetLogGroupFields", "GetQueryResults"]
        actions = [f"logs:{verb}" for verb in verbs]
        grants.allow(self.role, actions, [groups], wildcard="The five log groups of this environment.")
        grants.allow(self.role, ["airflow:PublishMetrics"], [self._arn])
        grants.allow(self.role, ["logs:DescribeLogGroups", "cloudwatch:PutMetricData"], ["*"])

    def _let_queue(self) -> None:
        queues = f"arn:{self._stack.partition}:sqs:{self._stack.region}:*:airflow-celery-*"
        verbs = ["ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl"]
        verbs += ["ReceiveMessage", "SendMessage"]
        where = "MWAA keeps the queue of an environment's tasks in an account of its own."
        grants.allow(self.role, [f"sqs:{verb}" for verb in verbs], [queues], wildcard=where)
        own = self._stack.format_arn(service="kms", resource="key", resource_name="*", region="*")
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey*", "kms:Encrypt"],
                not_resources=[own],
                conditions={"StringLike": {"kms:ViaService": [f"sqs.{self._stack.region}.amazonaws.com"]}},
            )
        )
        reason = "As MWAA documents it: the key of that queue, through the queue only; no key of this account."
        accept(self.role, {"AwsSolutions-IAM5[Action::kms:GenerateDataKey*]": reason})
        accept_wildcards(self.role, [own], reason=reason)
