"""What a client is connected to: a project, a cloud, and the parts of the deployed system, each when it is used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from slackwater.aws.clients import Clients
from slackwater.aws.deployment import Deployment, read_deployment, read_project
from slackwater.aws.executions.job_logs import JobLogs
from slackwater.aws.resources import Resources, utc_now
from slackwater.client.days.executions import Executions
from slackwater.client.workspace import Workspace
from slackwater.project.project import Project

if TYPE_CHECKING:
    import httpx

    from slackwater.aws.queue import EventQueues
    from slackwater.client.holds import HoldDecisions
    from slackwater.client.push import Pusher
    from slackwater.client.redrive import DayRedrive
    from slackwater.client.verdicts import Verdicts
    from slackwater.late.check.checker import Checker
    from slackwater.receiver.pull.rejects_reader import RejectsReader


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The project, the deployment, and the clients of AWS's services."""

    workspace: Workspace
    project: Project
    deployment: Deployment
    cloud: str
    """The cloud's name for messages, with account, region, environment and prefix."""
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
    region, account = deployment.pull_machine_arn.split(":")[3:5]
    cloud = workspace.target_name(cloud, account=account, region=region)
    return Connection(workspace=workspace, project=project, deployment=deployment, cloud=cloud, clients=clients)


class ClientResources(Resources):
    """The resources of a client, whose settings are the outputs of the deployed stacks."""

    def __init__(self, connection: Connection, correlation_id: str) -> None:
        super().__init__(connection.deployment, connection.clients)
        self.connection = connection
        self.correlation_id = correlation_id
        """The id of everything that this client does, in the logs and records of the cloud."""
        self.project = connection.project
        """The sources and pipelines of the project."""

    def close(self) -> None:
        """Close all connections. What runs in the cloud goes on."""
        self.clients.close()
        if "http" in vars(self):
            self.http.close()

    @cached_property
    def deployed(self) -> Project:
        """The deployed sources and pipelines, with the digests of their code. Raises `NotDeployed`, `CloudError`."""
        return read_project(self.store, self.connection.deployment.project_uri)

    @cached_property
    def executions(self) -> Executions:
        """The executions of the deployed state machines."""
        return Executions(state_machines=self.state_machines, correlation_id=self.correlation_id)

    @cached_property
    def rejects(self) -> RejectsReader:
        """Rejected events."""
        from slackwater.receiver.pull.rejects_reader import RejectsReader

        return RejectsReader(store=self.store, files=self.file_cache, raw_bucket=self.settings.raw_bucket)

    @cached_property
    def day_redrive(self) -> DayRedrive:
        """Sends rejected events again."""
        from slackwater.client.redrive import DayRedrive

        return DayRedrive(
            rejects=self.rejects,
            clients=self.clients,
            function=self.settings.redrive_events_function,
            correlation_id=self.correlation_id,
        )

    @cached_property
    def buffer(self) -> EventQueues:
        """The queue of events that wait to be stored, and its dead-letter queue."""
        from slackwater.aws.queue import EventQueues

        settings = self.settings
        return EventQueues(
            self.clients("sqs"), events=settings.event_queue_url, dead_letters=settings.event_dead_letter_queue_url
        )

    def table_columns(self, pipeline: str) -> tuple[str, ...]:
        """Return the columns of a pipeline's published table; none before its first day. Raises `CloudError`."""
        from slackwater.aws.glue_tables import GlueTables

        return GlueTables(self.clients).columns(self.settings.warehouse_database, pipeline)

    @cached_property
    def logs(self) -> JobLogs:
        """Spark jobs and their logs."""
        return JobLogs(
            emr=self.clients("emr-serverless"),
            store=self.store,
            application=self.settings.application_id,
            prefix=self.settings.log_prefix,
        )

    @cached_property
    def hold_decisions(self) -> HoldDecisions:
        """Releases days on hold, or keeps their versions."""
        from slackwater.aws.clients import caller_arn
        from slackwater.client.holds import HoldDecisions

        return HoldDecisions(
            project=self.project,
            table=self.run_table,
            store=self.store,
            inputs=self.inputs,
            executions=self.state_machines,
            checker=self.checker,
            principal=lambda: caller_arn(self.clients("sts")),
            now=utc_now,
        )

    @cached_property
    def verdicts(self) -> Verdicts:
        """Stores and lists verdicts about the deployed sources and pipelines."""
        from slackwater.aws.clients import caller_arn
        from slackwater.aws.wake_requests import WakeRequests
        from slackwater.client.verdicts import Verdicts

        wakes = WakeRequests(self.clients, self.settings.await_inputs_function, raises=True)
        return Verdicts(
            project=self.deployed,
            table=self.verdict_table,
            runs=self.run_table,
            store=self.store,
            wake=wakes.wake_verdict,
            principal=lambda: caller_arn(self.clients("sts")),
            now=utc_now,
        )

    @cached_property
    def dry_checker(self) -> Checker:
        """Decides about days as the deployed check does, with the deployed definitions, and writes nothing."""
        from slackwater.late.check.dry_run import without_writes

        return without_writes(Resources(self.settings, self.clients).checker)

    @cached_property
    def http(self) -> httpx.Client:
        """The HTTP client of the API."""
        import httpx

        from slackwater.client.sender import TIMEOUT

        return httpx.Client(timeout=TIMEOUT)

    @cached_property
    def pusher(self) -> Pusher:
        """Pushes events to the API."""
        from slackwater.client.push import Pusher, TokenFile
        from slackwater.client.sender import RetryBudget

        return Pusher(
            http=self.http,
            api=self.settings.api_url,
            project=self.project,
            tokens=self.tokens,
            token_file=TokenFile(self.connection.workspace.state / "token"),
            correlation_id=self.correlation_id,
            budget=RetryBudget(),
        )
