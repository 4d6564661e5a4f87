"""What a client is connected to: a project, a cloud, and the resources that are deployed there."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.aws.clients import Clients
from slackwater.aws.deployment import Deployment, read_deployment
from slackwater.client.workspace import Workspace
from slackwater.project.project import Project


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The project, the deployment, and the clients of AWS's services."""

    workspace: Workspace
    project: Project
    deployment: Deployment
    cloud: str
    """The cloud's name for messages."""
    clients: Clients


def connect(workspace: Workspace, project: Project | None = None) -> Connection:
    """Connect to the cloud and read which resources are deployed there.

    `project` is the workspace's project; by default it is loaded here. Raises `NotDeployed`, `DefinitionError` for the
    project, and `InputError` for a configuration of AWS that cannot be used.
    """
    project = project or workspace.load_definitions()
    # Before any client is created: boto3 reads the endpoint, which this sets, from the environment.
    cloud = workspace.connect_cloud()
    clients = Clients()
    try:
        deployment = read_deployment(clients("cloudformation"), prefix=workspace.prefix)
    except BaseException:
        clients.close()
        raise
    return Connection(workspace=workspace, project=project, deployment=deployment, cloud=cloud, clients=clients)
