"""The scheduler: Airflow on Amazon MWAA. It costs money whether or not it has work."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from aws_cdk import ArnFormat, Fn, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_mwaa as mwaa
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_s3_deployment as deployment
from constructs import Construct

from infra.constructs.common import accept, accept_wildcards, log_group, outputs, states_arn
from infra.constructs.permissions import grants
from infra.stacks.base import DeploymentStack, Parts
from slackwater.project.schedule import PULL_MACHINE, ProjectSchedule, schedule_json, schedule_of

AIRFLOW = "3.0.6"
SCHEDULE_FILE = "schedule.json"
# The classes by the number of DAGs that each has the capacity for ("Configuring the Amazon MWAA environment class" in
# its user guide). `mw1.micro`, which runs scheduler and worker together, was not tested.
_CLASSES = {50: "mw1.small", 250: "mw1.medium"}
_LARGEST_CLASS = "mw1.large"  # 1,000 DAGs: more than any deployment has
_DAGS = "dags"
# Name suffixes of MWAA's log groups, with the property of each. Of tasks, lines of the level `INFO` are kept too.
_LOGS = {
    "DAGProcessing": "dagProcessingLogs",
    "Scheduler": "schedulerLogs",
    "Task": "taskLogs",
    "WebServer": "webserverLogs",
    "Worker": "workerLogs",
}


class ScheduleStack(DeploymentStack):
    """An Airflow environment with its own network and bucket. It may start the project's scheduled state machines."""

    def __init__(self, scope: Construct, parts: Parts) -> None:
        """Deploy the DAG files and the project's schedule beside them."""
        settings = parts.settings
        protected = settings.termination_protection
        super().__init__(scope, "schedule", parts, "the schedule, on Amazon MWAA", termination_protection=protected)
        self._name = settings.named("schedule")
        # Created before MWAA creates them, because log groups that MWAA creates never expire.
        self._logs = Construct(self, "Logs")
        bucket = s3.Bucket(
            self,
            "Dags",
            versioned=True,  # MWAA requires it
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            # Never deleted: it contains files even when the environment could not be created, and then a stack that
            # tried to delete it could neither be rolled back nor deployed again.
            removal_policy=RemovalPolicy.RETAIN,
        )
        accept(
            bucket, {"AwsSolutions-S1": "It holds files of the repository only; CloudTrail's data events log access."}
        )
        schedule = schedule_of(parts.project)
        role = self._role(bucket, schedule)
        self.airflow = self._environment(bucket, role, self._network(), dag_count=len(schedule.tasks))
        # Its routes, NAT gateway and rules exist before the environment is created and until it is deleted.
        network = [self.node.find_child(name) for name in ("Network", "Members")]
        self.airflow.node.add_dependency(self._files(bucket), role, self._logs, *network)
        outputs(self, {"AirflowUrl": self.airflow.attr_webserver_url})

    @property
    def availability_zones(self) -> list[str]:
        """Return the two zones of the setting, or any two. The CDK would look them up in the account."""
        return list(self.settings.airflow_zones) or [Fn.select(count, Fn.get_azs()) for count in range(2)]

    def _files(self, bucket: s3.Bucket) -> deployment.BucketDeployment:
        """Copy the DAG files and `schedule.json` to the bucket on every deployment."""
        scope, dags = Construct(self, "Files"), self.parts.root / "mwaa_dags"
        with tempfile.TemporaryDirectory() as folder:
            for path in (*dags.glob("*.py"), dags / ".airflowignore"):
                shutil.copyfile(path, Path(folder, path.name))
            Path(folder, SCHEDULE_FILE).write_text(schedule_json(self.parts.project), encoding="utf-8")
            asset = assets.Asset(scope, "Asset", path=folder)
        group = log_group(scope, settings=self.settings, name=f"/aws/lambda/{self._name}-files")
        role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        group.grant_write(role)
        grants.read_asset(role, asset, settings=self.settings)
        grants.list_objects(role, bucket, f"{_DAGS}/")
        grants.write_objects(role, bucket, f"{_DAGS}/")
        grants.delete_objects(role, bucket, f"{_DAGS}/")
        files = deployment.BucketDeployment(
            scope,
            "Deployment",
            sources=[deployment.Source.bucket(asset.bucket, asset.s3_object_key)],
            destination_bucket=bucket,
            destination_key_prefix=_DAGS,
            log_group=group,
            role=role.without_policy_updates(),  # the CDK would add permissions on both whole buckets
        )
        files.node.add_dependency(role)
        # The CDK creates one function for all deployments of files, as a child of the stack with a generated id.
        [function] = [child for child in self.node.children if child.node.id.startswith("Custom::CDKBucketDeployment")]
        accept(function, {"AwsSolutions-L1": "The CDK chooses the runtime of its own function."})
        return files

    def _network(self) -> dict[str, list[str]]:
        """Create the two private subnets that MWAA requires, one NAT gateway for both, and an S3 endpoint."""
        vpc = ec2.Vpc(
            self,
            "Network",
            ip_addresses=ec2.IpAddresses.cidr("10.0.0.0/22"),
            nat_gateways=1,
            restrict_default_security_group=False,  # that needs a function with permissions on all of EC2
            gateway_endpoints={"S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)},
        )
        group = log_group(vpc, settings=self.settings, name=f"/aws/vpc/{self._name}")
        vpc.add_flow_log(
            "Rejected",
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(group),
            traffic_type=ec2.FlowLogTrafficType.REJECT,
        )
        members = ec2.SecurityGroup(self, "Members", vpc=vpc, description="Traffic between the components of Airflow")
        members.add_ingress_rule(members, ec2.Port.all_traffic())
        subnets = [subnet.subnet_id for subnet in vpc.private_subnets]
        return {"securityGroupIds": [members.security_group_id], "subnetIds": subnets}

    def _role(self, bucket: s3.Bucket, schedule: ProjectSchedule) -> iam.Role:
        """Create the role of the environment: it may start, follow and stop executions of the scheduled state machines.

        Its other permissions are those that MWAA's user guide lists for an execution role whose queue is encrypted with
        an AWS owned key.
        """
        arn = self.format_arn(service="airflow", resource="environment", resource_name=self._name)
        # The conditions keep MWAA from using the role for an environment of somebody else.
        conditions = {"StringEquals": {"aws:SourceAccount": self.account}, "ArnLike": {"aws:SourceArn": arn}}
        services = ("airflow.amazonaws.com", "airflow-env.amazonaws.com")
        principals = [iam.ServicePrincipal(service, conditions=conditions) for service in services]
        role = iam.Role(
            Construct(self, "Airflow"),
            "Role",
            description="Permissions of Airflow",
            assumed_by=iam.CompositePrincipal(*principals),
        )
        for name in sorted(schedule.state_machines):
            machine = self.settings.named(name)
            grants.allow(role, ["states:StartExecution"], [states_arn(self, "stateMachine", machine)])
            grants.describe_executions(role, machine)
            grants.stop_executions(role, machine)
            if name != PULL_MACHINE:  # histories show stages and late days
                grants.read_histories(role, machine)
        self._allow_bucket(role, bucket)
        self._allow_logs_and_queue(role, arn)
        return role

    def _allow_bucket(self, role: iam.Role, bucket: s3.Bucket) -> None:
        """Grant what MWAA needs to read the DAG files."""
        actions = ["s3:GetObject*", "s3:GetBucket*", "s3:List*"]
        resources = [bucket.bucket_arn, f"{bucket.bucket_arn}/*"]
        grants.allow(role, actions, resources, wildcard="The bucket that holds only the DAG files.")
        reason = "MWAA documents it: it reads the DAG files and checks how their bucket is protected."
        accept(role, {f"AwsSolutions-IAM5[Action::{action}]": reason for action in actions})
        reason = "MWAA checks whether the account allows public buckets; the action has no resources."
        grants.allow(role, ["s3:GetAccountPublicAccessBlock"], ["*"], wildcard=reason)

    def _allow_logs_and_queue(self, role: iam.Role, arn: str) -> None:
        """Grant what every environment needs: its logs and metrics, and the queue between scheduler and workers."""
        groups = self.format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"airflow-{self._name}-*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        verbs = ["CreateLogStream", "CreateLogGroup", "PutLogEvents", "GetLogEvents", "GetLogRecord"]
        verbs += ["GetLogGroupFields", "GetQueryResults"]
        actions = [f"logs:{verb}" for verb in verbs]
        grants.allow(role, actions, [groups], wildcard="The five log groups of this environment.")
        grants.allow(role, ["airflow:PublishMetrics"], [arn])
        grants.allow(role, ["logs:DescribeLogGroups", "cloudwatch:PutMetricData"], ["*"])
        queues = f"arn:{self.partition}:sqs:{self.region}:*:airflow-celery-*"
        verbs = ["ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl"]
        verbs += ["ReceiveMessage", "SendMessage"]
        reason = "MWAA keeps the task queue of an environment in an account of its own."
        grants.allow(role, [f"sqs:{verb}" for verb in verbs], [queues], wildcard=reason)
        # The key's ARN is not known, because it belongs to AWS. The policy excludes this account's keys instead.
        account_keys = self.format_arn(service="kms", resource="key", resource_name="*", region="*")
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey*", "kms:Encrypt"],
                not_resources=[account_keys],
                conditions={"StringLike": {"kms:ViaService": [f"sqs.{self.region}.amazonaws.com"]}},
            )
        )
        reason = "MWAA documents it: the key of that queue, through the queue only; no key of this account."
        accept(role, {"AwsSolutions-IAM5[Action::kms:GenerateDataKey*]": reason})
        accept_wildcards(role, [account_keys], reason=reason)

    def _environment(
        self, bucket: s3.Bucket, role: iam.IRole, network: dict[str, list[str]], *, dag_count: int
    ) -> mwaa.CfnEnvironment:
        prefix = states_arn(self, "stateMachine", self.settings.named(""))
        # MWAA writes to log groups with exactly these names.
        for name in _LOGS:
            log_group(Construct(self._logs, name), settings=self.settings, name=f"airflow-{self._name}-{name}")
        return mwaa.CfnEnvironment(
            self,
            "Environment",
            name=self._name,
            airflow_version=AIRFLOW,
            environment_class=next((name for most, name in _CLASSES.items() if dag_count <= most), _LARGEST_CLASS),
            min_workers=1,
            max_workers=1,  # a task that waits occupies no worker
            source_bucket_arn=bucket.bucket_arn,
            dag_s3_path=_DAGS,
            execution_role_arn=role.role_arn,
            network_configuration=network,
            webserver_access_mode="PUBLIC_ONLY",  # sign-in needs the IAM action airflow:CreateWebLoginToken
            airflow_configuration_options={"slackwater.state_machine_prefix": prefix},
            logging_configuration={
                key: {"enabled": True, "logLevel": "INFO" if name == "Task" else "WARNING"}
                for name, key in _LOGS.items()
            },
        )
