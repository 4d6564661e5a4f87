"""What starts all work by the clock: Airflow, as Amazon MWAA runs it. It costs money while nothing happens."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from aws_cdk import Environment, Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_mwaa as mwaa
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_s3_deployment as deployment
from constructs import Construct

from infra.constructs import grants
from infra.constructs.airflow_role import AirflowRole
from infra.constructs.common import accept, log_group, outputs, removal, states_arn
from infra.settings import Settings

AIRFLOW = "3.0.6"
_CLASS = "mw1.small"
"""The smallest that runs scheduler and worker apart. `mw1.micro` was never tried with this."""
_DAGS = "dags"
_KINDS = ("sources", "pipelines")
_LOGS = {
    "DAGProcessing": "WARNING",
    "Scheduler": "WARNING",
    "Task": "INFO",
    "WebServer": "WARNING",
    "Worker": "WARNING",
}
"""MWAA's log groups, by their names' endings, and from which level on they are written."""


class ScheduleStack(Stack):
    """An environment with a network and a bucket of its own; all that it may do is to run the given state machines."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        dags: Path,
        project: Path,
        machines: Iterable[str],
        env: Environment | None = None,
    ) -> None:
        super().__init__(scope, id_, env=env, description="Slackwater: the schedule, on Amazon MWAA")
        self._settings, self._name = settings, settings.named("schedule")
        self._logs = Construct(self, "Logs")
        """Made here, so that they forget: MWAA's own log groups would keep all for ever."""
        bucket = self._bucket()
        role = AirflowRole(
            self, "Airflow", environment=self._name, bucket=bucket, machines=[settings.named(name) for name in machines]
        )
        self.airflow = self._environment(bucket, role.role, self._network())
        self.airflow.node.add_dependency(self._files(bucket, dags, project), role, self._logs)
        outputs(self, {"AirflowUrl": self.airflow.attr_webserver_url})

    @property
    def availability_zones(self) -> list[str]:
        """Any two; the CDK would ask the account which it has, and synthesis asks nobody."""
        return [Fn.select(count, Fn.get_azs()) for count in range(2)]

    def _bucket(self) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            "Dags",
            versioned=True,  # MWAA insists
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            removal_policy=removal(self._settings),
        )
        accept(
            bucket, {"AwsSolutions-S1": "It holds what the repository holds; CloudTrail's data events record access."}
        )
        return bucket

    def _files(self, bucket: s3.Bucket, dags: Path, project: Path) -> deployment.BucketDeployment:
        """The DAGs, and the project's YAML beside them, kept as they are here."""
        scope = Construct(self, "Files")
        with tempfile.TemporaryDirectory() as folder:
            _lay_out(Path(folder), dags, project)
            asset = assets.Asset(scope, "Asset", path=folder)
        group = log_group(scope, settings=self._settings, name=f"/aws/lambda/{self._name}-files")
        role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        group.grant_write(role)
        grants.read_asset(role, asset)
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
            role=role.without_policy_updates(),  # by itself the CDK would add rights on all of both buckets
        )
        files.node.add_dependency(role)
        [function] = [child for child in self.node.children if child.node.id.startswith("Custom::CDKBucketDeployment")]
        accept(function, {"AwsSolutions-L1": "The CDK chooses the runtime of its own function."})
        return files

    def _network(self) -> mwaa.CfnEnvironment.NetworkConfigurationProperty:
        """Two private subnets, as MWAA asks; one way out for both, and S3 without it."""
        vpc = ec2.Vpc(
            self,
            "Network",
            ip_addresses=ec2.IpAddresses.cidr("10.0.0.0/22"),
            nat_gateways=1,
            restrict_default_security_group=False,  # it would take a function with rights on all of EC2
            gateway_endpoints={"S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)},
        )
        group = log_group(vpc, settings=self._settings, name=f"/aws/vpc/{self._name}")
        vpc.add_flow_log(
            "Rejected",
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(group),
            traffic_type=ec2.FlowLogTrafficType.REJECT,
        )
        members = ec2.SecurityGroup(self, "Members", vpc=vpc, description="The parts of Airflow among themselves")
        members.add_ingress_rule(members, ec2.Port.all_traffic())
        return mwaa.CfnEnvironment.NetworkConfigurationProperty(
            security_group_ids=[members.security_group_id],
            subnet_ids=[subnet.subnet_id for subnet in vpc.private_subnets],
        )

    def _environment(
        self, bucket: s3.Bucket, role: iam.IRole, network: mwaa.CfnEnvironment.NetworkConfigurationProperty
    ) -> mwaa.CfnEnvironment:
        machines = states_arn(self, "stateMachine", self._settings.named(""))
        return mwaa.CfnEnvironment(
            self,
            "Environment",
            name=self._name,
            airflow_version=AIRFLOW,
            environment_class=_CLASS,
            min_workers=1,
            max_workers=1,  # tasks only wait, and that without a worker
            source_bucket_arn=bucket.bucket_arn,
            dag_s3_path=_DAGS,
            execution_role_arn=role.role_arn,
            network_configuration=network,
            webserver_access_mode="PUBLIC_ONLY",  # by IAM: who may sign in has airflow:CreateWebLoginToken
            airflow_configuration_options={"slackwater.machines": machines},
            logging_configuration=self._logging(),
        )

    def _logging(self) -> mwaa.CfnEnvironment.LoggingConfigurationProperty:
        for name in _LOGS:
            log_group(Construct(self._logs, name), settings=self._settings, name=f"airflow-{self._name}-{name}")
        level = {
            name: mwaa.CfnEnvironment.ModuleLoggingConfigurationProperty(enabled=True, log_level=level)
            for name, level in _LOGS.items()
        }
        return mwaa.CfnEnvironment.LoggingConfigurationProperty(
            dag_processing_logs=level["DAGProcessing"],
            scheduler_logs=level["Scheduler"],
            task_logs=level["Task"],
            webserver_logs=level["WebServer"],
            worker_logs=level["Worker"],
        )


def _lay_out(folder: Path, dags: Path, project: Path) -> None:
    """Copy what Airflow reads: the DAGs, and of the project only its YAML."""
    for source, target in ((dags, folder), *((project / kind, folder / "project" / kind) for kind in _KINDS)):
        target.mkdir(parents=True, exist_ok=True)
        for path in sorted((*source.glob("*.py"), *source.glob("*.yaml"))):
            shutil.copyfile(path, target / path.name)
