"""The parts of a deployed system that a client uses, each connected when it is first used."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.dynamodb.tokens import TokenTable
from slackwater.aws.executions.job_logs import JobLogs
from slackwater.aws.executions.state_machines import StateMachines
from slackwater.aws.objects import S3ObjectStore
from slackwater.client.connection import Connection
from slackwater.client.days.executions import Executions
from slackwater.project.project import Project

if TYPE_CHECKING:
    import httpx

    from slackwater.aws.queue import EventQueues
    from slackwater.aws.warehouse import Warehouse
    from slackwater.client.days.run_log import RunLogReader
    from slackwater.client.days.timeline import TimelineReader
    from slackwater.client.holds import HoldDecisions
    from slackwater.client.push import Pusher
    from slackwater.late.check.checker import Checker
    from slackwater.receiver.pull.rejects_reader import RejectsReader
    from slackwater.runs.inputs.listing import InputListing


class Resources:
    """The library's objects for the resources of one deployment."""

    def __init__(self, connection: Connection, correlation_id: str) -> None:
        self.connection = connection
        self.correlation_id = correlation_id
        """The id of everything that this client does, in the logs and records of the cloud."""

    def close(self) -> None:
        """Close all connections. What runs in the cloud goes on."""
        self.connection.clients.close()
        if "http" in vars(self):
            self.http.close()

    @property
    def project(self) -> Project:
        """The sources and pipelines of the project."""
        return self.connection.project

    @cached_property
    def executions(self) -> Executions:
        """The executions of the deployed state machines."""
        state_machines = StateMachines(self.connection.clients("stepfunctions"))
        return Executions(state_machines=state_machines, correlation_id=self.correlation_id)

    @cached_property
    def store(self) -> S3ObjectStore:
        """The objects in S3."""
        return S3ObjectStore(self.connection.clients("s3"))

    @cached_property
    def run_table(self) -> DynamoRunTable:
        """The run table."""
        return DynamoRunTable(self.connection.clients("dynamodb"), self.connection.deployment.run_table)

    @cached_property
    def file_cache(self) -> DynamoFileCache:
        """The file cache of all pulled sources."""
        return DynamoFileCache(self.connection.clients("dynamodb"), self.connection.deployment.file_table)

    @cached_property
    def tokens(self) -> TokenTable:
        """Partners' bearer tokens."""
        return TokenTable(self.connection.clients("dynamodb"), self.connection.deployment.token_table)

    @cached_property
    def rejects(self) -> RejectsReader:
        """Rejected events."""
        from slackwater.receiver.pull.rejects_reader import RejectsReader

        return RejectsReader(store=self.store, files=self.file_cache, raw_bucket=self.connection.deployment.raw_bucket)

    @cached_property
    def buffer(self) -> EventQueues:
        """The queue of events that wait to be stored, and its dead-letter queue."""
        from slackwater.aws.queue import EventQueues

        deployment = self.connection.deployment
        return EventQueues(
            self.connection.clients("sqs"),
            events=deployment.event_queue_url,
            dead_letters=deployment.event_dead_letter_queue_url,
        )

    @cached_property
    def logs(self) -> JobLogs:
        """Spark jobs and their logs."""
        return JobLogs(
            emr=self.connection.clients("emr-serverless"),
            store=self.store,
            application=self.connection.deployment.application_id,
            prefix=self.connection.deployment.log_prefix,
        )

    @cached_property
    def run_logs(self) -> RunLogReader:
        """Reads the logs of runs."""
        from slackwater.aws.executions.function_logs import FunctionLogs
        from slackwater.client.days.run_log import RunLogReader

        connection = self.connection
        functions = FunctionLogs(logs=connection.clients("logs"), prefix=connection.workspace.prefix)
        return RunLogReader(states=connection.clients("stepfunctions"), functions=functions, jobs=self.logs)

    @cached_property
    def timelines(self) -> TimelineReader:
        """Reads the timelines of runs."""
        from slackwater.client.days.timeline import TimelineReader

        return TimelineReader(state_machines=self.executions.state_machines, jobs=self.logs, store=self.store)

    @cached_property
    def hold_decisions(self) -> HoldDecisions:
        """Releases and rejects days on hold."""
        from slackwater.aws.executions.state_machines import StepFunctionsExecutions
        from slackwater.aws.identity import caller_arn
        from slackwater.client.holds import HoldDecisions

        clients = self.connection.clients
        return HoldDecisions(
            project=self.project,
            table=self.run_table,
            store=self.store,
            inputs=self.inputs,
            executions=StepFunctionsExecutions(clients("stepfunctions")),
            checker=self.checker,
            principal=lambda: caller_arn(clients("sts")),
            now=_now,
        )

    @cached_property
    def inputs(self) -> InputListing:
        """The inputs of days."""
        from slackwater.aws.inputs import input_listing

        deployment = self.connection.deployment
        return input_listing(
            self.project,
            store=self.store,
            table=self.run_table,
            raw_bucket=deployment.raw_bucket,
            file_table=deployment.file_table,
            now=_now,
        )

    @cached_property
    def checker(self) -> Checker:
        """Decides about days with late data."""
        from slackwater.aws.executions.state_machines import StepFunctionsExecutions
        from slackwater.late.check.checker import Checker

        return Checker(
            project=self.project,
            inputs=self.inputs,
            table=self.run_table,
            executions=StepFunctionsExecutions(self.connection.clients("stepfunctions")),
            store=self.store,
            exchange_bucket=self.connection.deployment.exchange_bucket,
            now=_now,
        )

    @cached_property
    def warehouse(self) -> Warehouse:
        """The published tables and the raw partitions."""
        from slackwater.aws.warehouse import open_warehouse

        deployment = self.connection.deployment
        return open_warehouse(
            self.connection.clients, database=deployment.warehouse_database, raw_bucket=deployment.raw_bucket
        )

    @cached_property
    def http(self) -> httpx.Client:
        """The HTTP client of the API."""
        import httpx

        from slackwater.client.sender import TIMEOUT

        return httpx.Client(timeout=TIMEOUT)

    @cached_property
    def pusher(self) -> Pusher:
        """Pushes events to the API."""
        from slackwater.client.push import Pusher
        from slackwater.client.retry_budget import RetryBudget
        from slackwater.client.token_file import TokenFile

        return Pusher(
            http=self.http,
            api=self.connection.deployment.api_url,
            project=self.project,
            tokens=self.tokens,
            token_file=TokenFile(self.connection.workspace.state / "token"),
            correlation_id=self.correlation_id,
            budget=RetryBudget(),
        )


def _now() -> datetime:
    return datetime.now(UTC)
