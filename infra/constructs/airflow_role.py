"""The execution role of the MWAA environment."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs import grants
from infra.constructs.common import accept, accept_wildcards, states_arn


class AirflowRole(Construct):
    """The role of one environment: it may start and describe executions of the given state machines.

    Its other permissions are those that MWAA's user guide lists for an execution role whose queue is encrypted with an
    AWS owned key.
    """

    def __init__(
        self, scope: Construct, id_: str, *, environment: str, bucket: s3.IBucket, machines: Iterable[str]
    ) -> None:
        super().__init__(scope, id_)
        self._stack, self._environment = Stack.of(self), environment
        self._arn = self._stack.format_arn(service="airflow", resource="environment", resource_name=environment)
        self.role = iam.Role(
            self,
            "Role",
            description="Permissions of Airflow",
            assumed_by=iam.CompositePrincipal(self._service("airflow"), self._service("airflow-env")),
        )
        for machine in machines:
            grants.allow(self.role, ["states:StartExecution"], [states_arn(self.role, "stateMachine", machine)])
            grants.describe_executions(self.role, machine)
        self._allow_dag_files(bucket)
        self._allow_logs()
        self._allow_queue()

    def _service(self, name: str) -> iam.ServicePrincipal:
        return iam.ServicePrincipal(
            f"{name}.amazonaws.com",
            conditions={
                "StringEquals": {"aws:SourceAccount": self._stack.account},
                "ArnLike": {"aws:SourceArn": self._arn},
            },
        )

    def _allow_dag_files(self, bucket: s3.IBucket) -> None:
        actions, resources = (
            ["s3:GetObject*", "s3:GetBucket*", "s3:List*"],
            [bucket.bucket_arn, f"{bucket.bucket_arn}/*"],
        )
        grants.allow(self.role, actions, resources, wildcard="The bucket that holds only the DAG files.")
        reason = "MWAA documents it: it reads the DAG files and checks how their bucket is protected."
        accept(self.role, {f"AwsSolutions-IAM5[Action::{action}]": reason for action in actions})
        reason = "MWAA checks whether the account allows public buckets; the action has no resources."
        grants.allow(self.role, ["s3:GetAccountPublicAccessBlock"], ["*"], wildcard=reason)

    def _allow_logs(self) -> None:
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

    def _allow_queue(self) -> None:
        queues = f"arn:{self._stack.partition}:sqs:{self._stack.region}:*:airflow-celery-*"
        verbs = ["ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl"]
        verbs += ["ReceiveMessage", "SendMessage"]
        reason = "MWAA keeps the task queue of an environment in an account of its own."
        grants.allow(self.role, [f"sqs:{verb}" for verb in verbs], [queues], wildcard=reason)
        account_keys = self._stack.format_arn(service="kms", resource="key", resource_name="*", region="*")
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey*", "kms:Encrypt"],
                not_resources=[account_keys],
                conditions={"StringLike": {"kms:ViaService": [f"sqs.{self._stack.region}.amazonaws.com"]}},
            )
        )
        reason = "MWAA documents it: the key of that queue, through the queue only; no key of this account."
        accept(self.role, {"AwsSolutions-IAM5[Action::kms:GenerateDataKey*]": reason})
        accept_wildcards(self.role, [account_keys], reason=reason)
