"""The execution role of the MWAA environment."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.common import accept, accept_wildcards, states_arn
from infra.constructs.permissions import grants


class AirflowRole(Construct):
    """The role of one environment: it may start and describe executions of the given state machines.

    Its other permissions are those that MWAA's user guide lists for an execution role whose queue is encrypted with an
    AWS owned key.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        environment: str,
        bucket: s3.IBucket,
        machines: Iterable[str],
        monitor: str | None,
    ) -> None:
        """Grant it. `monitor` is the monitoring state machine, whose histories show the late days; None if unused."""
        super().__init__(scope, id_)
        stack = Stack.of(self)
        arn = stack.format_arn(service="airflow", resource="environment", resource_name=environment)
        # The conditions keep MWAA from using the role for an environment of somebody else.
        conditions = {"StringEquals": {"aws:SourceAccount": stack.account}, "ArnLike": {"aws:SourceArn": arn}}
        services = ("airflow.amazonaws.com", "airflow-env.amazonaws.com")
        principals = [iam.ServicePrincipal(service, conditions=conditions) for service in services]
        self.role = iam.Role(
            self, "Role", description="Permissions of Airflow", assumed_by=iam.CompositePrincipal(*principals)
        )
        for machine in machines:
            grants.allow(self.role, ["states:StartExecution"], [states_arn(self.role, "stateMachine", machine)])
            grants.describe_executions(self.role, machine)
        if monitor:
            grants.read_histories(self.role, monitor)
        self._allow_bucket(bucket)
        self._allow_logs_and_queue(stack, environment, arn)

    def _allow_bucket(self, bucket: s3.IBucket) -> None:
        """Grant what MWAA needs to read the DAG files."""
        actions = ["s3:GetObject*", "s3:GetBucket*", "s3:List*"]
        resources = [bucket.bucket_arn, f"{bucket.bucket_arn}/*"]
        grants.allow(self.role, actions, resources, wildcard="The bucket that holds only the DAG files.")
        reason = "MWAA documents it: it reads the DAG files and checks how their bucket is protected."
        accept(self.role, {f"AwsSolutions-IAM5[Action::{action}]": reason for action in actions})
        reason = "MWAA checks whether the account allows public buckets; the action has no resources."
        grants.allow(self.role, ["s3:GetAccountPublicAccessBlock"], ["*"], wildcard=reason)

    def _allow_logs_and_queue(self, stack: Stack, environment: str, arn: str) -> None:
        """Grant what every environment needs: its logs and metrics, and the queue between scheduler and workers."""
        groups = stack.format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"airflow-{environment}-*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        verbs = ["CreateLogStream", "CreateLogGroup", "PutLogEvents", "GetLogEvents", "GetLogRecord"]
        verbs += ["GetLogGroupFields", "GetQueryResults"]
        actions = [f"logs:{verb}" for verb in verbs]
        grants.allow(self.role, actions, [groups], wildcard="The five log groups of this environment.")
        grants.allow(self.role, ["airflow:PublishMetrics"], [arn])
        grants.allow(self.role, ["logs:DescribeLogGroups", "cloudwatch:PutMetricData"], ["*"])
        queues = f"arn:{stack.partition}:sqs:{stack.region}:*:airflow-celery-*"
        verbs = ["ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl"]
        verbs += ["ReceiveMessage", "SendMessage"]
        reason = "MWAA keeps the task queue of an environment in an account of its own."
        grants.allow(self.role, [f"sqs:{verb}" for verb in verbs], [queues], wildcard=reason)
        # The key's ARN is not known, because it belongs to AWS. The policy excludes this account's keys instead.
        account_keys = stack.format_arn(service="kms", resource="key", resource_name="*", region="*")
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey*", "kms:Encrypt"],
                not_resources=[account_keys],
                conditions={"StringLike": {"kms:ViaService": [f"sqs.{stack.region}.amazonaws.com"]}},
            )
        )
        reason = "MWAA documents it: the key of that queue, through the queue only; no key of this account."
        accept(self.role, {"AwsSolutions-IAM5[Action::kms:GenerateDataKey*]": reason})
        accept_wildcards(self.role, [account_keys], reason=reason)
