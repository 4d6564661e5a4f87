"""What a deletion of a project needs: credentials for the account of cdk.json, and no running Spark application."""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.aws.clients import client
from slackwater.aws.deletion import StackResource
from slackwater.aws.failures import translated
from slackwater.aws.spark_application import SparkApplications
from slackwater.client.workspace import Workspace
from slackwater.project.environments import check_target

_APPLICATION = "AWS::EMRServerless::Application"


def stop_applications(resources: Iterable[StackResource]) -> None:
    """Stop the Spark applications among resources that a deletion does not keep. Raises `CloudError`."""
    applications = SparkApplications(cloudformation=client("cloudformation"), emr=client("emr-serverless"))
    for resource in resources:
        if resource.type == _APPLICATION and not resource.kept:
            applications.stop(resource.name)


def check_credentials(workspace: Workspace) -> None:
    """Check that the credentials are for the account and the region that cdk.json has, if it has them.

    Raises `DefinitionError`, and `CloudError` if AWS does not answer.
    """
    if not (workspace.account or workspace.region):
        return
    sts = client("sts")
    with translated("get the account id"):
        account = sts.get_caller_identity()["Account"]
    actual = {"account": account, "region": sts.meta.region_name}
    check_target(account=workspace.account, region=workspace.region, credentials=actual)
